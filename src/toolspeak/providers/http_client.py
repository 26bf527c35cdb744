"""HTTP as providers use it: one client per provider and event loop, timeouts, proxies, CAs, server-sent events.

Server-sent events are read in sse.py. What goes wrong is told by failures.py; requests are sent again in retry.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Container, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import TypedDict, cast

import httpx2

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.providers.provider_failures import (
    SilentServer,
    dropped_error,
    status_error,
    transport_error,
)
from toolspeak.providers.reply import Reply, unpacked
from toolspeak.providers.retry import LONGEST_SECONDS, RETRIES, SYSTEM_CLOCK, Clock
from toolspeak.providers.timed import TimedStream
from toolspeak.wire.json_validation import shortened

MAX_ERROR_BYTES = 64 * 1024

TRACE: ContextVar[Mapping[str, str]] = ContextVar("toolspeak_trace", default=MappingProxyType({}))
"""Headers of W3C's Trace Context that go with every request from here."""

REQUEST_SENT: ContextVar[Callable[[], None] | None] = ContextVar("toolspeak_request_sent", default=None)
"""What is called each time that a request has been sent whole."""

# Machines a proxy cannot reach for us.
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")

# Keys as common APIs form them, also half masked (`sk-ab***yz`), and whatever follows `Bearer`.
_KEYS = re.compile(r"\b(?:sk|pk|gsk|xai|hf|r8|key)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}|(?<=[Bb]earer )\S+")

_VERSION = re.compile(r"/v\d+[a-z]*$")


@quick()
class Timeouts:
    """In seconds; None is for ever.

    `connect`: until a connection is open. `first_byte`: from the request to the first byte of the answer's body, in
    which a server may load a model and read a long prompt. `silence`: between two bytes of the answer; an event
    that only keeps the connection alive counts.
    """

    connect: float | None = 10.0
    first_byte: float | None = 300.0
    silence: float | None = 120.0


_DEFAULTS = Timeouts()


class ConnectionOptions(TypedDict, total=False):
    """What every provider over HTTP takes besides its own settings.

    `timeout`: the three of them; a number is that for the first byte and for silence, None is for ever. `retries`: how
    many times more a request is sent that failed before it said anything (`retry.py`; default 2). `ca_file`: a PEM
    file of the CAs to trust instead of the system's (and of SSL_CERT_FILE). `clock`: time and chance for retries.
    `longest_wait`: the longest wait in seconds that a server may ask for before the next of them (60).
    Proxies are those of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY; this machine itself is reached without one.
    """

    timeout: Timeouts | float | None
    retries: int
    longest_wait: float
    ca_file: str | os.PathLike[str] | None
    clock: Clock


class HttpApi:
    """One model API at one base URL.

    `secrets` never appear in a message. Made without touching the network; a client is made at the first request of
    each event loop, for connections belong to the loop they were opened in. Raises ConfigurationError for a base URL, a
    timeout, a number of retries or a CA file that cannot be.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        secrets: tuple[str, ...] = (),
        timeout: Timeouts | float | None = _DEFAULTS,
        retries: int = RETRIES,
        longest_wait: float = LONGEST_SECONDS,
        ca_file: str | os.PathLike[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._url = _checked_url(base_url)
        self._urls: dict[str, httpx2.URL] = {}
        self._headers = dict(headers)
        self.secrets = tuple(secret for secret in secrets if len(secret) >= 4)
        self._timeouts = _timeouts(timeout)
        self._trusted = None if ca_file is None else _trusting(ca_file)
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}
        self._closed = False
        if retries < 0:
            raise ConfigurationError(f"retries={retries} must be 0 or more")
        self.retries = retries
        self.longest_wait = longest_wait
        self.clock = clock

    @property
    def address(self) -> str:
        """The base URL as it may be shown: without user, password and query."""
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
        """Sends `body` as JSON, or these bytes, to `path` below the base URL; leaving the context closes the response.

        A path that begins with / lies below the server's root: the base URL without the version at its end. `query`
        comes beside what the base URL asks for, `headers` in place of the provider's own of the same name.

        Raises ProviderError: for a status that is no success, and for whatever happens to the connection, also
        inside the context. Raises ConfigurationError if `body` is no JSON.
        """
        content = body if isinstance(body, bytes) else _encode(body)
        url = self._below(path)
        if query:
            url = url.copy_merge_params(query)
        reply: Reply | None = None
        try:
            async with self._sent("POST", url, content, headers) as response:
                if not response.is_success:
                    raise await self._refusal(response)
                reply = Reply(response)
                yield reply
        except ProviderError as error:
            text, safe = str(error), self.hide(str(error))
            if safe == text:
                raise
            # `from None`: the original would show in the traceback what was hidden.
            raise error.with_message(safe) from None
        except httpx2.HTTPError as error:
            why = self.hide(shortened(str(error))) or type(error).__name__
            received = None if reply is None else reply.received
            raise transport_error(self.address, why, error, received, self._timeouts.connect or 0) from error

    async def get(self, path: str, *, refusals: Container[int] = ()) -> JSON:
        """What stands at `path` below the base URL, as JSON; None if it is none, or no success. Raises ProviderError if
        nobody answers, and for a status of `refusals`."""
        url = self._below(path)
        refused: ProviderError | None = None
        try:
            async with self._sent("GET", url) as response:
                if response.is_success:
                    return await Reply(response).json()
                if response.status_code in refusals:
                    refused = await self._refusal(response)
        except ProviderError:
            return None
        except httpx2.HTTPError as error:
            why = self.hide(shortened(str(error))) or type(error).__name__
            raise transport_error(self.address, why, error, None, self._timeouts.connect or 0) from error
        if refused is not None:
            raise refused
        return None

    async def _refusal(self, response: httpx2.Response) -> ProviderError:
        """The error of a response that is no success."""
        body = self.hide((await _beginning(response)).decode("utf-8", "replace")).encode()
        return status_error(self.address, response.status_code, response.headers, body, self.clock.now())

    def _below(self, path: str) -> httpx2.URL:
        """The address of `path` below the base URL; a provider asks for the same again and again."""
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
            for end in range(len(secret) - 1, 3, -1) if "…" in text else ():  # it was shortened in its middle
                text = text.replace(f"{secret[:end]}…", "[API key]…")
        return _KEYS.sub("[API key]", text)

    def dropped(self, reply: Reply) -> ProviderError:
        """The error of a stream that stopped in the middle."""
        return dropped_error(self.address, reply.received)

    async def aclose(self) -> None:
        """Closes the connections; no request can be made afterwards."""
        self._closed = True
        clients, self._clients = self._clients, {}
        here = asyncio.get_running_loop()
        for loop, client in clients.items():
            if loop is here:
                await client.aclose()
            elif loop.is_running():  # connections belong to the loop that opened them: that of `run_sync`, say
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(client.aclose(), loop))

    @asynccontextmanager
    async def _sent(
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
            raise ConfigurationError("this provider was closed; make a new one")
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for other in [known for known in self._clients if known.is_closed()]:
                self._clients.pop(other, None)
            client = self._clients[loop] = self._make_client()
        return client

    def _make_client(self) -> httpx2.AsyncClient:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "user-agent": "toolspeak",
            **self._headers,
        }
        limits = self._timeouts
        try:
            return httpx2.AsyncClient(
                headers=headers,
                # Reading has no limit here: `TimedStream` tells the first byte from later ones.
                timeout=httpx2.Timeout(connect=limits.connect, read=None, write=limits.silence, pool=None),
                # Idle ones close after 5 seconds (httpx2); of a gateway hundreds may be idle between two turns.
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
                mounts=dict.fromkeys(_LOOPBACK),
                verify=self._trusted or _systems(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
            )
        except OSError as error:
            raise ConfigurationError(f"the CAs of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}") from error
        except (ImportError, ValueError) as error:  # a proxy in the environment that httpx2 cannot use
            raise ConfigurationError(f"the proxy settings of the environment cannot be used: {error}") from error


async def _send(
    client: httpx2.AsyncClient, method: str, url: httpx2.URL, content: bytes | None, headers: Mapping[str, str] | None
) -> httpx2.Response:
    """The response once its head has come.

    A connection that was kept open, and that its server closes when the next request comes, says nothing about the
    server (RFC 9112, 9.3.1): the request goes out on another one at once.
    """
    while True:
        opened: list[str] = []

        async def note(event: str, _info: object, opened: list[str] = opened) -> None:
            if "connect_" in event:
                opened.append(event)
            elif event == "http11.send_request_body.complete" and (sent := REQUEST_SENT.get()) is not None:
                sent()

        sent_headers = {**(headers or {}), **TRACE.get()}
        request = client.build_request(method, url, content=content, headers=sent_headers, extensions={"trace": note})
        try:
            return await client.send(request, stream=True)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            if opened:  # a new connection: there is at least one at the end, for each kept one that fails is gone
                raise


def _timeouts(timeout: Timeouts | float | None) -> Timeouts:
    if not isinstance(timeout, Timeouts):
        connect = _DEFAULTS.connect if timeout is None else min(_DEFAULTS.connect or timeout, timeout)
        timeout = Timeouts(connect, timeout, timeout)
    for name in ("connect", "first_byte", "silence"):
        seconds = cast("float | None", getattr(timeout, name))
        if seconds is not None and seconds <= 0:
            raise ConfigurationError(f"the timeout {name}={seconds} must be more than 0 seconds, or None for no limit")
    return timeout


def _trusting(ca_file: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"the CA file {os.fspath(ca_file)!r} cannot be read: {error}. It must be a PEM file."
        ) from error


@lru_cache(maxsize=4)
def _systems(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """What the system trusts, or the environment names. Reading the CAs takes a tenth of a second, in which nothing
    else goes on, so it is done once. Raises OSError."""
    return httpx2.create_ssl_context()


def _encode(body: Mapping[str, JSON]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the request's options must be JSON: {error}") from error


def _checked_url(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"the base URL {base_url!r} is none: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"the base URL {base_url!r} must start with http:// or https:// and name a host")
    return url


async def _beginning(response: httpx2.Response) -> bytes:
    """The start of an error's body; what could be read of it when the connection drops meanwhile."""
    read = bytearray()
    try:
        async with aclosing(unpacked(response)) as chunks:
            async for chunk in chunks:
                read += chunk
                if len(read) >= MAX_ERROR_BYTES:
                    break
    except httpx2.HTTPError:
        pass  # the status is the news; its text is a help
    return bytes(read)
