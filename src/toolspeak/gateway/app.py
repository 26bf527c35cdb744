"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from toolspeak.errors import McpError, ToolspeakError
from toolspeak.gateway.admission import Admission
from toolspeak.gateway.answer import Answering, answer, warning_header
from toolspeak.gateway.asked import OPTIONAL_TOOLS, hosted_tools_left_out, read_request
from toolspeak.gateway.config import LOOPBACK, Settings
from toolspeak.gateway.counting import counted
from toolspeak.gateway.failures import Failure, failure_of, own_failure, with_code
from toolspeak.gateway.gate import Note
from toolspeak.gateway.generation import first_generation, next_generation
from toolspeak.gateway.http import (
    ClientGone,
    Receive,
    Scope,
    Send,
    header,
    read_body,
    retry_headers,
)
from toolspeak.gateway.kept import answer_about, begin_background, read_with_memory
from toolspeak.gateway.keys import admitted
from toolspeak.gateway.logs import REQUEST_ID, log
from toolspeak.gateway.memory import PATH, ResponseMemory
from toolspeak.gateway.metrics import CONTENT_TYPE, OTHER_MODEL, Metrics
from toolspeak.gateway.models import listed_models, unreachable
from toolspeak.gateway.request import Request
from toolspeak.gateway.routing import Route, UnknownModel
from toolspeak.gateway.server_tools import ServerTools
from toolspeak.gateway.sse import json_bytes, with_notes
from toolspeak.gateway.tool_loop import with_tools
from toolspeak.gateway.toolsets import KnownTools
from toolspeak.gateway.trace import carry_trace
from toolspeak.providers.http import REQUEST_SENT
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import WireFormat, WireRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

FORMATS: Mapping[str, WireFormat] = {
    "/v1/chat/completions": OPENAI_CHAT,
    "/v1/responses": OPENAI_RESPONSES,
    "/v1/messages": ANTHROPIC,
}
"""The endpoints that ask a model, each with its API."""

COUNT_TOKENS = "/v1/messages/count_tokens"
"""The endpoint that asks how long a request is. Anthropic's clients do so to know when to shorten a conversation."""

CLIENT_LEFT = 499
"""The status that the log and the metrics have where nobody was there to be answered, as nginx's."""

_LARGE_BYTES = 256 * 1024
"""A body of so many bytes is read in a thread, so that others are answered meanwhile: 10 ms and more."""

_DECODING = 2
"""Large bodies that are read at the same time: each takes several times its size."""

_PROBED_SECONDS = 2.0
_OPEN = ("/health", "/healthz", "/readyz")
_ASKING = (*FORMATS, COUNT_TOKENS)
_REQUEST_ID = re.compile(r"[\w.:-]{1,100}")


class Gateway:
    """The application: one process's routes, places and counters. `current` is what new requests are answered with.
    `draining`: no new request is answered any more."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self.metrics = Metrics()
        self.current = first_generation(settings, environ, self.metrics)
        self.admission = Admission(settings.bounds)
        self.draining = False
        self.memory = None if settings.responses is None else ResponseMemory(settings.responses)
        self._environ = environ
        self._connecting: asyncio.Task[None] | None = None
        self._tools = KnownTools()
        self._decoding = asyncio.Semaphore(_DECODING)
        self._probed: tuple[float, asyncio.Future[list[str]]] | None = None
        self._hosts = {*LOOPBACK, settings.host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"the gateway speaks HTTP, not {scope['type']}")
        given = header(scope, b"x-request-id")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        REQUEST_ID.set(request_id)
        carry_trace(scope["headers"])
        request = Request(scope, receive, send, request_id, time.perf_counter(), self.current)
        others = ANTHROPIC if request.path.startswith("/v1/messages/") else OPENAI_CHAT  # for their errors
        request.wire = FORMATS.get(request.path, others)
        try:
            await self._answer(request)
        except ClientGone:
            request.status, request.facts["client_left"] = CLIENT_LEFT, True
            self.metrics.gone.labels(*self._labels(request)).inc()
        except Failure as failure:
            await self._fail(request, failure)
        except ToolspeakError as error:
            await self._fail(request, failure_of(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours must not show its insides, and is logged whole
            failure = own_failure(error, request.id)
            if request.status:  # too late to say so: the connection is closed, and no client takes that for the end
                request.facts.update(error=failure.cause, code=failure.code)
            else:
                await self._fail(request, failure)
        finally:
            self._finish(request)

    async def open(self) -> None:
        """Connects to the servers whose tools the gateway runs and to the store of responses, if there are any. Raises
        McpError, JournalError."""
        if self.memory is not None:
            await self.memory.open()
        if self.current.tools is not None:
            await self.current.tools.open()

    def reload(self, settings: Settings) -> None:
        """Answers requests from now on by these settings; those under way go on with what they began with. New servers
        of tools are connected to in the background, and used then. To be called in the event loop. Raises UsageError
        for settings that cannot be: nothing changes then."""
        old = self.current
        self.current, tools = next_generation(old, settings, self._environ, self.metrics)
        if self.current.router is not old.router:
            old.router.retire()
        self.admission.resize(settings.bounds)
        self._probed = None
        if self._connecting is not None:
            self._connecting.cancel()
        if tools is not old.tools:
            self._connecting = asyncio.get_running_loop().create_task(self._take_up(tools))

    async def _take_up(self, tools: ServerTools | None) -> None:
        """Connects to servers of tools, and has requests use them from then on."""
        if tools is not None:
            try:
                await tools.open()
            except McpError as error:
                problem = f"{error} The tools of before stay."
                log("reload_failed", {"why": "tools", "problem": problem}, level=logging.ERROR)
                return
        old, self.current = self.current.tools, replace(self.current, tools=tools)
        if old is not None:
            old.retire()
        log("tools_reloaded", {})

    async def aclose(self) -> None:
        """Closes the connections to the upstreams and to the servers of tools."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self.memory is not None:
            await self.memory.aclose()
        await self.current.router.aclose()
        if self.current.tools is not None:
            await self.current.tools.aclose()
        self.metrics.close()

    # --- who may ask what --------------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> None:
        method, path = request.scope["method"], request.path
        if path in _OPEN:
            await self._health(request)
            return
        self._let_in(request)
        if path in FORMATS:
            self._expect(method, "POST")
            await self._ask(request)
        elif path.startswith(PATH):
            await answer_about(self.memory, request)
        elif path == COUNT_TOKENS:
            self._expect(method, "POST")
            await self._count_tokens(request)
        elif path == "/v1/models" or path.startswith("/v1/models/"):
            self._expect(method, "GET")
            await self._models(request, path.removeprefix("/v1/models").removeprefix("/"))
        elif path == "/metrics":
            self._expect(method, "GET")
            if request.key is not None and not request.key.metrics:
                raise Failure(403, "this key may not read /metrics: its table [[key]] has no metrics = true", "metrics")
            await request.respond(200, self.metrics.text(), content_type=CONTENT_TYPE.encode())
        else:
            known = ", ".join([*FORMATS, COUNT_TOKENS, "/v1/models", "/healthz", "/readyz", "/metrics"])
            raise Failure(404, f"there is nothing at {path}; known: {known}", "not_found")

    def _expect(self, method: str, wanted: str) -> None:
        if method != wanted and (method, wanted) != ("HEAD", "GET"):
            raise Failure(405, f"{method} is not answered here: send {wanted}", "method_not_allowed")

    def _let_in(self, request: Request) -> None:
        """Raises Failure for a request that is not to be answered, whatever it asks."""
        headers = request.scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        settings = request.current.settings
        if size > settings.bounds.header_bytes:
            raise Failure(431, f"the headers are larger than {settings.bounds.header_bytes} bytes", "headers_too_large")
        if settings.keys:
            request.key = admitted(headers, settings.keys)
            if request.key is None:
                raise Failure(
                    401,
                    "the gateway wants an API key of its own: Authorization: Bearer KEY, or x-api-key",
                    "invalid_api_key",
                )
            if request.key.expires is not None and request.key.expires <= time.time():
                raise Failure(401, f"the API key {request.key.name!r} has expired", "expired_api_key")
        elif _host(header(request.scope, b"host")) not in self._hosts:
            # A page whose name leads to this machine (DNS rebinding) could ask in its reader's name.
            raise Failure(
                403, "the gateway has no API keys, so it answers this machine only: call it by its address", "host"
            )

    # --- endpoints ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _taken(self, request: Request) -> AsyncGenerator[tuple[WireRequest, Route, Sequence[Note]]]:
        """What a client asks, the route to its model and the notes on its conversation, with a place among those that
        are answered.

        Raises Failure, ClientGone, FormatError, UnknownModel.
        """
        if self.draining:
            raise Failure(503, "the gateway is being stopped: ask another one, or again soon", "gateway_draining", 1)
        kind = header(request.scope, b"content-type").partition(";")[0].strip().lower()
        if kind != "application/json":  # what a form of any web page may send without asking is none
            raise Failure(415, "send the request as JSON: content-type: application/json", "content_type")
        settings = request.current.settings
        bounds = settings.bounds
        async with self.admission.place():
            self.metrics.show_load(self.admission.active, self.admission.queued)
            body = b""
            if request.read is None:
                body = await read_body(request.scope, request.receive, bounds.body_bytes)
                if settings.log_content:
                    request.facts["request"] = body.decode("utf-8", "replace")
                if self.memory is not None and request.wire is OPENAI_RESPONSES:
                    request.read = await read_with_memory(self.memory, request, body, bounds, self._decoding)
                elif len(body) >= _LARGE_BYTES:
                    async with self._decoding:
                        request.read = await asyncio.to_thread(read_request, request.wire, body, bounds)
            started = await self.admission.start()
            REQUEST_SENT.set(started)
            try:
                asked, notes = request.read or read_request(request.wire, body, bounds)
                if asked.request.tools:
                    asked = replace(asked, request=replace(asked.request, tools=self._tools.known(asked.request.tools)))
                request.model, request.stream = asked.model, asked.stream
                current = request.current = self.current  # as of now, whatever was reloaded since it came
                with current.router.route(asked.model, request.allows) as route, current.tools_used():
                    yield asked, route, notes
            finally:
                started()

    async def _ask(self, request: Request) -> None:
        async with self._taken(request) as (asked, route, notes):
            current, keeping, memory = request.current, request.keeping, self.memory
            answering = Answering(
                request.wire, asked, route, current.settings, request.receive, request.send, request.id, request.headers
            )
            optional = {kind.strip() for kind in header(request.scope, OPTIONAL_TOOLS.encode()).split(",")}
            answering.report.notes += notes
            answering.report.notes += hosted_tools_left_out(asked, route, request.wire.name, optional)
            if memory is not None and keeping is not None:
                answering.memory, answering.keeping = memory, keeping
                if request.runs:
                    await memory.started(keeping.response_id)
                elif keeping.background:
                    request.read = (asked, notes)
                    await begin_background(memory, request, asked, self._ask, self._finish)
                    return
            if current.tools is not None:
                running = current.tools.begin(request.id, log_content=current.settings.log_content)
                answering.tools = (current.tools, running)
            try:
                await answer(answering)
            finally:
                request.status = answering.status
                request.ran_tools = answering.tools is not None and answering.tools[1].changed
                request.facts.update((name, fact) for name, fact in answering.facts().items() if fact is not None)
                self._count(request, answering)

    async def _count_tokens(self, request: Request) -> None:
        async with self._taken(request) as (asked, route, mended):
            current = request.current
            if current.tools is not None:
                running = current.tools.begin(request.id, log_content=current.settings.log_content)
                asked, _ = await with_tools(current.tools, asked, running)
            found = await counted(asked, route, request.wire.name)
            request.facts.update(upstream=route.provider.name, dialect=route.dialect, input_tokens=found.tokens)
            notes = [*mended, *found.notes]
            await request.respond(200, json_bytes(with_notes(found.body, notes)), warning_header(notes))

    def _count(self, request: Request, answering: Answering) -> None:
        labels = self._labels(request)
        self.metrics.chunks.labels(*labels).inc(answering.chunks)
        if answering.first_byte is not None:
            self.metrics.first_byte.labels(*labels).observe(answering.first_byte)
        if answering.failure is not None:
            self.metrics.broken.labels(*labels, answering.failure.code).inc()
        self.metrics.count_turn(labels[1], answering.route.dialect, answering.report)

    async def _models(self, request: Request, wanted: str) -> None:
        names = filter(request.allows, await listed_models(request.current.router))
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "toolspeak"} for name in names]
        if not wanted:
            await request.respond(200, json_bytes({"object": "list", "data": rows}))
            return
        found = [row for row in rows if row["id"] == wanted]
        if not found:
            raise UnknownModel(f"there is no model {wanted!r}; GET /v1/models lists them")
        await request.respond(200, json_bytes(found[0]))

    async def _health(self, request: Request) -> None:
        self._expect(request.scope["method"], "GET")
        if request.path != "/readyz":
            await request.respond(200, b'{"status":"ok"}')
            return
        if self.draining:
            await request.respond(503, b'{"status":"draining"}')
            return
        problems = await self._problems()
        for problem in problems:  # who asks need not have a key, so only the log says which
            log("unreachable", {"problem": problem}, level=logging.WARNING)
        await request.respond(
            503 if problems else 200, b'{"status":"upstream unreachable"}' if problems else b'{"status":"ready"}'
        )

    async def _problems(self) -> list[str]:
        """What is wrong with the upstreams; asked of them once in a while, however often it is asked of us."""
        now = time.monotonic()
        if self._probed is None or now - self._probed[0] > _PROBED_SECONDS:
            self._probed = (now, asyncio.ensure_future(unreachable(self.current.router)))
        return await asyncio.shield(self._probed[1])

    # --- what is told of it ------------------------------------------------------------------------------------

    async def _fail(self, request: Request, failure: Failure) -> None:
        request.facts.setdefault("error", failure.cause)
        request.facts.setdefault("code", failure.code)
        refused = failure.status in (401, 403)
        if refused or (request.path in _ASKING and failure.status in (408, 413, 415, 429, 431, 503)):
            self.metrics.rejected.labels(failure.code).inc()
        body = failure_body(request.wire, failure)
        headers = [*retry_headers(failure.retry_after)]
        if failure.status in (408, 413, 431):
            headers.append((b"connection", b"close"))  # what is left of the request is not read
        if request.ran_tools:
            headers.append((b"x-should-retry", b"false"))  # OpenAI's and Anthropic's clients would run them again
        if failure.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await request.respond(failure.status, body, headers)

    def _labels(self, request: Request) -> tuple[str, str]:
        endpoint = request.path if request.path in _ASKING else "(other)"
        return endpoint, request.model if request.model in request.current.router.names else OTHER_MODEL

    def _finish(self, request: Request) -> None:
        if request.path not in _ASKING:
            return
        self.metrics.show_load(self.admission.active, self.admission.queued)
        seconds = time.perf_counter() - request.begun
        keeping = request.keeping
        queued = keeping is not None and keeping.background and request.status == 200 and not request.runs
        if not queued:  # a request for the background is counted when its response is made
            labels = self._labels(request)
            streamed = "true" if request.stream else "false"
            self.metrics.requests.labels(*labels, streamed, str(request.status)).inc()
            self.metrics.seconds.labels(*labels).observe(seconds)
        client = request.scope.get("client")
        log(
            "request",
            {
                "id": request.id,
                "endpoint": request.path,
                "model": request.model or None,
                "stream": request.stream,
                "status": request.status,
                "seconds": round(seconds, 4),
                "client": client[0] if client else None,
                "key": request.key.name if request.key else None,
                **request.facts,
            },
        )


def failure_body(wire: WireFormat, failure: Failure) -> bytes:
    """An error in the format of the endpoint; OpenAI's has a place for the code, Anthropic's for details."""
    body = with_code(wire.encode_error(failure.message, failure.status), failure)
    error = body.get("error")
    if isinstance(error, dict) and failure.details is not None:
        error["details"] = dict(failure.details)
    return json_bytes(body)


def _host(value: str) -> str:
    """The host of a `Host` header, without its port."""
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.partition(":")[0].lower()
