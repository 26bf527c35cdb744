"""The web view as an ASGI application: the API, the static files, and what all their answers share."""

from __future__ import annotations

import asyncio
import importlib.resources
import logging
import mimetypes
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolspeak.engines import RunClient
from toolspeak.errors import ToolspeakError
from toolspeak.journal import MemoryJournal
from toolspeak.journal.base import Journal
from toolspeak.version import __version__
from toolspeak.web_ui.access import COOKIE_SECONDS, ROLES, Access, Caller
from toolspeak.web_ui.api_errors import ApiFailure, failure_for
from toolspeak.web_ui.api_operations import OPERATIONS, ROOT, Operation, description
from toolspeak.web_ui.api_values import Me, Secret, UiRole, ViewPart
from toolspeak.web_ui.gateway_values import GatewayWatch
from toolspeak.web_ui.live_runs import LiveRuns
from toolspeak.web_ui.record_json import json_of
from toolspeak.web_ui.run_folds import RunFolds
from toolspeak.web_ui.run_views import ApiCall, UiServices

_LOG = logging.getLogger("toolspeak.web_ui")

MOST_BODY = 2 * 1024 * 1024
"""The most bytes of a request."""

MOST_STREAMS = 64
"""The most streams of events that one caller may have open."""

_BODY_SECONDS = 30.0
_PAGES = ("/", "/runs/{run_id}", "/sessions", "/compare", "/playground", "/gateway")
"""The addresses of pages: each is the same document, whose program reads the address."""

_HEADERS: Mapping[bytes, bytes] = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    b" connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    b" require-trusted-types-for 'script'; trusted-types 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


def web_app(
    journal: Journal | None,
    access: Access,
    *,
    client: RunClient | None = None,
    gateway: GatewayWatch | None = None,
) -> Starlette:
    """The application. It closes neither the journal nor the client. `journal`: None: no runs are shown. `gateway`:
    None: no gateway is shown."""
    store = MemoryJournal() if journal is None else journal
    live = LiveRuns(store)
    services = UiServices(
        store, client or RunClient(store), RunFolds(store), live, has_runs=journal is not None, gateway=gateway
    )
    endpoint = _Endpoints(services, access)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        if gateway is not None:
            gateway.begin()
        yield
        await live.aclose()
        if gateway is not None:
            await gateway.aclose()

    routes = [
        Route(ROOT + one.path, endpoint.of(one), methods=[one.method], name=one.name, include_in_schema=False)
        for one in OPERATIONS
    ]
    files = _static_files()
    page = files["index.html"]
    routes += [Route(path, _file_endpoint(*page)) for path in _PAGES]
    routes += [Route(f"/static/{name}", _file_endpoint(*each)) for name, each in files.items() if name != "index.html"]
    app = Starlette(routes=routes, middleware=[Middleware(_Guard, access)], lifespan=lifespan)
    app.state.services = services
    return app


class _Guard:
    """Refuses requests to other names, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in _HEADERS.items() if name not in names),
                    *([] if b"cache-control" in names else [(b"cache-control", b"no-store")]),
                ]
            await send(message)

        try:
            self._access.check_host(Request(scope).headers.get("host", ""))
        except ApiFailure as failure:
            await _failure(failure)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


class _Endpoints:
    """Answers the requests of the API."""

    def __init__(self, services: UiServices, access: Access) -> None:
        self._services = services
        self._access = access
        self._streams: dict[str, int] = {}

    def of(self, one: Operation) -> Any:
        """The endpoint of an operation."""

        async def endpoint(request: Request) -> Response:
            try:
                return await self._answer(one, request)
            except ApiFailure as failure:
                return _failure(failure)
            except ToolspeakError as error:
                return _failure(failure_for(error))
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except Exception:  # noqa: BLE001 - a bug has an answer too, and the log has its reason
                _LOG.exception("%s %s failed", one.method, one.path)
                return _failure(ApiFailure(500, "failed", "the server failed; its log says why"))

        return endpoint

    async def _answer(self, one: Operation, request: Request) -> Response:
        access, changes = self._access, one.method != "GET"
        if one.role is None:
            access.check_origin(request.headers)
            return await self._login(request, await _body(request, Secret))
        caller = access.caller(request.headers, request.cookies)
        access.check_rate(caller, changes=changes)
        if changes:
            access.check_change(caller, request.headers)
        access.check_role(caller, one.role)
        if one.is_about_runs and not self._services.has_runs:
            raise ApiFailure(404, "no_journal", "this server shows no runs: start it with --journal")
        if one.handler is None:
            return self._about_caller(one, caller)
        query = None if one.query is None else _convert(dict(request.query_params), one.query)
        body = None if one.body is None else await _body(request, one.body)
        path = {name: str(value) for name, value in request.path_params.items()}
        answer = await one.handler(ApiCall(self._services, caller, path, query, body, request.headers))
        if one.answer == "text/event-stream":
            return self._stream(caller, answer)
        if one.name == "image":
            data, kind = cast("tuple[bytes, str]", answer)
            return Response(data, media_type=kind, headers={"content-security-policy": "sandbox; default-src 'none'"})
        return Response(json_of(answer), media_type="application/json")

    async def _login(self, request: Request, body: Secret) -> Response:
        address = request.client.host if request.client else ""
        cookie = self._access.login(body.secret, address)
        caller = self._access.caller({}, {self._access.cookie_name: cookie})
        response = Response(json_of(self._me(caller)), media_type="application/json")
        response.set_cookie(
            self._access.cookie_name,
            cookie,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    def _about_caller(self, one: Operation, caller: Caller) -> Response:
        if one.name == "logout":
            response = Response(status_code=204)
            response.delete_cookie(self._access.cookie_name, httponly=True, samesite="strict")
            return response
        return Response(
            json_of(description() if one.name == "openapi" else self._me(caller)), media_type="application/json"
        )

    def _me(self, caller: Caller) -> Me:
        roles: tuple[UiRole, ...] = tuple(role for role in ROLES if role in caller.roles)
        services = self._services
        has: Mapping[ViewPart, bool] = {
            "runs": services.has_runs,
            "gateway": services.gateway is not None and caller.sees is None,
        }
        return Me(caller.name, roles, caller.csrf, __version__, tuple(each for each in has if has[each]), caller.sees)

    def _stream(self, caller: Caller, events: AsyncGenerator[bytes] | None) -> Response:
        if events is None:
            return Response(status_code=204)
        if self._streams.get(caller.name, 0) >= MOST_STREAMS:
            raise ApiFailure(
                429, "streams", f"{caller.name} has {MOST_STREAMS} streams open: close some", retry_after=5.0
            )
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return _EventResponse(self._count_stream(caller.name, events), headers=headers, media_type="text/event-stream")

    async def _count_stream(self, name: str, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        self._streams[name] = self._streams.get(name, 0) + 1
        try:
            async for data in events:
                yield data
        finally:
            self._streams[name] -= 1
            await events.aclose()


class _EventResponse(StreamingResponse):
    """Ends its events when the client leaves, and not when the garbage collector finds them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await cast("AsyncGenerator[bytes]", self.body_iterator).aclose()


def _failure(failure: ApiFailure) -> Response:
    wait = {} if failure.retry_after is None else {"retry-after": f"{max(1, round(failure.retry_after))}"}
    headers = {**wait, **({"www-authenticate": "Bearer"} if failure.status == 401 else {})}
    return Response(json_of(failure.body), failure.status, headers, "application/json")


async def _body(request: Request, kind: Any) -> Any:
    """The body of a request as a value. Raises ApiFailure."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiFailure(415, "content_type", "the request's body is JSON: content-type: application/json")
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for piece in request.stream():
                data += piece
                if len(data) > MOST_BODY:
                    raise ApiFailure(413, "too_large", f"the request is larger than {MOST_BODY} bytes")
    except TimeoutError:
        raise ApiFailure(408, "slow", f"the request did not arrive within {_BODY_SECONDS:g} seconds") from None
    try:
        fields = msgspec.json.decode(bytes(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiFailure(400, "bad_request", f"the request's body is not JSON: {error}") from None
    return _convert(fields, kind, strict=True)


def _convert(fields: Any, kind: Any, *, strict: bool = False) -> Any:
    given_names = set(cast("dict[str, Any]", fields)) if isinstance(fields, dict) else set[str]()
    unknown_names = given_names - {each.name for each in msgspec.structs.fields(kind)}
    if unknown_names:
        raise ApiFailure(400, "bad_request", f"unknown: {', '.join(sorted(map(str, unknown_names)))[:200]}")
    try:
        return msgspec.convert(fields, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ApiFailure(400, "bad_request", str(error)) from None


def _static_files() -> Mapping[str, tuple[bytes, str]]:
    """The static files with their types, read once."""
    folder = importlib.resources.files("toolspeak.web_ui") / "static"
    files: dict[str, tuple[bytes, str]] = {}
    for each in sorted(folder.iterdir(), key=lambda file: file.name):
        kind = mimetypes.guess_type(each.name)[0] or "application/octet-stream"
        files[each.name] = each.read_bytes(), "text/javascript" if each.name.endswith(".js") else kind
    return files


def _file_endpoint(data: bytes, kind: str) -> Any:
    async def endpoint(_: Request) -> Response:
        # Always asked for again: another version of the server has other files under the same names.
        return Response(data, media_type=kind, headers={"cache-control": "no-cache"})

    return endpoint
