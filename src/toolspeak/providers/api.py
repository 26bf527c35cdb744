"""What the providers over HTTP share: sending a request, decoding the streamed answer, retrying failures."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from copy import copy
from itertools import count
from typing import Self, TypeAlias, Unpack, cast, get_args

import httpx2

from toolspeak.data.deltas import ArgumentsDelta, CallStarted, Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON
from toolspeak.data.values import evolve, quick
from toolspeak.errors import ProviderError
from toolspeak.providers.base import BODY_LISTENER, BodyFormat
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.http_client import HttpApi, body_bytes, json_bytes
from toolspeak.providers.http_settings import ConnectionOptions
from toolspeak.providers.provider_failures import wait_or_raise
from toolspeak.providers.reply import Reply, decode_json, drain
from toolspeak.providers.request_relay import RELAYING, RelayedPart, Relaying, as_object, is_preamble
from toolspeak.wire.base import Decoder, ModelRequest, WireFormat
from toolspeak.wire.call_assembler import unread_turn
from toolspeak.wire.json_conversion import token_limit

_Piece: TypeAlias = TextDelta | ReasoningDelta | ArgumentsDelta
_PIECES = frozenset(get_args(_Piece))

_NOT_THERE = (404, 405, 501)

_LAST_EVENT = "[DONE]"
"""The last event of a stream of OpenAI's Chat Completions; servers of other formats send it too."""

_LAST_FRAME = b"data: [DONE]\n\n"

_MAX_PENDING = 32
"""The most events of a relayed stream that wait for the first content. A failure before it becomes an HTTP status."""


@quick()
class Counting:
    """The endpoint that counts a request's tokens. Its answer holds them as `input_tokens`."""

    path: str
    fields: frozenset[str] = frozenset()
    """The fields of a request that it accepts; empty for all fields."""


@quick()
class Endpoint:
    """Where and how to send an API's requests. Paths are below the base URL."""

    base_url: str
    path: str
    """The path for turns."""
    wire: WireFormat
    headers: Mapping[str, str]
    secret: str
    """The header with the key."""
    hint: str
    """The remedy for an answer of an unexpected type."""
    query: Mapping[str, str] | None = None
    lines: bool = False
    """Whether a stream is lines of JSON instead of server-sent events."""
    done: bool = False
    """Whether `[DONE]` ends a turn even without a finish reason."""
    listing: str = "models"
    """The path that lists the API's models."""
    counting: Counting | None = None


class ApiProvider:
    """A `Provider` over HTTP. It makes no connection before the first turn.

    The parameters that its subclasses share:

    `model`: the model's name at the API.
    `base_url`: the API's address, by default the service's own.
    `api_key`: sent with every request. Without it no key is sent.
    `options`: fields of every request's body (`temperature`, …). A request's own options take precedence.
    `capabilities`: what the model can do, by default `capabilities_of`.
    `connection`: see `ConnectionOptions`.
    """

    def __init__(
        self,
        name: str,
        model: str,
        endpoint: Endpoint,
        *,
        options: Mapping[str, object] | None,
        capabilities: Capabilities,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        self._name = self._api_name = name
        self._model = model
        self._endpoint = endpoint
        self._options = dict(options or {})
        self._capabilities = capabilities
        self._counting = endpoint.counting
        self._api = HttpApi(endpoint.base_url, headers=endpoint.headers, secrets=(endpoint.secret,), **connection)

    @property
    def name(self) -> str:
        return f"{self._name}:{self._model}"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def address(self) -> str:
        """The base URL without user, password and query."""
        return self._api.address

    @property
    def body_format(self) -> BodyFormat:
        """How the body of a turn's request is made."""
        return BodyFormat(self._endpoint.wire, self._model, self._options)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key, which must not be recorded."""
        return self._api.secrets

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """See `Provider.stream`. Reads an answer that is not streamed, too. Sends the request again if it fails before
        its first delta (`wait_or_raise`)."""
        relaying, original = RELAYING.get(), request
        request = evolve(request, options={**self._options, **request.options})
        for failures in count(1):
            any_delta = any_call = False
            body = None if relaying is None else relaying.body(original)
            turn = self._turn(request) if relaying is None or body is None else self._relayed_turn(body, relaying)
            try:
                async for delta in turn:
                    any_delta = True
                    any_call = any_call or delta.__class__ is CallStarted
                    yield delta
                return
            except ProviderError as error:
                if error.unread is not None and request.tools and not any_call:
                    for delta in unread_turn(error.unread):
                        yield delta
                    return
                failure = self._refine_error(error, request)
                if any_delta:
                    if failure is error:
                        raise
                    raise failure from error
                if failure is not error:
                    failure.__cause__ = error
            finally:
                await turn.aclose()
            await self._wait_or_raise(failure, failures)

    async def relay(
        self, body: Mapping[str, JSON], headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Sequence[RelayedPart]]:
        """Sends a request that a client wrote for this API, and yields the answer's parts in groups, as they arrive.

        The body is sent unchanged, except for the model's name and this provider's options; a stream of Chat
        Completions always includes the usage. The first parts of a stream wait for the first content, and a request
        that fails before it is sent again. Raises ProviderError.
        """
        body = self._relay_body(body)
        content = json_bytes(body)
        for failures in count(1):
            any_part = False
            groups = self._relay_once(content, body, headers)
            try:
                async for parts in groups:
                    any_part = True
                    yield parts
                return
            except ProviderError as error:
                if any_part:
                    raise
                failure = error
            finally:
                await groups.aclose()
            await self._wait_or_raise(failure, failures)

    @asynccontextmanager
    async def send(
        self, path: str, content: Callable[[str], bytes], headers: Mapping[str, str]
    ) -> AsyncGenerator[Reply]:
        """Sends a request to another endpoint of the server. `content` makes the body from the model's name; `path` is
        as in `HttpApi.post`. Sends it again if it fails before an answer. Raises ProviderError."""
        body = content(self._model)
        for failures in count(1):
            has_reply = False
            try:
                async with self._api.post(path, body, headers=headers) as reply:
                    has_reply = True
                    yield reply
                return
            except ProviderError as error:
                if has_reply:
                    raise
                failure = error
            await self._wait_or_raise(failure, failures)

    async def probe(self, *, thorough: bool = False) -> JSON:
        """The API's list of models, as JSON; None if the answer is not a list in JSON. Raises ProviderError if the
        server does not answer; with `thorough` also if it refuses the key, or has neither the list nor the API at the
        path for turns."""
        if not thorough:
            return await self._api.get(self._endpoint.listing)
        try:
            answer = await self._api.get(self._endpoint.listing, refusals=(401, 403, 404))
            if answer is not None:
                return answer
        except ProviderError as error:
            if error.status != 404:
                raise
        try:
            # Not a valid request: an API answers at most with a 400.
            async with self._api.post(self._endpoint.path, {}, query=self._endpoint.query) as reply:
                if await reply.kind(lines=self._endpoint.lines) == "other":
                    raise self._unexpected_type(reply)
                return None
        except ProviderError as error:
            if error.status in (401, 403, *_NOT_THERE) or error.code == "ill_formed":
                raise
            return None

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The number of tokens in a request, as the API counts it without running the model; None if it does not count.

        Raises ProviderError, ConfigurationError.
        """
        counting = self._counting
        if counting is None:
            return None
        request = evolve(request, options={**self._options, **request.options})
        body = self._endpoint.wire.encode_request(request, model=self._model, stream=False)
        if counting.fields:
            body = {name: value for name, value in body.items() if name in counting.fields}
        try:
            async with self._api.post(counting.path, body, query=self._endpoint.query) as reply:
                answer = await reply.json()
        except ProviderError as error:
            if error.status not in _NOT_THERE and error.code != "ill_formed":
                raise
            answer = None
        tokens = cast("dict[str, JSON]", answer).get("input_tokens") if isinstance(answer, dict) else None
        if isinstance(tokens, int):
            return tokens
        # Few servers implement the whole of another's API. A proxy may answer this path as any other one.
        self._counting = None
        return None

    def with_name(self, name: str) -> Self:
        """The provider under another name before the model's. It has the same connections: close one of the two."""
        other = copy(self)
        other._name = name
        return other

    @property
    def api_name(self) -> str:
        """`name` with the API's own name before the model's: a name of the user's own says nothing about the model."""
        return f"{self._api_name}:{self._model}"

    async def aclose(self) -> None:
        """Closes the connections. The provider cannot be used afterwards."""
        await self._api.aclose()

    async def _wait_or_raise(self, error: ProviderError, failures: int) -> None:
        api = self._api
        await wait_or_raise(error, failures, retries=api.retries, clock=api.clock, longest=api.longest_wait)

    def _at_last_event(self, decoder: Decoder) -> bool:
        """Whether the API has sent its last event. The response may still be open."""
        return False

    def _refine_error(self, error: ProviderError, request: ModelRequest) -> ProviderError:
        """The error with the code and the remedy that only this API's provider knows."""
        return error

    async def _turn(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """Sends the request once."""
        endpoint = self._endpoint
        body = endpoint.wire.encode_request(request, model=self._model, stream=True)
        limit, content = token_limit(body), body_bytes(body)
        if (listener := BODY_LISTENER.get()) is not None:
            listener(content)
        async with self._api.post(endpoint.path, content, query=endpoint.query) as reply:
            kind = await reply.kind(lines=endpoint.lines)
            if kind == "json":
                for delta in endpoint.wire.decode_response(await reply.json(), model=self._model):
                    yield _with_limit(delta, limit)
                return
            if kind == "other":
                raise self._unexpected_type(reply)
            decoder = endpoint.wire.decoder(model=self._model)
            what = "a line" if endpoint.lines else "an event"
            frames = reply.lines() if endpoint.lines else reply.events(last=_LAST_EVENT)
            try:
                async for frame in frames:
                    for delta in decoder.feed(decode_json(frame, what)):
                        if delta.__class__ in _PIECES:
                            reply.received_characters += len(cast("_Piece", delta).text)
                        yield delta
                    if self._at_last_event(decoder):
                        await drain(frames)
                        break
            except httpx2.HTTPError:
                # An answer with a finish reason is complete: only its usage or its last event may be missing.
                if not decoder.finished:
                    raise
            finally:
                await frames.aclose()
            if not (decoder.finished or (endpoint.done and reply.completed)):
                raise self._api.disconnection(reply)
            for delta in decoder.close():
                yield _with_limit(delta, limit)

    def _relay_body(self, body: Mapping[str, JSON]) -> dict[str, JSON]:
        """A client's request with the provider's own options and model."""
        options = {name: cast("JSON", value) for name, value in self._options.items() if value is not None}
        result: dict[str, JSON] = {**options, **body, "model": self._model}
        wants_usage = self._endpoint.done and self._options.get("stream_options", True) is not None
        if result.get("stream") is True and wants_usage:
            stream_options = result.get("stream_options")
            fields = dict(cast("Mapping[str, JSON]", stream_options)) if isinstance(stream_options, Mapping) else {}
            result["stream_options"] = {**fields, "include_usage": True}
        return result

    async def _relayed_turn(self, body: Mapping[str, JSON], relaying: Relaying) -> AsyncGenerator[Delta]:
        """Sends a client's request once, and decodes the answer as a turn."""
        body = self._relay_body(body)
        async with aclosing(self._relay_once(json_bytes(body), body, relaying.headers)) as groups:
            async for parts in groups:
                for part in parts:
                    waits = relaying.hear(part)
                    if waits is not None:
                        await waits
                    for delta in part.deltas:
                        yield _with_limit(delta, token_limit(body)) if delta.__class__ is TurnEnded else delta

    async def _relay_once(
        self, content: bytes, body: Mapping[str, JSON], headers: Mapping[str, str] | None
    ) -> AsyncGenerator[Sequence[RelayedPart]]:
        """Sends a request once that a client wrote for this API."""
        endpoint = self._endpoint
        async with self._api.post(endpoint.path, content, query=endpoint.query, headers=headers) as reply:
            kind = await reply.kind()
            if kind == "json":
                raw = await reply.whole()
                data = decode_json(raw, "a body")
                deltas = endpoint.wire.decode_response(data, model=self._model)
                yield [RelayedPart(raw, as_object(data), deltas, whole=True)]
                return
            if kind == "other":
                raise self._unexpected_type(reply)
            decoder = endpoint.wire.decoder(model=self._model)
            held_parts: list[RelayedPart] | None = []
            try:
                async with aclosing(reply.raw_events(_LAST_EVENT.encode())) as pieces:
                    async for piece in pieces:
                        parts: list[RelayedPart] = []
                        failure: ProviderError | None = None
                        for raw, data in piece:
                            try:
                                parts.append(self._part(raw, data, decoder, reply))
                            except ProviderError as error:
                                failure = error
                                break
                        if held_parts is not None:
                            held_parts += parts
                            if any(map(_has_content, parts)) or len(held_parts) >= _MAX_PENDING:
                                parts, held_parts = held_parts, None
                        if held_parts is None and parts:
                            yield parts
                        if failure is not None:
                            raise failure
                        if self._at_last_event(decoder):
                            await drain(pieces)
                            break
            except httpx2.HTTPError:
                if not decoder.finished or body.get("n") not in (None, 1):
                    raise
            if not reply.completed and (not decoder.finished or (endpoint.done and body.get("n") not in (None, 1))):
                raise self._api.disconnection(reply)
            end = RelayedPart(b"" if reply.completed or not endpoint.done else _LAST_FRAME, None, decoder.close())
            yield [*(held_parts or ()), end]

    def _part(self, raw: bytes, data: bytes, decoder: Decoder, reply: Reply) -> RelayedPart:
        if not data or (reply.completed and data.rstrip() == _LAST_EVENT.encode()):
            return RelayedPart(raw, None, ())
        try:
            event = decode_json(data, "an event")
        except ProviderError:
            raw = raw.decode("utf-8", "replace").encode()  # some servers split a character's bytes
            event = decode_json(data.decode("utf-8", "replace"), "an event")
        deltas = decoder.feed(event)
        for delta in deltas:
            if delta.__class__ in _PIECES:
                reply.received_characters += len(cast("_Piece", delta).text)
        return RelayedPart(raw, as_object(event), deltas)

    def _unexpected_type(self, reply: Reply) -> ProviderError:
        expected = "lines of JSON" if self._endpoint.lines else "an event stream or JSON"
        return ProviderError(
            f"{self._api.address} answered with {reply.content_type or 'an unnamed type'!r} instead of {expected}. "
            f"{self._endpoint.hint}",
            code="ill_formed",
        )


def _has_content(part: RelayedPart) -> bool:
    """Whether a part holds a piece of the answer, in known fields or others."""
    return bool(part.deltas) or (part.data is not None and not is_preamble(part.data))


def _with_limit(delta: Delta, limit: int | None) -> Delta:
    return evolve(delta, limit=limit) if limit is not None and type(delta) is TurnEnded else delta
