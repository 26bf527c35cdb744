"""Whether a run gets anywhere: steps that repeat themselves, and steps of failures alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from toolspeak.data.events import Limits
from toolspeak.data.messages import (
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.data.values import same_json, value
from toolspeak.execute import ANSWERED_FROM

_Calls: TypeAlias = Sequence[ToolCall | MalformedCall]
_Results: TypeAlias = Sequence[ToolResult]

_REPEATED = (
    "Your last calls were the same as before, with the same results: making them again will change nothing. "
    "Do something else, or answer with what you have."
)
_FAILED = (
    "Every call of your last {steps} steps failed. Read what the errors say and do something else, or answer and say "
    "what keeps you from going on."
)


@value()
class Progress:
    """`last` are the calls and results of the last two steps, `repeats` how many steps in a row were the same as one or
    two steps before, `failures` in how many in a row every call failed."""

    last: tuple[tuple[_Calls, _Results], ...] = ()
    repeats: int = 0
    failures: int = 0

    def after(self, calls: _Calls, results: _Results, limits: Limits, *, polled: bool) -> Progress:
        """With one more step. A step that polled repeats nothing: asking again was the point. Where repeats are not
        limited, steps are not compared."""
        failures = self.failures + 1
        for result in results:
            if result.status != "failure":
                failures = 0
                break
        if polled or limits.repeats is None:
            return Progress((), 0, failures)
        repeats = 0
        for earlier in self.last:
            if _same_step(earlier, calls, results):
                repeats = self.repeats + 1
                break
        return Progress((*self.last[-1:], (calls, results)), repeats, failures)

    def advice(self, limits: Limits) -> str:
        """What the model is told half-way to the end of the run; "" otherwise."""
        if limits.repeats is not None and self.repeats == max(1, limits.repeats // 2):
            return _REPEATED
        if limits.failures is not None and self.failures == max(1, limits.failures // 2):
            return _FAILED.format(steps=self.failures)
        return ""


def _same_step(earlier: tuple[_Calls, _Results], calls: _Calls, results: _Results) -> bool:
    """Whether the same was asked, with the same outcome; ids and what providers attach do not count."""
    if len(earlier[0]) != len(calls):
        return False
    for call, other in zip(calls, earlier[0], strict=True):
        if isinstance(call, ToolCall):
            if not isinstance(other, ToolCall) or call.name != other.name:
                return False
            if not same_json(call.arguments, other.arguments):
                return False
        elif not isinstance(other, MalformedCall) or call.raw != other.raw:
            return False
    for result, other in zip(results, earlier[1], strict=True):
        if result.status != other.status or result.code != other.code:
            return False
        content, before = _brought(result), _brought(other)
        if len(content) != len(before) or not all(map(_same_part, content, before)):
            return False
    return True


def _brought(result: ToolResult) -> Sequence[ContentPart]:
    """A result that was answered from memory has a note in front of what the call brought the first time."""
    return result.content[1:] if ANSWERED_FROM in result.extra else result.content


def _same_part(part: ContentPart, other: ContentPart) -> bool:
    if isinstance(part, TextPart):
        return isinstance(other, TextPart) and part.text == other.text
    if isinstance(part, JsonPart):
        return isinstance(other, JsonPart) and same_json(part.value, other.value)
    if isinstance(part, ImagePart):
        return isinstance(other, ImagePart) and (part.data, part.url) == (other.data, other.url)
    return isinstance(other, FilePart) and part.data == other.data
