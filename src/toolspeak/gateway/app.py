"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from toolspeak.data.values import evolve
from toolspeak.errors import McpError, ToolspeakError
from toolspeak.gateway.admission import Admission, answer_preflight, authenticate, expect, is_preflight
from toolspeak.gateway.client_request import AnswerContext, Request
from toolspeak.gateway.http.asgi import ClientGone, Fields, Receive, Scope, Send, header, read_body, with_notes
from toolspeak.gateway.http.error_responses import (
    UPSTREAM_CODES,
    Failure,
    draining,
    failure_body,
    failure_headers,
    failure_of,
)
from toolspeak.gateway.http.multipart_forms import FORM
from toolspeak.gateway.model_list import answer_models
from toolspeak.gateway.observability import CONTENT_TYPE, OTHER_MODEL, Metrics, RequestTracer, begin_trace, log
from toolspeak.gateway.readiness import OPEN, Readiness
from toolspeak.gateway.requests.request_mapping import (
    KnownTools,
    checked_fields,
    defers_tools,
    is_relayed,
    passing_headers,
    read_fields,
    read_request,
)
from toolspeak.gateway.response_endpoints import answer_about, begin_background
from toolspeak.gateway.responses.endpoint_relay import KINDS, RELAY_PATHS, pass_on, read_relay_request
from toolspeak.gateway.responses.relayed_answer import relay
from toolspeak.gateway.responses.translated_answer import answer, warning_header
from toolspeak.gateway.running_streams import StreamTable
from toolspeak.gateway.server_tools.hosted_tools import OPTIONAL_TOOLS, HostedTools, routes_that_support
from toolspeak.gateway.server_tools.tool_loop import with_tools
from toolspeak.gateway.server_tools.tool_servers import ServerTools
from toolspeak.gateway.settings.gateway_settings import LOOPBACK, Settings
from toolspeak.gateway.settings_generation import first_generation, next_generation
from toolspeak.gateway.stored.response_memory import PATH, ResponseMemory
from toolspeak.gateway.token_counting import count_request_tokens
from toolspeak.gateway.turns.turn_gate import Note
from toolspeak.gateway.upstreams.load_balancing import prefix_of
from toolspeak.gateway.upstreams.routing import Routes, sole_model
from toolspeak.gateway.usage.accounts import Account, Accounts
from toolspeak.providers.http_client import REQUEST_SENT, json_bytes
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, WireFormat, WireRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

T = TypeVar("T")

FORMATS: Mapping[str, WireFormat] = {
    "/v1/chat/completions": OPENAI_CHAT,
    "/v1/responses": OPENAI_RESPONSES,
    "/v1/messages": ANTHROPIC,
}
"""The endpoints that ask a model, each with its API."""

COUNT_TOKENS = "/v1/messages/count_tokens"
"""The endpoint that asks how long a request is. Anthropic's clients do so to know when to shorten a conversation."""

CLIENT_LEFT = 499
"""The status, in log and metrics, of a request whose client left before its answer; nginx uses the same."""

_LARGE_BYTES = 256 * 1024
"""Bytes from which on a body is decoded in a thread: it takes 10 ms or more, in which other requests would wait."""

_LAST_SECONDS = 1.0  # at the end of the gateway, for the counts of answers that were cut off
_DECODING = 2
"""Large bodies that are decoded at the same time: each takes several times its size in memory."""

_ASKING = frozenset((*FORMATS, COUNT_TOKENS, *RELAY_PATHS))
_REQUEST_ID = re.compile(r"[\w.:-]{1,100}")


class Gateway:
    """The application: routes, admission and counters of one process. `current` answers new requests. While `draining`,
    new requests get a 503."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], *, tracer: RequestTracer | None = None) -> None:
        self.metrics = Metrics()
        self._tracer = tracer
        self.current = first_generation(settings, environ, self.metrics)
        self.metrics.show_keys(settings.keys)
        self.metrics.show_models(self.current.router.names, FORMATS, UPSTREAM_CODES.values())
        self.current.router.show()
        self.admission = Admission(settings.bounds)
        self.accounts = Accounts(settings.usage, self.metrics)
        self.streams: StreamTable = {}
        self.draining = False
        self.memory = None if settings.responses is None else ResponseMemory(settings.responses)
        self._environ = environ
        self._connecting: asyncio.Task[None] | None = None
        self._tools = KnownTools()
        self._decoding = asyncio.Semaphore(_DECODING)
        self._readiness = Readiness()
        self._hosts = {*LOOPBACK, settings.host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"the gateway speaks HTTP, not {scope['type']}")
        client_id = header(scope, b"x-request-id")
        request_id = client_id if _REQUEST_ID.fullmatch(client_id) else f"req_{secrets.token_hex(12)}"
        request = Request(scope, receive, send, request_id, time.perf_counter(), self.current)
        tracer = self._tracer if request.path in _ASKING else None
        request.trace = begin_trace(tracer, request.path, request_id, scope["headers"])
        others = ANTHROPIC if request.path.startswith("/v1/messages/") else OPENAI_CHAT  # for their errors
        request.wire = FORMATS.get(request.path, others)
        try:
            await self._answer(request)
        except ClientGone:
            request.status, request.facts["client_left"] = CLIENT_LEFT, True
            self.metrics.clients_gone.labels(*self._labels(request)).inc()
        except Exception as error:  # noqa: BLE001 - a bug of the gateway has an answer too
            failure = failure_of(error, request.id)
            is_bug = not isinstance(error, Failure | ToolspeakError)
            if request.status and is_bug:
                # Too late to say so: the connection is closed, and no client takes that for the end.
                request.facts.update(error=failure.cause, code=failure.code)
            else:
                await self._fail(request, failure)
        finally:
            self._finish(request)

    async def open(self) -> None:
        """Connects to the stores and to the servers whose tools the gateway runs. Raises JournalError, McpError."""
        await self.accounts.open()
        if self.memory is not None:
            await self.memory.open()
        if self.current.tools is not None:
            await self.current.tools.open()

    def reload(self, settings: Settings) -> None:
        """Applies these settings to new requests; requests under way keep theirs. Connects new tool servers in the
        background, and uses them once they answer. Call it in the event loop. Raises ConfigurationError for invalid
        settings, and then changes nothing."""
        old = self.current
        new, tools = next_generation(old, settings, self._environ, self.metrics)
        self.accounts.begin(new.settings.usage)
        self.current = new
        if self.current.router is not old.router:
            self.current.router.take_over(old.router)
            old.router.retire()
            self.metrics.show_models(self.current.router.names, FORMATS, UPSTREAM_CODES.values())
            self.current.router.show()
        self.metrics.show_keys(new.settings.keys)
        self.admission.resize(settings.bounds)
        if self._connecting is not None:
            self._connecting.cancel()
        if tools is not old.tools:
            self._connecting = asyncio.get_running_loop().create_task(self._take_up(tools))

    async def _take_up(self, tools: ServerTools | None) -> None:
        """Connects to tool servers, and then uses them for new requests."""
        if tools is not None:
            try:
                await tools.open()
            except McpError as error:
                problem = f"{str(error).rstrip('.')}. The tools of before stay."
                self.metrics.count_reload(succeeded=False)
                log("reload_failed", {"why": "tools", "problem": problem}, level=logging.ERROR)
                return
        old, self.current = self.current.tools, replace(self.current, tools=tools)
        if old is not None:
            old.retire()
        log("tools_reloaded", {})

    async def aclose(self) -> None:
        """Closes the connections to upstreams, tool servers and stores."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self.memory is not None:
            await self.memory.aclose()
        await self.current.router.aclose()
        if self.current.tools is not None:
            await self.current.tools.aclose()
        await self.admission.wait_until_idle(_LAST_SECONDS)
        await self.accounts.aclose()
        self.metrics.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.flush)

    # --- dispatch ----------------------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> None:
        method, path = request.scope["method"], request.path
        if request.current.settings.cors and is_preflight(request.scope):
            await answer_preflight(request, self._hosts)
            return
        if path in OPEN:
            expect(method, "GET")
            await self._readiness.answer(request, self.current.router, draining=self.draining)
            return
        authenticate(request, self._hosts)
        if path in FORMATS:
            expect(method, "POST")
            await self._ask(request)
        elif path.startswith(PATH):
            await answer_about(self.memory, request)
        elif path == COUNT_TOKENS:
            expect(method, "POST")
            await self._count_tokens(request)
        elif path in RELAY_PATHS:
            expect(method, "POST")
            await self._pass_on(request)
        elif path == "/v1/models" or path.startswith("/v1/models/"):
            expect(method, "GET")
            await answer_models(request, path.removeprefix("/v1/models").removeprefix("/"))
        elif path == "/metrics":
            expect(method, "GET")
            if request.key is not None and not request.key.metrics:
                raise Failure(403, "this key may not read /metrics: its table [[key]] has no metrics = true", "metrics")
            await request.respond(200, self.metrics.text(), content_type=CONTENT_TYPE.encode())
        else:
            paths = ", ".join([*FORMATS, COUNT_TOKENS, *RELAY_PATHS, "/v1/models", "/healthz", "/readyz", "/metrics"])
            raise Failure(404, f"there is nothing at {path}; known: {paths}", "not_found")

    # --- endpoints ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _admit(self, request: Request, kinds: Sequence[str]) -> AsyncGenerator[Account]:
        """Gives a request a place and its account. `kinds`: the content types that its body may have.

        Raises Failure.
        """
        if self.draining:
            raise draining()
        kind = header(request.scope, b"content-type").partition(";")[0].strip().lower()
        if kind not in kinds:  # a web page may send other types without a preflight
            raise Failure(415, f"send the request as {kinds[0]}: the header content-type has to say so", "content_type")
        account = request.account = request.account or self.accounts.account(request.key, request.wire)
        async with account, self.admission.place():
            self.metrics.show_load(self.admission.active, self.admission.queue_length)
            yield account

    async def _body(self, request: Request, account: Account) -> bytes:
        """The body of a request. Raises Failure, ClientGone."""
        settings = request.current.settings
        body = await read_body(request.scope, request.receive, settings.bounds.body_bytes)
        request.size = len(body)
        await account.begin(request.size)
        if settings.log_content:
            is_form = header(request.scope, b"content-type").lower().startswith(FORM)
            request.facts["request"] = f"a form of {len(body)} bytes" if is_form else body.decode("utf-8", "replace")
        return body

    @asynccontextmanager
    async def _routes_of(self, request: Request, account: Account) -> AsyncGenerator[Routes]:
        """The routes to the model that a request names. Raises UnknownModel."""
        end_start = await self.admission.start()
        REQUEST_SENT.set(end_start)
        try:
            current = request.current = self.current  # the newest, if there was a reload since the request came
            tools_used = nullcontext() if current.tools is None else current.tools.in_use()
            with current.router.routes(request.model, request.allows) as routes, tools_used:
                account.model = request.model
                yield routes
        finally:
            end_start()

    @asynccontextmanager
    async def _fields_and_routes(self, request: Request) -> AsyncGenerator[tuple[Fields, Routes]]:
        """Gives a request a place, and returns its fields and the routes to its model.

        Raises Failure, ClientGone, FormatError, UnknownModel.
        """
        async with self._admit(request, ("application/json",)) as account:
            fields, bounds = request.fields, request.current.settings.bounds
            if not fields:
                body = await self._body(request, account)
                fields = await self._apart(request, partial(read_fields, body, bounds))
                if self.memory is not None and request.wire is OPENAI_RESPONSES:
                    fields, request.keeping = await self.memory.compose(fields, request.owner, bounds.body_bytes)
                    request.size = len(body) if request.keeping.previous is None else _LARGE_BYTES
                request.fields = fields
                request.model, request.stream = cast("str", fields["model"]), fields.get("stream") is True
            async with self._routes_of(request, account) as routes:
                yield fields, routes

    async def _pass_on(self, request: Request) -> None:
        """Passes a request on to an endpoint that the gateway does not translate."""
        kind = header(request.scope, b"content-type")
        async with self._admit(request, KINDS[request.path]) as account:
            body = await self._body(request, account)
            read = partial(read_relay_request, request.path, kind, body, request.current.settings.bounds)
            relay_request = await self._apart(request, read)
            request.model = relay_request.model or sole_model(self.current.settings)
            request.stream = relay_request.stream
            async with self._routes_of(request, account) as routes:
                wire_request = WireRequest(ModelRequest(()), request.model, relay_request.stream, True)
                answering = AnswerContext(request, wire_request, routes, self.admission.is_stopped)
                account.usage_of = partial(answering.relayed_usage, 0 if FORM in KINDS[request.path] else request.size)
                await self._run_answer(request, answering, pass_on(answering, relay_request, request.path, kind))

    async def _apart(self, request: Request, read: Callable[[], T]) -> T:
        """Calls `read`; for a large body in a thread."""
        if request.size < _LARGE_BYTES:
            return read()
        async with self._decoding:
            return await asyncio.to_thread(read)

    async def _read(self, request: Request, fields: Fields) -> tuple[WireRequest, Sequence[Note]]:
        """The decoded request, and notes on repairs of its conversation."""
        bounds = request.current.settings.bounds
        wire_request, notes = await self._apart(request, partial(read_request, request.wire, fields, bounds))
        if wire_request.request.tools:
            tools = self._tools.intern(wire_request.request.tools)
            wire_request = evolve(wire_request, request=evolve(wire_request.request, tools=tools))
        if request.keeping is not None:
            wire_request = evolve(wire_request, echo_fields=request.keeping.storage_fields)
        return wire_request, notes

    async def _ask(self, request: Request) -> None:
        async with self._fields_and_routes(request) as (fields, routes):
            current, keeping, memory = request.current, request.keeping, self.memory
            notes: Sequence[Note] = ()
            keeps = keeping is not None and (keeping.store or keeping.previous)
            is_own = current.tools is not None or keeps or defers_tools(fields, routes.most_tools)
            is_relay = not is_own and all(is_relayed(fields, request.wire, route) for route in routes.routes)
            if is_relay:
                wire_request = checked_fields(fields, request.wire, current.settings.bounds)
            else:
                wire_request, notes = await self._read(request, fields)
            hosted_tools: HostedTools | None = None
            if request.wire is OPENAI_RESPONSES:
                optional = {kind.strip() for kind in header(request.scope, OPTIONAL_TOOLS.encode()).split(",")}
                routes, hosted_tools, left_out = routes_that_support(wire_request, routes, optional, current.tools)
                notes = [*notes, *left_out]
            answering = AnswerContext(request, wire_request, routes, self.admission.is_stopped)
            answering.hosted_tools = hosted_tools
            if routes.pool.policy == "sticky":
                answering.prefix = await self._apart(request, partial(prefix_of, fields))
            answering.report.notes += notes
            if memory is not None and keeping is not None:
                answering.memory = memory
                if request.runs:
                    await memory.mark_started(keeping.response_id)
                elif keeping.background:
                    await begin_background(memory, request, wire_request, self._ask, self._finish)
                    return
            answering.tools = request.begin_tools()
            headers = passing_headers(request.scope["headers"])
            answering.native_request = None if is_own else (fields, headers)
            if is_relay:
                answering.account.usage_of = partial(answering.relayed_usage, request.size)
            working = relay(answering, fields, headers) if is_relay else answer(answering)
            await self._run_answer(request, answering, working)

    async def _run_answer(self, request: Request, answering: AnswerContext, working: Coroutine[Any, Any, None]) -> None:
        """Runs the work of an answer, and stores its facts for the log."""
        self.streams[answering.running] = None
        try:
            await working
        finally:
            del self.streams[answering.running]
            request.ran_tools = answering.tools is not None and answering.tools[1].changed
            request.facts.update((name, fact) for name, fact in answering.facts().items() if fact is not None)
            answering.count(self.metrics, *self._labels(request))

    async def _count_tokens(self, request: Request) -> None:
        async with self._fields_and_routes(request) as (fields, routes):
            wire_request, repairs = await self._read(request, fields)
            running = request.begin_tools()
            wire_request, _ = await with_tools(running, wire_request, most_tools=routes.most_tools)
            count = await count_request_tokens(wire_request, routes, request.wire.name)
            name, dialect = count.route.provider.name, count.route.dialect
            request.facts.update(upstream=name, dialect=dialect, input_tokens=count.tokens)
            notes = [*repairs, *count.notes]
            await request.respond(200, json_bytes(with_notes(count.body, notes)), warning_header(notes))

    # --- errors, metrics and the log ----------------------------------------------------------------------------

    async def _fail(self, request: Request, failure: Failure) -> None:
        request.facts.setdefault("error", failure.cause)
        request.facts.setdefault("code", failure.code)
        rejecting = (401, 403, 408, 413, 415, 429, 431, 503) if request.path in _ASKING else (401, 403)
        if failure.status in rejecting:
            self.metrics.rejections.labels(failure.code).inc()
        body = failure_body(request.wire, failure)
        headers = failure_headers(failure)
        if request.ran_tools:
            # Else OpenAI's and Anthropic's clients would send the request again.
            headers.append((b"x-should-retry", b"false"))
        await request.respond(failure.status, body, headers)

    def _labels(self, request: Request) -> tuple[str, str]:
        endpoint = request.path if request.path in _ASKING else "(other)"
        return endpoint, request.model if request.model in request.current.router.names else OTHER_MODEL

    def _finish(self, request: Request) -> None:
        if request.path not in _ASKING or request.scope["method"] == "OPTIONS":
            return
        self.metrics.show_load(self.admission.active, self.admission.queue_length)
        seconds = time.perf_counter() - request.began_at
        keeping = request.keeping
        is_queued = keeping is not None and keeping.background and request.status == 200 and not request.runs
        if not is_queued:  # a background request is counted once its response is complete
            labels = self._labels(request)
            stream_label = "true" if request.stream else "false"
            self.metrics.requests.labels(*labels, stream_label, str(request.status)).inc()
            self.metrics.seconds.labels(*labels).observe(seconds)
        broke = request.status >= 500 or (request.status == 200 and request.facts.get("code") is not None)
        fields = request.log_fields(seconds)
        log("request", fields, level=logging.WARNING if broke else logging.INFO)
        if request.trace is not None:
            request.trace.end(fields, self._labels(request)[1])
