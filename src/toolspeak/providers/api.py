"""What the providers over HTTP share: a turn asked, decoded as it comes, and asked again where that makes sense."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TypeAlias, Unpack, cast, get_args

import httpx2

from toolspeak.data.deltas import ArgumentsDelta, CallStarted, Delta, ReasoningDelta, TextDelta, TurnEnded
from toolspeak.data.messages import JSON
from toolspeak.data.values import changed, quick
from toolspeak.errors import ConfigurationError, ProviderError, UnknownProvider
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.http_client import ConnectionOptions, HttpApi
from toolspeak.providers.provider_failures import decode_json
from toolspeak.providers.relayed import RELAYING, Relayed, Relaying, as_object, json_bytes, opens
from toolspeak.providers.reply import Reply, drained
from toolspeak.providers.retry import Attempts
from toolspeak.wire.base import Decoder, ModelRequest, WireFormat
from toolspeak.wire.call_assembler import CallAssembler
from toolspeak.wire.token_limit import token_limit

_Piece: TypeAlias = TextDelta | ReasoningDelta | ArgumentsDelta
_PIECES = frozenset(get_args(_Piece))

_NOT_THERE = (404, 405, 501)

_DONE = "[DONE]"
"""What OpenAI's Chat Completions end a stream with; servers of other formats send it too."""

_DONE_EVENT = b"data: [DONE]\n\n"

_UNSAID = 32
"""Events of a relayed stream that are kept, at most, until something was said: what fails before has a status."""


@quick()
class Counting:
    """Where an API counts the tokens of a request, as `input_tokens` of its answer. `fields` of a request are taken
    there; empty is all."""

    path: str
    fields: frozenset[str] = frozenset()


@quick()
class Endpoint:
    """Where and how an API is asked: `path` below the base URL, `query` beside it, `headers` and the key in them.

    `lines`: a stream is lines of JSON, not server-sent events. `done`: `[DONE]` alone ends a turn. `hint`: what to
    check if the answer is of another type. `listing`: where the API lists its models. `counting`: where it counts a
    request's tokens.
    """

    base_url: str
    path: str
    wire: WireFormat
    headers: Mapping[str, str]
    secret: str
    hint: str
    query: Mapping[str, str] | None = None
    lines: bool = False
    done: bool = False
    listing: str = "models"
    counting: Counting | None = None


class ApiProvider:
    """A `Provider` over HTTP. `options` go into every request; a request's own come before them."""

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
        self._name = name
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
    def secrets(self) -> tuple[str, ...]:
        """What must not be recorded: the key."""
        return self._api.secrets

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """See `Provider.stream`. A server that answers with plain JSON is read as well; what fails before it said
        anything is asked again (`retry.py`)."""
        relaying, original = RELAYING.get(), request
        request = replace(request, options={**self._options, **request.options})
        attempts = self._attempts()
        while True:
            spoken = called = False
            body = None if relaying is None else relaying.body(original)
            turn = self._turn(request) if relaying is None or body is None else self._as_it_came(body, relaying)
            try:
                async for delta in turn:
                    spoken = True
                    called = called or delta.__class__ is CallStarted
                    yield delta
                return
            except ProviderError as error:
                if error.unread is not None and request.tools and not called:
                    for delta in _unread_call(error.unread):
                        yield delta
                    return
                failure = self._explained(error, request)
                if spoken:
                    if failure is error:
                        raise
                    raise failure from error
                if failure is not error:
                    failure.__cause__ = error
            finally:
                await turn.aclose()
            await attempts.failed(failure)

    async def relay(
        self, body: Mapping[str, JSON], headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Sequence[Relayed]]:
        """A request that was written for this API, and its answer as it comes: the parts that came together.

        The body goes out as it is, but for the model's name. Of Chat Completions the usage of a stream is always asked
        for. A stream's first parts are kept until something was said, and what fails before is asked again. Raises
        ProviderError.
        """
        body = self._prepared(body)
        content = json_bytes(body)
        attempts = self._attempts()
        while True:
            spoken = False
            parts = self._relayed(content, body, headers)
            try:
                async for part in parts:
                    spoken = True
                    yield part
                return
            except ProviderError as error:
                if spoken:
                    raise
                failure = error
            finally:
                await parts.aclose()
            await attempts.failed(failure)

    @asynccontextmanager
    async def send(
        self, path: str, content: Callable[[str], bytes], headers: Mapping[str, str]
    ) -> AsyncGenerator[Reply]:
        """Another endpoint of the server, asked with what `content` says for the model's name; `path` as in
        `HttpApi.post`. What fails before there is an answer is asked again. Raises ProviderError."""
        body = content(self._model)
        attempts = self._attempts()
        while True:
            started = False
            try:
                async with self._api.post(path, body, headers=headers) as reply:
                    started = True
                    yield reply
                return
            except ProviderError as error:
                if started:
                    raise
                failure = error
            await attempts.failed(failure)

    async def probe(self, *, thorough: bool = False) -> JSON:
        """What the API lists as its models, as JSON; None if it answers something else. Raises ProviderError if it does
        not answer at all; with `thorough` also if it refuses the key, and if neither the list nor the path that turns
        are sent to is there (404)."""
        if not thorough:
            return await self._api.get(self._endpoint.listing)
        try:
            return await self._api.get(self._endpoint.listing, refusals=(401, 403, 404))
        except ProviderError as error:
            if error.status != 404:
                raise
        try:
            async with self._api.post(self._endpoint.path, {}, query=self._endpoint.query):  # no request: 400 at most
                return None
        except ProviderError as error:
            if error.status in (401, 403, 404):
                raise
            return None

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """How many tokens the API counts in a request, without the model being asked; None if it counts none.

        Raises ProviderError, ConfigurationError.
        """
        counting = self._counting
        if counting is None:
            return None
        request = replace(request, options={**self._options, **request.options})
        body = self._endpoint.wire.encode_request(request, model=self._model, stream=False)
        if counting.fields:
            body = {name: value for name, value in body.items() if name in counting.fields}
        try:
            async with self._api.post(counting.path, body, query=self._endpoint.query) as reply:
                answer = await reply.json()
        except ProviderError as error:
            if error.status not in _NOT_THERE:
                raise
            self._counting = None  # few servers that speak an API speak all of it
            return None
        tokens = cast("dict[str, JSON]", answer).get("input_tokens") if isinstance(answer, dict) else None
        return tokens if isinstance(tokens, int) else None

    async def aclose(self) -> None:
        """Closes the connections; no turn can be asked for afterwards."""
        await self._api.aclose()

    def _attempts(self) -> Attempts:
        return Attempts(self._api.retries, self._api.clock, self._api.longest_wait)

    def _over(self, decoder: Decoder) -> bool:
        """Whether the API's last event has come, although the response goes on."""
        return False

    def _explained(self, error: ProviderError, request: ModelRequest) -> ProviderError:
        """The error with what only this API's provider knows of it."""
        return error

    async def _turn(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """One sending of the request."""
        endpoint = self._endpoint
        body = endpoint.wire.encode_request(request, model=self._model, stream=True)
        limit = token_limit(body)
        async with self._api.post(endpoint.path, body, query=endpoint.query) as reply:
            kind = await reply.kind(lines=endpoint.lines)
            if kind == "json":
                for delta in endpoint.wire.decode_response(await reply.json(), model=self._model):
                    yield _limited(delta, limit)
                return
            if kind == "other":
                raise self._no_stream(reply)
            decoder = endpoint.wire.decoder(model=self._model)
            what = "a line" if endpoint.lines else "an event"
            frames = reply.lines() if endpoint.lines else reply.events(last=_DONE)
            try:
                async for frame in frames:
                    for delta in decoder.feed(decode_json(frame, what)):
                        if delta.__class__ in _PIECES:
                            reply.received += len(cast("_Piece", delta).text)
                        yield delta
                    if self._over(decoder):
                        await drained(frames)
                        break
            except httpx2.HTTPError:
                # With the finish reason the answer is whole: only its usage or its last event may be missing.
                if not decoder.finished:
                    raise
            finally:
                await frames.aclose()
            if not (decoder.finished or (endpoint.done and reply.completed)):
                raise self._api.dropped(reply)
            for delta in decoder.close():
                yield _limited(delta, limit)

    def _prepared(self, body: Mapping[str, JSON]) -> dict[str, JSON]:
        """A client's request with the provider's own options and model."""
        options = {name: cast("JSON", value) for name, value in self._options.items() if value is not None}
        made: dict[str, JSON] = {**options, **body, "model": self._model}
        if made.get("stream") is True and self._endpoint.done and self._options.get("stream_options", True) is not None:
            stream_options = made.get("stream_options")
            chosen = dict(cast("Mapping[str, JSON]", stream_options)) if isinstance(stream_options, Mapping) else {}
            made["stream_options"] = {**chosen, "include_usage": True}
        return made

    async def _as_it_came(self, body: Mapping[str, JSON], relaying: Relaying) -> AsyncGenerator[Delta]:
        """One sending of a client's request, for a turn."""
        body = self._prepared(body)
        async with aclosing(self._relayed(json_bytes(body), body, relaying.headers)) as pieces:
            async for parts in pieces:
                for part in parts:
                    waits = relaying.hear(part)
                    if waits is not None:
                        await waits
                    for delta in part.deltas:
                        yield _limited(delta, token_limit(body)) if delta.__class__ is TurnEnded else delta

    async def _relayed(
        self, content: bytes, body: Mapping[str, JSON], headers: Mapping[str, str] | None
    ) -> AsyncGenerator[Sequence[Relayed]]:
        """One sending of a request that was written for this API."""
        endpoint = self._endpoint
        async with self._api.post(endpoint.path, content, query=endpoint.query, headers=headers) as reply:
            kind = await reply.kind()
            if kind == "json":
                raw = await reply.whole()
                data = decode_json(raw, "a body")
                deltas = endpoint.wire.decode_response(data, model=self._model)
                yield [Relayed(raw, as_object(data), deltas, whole=True)]
                return
            if kind == "other":
                raise self._no_stream(reply)
            decoder = endpoint.wire.decoder(model=self._model)
            pending: list[Relayed] | None = []
            try:
                async with aclosing(reply.raw_events(_DONE.encode())) as pieces:
                    async for piece in pieces:
                        parts: list[Relayed] = []
                        failure: ProviderError | None = None
                        for raw, data in piece:
                            try:
                                parts.append(self._part(raw, data, decoder, reply))
                            except ProviderError as error:
                                failure = error
                                break
                        if pending is not None:
                            pending += parts
                            if any(map(_speaks, parts)) or len(pending) >= _UNSAID:
                                parts, pending = pending, None
                        if pending is None and parts:
                            yield parts
                        if failure is not None:
                            raise failure
                        if self._over(decoder):
                            await drained(pieces)
                            break
            except httpx2.HTTPError:
                if not decoder.finished or body.get("n") not in (None, 1):
                    raise
            if not reply.completed and (not decoder.finished or (endpoint.done and body.get("n") not in (None, 1))):
                raise self._api.dropped(reply)
            end = Relayed(b"" if reply.completed or not endpoint.done else _DONE_EVENT, None, decoder.close())
            yield [*(pending or ()), end]

    def _part(self, raw: bytes, data: bytes, decoder: Decoder, reply: Reply) -> Relayed:
        if not data or (reply.completed and data.rstrip() == _DONE.encode()):
            return Relayed(raw, None, ())
        try:
            event = decode_json(data, "an event")
        except ProviderError:
            raw = raw.decode("utf-8", "replace").encode()  # some servers cut a letter of several bytes in two
            event = decode_json(data.decode("utf-8", "replace"), "an event")
        deltas = decoder.feed(event)
        for delta in deltas:
            if delta.__class__ in _PIECES:
                reply.received += len(cast("_Piece", delta).text)
        return Relayed(raw, as_object(event), deltas)

    def _no_stream(self, reply: Reply) -> ProviderError:
        expected = "lines of JSON" if self._endpoint.lines else "an event stream or JSON"
        return ProviderError(
            f"{self._api.address} answered with {reply.content_type or 'an unnamed type'!r} instead of {expected}. "
            f"{self._endpoint.hint}",
            code="ill_formed",
        )


def _speaks(part: Relayed) -> bool:
    """Whether a part says something of the answer, known or not."""
    return bool(part.deltas) or (part.data is not None and not opens(part.data))


def _unread_call(written: str) -> list[Delta]:
    """A turn whose call the server could not read, and took for an error: the model is told, and makes it again."""
    why = "the server could not read the call, so nothing of the turn ran; make it again, with arguments that fit"
    spoilt = CallAssembler().spoil(written, "invalid_arguments", why)
    return [*spoilt, TurnEnded("tool_calls")]


def _limited(delta: Delta, limit: int | None) -> Delta:
    return changed(delta, limit=limit) if limit is not None and type(delta) is TurnEnded else delta


def address_and_key(
    model: str, base_url: str | None, api_key: str | None, *, keys: str, address: str, speaks: str, more: str = ""
) -> tuple[str, str]:
    """The base URL and the key of an API without white space around them, "" for one that is not given.

    `keys` and `address` are the environment variables that set them, `speaks` is the API's name. Raises UnknownProvider
    if there is neither, ConfigurationError for a key that cannot be.
    """
    url, key = (base_url or "").strip(), checked_key(api_key)
    if not url and not key:
        raise UnknownProvider(
            f"the model {model!r} needs a key or an address, and neither {keys} nor {address} is set. Set {keys}; or, "
            f"for a server of your own that speaks {speaks}, {address} to its address (no key needed).{more}"
        )
    return url, key


def checked_key(api_key: str | None) -> str:
    """The key without white space around it; empty if there is none. Raises ConfigurationError for one that cannot
    be."""
    key = (api_key or "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigurationError("the API key holds characters that no key has (white space or beyond ASCII)")
    return key


def bearer(key: str) -> Mapping[str, str]:
    """The header that carries a key, if there is one."""
    return {"authorization": f"Bearer {key}"} if key else {}
