"""The contract of all wire formats: the request, both roles, and the events of a stream. Sans-IO.

A wire format is one API's JSON. In the client role it encodes a `ModelRequest` and decodes answers into deltas; in
the server role it decodes requests and encodes deltas. The two are each other's inverse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Literal, Protocol, TypeAlias

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON, Message, TextMessage, ToolChoice, no_extra
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick


@quick()
class OutputSchema:
    """The JSON Schema (of an object) of the answer. `strict`: the API enforces it, where it can."""

    name: str
    schema: Mapping[str, JSON]
    strict: bool = True
    description: str = ""


@quick()
class Constraint:
    """A grammar for the model's text: `source` in the language of `target`.

    `gbnf` is llama.cpp's (its field `grammar`), `xgrammar` a structural tag (vLLM and SGLang, as `response_format`).
    """

    target: Literal["gbnf", "xgrammar"]
    source: str


@quick()
class Earlier:
    """The server stores the first `messages` messages under `response_id`, and its answer: the message after them."""

    response_id: str
    messages: int


@quick()
class ModelRequest:
    """A request for one turn of a model.

    `messages` begin with the system messages; `TextMessage` where calls are text. `tools`: for the API's own field;
    none where a dialect puts them into the text. `parallel`: whether a turn may hold several calls; None is the API's
    default. `constraint`: a grammar for the text, for servers that take one. `cache`: mark what stays the same from
    turn to turn, for APIs that cache a prompt only then. `earlier`: send only what the server has not stored. `keep`:
    the server stores the turn, so that a later one can name it as `earlier`. `options` go into the body as they are
    (`temperature`, …); one that is None removes the field of that name.
    """

    messages: Sequence[Message | TextMessage]
    tools: Sequence[ToolSpec] = ()
    choice: ToolChoice = ToolChoice()
    parallel: bool | None = None
    output: OutputSchema | None = None
    options: Mapping[str, JSON] = field(default_factory=no_extra)
    cache: bool = False
    earlier: Earlier | None = None
    keep: bool = False
    constraint: Constraint | None = None


@quick()
class WireRequest:
    """A client's request as a server reads it. `stream`: the client wants a stream. `usage_wanted`: it wants the usage
    in the stream. `echoed`: fields of the answer that repeat what the server makes of the request (`store`).
    """

    request: ModelRequest
    model: str
    stream: bool = False
    usage_wanted: bool = True
    echoed: Mapping[str, JSON] = field(default_factory=no_extra)


class Decoder(Protocol):
    """Reads one streamed answer. Raises ProviderError for an error object and for ill-formed events."""

    finished: bool
    """Whether the model's turn is complete: only its usage may be missing."""

    def feed(self, data: JSON) -> list[Delta]:
        """The deltas of one event (the JSON of an SSE `data:` field, or of a line)."""
        ...

    def close(self) -> list[Delta]:
        """Ends the stream; call it once. The deltas end with `BatchEnded`, if there are calls, and `TurnEnded`."""
        ...


Frame: TypeAlias = tuple[str | None, JSON]
"""One event of a stream: its name, where the API names events, and its data. A `str` is sent without encoding."""


class Encoder(Protocol):
    """Writes one streamed answer. Takes a turn's deltas from first to last (`TurnEnded`)."""

    def feed(self, delta: Delta) -> list[Frame]:
        """The events for a delta. Id, type and name of a call are sent once. Leave out calls that do not count."""
        ...

    def fail(self, message: str, status: int = 500) -> list[Frame]:
        """The events for a turn that broke off: an error."""
        ...


class WireFormat(Protocol):
    """One API's JSON, both roles."""

    @property
    def name(self) -> str:
        """`openai-chat`, `openai-responses`, `anthropic`, `gemini`, `ollama`."""
        ...

    # --- client ------------------------------------------------------------------------------------------------

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        """The body of a request. Raises ConfigurationError for an option that is a field of the request's own, and for
        what the API has no field for."""
        ...

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        """The deltas of an answer that was not streamed, `TurnEnded` last. Raises ProviderError.

        `model`: the name in the request, to which opaque data are bound (an API may answer under another name, and the
        next request uses this one again); None is the name in the answer.
        """
        ...

    def decoder(self, *, model: str | None = None) -> Decoder:
        """`model` as in `decode_response`."""
        ...

    # --- server ------------------------------------------------------------------------------------------------

    def decode_request(self, body: JSON) -> WireRequest:
        """Reads a client's request. Unknown fields go into `options`. Raises FormatError naming the field."""
        ...

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, request: WireRequest | None = None
    ) -> JSON:
        """A whole turn as one answer. `created`: Unix time in seconds. `request`: the client's, which some APIs repeat
        in the answer."""
        ...

    def encoder(self, request: WireRequest, *, response_id: str, created: int) -> Encoder: ...

    def encode_error(self, message: str, status: int) -> JSON:
        """The body of an error."""
        ...
