"""HTTP as providers use it: one client per provider, server-sent events, and the table of what went wrong.

Server-sent events are read by httpx2's `EventSource` (split frames, comments, CRLF, several data lines).
No retries here; `ProviderError.retryable` says where one makes sense.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import httpx2

from toolspeak.data.messages import JSON
from toolspeak.errors import ProviderError, UsageError

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 120.0
"""How long a server may say nothing: before its first byte (loading a model, reading a long prompt) and between two."""

DRAIN_SECONDS = 0.5
"""How long to wait for the end of a response whose last event has come."""

MAX_EVENT_BYTES = 64 * 1024 * 1024  # a call's argument may have 64 MiB, and a server may send it in one event
MAX_ERROR_BYTES = 64 * 1024
QUOTED_CHARACTERS = 300

# Machines a proxy cannot reach for us.
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")

# Keys as common APIs form them, also half masked (`sk-ab***yz`), and whatever follows `Bearer`.
_KEYS = re.compile(r"\b(?:sk|pk|gsk|xai|hf|r8|key)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}|(?<=[Bb]earer )\S+")

_CONTEXT_LENGTH = re.compile(
    r"context.?(?:length|window|size)|maximum context|too many tokens|prompt is too long", re.IGNORECASE
)

_HINTS: Mapping[int, str] = {
    400: "The server refuses the request; a model or server may not know one of its options.",
    401: "The API key is missing or wrong.",
    402: "The account has no credit left.",
    403: "The API key may not use this model or this address.",
    404: "Check the model's name, and that the base URL is the one with the API (it mostly ends in /v1).",
    405: "Check the base URL: it mostly ends in /v1.",
    408: "The server waited too long for the request; try again.",
    413: "The request is too large for the server: shorten the conversation or cap results lower.",
    429: "Too many requests: wait and try again.",
}


class Reply:
    """A successful response. `received` counts the characters the provider has passed on."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.received = 0
        self.completed = False
        """Whether `events` met its last event."""

    @property
    def content_type(self) -> str:
        """The media type in small letters, without parameters; empty if the server gave none."""
        return self._response.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def json(self) -> JSON:
        """The whole body. Raises ProviderError if it is no JSON."""
        return decode_json(await self._response.aread(), "a body")

    async def events(self, last: str) -> AsyncGenerator[str]:
        """The data of each server-sent event up to the one that is `last`, which is not given.

        Close it when leaving early (`aclosing`). Raises httpx2.HTTPError when the connection fails.
        """
        self._response.encoding = "utf-8"  # the only encoding of event streams (WHATWG HTML, 9.2.6)
        source = aiter(httpx2.EventSource(self._response, max_event_size=MAX_EVENT_BYTES))
        async with aclosing(cast("AsyncGenerator[httpx2.ServerSentEvent]", source)) as found:
            async for event in found:
                if event.data == last:
                    self.completed = True
                    break
                if event.data:
                    yield event.data
            if self.completed:
                # Only a response that was read to its end leaves a connection the next turn can use.
                with contextlib.suppress(TimeoutError, httpx2.HTTPError):
                    async with asyncio.timeout(DRAIN_SECONDS):
                        async for _ in found:
                            pass

    async def lines(self, longest: int = MAX_EVENT_BYTES) -> AsyncGenerator[bytes]:
        """Each line of newline-delimited JSON; blank ones are left out, and the last need not be ended.

        Close it when leaving early (`aclosing`). Raises httpx2.HTTPError when the connection fails, ProviderError for
        a line of more than `longest` bytes.
        """
        begun: list[bytes] = []  # of the line that has not ended
        size = 0
        async with aclosing(self._response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                # Not str.splitlines: it splits inside JSON strings, at U+2028 for instance.
                first, *others = chunk.split(b"\n")
                begun.append(first)
                size += len(first)
                if size > longest:
                    raise ProviderError(f"the server sent a line of more than {longest} bytes")
                if others:
                    others.insert(0, b"".join(begun))
                    begun = [others.pop()]
                    size = len(begun[0])
                    for line in others:
                        if line and not line.isspace():
                            yield line
        if (line := b"".join(begun)).strip():
            yield line


class HttpApi:
    """One model API at one base URL.

    `secrets` never appear in a message. `silence` is in seconds. Made without touching the network; the client is
    made at the first request, and again when the provider is used in another event loop (connections belong
    to the loop they were opened in).
    """

    def __init__(
        self, base_url: str, *, headers: Mapping[str, str], secrets: tuple[str, ...] = (), silence: float | None
    ) -> None:
        self._url = _checked_url(base_url)
        self._headers = dict(headers)
        self._secrets = tuple(secret for secret in secrets if len(secret) >= 4)
        self._silence = silence
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def address(self) -> str:
        """The base URL as it may be shown: without user, password and query."""
        return str(self._url.copy_with(username=None, password=None, query=None, fragment=None))

    @asynccontextmanager
    async def post(
        self, path: str, body: Mapping[str, JSON], *, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Reply]:
        """Sends `body` as JSON to `path` below the base URL; leaving the context closes the response.

        `query` comes beside what the base URL asks for.

        Raises ProviderError: for a status that is no success, and for whatever happens to the connection, also
        inside the context. Raises UsageError if `body` is no JSON.
        """
        content = _encode(body)
        url = self._url.copy_with(path=f"{self._url.path.rstrip('/')}/{path}")
        if query:
            url = url.copy_merge_params(query)
        reply: Reply | None = None
        try:
            async with self._open_client().stream("POST", url, content=content) as response:
                if not response.is_success:
                    raise self._status_error(response, await _beginning(response))
                reply = Reply(response)
                yield reply
        except ProviderError as error:
            told, shown = str(error), self.hide(str(error))
            if shown == told:
                raise
            # `from None`: the original would show in the traceback what was hidden.
            raise ProviderError(shown, status=error.status, retryable=error.retryable) from None
        except httpx2.HTTPError as error:
            raise self._transport_error(error, reply) from error

    def hide(self, text: str) -> str:
        """The text without the provider's secrets and without anything that looks like an API key."""
        for secret in self._secrets:
            text = text.replace(secret, "[API key]")
        return _KEYS.sub("[API key]", text)

    def dropped(self, reply: Reply) -> ProviderError:
        """The error of a stream that stopped in the middle."""
        return ProviderError(
            f"{self.address}: the connection dropped after {reply.received} characters of the answer", retryable=True
        )

    async def aclose(self) -> None:
        """Closes the connections; no request can be made afterwards."""
        self._closed = True
        client, loop, self._client = self._client, self._loop, None
        if client is None or loop is None or loop.is_closed():
            return
        if loop is asyncio.get_running_loop():
            await client.aclose()
        else:  # connections belong to the loop that opened them: that of `run_sync`, say
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(client.aclose(), loop))

    def _open_client(self) -> httpx2.AsyncClient:
        if self._closed:
            raise UsageError("this provider was closed; make a new one")
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = self._make_client(), loop
        return self._client

    def _make_client(self) -> httpx2.AsyncClient:
        connect = CONNECT_SECONDS if self._silence is None else min(CONNECT_SECONDS, self._silence)
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "user-agent": "toolspeak",
            **self._headers,
        }
        try:
            return httpx2.AsyncClient(
                headers=headers,
                timeout=httpx2.Timeout(self._silence, connect=connect, pool=None),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
                mounts=dict.fromkeys(_LOOPBACK),
            )
        except (ImportError, ValueError) as error:  # a proxy in the environment that httpx2 cannot use
            raise UsageError(f"the proxy settings of the environment cannot be used: {error}") from error

    def _status_error(self, response: httpx2.Response, body: bytes) -> ProviderError:
        status = response.status_code
        told = _told(body)
        hint = _HINTS.get(status, "")
        retryable = status in (408, 425, 429) or (status >= 500 and status != 501)
        if status < 400:
            where = str(response.headers.get("location", ""))[:QUOTED_CHARACTERS]
            hint = f"The server redirects to {where!r}: set the base URL to where the API is."
        elif status in (400, 413, 422, 500) and _CONTEXT_LENGTH.search(told):
            hint = (
                "The conversation is longer than the model's context: shorten it, or start the server with a larger "
                "one (llama.cpp -c, vLLM --max-model-len, Ollama OLLAMA_CONTEXT_LENGTH)."
            )
            retryable = False
        elif status == 429 and "quota" in told.lower():
            hint, retryable = "The quota of the account is used up: see its billing page.", False
        elif status >= 500:
            hint = "The server failed or is overloaded: try again, and read the server's own log if it stays so."
        wait = str(response.headers.get("retry-after", "")).strip()[:40]
        if wait:
            hint = f"{hint} Retry-After: {f'{wait} seconds' if wait.isdecimal() else wait}.".lstrip()
        quoted = f": {self.hide(told)!r}" if told else ""
        return ProviderError(
            f"{self.address} answered HTTP {status}{quoted}. {hint}".rstrip(), status=status, retryable=retryable
        )

    def _transport_error(self, error: httpx2.HTTPError, reply: Reply | None) -> ProviderError:
        here, why = self.address, self.hide(_printable(str(error))) or type(error).__name__
        match error:
            case httpx2.ConnectTimeout():
                message = f"cannot connect to {here} within {CONNECT_SECONDS:g} seconds. Check the base URL."
            case httpx2.ConnectError() if _caused_by(error, ssl.SSLError):
                return ProviderError(f"cannot connect to {here} securely: {why}. Check the base URL (http or https?).")
            case httpx2.ConnectError():
                why = "the connection was refused" if _caused_by(error, ConnectionRefusedError) else why
                message = f"cannot connect to {here}: {why}. Start the server there, or correct the base URL."
            case httpx2.ProxyError():
                message = f"cannot reach {here} through the proxy of the environment: {why}."
            case httpx2.TimeoutException():
                after = "" if reply is None else f" after {reply.received} characters of the answer"
                message = f"{here} said nothing for {self._silence:g} seconds{after}. Is it overloaded?"
            case (
                httpx2.SSEError() | httpx2.DecodingError() | httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol()
            ):
                return ProviderError(f"{here}: {why}")
            case _ if reply is None:
                message = f"{here}: the connection dropped before an answer came: {why}"
            case _:
                return self.dropped(reply)
        return ProviderError(message, retryable=True)


def decode_json(data: str | bytes, what: str) -> JSON:
    """JSON a server sent. Raises ProviderError quoting `data` if it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        raise ProviderError(f"the server sent {what} that is not JSON: {_printable(text)!r}") from error


def _encode(body: Mapping[str, JSON]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the request's options must be JSON: {error}") from error


def _checked_url(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise UsageError(f"the base URL {base_url!r} is none: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"the base URL {base_url!r} must start with http:// or https:// and name a host")
    return url


async def _beginning(response: httpx2.Response) -> bytes:
    """The start of an error's body; what could be read of it when the connection drops meanwhile."""
    read = bytearray()
    try:
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                read += chunk
                if len(read) >= MAX_ERROR_BYTES:
                    break
    except httpx2.HTTPError:
        pass  # the status is the news; its text is a help
    return bytes(read)


def _told(body: bytes) -> str:
    """What an error's body says, in one short line: the message in it if it is JSON of a common form."""
    text = body.decode("utf-8", "replace")
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return _printable(text)
    for _ in range(2):
        if isinstance(found, dict):
            fields = cast("dict[str, Any]", found)
            found = fields.get("error") or fields.get("message") or fields.get("detail") or text
    return _printable(found if isinstance(found, str) else text)


def _printable(text: str) -> str:
    """One line without control characters, of at most 300 characters."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * QUOTED_CHARACTERS]).split())
    return shown if len(shown) <= QUOTED_CHARACTERS else shown[: QUOTED_CHARACTERS - 1] + "…"


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
