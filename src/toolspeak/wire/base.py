"""The contract of all wire formats: the request, both roles, and the events of a stream. Sans-IO.

A wire format is one API's JSON. In the client role it encodes a `ModelRequest` and decodes answers into deltas; in
the server role it decodes requests and encodes deltas. The two are each other's inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Literal, Protocol, TypeAlias

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON, Message, TextMessage, ToolChoice, no_extra
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick


@quick()
class OutputSchema:
    """A JSON Schema for the model's answer."""

    name: str
    schema: Mapping[str, JSON]
    """JSON Schema of an object."""
    strict: bool = True
    """Whether the API must enforce the schema, if it can."""
    description: str = ""


@quick()
class Constraint:
    """A grammar for the model's text."""

    target: Literal["gbnf", "xgrammar"]
    """The language of `source`: llama.cpp's GBNF (its field `grammar`), or a structural tag (`response_format` of vLLM
    and SGLang)."""
    source: str


@quick()
class Earlier:
    """An earlier response that the server stores, with the conversation up to it."""

    response_id: str
    messages: int
    """How many messages the conversation had before that response; the response is the next one."""


@quick()
class ModelRequest:
    """A request for one turn of a model."""

    messages: Sequence[Message | TextMessage]
    """System messages first. `TextMessage` where calls are text."""
    tools: Sequence[ToolSpec] = ()
    """Tools for the API's own field; empty where a dialect writes them into the text."""
    choice: ToolChoice = ToolChoice()
    parallel: bool | None = None
    """Whether a turn may hold several calls; None is the API's default."""
    output: OutputSchema | None = None
    options: Mapping[str, JSON] = field(default_factory=no_extra)
    """Further fields of the body (`temperature`, …). The value None removes a field."""
    cache: bool = False
    """Whether to mark the parts that stay the same from turn to turn, for APIs that cache only marked parts."""
    earlier: Earlier | None = None
    """The stored response to continue: only the messages after it are sent. None: all messages are sent."""
    keep: bool = False
    """Whether the server stores the turn, so that a later request can name it as `earlier`."""
    constraint: Constraint | None = None
    """A grammar for the text, for servers that accept one."""
    references: bool = False
    """Whether the result of a search for tools refers to their definitions, for APIs that show them there."""


@quick()
class WireRequest:
    """A client's request as a server reads it."""

    request: ModelRequest
    model: str
    stream: bool = False
    """Whether the client wants a stream."""
    usage_wanted: bool = True
    """Whether the client wants the usage in the stream."""
    echo_fields: Mapping[str, JSON] = field(default_factory=no_extra)
    """Fields of the answer that repeat the request as the server understands it (`store`)."""


class Decoder(Protocol):
    """Reads one streamed answer. Raises ProviderError for an error object and for ill-formed events."""

    finished: bool
    """Whether the model's turn is complete, except possibly for its usage."""

    def feed(self, data: JSON) -> list[Delta]:
        """The deltas of one event (the JSON of an SSE `data:` field, or of a line)."""
        ...

    def close(self) -> list[Delta]:
        """Ends the stream; call it once. The deltas end with `BatchEnded`, if there are calls, and `TurnEnded`."""
        ...


StreamFrame: TypeAlias = tuple[str | None, JSON]
"""One event of a stream: its name, where the API names events, and its data. A `str` is sent without encoding."""


class Encoder(Protocol):
    """Writes one streamed answer. Feed it a turn's deltas from the first to the last (`TurnEnded`)."""

    def feed(self, delta: Delta) -> list[StreamFrame]:
        """The events for a delta. Id, type and name of a call are sent once. Leave out calls that do not count."""
        ...

    def fail(self, message: str, status: int = 500) -> list[StreamFrame]:
        """The events for a turn that broke off: an error."""
        ...


class RequestWriter(Protocol):
    """Writes requests; the type of `WireFormat.encode_request`."""

    def __call__(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]: ...


class ResponseReader(Protocol):
    """Reads whole answers; the type of `WireFormat.decode_response`."""

    def __call__(self, body: JSON, *, model: str | None = None) -> list[Delta]: ...


class DecoderFactory(Protocol):
    """Makes decoders; the type of `WireFormat.decoder`."""

    def __call__(self, *, model: str | None = None) -> Decoder: ...


class ResponseWriter(Protocol):
    """Writes whole answers; the type of `WireFormat.encode_response`."""

    def __call__(
        self,
        deltas: Iterable[Delta],
        *,
        model: str,
        response_id: str,
        created_at: int,
        request: WireRequest | None = None,
    ) -> JSON: ...


class EncoderFactory(Protocol):
    """Makes encoders; the type of `WireFormat.encoder`."""

    def __call__(self, request: WireRequest, *, response_id: str, created_at: int) -> Encoder: ...


@quick()
class WireFormat:
    """One API's JSON, both roles. Its fields are functions, which the files of the API's folder hold."""

    name: str
    """`openai-chat`, `openai-responses`, `anthropic`, `gemini`, `ollama`."""

    # --- client ------------------------------------------------------------------------------------------------

    encode_request: RequestWriter
    """Writes the body of a request. Raises ConfigurationError for an option that sets a field which the request itself
    sets, and for a part of the request for which the API has no field."""
    decode_response: ResponseReader
    """The deltas of an answer that was not streamed. `TurnEnded` is the last. Raises ProviderError.

    `model`: the name in the request, to which opaque data are bound; None for the name in the answer. An API may
    answer under another name, and the next request uses the request's name again.
    """
    decoder: DecoderFactory
    """Makes a reader of one streamed answer. `model` as in `decode_response`."""

    # --- server ------------------------------------------------------------------------------------------------

    decode_request: Callable[[JSON], WireRequest]
    """Reads a client's request from its body. Unknown fields go into `options`. Raises FormatError naming the field."""
    encode_response: ResponseWriter
    """Writes a whole turn as one answer.

    `created_at`: Unix time in seconds.
    `request`: the client's request, which some APIs repeat in the answer.
    """
    encoder: EncoderFactory
    """Makes a writer of one streamed answer to a client's request. `created_at` as in `encode_response`."""
    encode_error: Callable[[str, int], JSON]
    """Writes the body of an error, from its message and the HTTP status."""

    settings: Mapping[str, JSON] = field(default_factory=no_extra)
    """The service's deviations from the API. A run records them with the name, and remakes the format from both."""
