"""HTTP for providers: sends requests, and limits each wait for a response. One client per provider and event loop.

`http_settings.py` has what a user sets, `reply.py` reads the responses, `provider_failures.py` makes the errors and
decides about retries.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from typing import Any, cast

import httpx2
from pydantic_core import to_json

from toolspeak.data.messages import JSON
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.providers.http_settings import (
    DEFAULT_TIMEOUTS,
    Timeouts,
    cas_of,
    is_secret,
    keys_in,
    new_client,
    timeouts_of,
    url_of,
)
from toolspeak.providers.provider_failures import (
    LONGEST_SECONDS,
    RETRIES,
    SYSTEM_CLOCK,
    Clock,
    SilentServer,
    dropped_error,
    status_error,
    transport_error,
)
from toolspeak.providers.reply import LARGE, Reply, unpacked_chunks
from toolspeak.providers.trace_context import TRACE
from toolspeak.wire.json_conversion import excerpt, without_lone_surrogates

MAX_ERROR_BYTES = 64 * 1024

REQUEST_SENT: ContextVar[Callable[[], None] | None] = ContextVar("toolspeak_request_sent", default=None)
"""A function to call each time a whole request has been sent."""

# Keys in the form of common APIs, also half masked (`sk-ab***yz`), and anything after `Bearer`.
_KEYS = re.compile(r"\b(?:sk|pk|gsk|xai|hf|r8|key)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}|(?<=[Bb]earer )\S+")

_VERSION = re.compile(r"/v\d+[a-z]*$")


class HttpApi:
    """The HTTP client of one model API at one base URL.

    `secrets` never appear in a message. Making one does not use the network. Each event loop has its own connections,
    which open at its first request. Raises ConfigurationError for an invalid base URL, timeout, number of retries or
    CA file.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        secrets: tuple[str, ...] = (),
        timeout: Timeouts | float | None = DEFAULT_TIMEOUTS,
        retries: int = RETRIES,
        longest_wait: float = LONGEST_SECONDS,
        ca_file: str | os.PathLike[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        extra_headers: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url_of(base_url)
        self._urls: dict[str, httpx2.URL] = {}
        self._headers = {**headers, **{name.lower(): value for name, value in (extra_headers or {}).items()}}
        self.secrets = tuple(key for key in (*secrets, *keys_in(extra_headers or {})) if is_secret(key))
        self._timeouts = timeouts_of(timeout)
        self._ssl_context = None if ca_file is None else cas_of(ca_file)
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}
        self._closed: bool = False
        if retries < 0:
            raise ConfigurationError(f"retries={retries} must be 0 or more")
        self.retries = retries
        self.longest_wait = longest_wait
        self.clock = clock

    @property
    def address(self) -> str:
        """The base URL for messages: without user, password and query."""
        return str(self._url.copy_with(username=None, password=None, query=None, fragment=None))

    @asynccontextmanager
    async def post(
        self,
        path: str,
        body: Mapping[str, JSON] | bytes,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Reply]:
        """Sends `body`, as JSON unless it is bytes. Leaving the context closes the response.

        `path` is below the base URL; with a leading / it is below the base URL without the version at its end.
        `query` is added to the base URL's query. `headers` replace the provider's own of the same name.

        Raises ProviderError for a status other than success and for a failure of the connection, also inside the
        context. Raises ConfigurationError if `body` is not JSON.
        """
        content = body if isinstance(body, bytes) else body_bytes(body)
        url = self._below(path)
        if query:
            url = url.copy_merge_params(query)
        reply: Reply | None = None
        try:
            async with self._response_to("POST", url, content, headers) as response:
                if not response.is_success:
                    raise await self._refusal(response)
                reply = Reply(response)
                yield reply
        except ProviderError as error:
            text, safe = str(error), self.hide(str(error))
            if safe == text:
                raise
            # `from None`: the original would show the secret in the traceback.
            raise error.with_message(safe) from None
        except httpx2.HTTPError as error:
            why = self.hide(excerpt(str(error))) or type(error).__name__
            received_characters = None if reply is None else reply.received_characters
            raise transport_error(self.address, why, error, received_characters, self._timeouts.connect or 0) from error

    async def get(self, path: str, *, refusals: Container[int] = ()) -> JSON:
        """The JSON at `path` below the base URL; None for another body, or a status other than success. Raises
        ProviderError if the server does not answer, and for the statuses `refusals`."""
        url = self._below(path)
        refusal: ProviderError | None = None
        try:
            async with self._response_to("GET", url) as response:
                if response.is_success:
                    return await Reply(response).json()
                if response.status_code in refusals:
                    refusal = await self._refusal(response)
        except ProviderError:
            return None
        except httpx2.HTTPError as error:
            why = self.hide(excerpt(str(error))) or type(error).__name__
            raise transport_error(self.address, why, error, None, self._timeouts.connect or 0) from error
        if refusal is not None:
            raise refusal
        return None

    async def _refusal(self, response: httpx2.Response) -> ProviderError:
        """The error for a response with a status other than success."""
        body = self.hide((await _beginning(response)).decode("utf-8", "replace")).encode()
        return status_error(self.address, response.status_code, response.headers, body, self.clock.now())

    def _below(self, path: str) -> httpx2.URL:
        """The URL of `path` below the base URL. The result is cached: a provider uses few paths."""
        url = self._urls.get(path)
        if url is None:
            base = self._url.path.rstrip("/")
            if path.startswith("/"):
                base = _VERSION.sub("", base)
            url = self._urls[path] = self._url.copy_with(path=f"{base}/{path.removeprefix('/')}")
        return url

    def hide(self, text: str) -> str:
        """The text without the provider's secrets and without anything that looks like an API key."""
        for secret in self.secrets:
            text = text.replace(secret, "[API key]")
            for end in range(len(secret) - 1, 3, -1) if "…" in text else ():  # the key may be shortened
                text = text.replace(f"{secret[:end]}…", "[API key]…")
        return _KEYS.sub("[API key]", text)

    def disconnection(self, reply: Reply) -> ProviderError:
        """The error for a stream that stopped in the middle."""
        return dropped_error(self.address, reply.received_characters)

    async def aclose(self) -> None:
        """Closes the connections. No request can be sent afterwards."""
        self._closed = True
        clients, self._clients = self._clients, {}
        here = asyncio.get_running_loop()
        for loop, client in clients.items():
            if loop is here:
                await client.aclose()
            elif loop.is_running():  # connections belong to the loop that opened them: that of `run_sync`, say
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(client.aclose(), loop))

    @asynccontextmanager
    async def _response_to(
        self, method: str, url: httpx2.URL, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """The response once its head has come; its body is read under the timeouts."""
        client, limits = self._client(), self._timeouts
        loop = asyncio.get_running_loop()
        deadline = None if limits.first_byte is None else loop.time() + limits.first_byte
        try:
            async with asyncio.timeout_at(deadline):
                response = await _send(client, method, url, content, headers)
        except TimeoutError as error:
            raise SilentServer(limits.first_byte or 0) from error
        try:
            body = cast("httpx2.AsyncByteStream", response.stream)
            response.stream = TimedStream(body, deadline, limits.first_byte, limits.silence)
            yield response
        finally:
            await response.aclose()

    def _client(self) -> httpx2.AsyncClient:
        if self._closed:
            raise ConfigurationError("this provider is closed; make a new one")
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for other in [client for client in self._clients if client.is_closed()]:
                self._clients.pop(other, None)
            client = self._clients[loop] = new_client(self._headers, self._timeouts, self._ssl_context)
        return client


async def _send(
    client: httpx2.AsyncClient, method: str, url: httpx2.URL, content: bytes | None, headers: Mapping[str, str] | None
) -> httpx2.Response:
    """Sends a request and returns when the response's head has arrived.

    A server may close an idle connection just when the next request arrives. That does not mean that the server fails
    (RFC 9112, 9.3.1): the request is sent on another connection at once.
    """
    while True:
        connections: list[str] = []

        async def note(event: str, _info: object, connections: list[str] = connections) -> None:
            if "connect_" in event:
                connections.append(event)
            elif event == "http11.send_request_body.complete" and (on_sent := REQUEST_SENT.get()) is not None:
                on_sent()

        sent_headers = {**(headers or {}), **TRACE.get()}
        request = client.build_request(method, url, content=content, headers=sent_headers, extensions={"trace": note})
        try:
            return await client.send(request, stream=True)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            if connections:  # it failed on a new connection; each failing idle one leaves the pool, so the loop ends
                raise


def json_bytes(value: JSON | Mapping[str, JSON]) -> bytes:
    """JSON in UTF-8. UTF-8 cannot encode a lone surrogate: it becomes U+FFFD."""
    try:
        return to_json(value)
    except ValueError:  # a lone surrogate, or nested deeper than pydantic_core goes
        return json.dumps(without_lone_surrogates(value), separators=(",", ":")).encode()


def body_bytes(body: Mapping[str, JSON]) -> bytes:
    """The body of a request as it is sent. Raises ConfigurationError if it is not JSON."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the request's options must be JSON: {error}") from error


async def _beginning(response: httpx2.Response) -> bytes:
    """The start of an error's body, or less if the connection drops."""
    body = bytearray()
    try:
        async with aclosing(unpacked_chunks(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= MAX_ERROR_BYTES:
                    break
    except httpx2.HTTPError:
        pass  # the status matters; its text only helps
    return bytes(body)


# --- the time limits of a response's body ---------------------------------------------------------------------------


class TimedStream(httpx2.AsyncByteStream):
    """A response's body with time limits.

    `deadline`: the event loop's time of the limit for the first byte, which is `first_byte` seconds after the request.
    `silence`: the most seconds between two later bytes. None is no limit.

    Iterating raises SilentServer.
    """

    def __init__(
        self, stream: httpx2.AsyncByteStream, deadline: float | None, first_byte: float | None, silence: float | None
    ) -> None:
        self._stream = stream
        self._deadline = deadline
        self._first_byte = first_byte
        self._silence = silence

    async def __aiter__(self) -> AsyncIterator[bytes]:
        silence, seconds = self._silence, self._first_byte
        source = cast("AsyncGenerator[bytes]", aiter(self._stream))
        watch = _Watch(self._deadline)
        suspended: bool = False
        try:
            while True:
                watch.begin()
                try:
                    chunk = await anext(source, None)
                except asyncio.CancelledError as error:
                    if watch.expired():
                        raise SilentServer(seconds or 0) from TimeoutError(*error.args)
                    raise
                watch.end(silence)
                if chunk is None:
                    return
                suspended = True
                if len(chunk) >= LARGE:
                    await asyncio.sleep(0)
                yield chunk
                suspended = False
                seconds = silence
        finally:
            watch.close()
            if suspended:
                await _finish_closing(source.aclose())

    async def aclose(self) -> None:
        """Closes the connection or frees it for the next request, even if the caller's task is cancelled."""
        await _finish_closing(self._stream.aclose())


_closing: set[asyncio.Task[None]] = set()


async def _finish_closing(closing: Coroutine[Any, Any, None]) -> None:
    """Closes although the caller is cancelled. httpcore2 removes a request from its pool after several waits, and does
    not try again: a cancelled request would stay there for ever with its connection. (It shields itself with anyio,
    which does not stop `Task.cancel`.)"""
    task = asyncio.get_running_loop().create_task(closing)
    _closing.add(task)
    task.add_done_callback(_closing.discard)
    await asyncio.shield(task)


class _Watch:
    """A time limit for each of many waits, with one timer for all of them.

    `asyncio.timeout` makes a timer for each wait, which costs as much as reading the bytes.
    """

    def __init__(self, deadline: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = deadline
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._fired: bool = False

    def begin(self) -> None:
        """Starts a wait of the current task."""
        self._waiting = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        if self._timer is None and self._deadline is not None:
            self._timer = self._loop.call_at(self._deadline, self._due)

    def end(self, seconds: float | None) -> None:
        """Ends the wait. The next wait has to end within `seconds` from now."""
        task, self._waiting = self._waiting, None
        if self._fired and task is not None:  # the cancellation was swallowed on its way
            self._fired = False
            task.uncancel()
        self._deadline = None if seconds is None else self._loop.time() + seconds
        if self._timer is not None and (self._deadline is None or self._deadline < self._timer.when()):
            self._timer.cancel()  # the limit for the first byte may be longer than the others
            self._timer = None

    def expired(self) -> bool:
        """Whether this watch, and nothing else, cancelled the wait."""
        task, self._waiting = self._waiting, None
        return self._fired and task is not None and task.uncancel() <= self._cancelling

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._timer = None
        if self._waiting is None or self._deadline is None:
            return  # the next wait sets its own timer
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._due)
            return
        self._fired = True
        self._waiting.cancel()
