"""The transient pieces of a model turn, as a parser or a native driver yields them.

A call's `index` is its position among all calls of the turn, from 0. A parser that accepts a call leniently adds notes:

- on a call: `arguments_key:<key>` (another word than the dialect's for the arguments),
  `arguments_text` (the arguments as a JSON string that holds the object), `arguments_null` (null in their place),
  `only_tool` (a counter where the tool's name belongs, and the turn has one tool),
  `extra_key:<key>` (ignored), `attributes` (ignored attributes of an element), `missing_closer`
  (its own end tag; in XML), `missing_opener` (of what follows its name), `repaired` (from text
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
    """The dialects of a batch besides the model's own, in order of appearance."""
    return [note.removeprefix(DIALECT_NOTE) for note in notes if note.startswith(DIALECT_NOTE)]


@value()
class TextDelta:
    text: str


@value()
class TextAside:
    """Text after calls, where the model's dialect has no place for text. It is not part of the answer."""

    text: str


@value()
class ReasoningDelta:
    text: str


@value()
class TextWasReasoning:
    """All text of the turn so far was reasoning: the end marker came, and the prompt had written the start marker. A
    front that has shown the text cannot take it back. The text is not part of the answer."""


@value()
class TurnRestarted:
    """The turn is asked for once more, by an interceptor: what came of it so far does not count. Only whoever watches a
    run gets it."""


@value()
class PartEnded:
    """Ends a part of text or reasoning, which goes back to its provider with `opaque`.

    If no delta of that kind came since the last part, the part is empty (reasoning that the API does not show).
    """

    part: Literal["text", "reasoning"]
    opaque: Opaque | None = None


@value()
class CallStarted:
    """A call's name is known. `id`: the model's id, if the dialect has ids and it comes before the arguments."""

    index: int
    name: str
    id: str | None = None


@value()
class ArgumentsDelta:
    """A fragment of the arguments as JSON text. The fragments of a completed call join to one JSON object."""

    index: int
    text: str


@value()
class CallCompleted:
    """A call was read to its end. Only `BatchEnded` tells whether it counts.

    `repaired_from`: the malformed text of the model, if repair made the call of it.
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
    """Text that was meant as a call and cannot be read as one. Nothing of it may run.

    `offset`: the character of the turn at which the fault is.
    `whole_block`: the block around it cannot be read to its end, so every call of that block is ignored.
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
    """A call that was read, and does not count."""

    index: int
    reason: str


@value()
class BatchEnded:
    """The calls that count, in order: these may run. `ok`: nothing in the batch was malformed."""

    selected: tuple[int, ...]
    ok: bool
    notes: tuple[str, ...] = ()


@value()
class ForgedResults:
    """A block of results that the model wrote itself. It is reported, and never used."""

    raw: str


@value()
class TurnEnded:
    """The turn is over.

    `model`: the model's name as its API gave it.
    `response_id`: the id under which a server stores the turn.
    `limit`: the most tokens that the request allowed, if it said so."""

    finish: FinishReason
    usage: Usage = Usage()
    model: str | None = None
    response_id: str | None = None
    limit: int | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the end of the turn may be missing: the finish reason says so, or the usage has reached the limit.
        Servers say `stop` and `tool_calls` there too."""
        if self.limit is None or self.finish == "length":
            return self.finish == "length"
        return self.usage.output is not None and self.usage.output >= self.limit and self.finish in NORMAL_END

    @property
    def read_as(self) -> FinishReason:
        """The finish reason by which a parser reads the turn's text."""
        return "length" if self.is_cut else self.finish

    def after(self, last: Iterable[Delta]) -> TurnEnded:
        """This end after the last deltas of a parser: its reason is `length` if they hold a call that was cut off."""
        if self.limit is None or self.finish == "length" or not self.is_cut:
            return self
        if not any(type(delta) is CallMalformed for delta in last):
            return self
        return changed(self, finish="length")


@value()
class HostedCallStarted:
    """A call that the server of the answer runs itself, such as one of an API's own tools.

    `index`: counts such calls of one answer.
    `kind`: the tool's type in OpenAI Responses.
    `server`: the MCP server's label.
    `name`: the tool's name there.
    """

    index: int
    kind: Literal["mcp", "web_search"]
    server: str
    name: str
    arguments: Mapping[str, JSON]


@value()
class HostedCallEnded:
    """The end of such a call. `text`: its result, or why it failed."""

    index: int
    text: str
    failed: bool = False


@value()
class ToolProgress:
    """A line that a running tool reports to observers."""

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
