"""One request of an MCP client to call a tool: the tool, the client, and the progress that it is sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from mcp import types
from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolspeak.data.messages import Message
from toolspeak.data.values import quick
from toolspeak.mcp.serving.call_runs import CallRuns, ProgressSink, run_id_of
from toolspeak.mcp.serving.one_call_driver import task_of_call
from toolspeak.providers.trace_context import trace_id

CALL_KEY = "toolspeak/call-id"
"""The key of a request's `_meta` under which a client may send its own id of a call: the same id never runs twice."""

_LAST_LINES = 0.5
"""Seconds for the last lines of progress to leave, before the result."""


@quick()
class ServedTool:
    """A tool as it is listed, and what runs its calls."""

    definition: types.Tool
    runs: CallRuns
    is_agent: bool

    def task_of(self, params: types.CallToolRequestParams) -> Message | None:
        """The task of a call's run; None for an agent without one."""
        arguments = params.arguments or {}
        if not self.is_agent:
            return task_of_call(params.name, arguments)
        task = arguments.get("task")
        return Message.user(task) if isinstance(task, str) and task.strip() else None


@quick()
class ToolRequest:
    """A client's request to call a tool."""

    context: ServerRequestContext
    params: types.CallToolRequestParams

    @property
    def is_modern(self) -> bool:
        return self.context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def can_ask(self) -> bool:
        """Whether the client can ask its user."""
        capabilities = self.context.session.client_capabilities
        elicitation = None if capabilities is None else capabilities.elicitation
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)

    @property
    def principal(self) -> str | None:
        user = None if self.context.request is None else self.context.request.scope.get("user")
        return user.access_token.client_id if isinstance(user, AuthenticatedUser) else None

    @property
    def traceparent(self) -> str | None:
        """The trace that the call belongs to, if the client says so."""
        parent = cast("Mapping[str, Any]", self.context.meta or {}).get("traceparent")
        return parent if isinstance(parent, str) and trace_id(parent) else None

    @property
    def session(self) -> str:
        """The client's session, or its connection; "" for one that has none, in the newer revision over HTTP."""
        request = self.context.request
        if request is None:
            return cast("str", self.context.lifespan_context)
        return "" if self.is_modern else request.headers.get("mcp-session-id", "")

    def run_id(self) -> str | None:
        """The id of the run of this call: the same for a request that is sent again. None: a new one."""
        meta: Mapping[str, Any] = cast("Mapping[str, Any]", self.context.meta or {})
        own_key = meta.get(CALL_KEY)
        if isinstance(own_key, str) and own_key:
            return run_id_of(f"key\0{self.principal or ''}", own_key)
        if not self.session:
            return None
        # Ids of requests are unique in a session, and on a connection.
        return run_id_of(f"request\0{self.session}", repr(self.context.request_id))

    async def ask(self, form: types.ElicitRequest) -> types.ElicitResult:
        """Asks the client during the call, which revisions before 2026-07-28 allow. Raises MCPError."""
        params = cast("types.ElicitRequestFormParams", form.params)
        return await self.context.session.elicit_form(
            params.message, params.requested_schema, related_request_id=self.context.request_id
        )


@asynccontextmanager
async def progress_of(context: ServerRequestContext) -> AsyncGenerator[ProgressSink]:
    """Sends lines of progress beside the call. A client that does not read loses lines; the call does not wait."""
    lines: deque[str] = deque(maxlen=100)
    news, idle = asyncio.Event(), asyncio.Event()
    idle.set()
    count = 0

    async def send() -> None:
        nonlocal count
        while True:
            await news.wait()
            news.clear()
            while lines:
                count += 1
                await context.session.report_progress(count, message=lines.popleft())
            idle.set()

    def report(line: str) -> None:
        lines.append(line)
        idle.clear()
        news.set()

    sender = asyncio.create_task(send())
    try:
        yield report
        with suppress(TimeoutError):  # those that came last
            async with asyncio.timeout(_LAST_LINES):
                await idle.wait()
    finally:
        sender.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([sender])
