"""The transient pieces of a model turn, as a parser or a native driver yields them.

A call is known by its `index`: its position among all calls of the turn, from 0. The notes a parser
gives when it accepted something leniently:

- on a call: `arguments_key:<key>` (another word than the dialect's for the arguments),
  `arguments_text` (the arguments as a JSON string that holds the object), `arguments_null` (null in their place),
  `only_tool` (a counter where the tool's name belongs, and the turn has one tool),
  `extra_key:<key>` (ignored), `attributes` (ignored attributes of an element), `missing_closer`
  (its own end tag; in XML), `missing_opener` (of what stands behind its name), `repaired` (from text
  that was no JSON; only on demand, see `dialects.repaired`),
  `leaked` (the server, which has native calls, left it in the text);
- on a batch: `code_fence`, `marker_attributes`, `marker_case`, `marker_twice` (the start marker, or more often),
  `single_object` (no array around it), `array` (an array where one object belongs),
  `missing_closer` (the end marker), `leaked` (calls of it were),
  `dialect:<name>` (what `auto` found, if it is not the model's own).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from toolspeak.data.messages import JSON, NORMAL_END, FinishReason, Opaque, Usage
from toolspeak.data.values import changed, value

DIALECT_NOTE = "dialect:"
LEAKED = "leaked"


def other_dialects(notes: Iterable[str]) -> list[str]:
    """The dialects that a batch was written in besides the model's own, in the order they came."""
    return [note.removeprefix(DIALECT_NOTE) for note in notes if note.startswith(DIALECT_NOTE)]


@value()
class TextDelta:
    text: str


@value()
class TextAside:
    """Text that is none of the answer: it stands behind calls, where the model's dialect has no place for any."""

    text: str


@value()
class ReasoningDelta:
    text: str


@value()
class TextWasReasoning:
    """All text of the turn so far was reasoning: its end marker came, though its beginning did not, since the prompt
    had written that. Whoever has shown the text cannot take it back; it is none of the answer."""


@value()
class PartEnded:
    """The text or reasoning streamed last is a part of its own, which goes back to its provider with `opaque`.

    If nothing of that kind was streamed since the part before, the part is empty (reasoning that the API keeps to
    itself).
    """

    part: Literal["text", "reasoning"]
    opaque: Opaque | None = None


@value()
class CallStarted:
    """A call's name is known. `id` is the model's own, if the dialect has ids and it came before the arguments."""

    index: int
    name: str
    id: str | None = None


@value()
class ArgumentsDelta:
    """A fragment of the arguments as JSON text; the fragments of a completed call join to one JSON object."""

    index: int
    text: str


@value()
class CallCompleted:
    """A call was read to its end. That it counts is only known at `BatchEnded`.

    `repaired_from`: the text as the model wrote it, if that was malformed and the call is what repair made of it.
    """

    index: int
    name: str
    arguments: Mapping[str, JSON]
    id: str | None = None
    notes: tuple[str, ...] = ()
    repaired_from: str | None = None
    opaque: Opaque | None = None


@value()
class CallMalformed:
    """Text that was meant as a call and is none; nothing of it may run.

    `offset` is the character of the turn at which it went wrong. `whole_block`: the block around it could
    not be read to its end, so every call of that block is ignored.
    """

    index: int
    raw: str
    code: str
    reason: str
    offset: int
    name: str | None = None
    whole_block: bool = False


@value()
class CallIgnored:
    """A call that was read and does not count."""

    index: int
    reason: str


@value()
class BatchEnded:
    """The calls that count, in order: this is what may run. `ok`: nothing in the batch was malformed."""

    selected: tuple[int, ...]
    ok: bool
    notes: tuple[str, ...] = ()


@value()
class ForgedResults:
    """A block of results that the model wrote itself; reported, never believed."""

    raw: str


@value()
class TurnEnded:
    """The turn is over. `model` is the model's name as its API gave it, `response_id` the id under which a server
    keeps the turn, `limit` the most tokens that were asked for, if any were."""

    finish: FinishReason
    usage: Usage = Usage()
    model: str | None = None
    response_id: str | None = None
    limit: int | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the end of what was said may be missing: the finish reason says so, or the usage has reached the
        limit, for servers say `stop` and `tool_calls` there, too."""
        if self.limit is None or self.finish == "length":
            return self.finish == "length"
        return self.usage.output is not None and self.usage.output >= self.limit and self.finish in NORMAL_END

    @property
    def read_as(self) -> FinishReason:
        """The finish reason by which a parser reads the turn's text."""
        return "length" if self.is_cut else self.finish

    def behind(self, last: Iterable[Delta]) -> TurnEnded:
        """The end behind what a parser made of the turn's last text: `length` where it cut a call."""
        if self.limit is None or self.finish == "length" or not self.is_cut:
            return self
        if not any(type(delta) is CallMalformed for delta in last):
            return self
        return changed(self, finish="length")


@value()
class HostedCallStarted:
    """A call that the server of the answer runs itself, as an API's own tools do.

    `kind` is the tool's type in OpenAI Responses, `server` the MCP server's label, `name` the tool's name there.
    `index` counts such calls of one answer.
    """

    index: int
    kind: Literal["mcp", "web_search"]
    server: str
    name: str
    arguments: Mapping[str, JSON]


@value()
class HostedCallEnded:
    """`text` is the call's result, or why it failed."""

    index: int
    text: str
    failed: bool = False


@value()
class ToolProgress:
    """A line a running tool reports to whoever watches."""

    call_id: str
    message: str


Delta: TypeAlias = (
    TextDelta
    | TextAside
    | ReasoningDelta
    | TextWasReasoning
    | PartEnded
    | CallStarted
    | ArgumentsDelta
    | CallCompleted
    | CallMalformed
    | CallIgnored
    | BatchEnded
    | ForgedResults
    | TurnEnded
    | HostedCallStarted
    | HostedCallEnded
    | ToolProgress
)
