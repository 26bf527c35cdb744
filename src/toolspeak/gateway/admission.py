"""Which requests are let in, and when: keys, web pages of other origins, and a queue.

A client needs one of the gateway's keys; without keys, only clients on this machine are served.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Container, Sequence
from contextlib import asynccontextmanager, suppress

from toolspeak.gateway.client_request import Request, is_allowed
from toolspeak.gateway.http.asgi import Headers, Scope, header
from toolspeak.gateway.http.error_responses import Failure, draining, gateway_stopped
from toolspeak.gateway.http.multipart_forms import FORM
from toolspeak.gateway.settings.api_keys import find_key
from toolspeak.gateway.settings.gateway_settings import Bounds
from toolspeak.wire.json_conversion import excerpt

STARTING = 4
"""Requests that are read and sent to model servers at the same time."""

START_SECONDS = 0.02
"""Seconds after which a request that is not sent yet waits for the network, and blocks no other."""

_TOKENS = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
_MOST_HEADERS = 4096
_METHODS = b"GET, POST, DELETE"
_PREFLIGHT_SECONDS = b"600"


# --- keys ---------------------------------------------------------------------------------------------------------


def authenticate(request: Request, hosts: Container[str]) -> None:
    """Authenticates a request and stores its key. `hosts`: the names of this machine.

    Raises Failure for a request without a valid key, or, if the gateway has no keys, from elsewhere.
    """
    headers = request.scope["headers"]
    size = sum(len(name) + len(value) for name, value in headers)
    settings = request.current.settings
    if size > settings.bounds.header_bytes:
        raise Failure(431, f"the headers are larger than {settings.bounds.header_bytes} bytes", "headers_too_large")
    if settings.keys:
        request.key = find_key(headers, settings.keys)
        if request.key is None:
            has_key = header(request.scope, b"authorization") or header(request.scope, b"x-api-key")
            why = "this key is not known here; " if has_key else ""
            remedy = "the gateway needs one of its own API keys: Authorization: Bearer KEY, or x-api-key"
            raise Failure(401, why + remedy, "invalid_api_key")
        if request.key.expires is not None and request.key.expires <= time.time():
            raise Failure(401, f"the API key {request.key.name!r} has expired", "expired_api_key")
    else:
        _check_host(request, hosts)
        origin = header(request.scope, b"origin")
        is_form = header(request.scope, b"content-type").lower().startswith(FORM)
        if origin and is_form and not is_allowed(origin, settings.cors):
            # Browsers send a form of any page without a preflight.
            problem = "the gateway has no API keys, so it takes no forms from web pages; its operator can add keys"
            raise Failure(403, problem, "origin")


async def answer_preflight(request: Request, hosts: Container[str]) -> None:
    """Answers a browser that asks whether a page may send its request. Raises Failure if it may not."""
    settings = request.current.settings
    if not settings.keys:
        _check_host(request, hosts)
    headers = preflight_headers(request.scope, settings.cors)
    if headers is None:
        origin = excerpt(header(request.scope, b"origin"), 200)
        problem = f"pages of {origin} may not call the gateway; its operator can allow them (--cors)"
        raise Failure(403, problem, "origin")
    await request.respond(204, b"", headers)


def _check_host(request: Request, hosts: Container[str]) -> None:
    host = header(request.scope, b"host")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()  # without the port
    if name not in hosts:
        # A page whose name resolves to this machine (DNS rebinding) could send requests for its reader.
        raise Failure(
            403, "the gateway has no API keys, so it answers only this machine; call it by its address", "host"
        )


def expect(method: str, required_method: str) -> None:
    """Raises Failure unless the request uses the wanted method (HEAD counts as GET)."""
    if method != required_method and (method, required_method) != ("HEAD", "GET"):
        raise Failure(405, f"{method} is not supported here; send {required_method}", "method_not_allowed")


# --- web pages of other origins (Fetch Standard, "CORS protocol") ---------------------------------------------------


def is_preflight(scope: Scope) -> bool:
    """Whether this is a browser's question if a page may send a request."""
    return (
        scope["method"] == "OPTIONS"
        and bool(header(scope, b"origin"))
        and bool(header(scope, b"access-control-request-method"))
    )


def preflight_headers(scope: Scope, origins: Sequence[str]) -> Headers | None:
    """The headers of the answer to a preflight, besides `cors_headers`; None if the page may not send its request.

    The origin alone decides: a page may send any header, because SDKs have many of their own. For a gateway in a
    private network the answer has to allow that too (Private Network Access).
    """
    if not is_allowed(header(scope, b"origin"), origins):
        return None
    headers = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _PREFLIGHT_SECONDS)]
    requested_headers = header(scope, b"access-control-request-headers")
    if len(requested_headers) <= _MOST_HEADERS and _TOKENS.fullmatch(requested_headers):
        headers.append((b"access-control-allow-headers", requested_headers.encode("latin-1")))
    if header(scope, b"access-control-request-private-network") == "true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers


# --- the queue ---------------------------------------------------------------------------------------------------


class Admission:
    """Places for requests, in the order of arrival. For one event loop."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._starting = asyncio.Semaphore(STARTING)
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_stopped = False

    @property
    def queue_length(self) -> int:
        return len(self._waiting)

    def resize(self, bounds: Bounds) -> None:
        """Applies other bounds. Requests keep their places, and waiting requests their time limit."""
        self._bounds = bounds
        while self._waiting and self.active < bounds.streams:
            turn = self._waiting.popleft()
            if not turn.done():
                self.active += 1
                turn.set_result(None)

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """A place during the context. Raises Failure if no place is free, or if `stop` ends the request."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        has_place = False
        try:
            await self._enter()
            has_place = True
            yield
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            task.uncancel()
            raise (gateway_stopped() if has_place else draining()) from None
        finally:
            self._tasks.discard(task)
            if has_place:
                self._leave()

    async def _enter(self) -> None:
        if self.active < self._bounds.streams and not self._waiting:
            self.active += 1
            self._idle.clear()
            return
        if len(self._waiting) >= self._bounds.queue:
            raise Failure(429, "too many requests are waiting; try again later", "gateway_busy", 1)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._bounds.queue_seconds):
                await turn
        except TimeoutError:
            raise Failure(
                503,
                f"no place became free within {self._bounds.queue_seconds:g} seconds; try again later",
                "gateway_busy",
                max(1.0, self._bounds.queue_seconds / 2),
            ) from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the place came together with the cancellation
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _leave(self) -> None:
        """Gives the place to the request that waits longest."""
        while self._waiting and self.active <= self._bounds.streams:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.active -= 1
        if not self.active:
            self._idle.set()

    async def start(self) -> Callable[[], None]:
        """Waits until earlier requests are sent to their model servers. Returns a function to call once this one is
        sent.

        Without it, an event loop with 100 requests takes a step of each in turn, so that none is sent before all others
        are nearly sent. In order, half of them get their first word in half the time, and the last one gets it later.
        """
        await self._starting.acquire()
        is_released = False

        def end() -> None:
            nonlocal is_released
            if not is_released:
                is_released = True
                overdue.cancel()
                self._starting.release()

        overdue = asyncio.get_running_loop().call_later(START_SECONDS, end)
        return end

    def is_stopped(self) -> bool:
        """Whether `stop` was called: then a cancelled request sends its client an error."""
        return self._is_stopped

    async def stop(self, seconds: float) -> int:
        """Cancels all requests, also those that wait, and returns their number. Waits for their end, at most so many
        seconds."""
        self._is_stopped = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await self.wait_until_idle(seconds)
        return len(tasks)

    async def wait_until_idle(self, seconds: float) -> None:
        """Returns once no request has a place, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
