"""Messages, their parts, calls and results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias, cast, final

from toolspeak.data.values import JSON, no_extra, value

Role = Literal["system", "user", "assistant", "tool"]

FinishReason = Literal[
    "stop", "length", "tool_calls", "content_filter", "refusal", "pause", "closed_by_us", "cancelled", "error"
]
"""Why a model turn ended. `length`: cut by the token limit. `closed_by_us`: we stopped reading after the batch."""

NORMAL_END: frozenset[FinishReason] = frozenset({"stop", "tool_calls"})
"""The reasons after which the model has said all it wanted to say."""

ResultStatus = Literal["success", "failure"]

FailureCode = Literal[
    "unknown_tool",
    "invalid_arguments",
    "malformed",
    "rejected",
    "blocked",
    "skipped",
    "timeout",
    "cancelled",
    "exception",
    "unserialisable",  # in older journals: what a tool returns is no failure
    "unknown_outcome",
]
"""Why a call failed, for programs; the model reads the content."""


def as_mapping(value: JSON) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty mapping."""
    # `dict` comes first: the test for Mapping takes longer than most of the code after it, and so does `|`.
    return cast("Mapping[str, Any]", value) if isinstance(value, (dict, Mapping)) else {}


def as_list(value: JSON) -> list[Any]:
    """The value if it is a JSON array, else an empty list."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else []


@value()
class Opaque:
    """Provider data that travels with a part, such as a reasoning signature.

    It is sent back verbatim to the provider and model that it came from, and ignored elsewhere.
    """

    provider: str
    model: str
    data: JSON


def opaque_fields(opaque: Opaque | None, provider: str, model: str | None = None) -> Mapping[str, JSON]:
    """The opaque data of a part, if they are an object of this API, and of `model` unless it is None; else empty."""
    if opaque is None or opaque.provider != provider or model not in (None, opaque.model):
        return {}
    return as_mapping(opaque.data)


@value()
class TextPart:
    text: str
    opaque: Opaque | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ReasoningPart:
    """The model's reasoning. It is stored, and the model reads it again only if its API asks for it."""

    text: str
    opaque: Opaque | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class JsonPart:
    value: JSON
    opaque: Opaque | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class ImagePart:
    """An image by its bytes or by its URL; exactly one of `data` and `url` is set."""

    media_type: str
    data: bytes | None = None
    url: str | None = None
    opaque: Opaque | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@value()
class FilePart:
    """Bytes with a name, for content that is not text, JSON or an image."""

    name: str
    media_type: str
    data: bytes
    opaque: Opaque | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


ContentPart: TypeAlias = TextPart | JsonPart | ImagePart | FilePart


@final
@value()
class ToolCall:
    """One call of a model.

    - `id`: unique within the run.
    - `provider_id`: the id from the model or its API, if it gave one.
    - `notes`: what was accepted leniently when the call was read (see `data.deltas`).
    - `repaired_from`: the model's text, if that was malformed and the call is its repair.
    """

    id: str
    name: str
    arguments: Mapping[str, JSON]
    provider_id: str | None = None
    notes: tuple[str, ...] = ()
    opaque: Opaque | None = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)
    repaired_from: str | None = None


@final
@value()
class MalformedCall:
    """What the model meant as a call and cannot be read. It holds its position in the batch.

    - `raw`: the text as the model wrote it.
    - `reason`: tells the model what to write instead.
    - `whole_block`: the block could not be read at all, so nothing in it ran.
    """

    id: str
    raw: str
    code: str
    reason: str
    name: str | None = None
    whole_block: bool = False
    extra: Mapping[str, JSON] = field(default_factory=no_extra)


@final
@value()
class ToolResult:
    """The result of one call. `structured` holds the tool's value if it is richer than `content`."""

    call_id: str
    name: str
    status: ResultStatus
    content: tuple[ContentPart, ...]
    code: FailureCode | None = None
    structured: JSON = None
    extra: Mapping[str, JSON] = field(default_factory=no_extra)

    @property
    def text(self) -> str:
        """The content as text: the text parts joined, JSON as JSON text on lines of its own. Of a failure, its
        message."""
        result_text, after_json = "", False
        for part in self.content:
            is_json = isinstance(part, JsonPart)
            if is_json or isinstance(part, TextPart):
                text = json.dumps(part.value, ensure_ascii=False) if isinstance(part, JsonPart) else part.text
                result_text += "\n" + text if result_text and (is_json or after_json) else text
                after_json = is_json
        return result_text


FAILURE_PREFIX = "ERROR: "
"""Begins the text of a failure, in dialects and APIs that have no field for one."""


def failure(call: ToolCall | MalformedCall, code: FailureCode, message: str) -> ToolResult:
    """The result of a call that failed, with a message the model can act on."""
    return ToolResult(call.id, call.name or "", "failure", (TextPart(message),), code)


Part: TypeAlias = TextPart | ReasoningPart | JsonPart | ImagePart | FilePart | ToolCall | MalformedCall | ToolResult


_CALLS = (ToolCall, MalformedCall)


@value()
class Message:
    """A role and its parts, in the order they were written."""

    role: Role
    parts: tuple[Part, ...]
    extra: Mapping[str, JSON] = field(default_factory=no_extra)

    @classmethod
    def system(cls, text: str) -> Message:
        return cls("system", (TextPart(text),))

    @classmethod
    def user(cls, text: str) -> Message:
        return cls("user", (TextPart(text),))

    @classmethod
    def assistant(cls, text: str) -> Message:
        return cls("assistant", (TextPart(text),))

    @property
    def text(self) -> str:
        """The text parts joined; reasoning, calls and results are left out."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def calls(self) -> tuple[ToolCall | MalformedCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, _CALLS)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


def characters(parts: Sequence[Part]) -> int:
    """The number of characters of a message's parts as text, for estimates of its tokens."""
    count = 0
    for part in parts:
        if type(part) is TextPart:
            count += len(part.text)
        elif type(part) is ToolResult:
            count += characters(part.content)
        elif type(part) is JsonPart:
            count += len(str(part.value))
        elif type(part) is ToolCall:
            count += len(part.name) + len(str(part.arguments))
        elif type(part) is MalformedCall:
            count += len(part.raw)
    return count


def tokens_of(message: Message) -> int:
    """An estimate: four characters a token, the usual rule of thumb for English text and code."""
    return characters(message.parts) // 4


@value()
class TextMessage:
    """A message for a model API without calls: a dialect has turned calls and results into text.

    `name` is the name of the speaker, which some chat templates write instead of the role; an API without it omits it.
    """

    role: Role
    text: str
    name: str = ""


@value()
class Usage:
    """The tokens of one or more turns. None is *unknown*: the provider gave no count, or we closed the stream.

    - `cached`: the part of `input` that was read from a cache.
    - `cache_write`: the part of `input` that was written to a cache, where that has a price of its own.
    - `reasoning`: the part of `output` that is reasoning.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    cache_write: int | None = None

    @property
    def total(self) -> int | None:
        return None if self.input is None or self.output is None else self.input + self.output

    @classmethod
    def of_one_turn(cls, requests: Iterable[Usage]) -> Usage:
        """Returns the usage of the requests of one turn; unknown as a whole if the input or output of one of them is.

        A sum that is too low would count, but an unknown one is estimated.
        """
        whole = cls()
        for usage in requests:
            if usage.total is None:
                return cls()
            whole = whole.plus(usage)
        return whole

    def plus(self, more: Usage) -> Usage:
        """Returns the sum. What one of them does not know adds nothing to the other, as `cached`, which many APIs omit.
        Estimate turns of unknown tokens before.
        """
        return Usage(
            self.input if more.input is None else (self.input or 0) + more.input,
            self.output if more.output is None else (self.output or 0) + more.output,
            self.cached if more.cached is None else (self.cached or 0) + more.cached,
            self.reasoning if more.reasoning is None else (self.reasoning or 0) + more.reasoning,
            self.cache_write if more.cache_write is None else (self.cache_write or 0) + more.cache_write,
        )

    def since(self, earlier: Usage) -> Usage:
        """Returns what was added since an earlier count of the same turns."""
        return Usage(
            _difference(self.input, earlier.input),
            _difference(self.output, earlier.output),
            _difference(self.cached, earlier.cached),
            _difference(self.reasoning, earlier.reasoning),
            _difference(self.cache_write, earlier.cache_write),
        )


def _difference(count: int | None, earlier: int | None) -> int | None:
    return count if earlier is None else (count or 0) - earlier


@value()
class ToolChoice:
    """What the model must do with its tools.

    - `name`: the tool, with `specific` only.
    - `every_step`: `required` and `specific` hold for every step; otherwise for a run's first, so that runs end.
    """

    mode: Literal["auto", "required", "none", "specific"] = "auto"
    name: str | None = None
    every_step: bool = False

    @classmethod
    def of(cls, choice: str, *, every_step: bool = False) -> ToolChoice:
        """`auto`, `required`, `none`, or a tool's name."""
        if choice == "auto" and not every_step:
            return _AUTO
        for mode in ("auto", "required", "none"):
            if choice == mode:
                return cls(mode, every_step=every_step)
        return cls("specific", choice, every_step)


_AUTO = ToolChoice()
