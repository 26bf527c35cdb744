"""Whether a run gets anywhere: steps that repeat themselves, and steps of failures alone. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from toolspeak.data.events import Limits
from toolspeak.data.messages import FilePart, ImagePart, JsonPart, MalformedCall, TextPart, ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.execute import ANSWERED_FROM

_SORTED = json.JSONEncoder(sort_keys=True)
_REPEATED = (
    "Your last calls were the same as before, with the same results: making them again will change nothing. "
    "Do something else, or answer with what you have."
)
_FAILED = (
    "Every call of your last {steps} steps failed. Read what the errors say and do something else, or answer and say "
    "what keeps you from going on."
)


@quick
@dataclass(frozen=True, slots=True)
class Progress:
    """`last` are the digests of the last two steps (calls and results), `repeats` how many steps in a row were the
    same as one or two steps before, `failures` in how many in a row every call failed."""

    last: tuple[str, ...] = ()
    repeats: int = 0
    failures: int = 0

    def after(
        self, calls: Sequence[ToolCall | MalformedCall], results: Sequence[ToolResult], *, polled: bool
    ) -> Progress:
        """With one more step. A step that polled repeats nothing: asking again was the point."""
        failures = self.failures + 1 if all(result.status == "failure" for result in results) else 0
        if polled:
            return Progress((), 0, failures)
        digest = _digest(calls, results)
        return Progress((*self.last, digest)[-2:], self.repeats + 1 if digest in self.last else 0, failures)

    def advice(self, limits: Limits) -> str:
        """What the model is told half-way to the end of the run; "" otherwise."""
        if limits.repeats is not None and self.repeats == max(1, limits.repeats // 2):
            return _REPEATED
        if limits.failures is not None and self.failures == max(1, limits.failures // 2):
            return _FAILED.format(steps=self.failures)
        return ""


def _digest(calls: Sequence[ToolCall | MalformedCall], results: Sequence[ToolResult]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for call, result in zip(calls, results, strict=True):
        asked = [call.name, call.arguments] if isinstance(call, ToolCall) else [call.raw]
        # A result that was answered from memory has a note in front of what the call brought the first time.
        content = result.content[1:] if ANSWERED_FROM in result.extra else result.content
        found.update(_SORTED.encode([asked, result.status, result.code]).encode())
        for part in content:
            match part:
                case TextPart(text):
                    found.update(text.encode("utf-8", "surrogatepass"))
                case JsonPart(value):
                    found.update(_SORTED.encode(value).encode())
                case ImagePart(_, data, url):
                    found.update(data or str(url).encode("utf-8", "surrogatepass"))
                case FilePart(_, _, data):
                    found.update(data)
            found.update(b"\0")
    return found.hexdigest()
