"""The transient pieces of a model turn, as a parser or a native driver yields them.

A call's `index` is its position among all calls of the turn, from 0. A parser that accepts a call leniently adds notes:

- on a call: `arguments_key:<key>` (another word than the dialect's for the arguments),
  `arguments_text` (the arguments as a JSON string that holds the object), `arguments_null` (null in their place),
  `only_tool` (a counter where the tool's name belongs, and the turn has one tool),
  `extra_key:<key>` (ignored), `attributes` (ignored attributes of an element), `missing_closer`
  (its own end tag; in XML), `missing_opener` (of what follows its name), `repaired` (from text
  that was no JSON; only on demand, see `dialects.with_repair`),
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
from toolspeak.data.values import evolve, value

DIALECT_NOTE = "dialect:"
LEAK_NOTE = "leaked"


def other_dialects(notes: Iterable[str]) -> list[str]:
    """The dialects of a batch besides the model's own, in order of appearance."""
    return [note.removeprefix(DIALECT_NOTE) for note in notes if note.startswith(DIALECT_NOTE)]


@value()
class TextDelta:
    """A piece of the model's text.

    - `text`: what comes after the pieces before it.
    """

    text: str


@value()
class TextAside:
    """Text after calls, where the model's dialect has no place for text. It is not part of the answer.

    - `text`: a piece, as in `TextDelta`.
    """

    text: str


@value()
class ReasoningDelta:
    """A piece of the model's reasoning.

    - `text`: a piece, as in `TextDelta`.
    """

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
    """Ends a part of text or reasoning.

    If no delta of that kind came since the last part, the part is empty (reasoning that the API does not show).

    - `part`: what ends.
    - `opaque`: what the provider gets back with the part, such as a signature.
    """

    part: Literal["text", "reasoning"]
    opaque: Opaque | None = None


@value()
class CallStarted:
    """A call's name is known.

    - `index`: the call's position among all calls of the turn, from 0.
    - `name`: the tool's name, as the model wrote it.
    - `id`: the model's own id, if it has one and it comes before the arguments.
    - `call_id`: the call's id in the records of the run. None from a parser: only the deltas of a run have it.
    """

    index: int
    name: str
    id: str | None = None
    call_id: str | None = None


@value()
class ArgumentsDelta:
    """A fragment of a call's arguments.

    - `index`: the call's, as in its `CallStarted`.
    - `text`: JSON text. The fragments of a completed call join to one JSON object.
    """

    index: int
    text: str


@value()
class CallCompleted:
    """A call was read to its end. Only `BatchEnded` tells whether it counts.

    - `index`: the call's, as in its `CallStarted`.
    - `name`: the tool's name.
    - `arguments`: the whole arguments. They are not validated yet.
    - `id`: the model's own id, if it has one.
    - `notes`: what the parser accepted although the dialect has it otherwise.
    - `repaired_from`: the malformed text of the model, if repair made the call of it.
    - `opaque`: what the provider gets back with the call, such as a signature.
    - `call_id`: the call's id in the records of the run. None from a parser.
    """

    index: int
    name: str
    arguments: Mapping[str, JSON]
    id: str | None = None
    notes: tuple[str, ...] = ()
    repaired_from: str | None = None
    opaque: Opaque | None = None
    call_id: str | None = None


@value()
class CallMalformed:
    """Text that was meant as a call and cannot be read as one. Nothing of it may run.

    - `index`: the call's position among all calls of the turn, from 0.
    - `raw`: the text.
    - `code`: the kind of fault, for programs.
    - `reason`: the fault in words, for the model.
    - `offset`: the character of the turn at which the fault is, from 0.
    - `name`: the tool's name, if it can be read.
    - `whole_block`: the block around it cannot be read to its end, so every call of that block is ignored.
    - `call_id`: the call's id in the records of the run. None from a parser.
    """

    index: int
    raw: str
    code: str
    reason: str
    offset: int
    name: str | None = None
    whole_block: bool = False
    call_id: str | None = None


@value()
class CallIgnored:
    """A call that was read, and does not count.

    - `index`: the call's, as in its `CallStarted`.
    - `reason`: why it does not count, in words.
    """

    index: int
    reason: str


@value()
class BatchEnded:
    """The calls of the turn are over.

    - `selected`: the indices of the calls that count, in order: these may run.
    - `ok`: nothing in the batch was malformed.
    - `notes`: what the parser accepted although the dialect has it otherwise.
    """

    selected: tuple[int, ...]
    ok: bool
    notes: tuple[str, ...] = ()


@value()
class ForgedResults:
    """A block of results that the model wrote itself. It is reported, and never used.

    - `raw`: the block's text.
    """

    raw: str


@value()
class TurnEnded:
    """The turn is over. A run does not show it: its record is `ModelAnswered`.

    - `finish`: why the model stopped, as its API gave it.
    - `usage`: the tokens of the turn.
    - `model`: the model's name as its API gave it.
    - `response_id`: the id under which a server stores the turn.
    - `limit`: the most tokens that the request allowed, if it said so.
    """

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
        return evolve(self, finish="length")


@value()
class HostedCallStarted:
    """A call that the server of the answer runs itself, such as one of an API's own tools.

    - `index`: counts such calls of one answer, from 0.
    - `kind`: the tool's type in OpenAI Responses.
    - `server`: the MCP server's label.
    - `name`: the tool's name there.
    - `arguments`: the whole arguments.
    """

    index: int
    kind: Literal["mcp", "web_search"]
    server: str
    name: str
    arguments: Mapping[str, JSON]


@value()
class HostedCallEnded:
    """The end of a call that the server of the answer runs itself.

    - `index`: that of its `HostedCallStarted`.
    - `text`: its result, or why it failed.
    - `failed`: whether it failed.
    """

    index: int
    text: str
    failed: bool = False


@value()
class ToolProgress:
    """A line that a running tool reports (`RunContext.progress`).

    - `call_id`: the call's id in the records of the run.
    - `message`: the line.
    """

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
