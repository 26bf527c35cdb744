"""HTTP for providers: one client per provider and event loop, timeouts, proxies and CAs.

`reply.py` reads the responses, `provider_failures.py` makes the errors and decides about retries.
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
from typing import TypedDict, cast

import httpx2
from pydantic_core import to_json

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, ProviderError
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
from toolspeak.providers.reply import Reply, unpacked
from toolspeak.providers.timed import TimedStream
from toolspeak.providers.trace_context import TRACE
from toolspeak.wire.json_validation import shortened
from toolspeak.wire.request_conversion import without_lone_surrogates

MAX_ERROR_BYTES = 64 * 1024

REQUEST_SENT: ContextVar[Callable[[], None] | None] = ContextVar("toolspeak_request_sent", default=None)
"""A function to call each time a whole request has been sent."""

# A proxy cannot reach these for us.
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")

# Keys in the form of common APIs, also half masked (`sk-ab***yz`), and anything after `Bearer`.
_KEYS = re.compile(r"\b(?:sk|pk|gsk|xai|hf|r8|key)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}|(?<=[Bb]earer )\S+")

_SECRET = re.compile("auth|key|token|secret|cookie|password", re.IGNORECASE)
"""Part of the name of a header that holds a secret."""

_NO_KEYS = re.compile(
    r"none|null|empty|dummy|fake|test|local|unused|placeholder|changeme|ollama|lm-?studio|vllm|llama\.cpp|"
    r"no[-_]?(api)?[-_]?key|not?[-_]?needed|not[-_]?required|(sk-)?no-key-required",
    re.IGNORECASE,
)
"""What people write in place of a key for a server that needs none. These are words of any text."""

_VERSION = re.compile(r"/v\d+[a-z]*$")


@quick()
class Timeouts:
    """Time limits in seconds; None is no limit."""

    connect: float | None = 10.0
    """To open a connection."""
    first_byte: float | None = 300.0
    """From the request to the first byte of the answer's body: the server may load a model and read a long prompt."""
    silence: float | None = 120.0
    """Between two bytes of the answer, including events that only keep the connection alive."""


_DEFAULTS = Timeouts()


class ConnectionOptions(TypedDict, total=False):
    """Settings that every provider over HTTP accepts.

    Proxies are those of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY. Requests to this machine use no proxy.
    """

    timeout: Timeouts | float | None
    """A number of seconds sets `first_byte` and `silence`; None sets no limit."""
    retries: int
    """How many times to repeat a request that fails before its first delta; default 2."""
    longest_wait: float
    """The longest wait in seconds that a server may request before a retry; default 60."""
    ca_file: str | os.PathLike[str] | None
    """A PEM file of the CAs to trust instead of the system's (and of SSL_CERT_FILE)."""
    clock: Clock
    """The time and random numbers for retries."""
    extra_headers: Mapping[str, str] | None
    """Headers of every request. They replace the API's own of the same name. A value whose header names a key, a token
    or the like never appears in a message."""


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
        timeout: Timeouts | float | None = _DEFAULTS,
        retries: int = RETRIES,
        longest_wait: float = LONGEST_SECONDS,
        ca_file: str | os.PathLike[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        extra_headers: Mapping[str, str] | None = None,
    ) -> None:
        self._url = _checked_url(base_url)
        self._urls: dict[str, httpx2.URL] = {}
        self._headers = {**headers, **{name.lower(): value for name, value in (extra_headers or {}).items()}}
        keys = [value.split()[-1] for name, value in (extra_headers or {}).items() if _SECRET.search(name) and value]
        self.secrets = tuple(key for key in (*secrets, *keys) if len(key) >= 4 and not _NO_KEYS.fullmatch(key))
        self._timeouts = _timeouts(timeout)
        self._trusted = None if ca_file is None else _cas_of(ca_file)
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}
        self._closed = False
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
            why = self.hide(shortened(str(error))) or type(error).__name__
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
            why = self.hide(shortened(str(error))) or type(error).__name__
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

    def dropped(self, reply: Reply) -> ProviderError:
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
                # Reading has no limit here: `TimedStream` limits the first byte and the later ones.
                timeout=httpx2.Timeout(connect=limits.connect, read=None, write=limits.silence, pool=None),
                # Idle connections close after 5 seconds (httpx2); a gateway may have hundreds between two turns.
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
                mounts=dict.fromkeys(_LOOPBACK),
                verify=self._trusted or _system_cas(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
            )
        except OSError as error:
            raise ConfigurationError(f"the CAs in SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}") from error
        except (ImportError, ValueError) as error:  # a proxy in the environment that httpx2 cannot use
            raise ConfigurationError(f"the proxy settings of the environment cannot be used: {error}") from error


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


def _timeouts(timeout: Timeouts | float | None) -> Timeouts:
    if not isinstance(timeout, Timeouts):
        connect = _DEFAULTS.connect if timeout is None else min(_DEFAULTS.connect or timeout, timeout)
        timeout = Timeouts(connect, timeout, timeout)
    for name in ("connect", "first_byte", "silence"):
        seconds = cast("float | None", getattr(timeout, name))
        if seconds is not None and seconds <= 0:
            raise ConfigurationError(f"the timeout {name}={seconds} must be more than 0 seconds, or None for no limit")
    return timeout


def _cas_of(ca_file: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"the CA file {os.fspath(ca_file)!r} cannot be read: {error}. It must be a PEM file."
        ) from error


@lru_cache(maxsize=4)
def _system_cas(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The CAs of the system or of the environment. Reading them blocks the event loop for a tenth of a second, so it
    happens once. Raises OSError."""
    return httpx2.create_ssl_context()


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


def _checked_url(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"the base URL {base_url!r} is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"the base URL {base_url!r} must start with http:// or https:// and name a host")
    return url


async def _beginning(response: httpx2.Response) -> bytes:
    """The start of an error's body, or less if the connection drops."""
    body = bytearray()
    try:
        async with aclosing(unpacked(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= MAX_ERROR_BYTES:
                    break
    except httpx2.HTTPError:
        pass  # the status matters; its text only helps
    return bytes(body)
