"""Tools that the gateway runs itself: those of MCP servers, offered to the model besides the client's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from toolspeak import mcp
from toolspeak.data.approvals import Decision
from toolspeak.data.messages import JSON, MalformedCall, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ConfigurationError, McpError
from toolspeak.execute import ApprovalRequest, BatchContext, Executor, ToolExecution, approve_none
from toolspeak.execute.approval.approvers import approval_reason
from toolspeak.gateway.observability import Metrics, log
from toolspeak.gateway.settings.gateway_settings import ToolSettings
from toolspeak.sandbox.base import SandboxMode
from toolspeak.tools import Toolset

_REFUSAL = (
    "this gateway runs a tool that may change something or reach other machines only if its operator allows it "
    "(--approve-tools); continue without it, and say what you needed it for"
)

_NOT_RUN = ("rejected", "blocked", "invalid_arguments", "malformed", "skipped", "unknown_tool")
"""Outcomes of calls that did not reach the server."""


@dataclass(slots=True)
class Running:
    """What one request's server-side tools did so far, and the most calls that they may make. `changed`: a tool ran
    that does more than read."""

    request_id: str
    log_content: bool
    context: BatchContext
    ends: float
    steps: int = 0
    calls: int = 0
    failures: int = 0
    changed: bool = False
    most_calls: int = 0
    shadowed_tools: tuple[str, ...] = ()

    def facts(self) -> dict[str, JSON]:
        """For the log."""
        return {
            "tool_steps": self.steps or None,
            "tool_calls": self.calls or None,
            "tool_failures": self.failures or None,
            "shadowed_tools": [*self.shadowed_tools] or None,
        }


def _with_sandbox(servers: Sequence[mcp.Server], mode: SandboxMode) -> Sequence[mcp.Server]:
    """The servers as the settings of the gateway have them run."""
    if mode == "required":
        return mcp.confine_servers(servers)
    if mode == "auto":
        return servers
    return [replace(each, sandbox="off") if isinstance(each, mcp.StdioServer) else each for each in servers]


class ServerTools:
    """The tools of the MCP servers in a file, and which of them may run."""

    def __init__(self, settings: ToolSettings, metrics: Metrics) -> None:
        self.settings = settings
        self._metrics = metrics
        self._server_settings = _with_sandbox(mcp.read_servers(settings.file), settings.sandbox)
        self.urls = {
            server.name: server.url if isinstance(server, mcp.HttpServer) else "" for server in self._server_settings
        }
        """The address of each server, "" for a program."""
        pins = mcp.ToolPins(settings.pins) if settings.pins else None
        self._servers = mcp.McpServers(self._server_settings, call_timeout=settings.timeout, pins=pins)
        self._toolset = Toolset()
        self._executor = Executor(self._toolset)
        self._is_open = False
        self._users = 0
        self._closing: asyncio.Task[None] | None = None
        self._is_retired = False

    @property
    def search(self) -> str:
        """The name of the tool that searches the web, or ""."""
        name = self.settings.web_search
        return name if name and self._toolset.get(name) is not None else ""

    def origin_of(self, tool: str) -> tuple[str, str] | None:
        """The server of a tool, and the tool's name there."""
        return self._servers.origin_of(tool)

    def same_as(self, other: ServerTools) -> bool:
        """Whether both run the same servers under the same settings."""
        return self.settings == other.settings and self._server_settings == other._server_settings

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keeps the servers connected during the context."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._close_unused()

    def retire(self) -> None:
        """Closes the connections once no request uses them. Call it in the event loop."""
        self._is_retired = True
        self._close_unused()

    def _close_unused(self) -> None:
        if self._is_retired and not self._users and self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self.aclose())

    async def open(self) -> None:
        """Connects to the servers. Raises McpError."""
        if not self.settings.pins:
            log("tools_not_pinned", {"remedy": "name a file: [tools] pins"}, level=logging.WARNING)
        await self._servers.__aenter__()
        self._is_open = True
        self._take_up()

    async def aclose(self) -> None:
        if self._is_open:
            await self._servers.aclose()

    async def tools_beside(self, others: Sequence[ToolSpec]) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
        """The tools to offer besides the client's own, and the names of those that a tool of the client replaces."""
        try:
            if await self._servers.refresh():
                self._take_up()
        except (McpError, ConfigurationError) as error:
            log("tools_not_listed", {"problem": str(error)}, level=logging.WARNING)
        theirs = {tool.name for tool in others}
        specs = tuple(spec for spec in self._toolset.specs if spec.name not in theirs)
        return specs, tuple(sorted(theirs & {tool.name for tool in self._toolset}))

    def begin(self, request_id: str, *, log_content: bool) -> Running:
        """The state for one request."""
        context = BatchContext(request_id, agent="gateway")
        ends = asyncio.get_running_loop().time() + self.settings.seconds
        return Running(request_id, log_content, context, ends, most_calls=self.settings.calls)

    def exhausted_limit(self, running: Running) -> str:
        """The limit that a request has reached, or ""."""
        settings = self.settings
        if running.steps >= settings.steps:
            return f"{settings.steps} steps"
        if running.calls >= running.most_calls:
            return f"{running.most_calls} calls"
        if asyncio.get_running_loop().time() >= running.ends:
            return f"{settings.seconds:g} seconds"
        return ""

    async def run(self, calls: Sequence[ToolCall | MalformedCall], running: Running) -> tuple[ToolResult, ...]:
        """The results of one turn's calls, in their order. Cancelling it cancels the tools, in their servers too."""
        running.steps += 1
        batch = await self._executor.run(
            calls,
            context=running.context,
            approver=approve_none(_REFUSAL),
            deadline=max(0.0, running.ends - asyncio.get_running_loop().time()),
            max_calls=running.most_calls - running.calls,
        )
        for execution in batch.executions:
            self._tell(execution, running)
        return batch.results

    def _tell(self, execution: ToolExecution, running: Running) -> None:
        result, call = execution.result, execution.call
        tool = self._toolset.get(result.name)
        server, _ = self._servers.origin_of(result.name) or ("", "")
        outcome = result.code or result.status
        running.calls += 1
        running.failures += result.status == "failure"
        if tool is not None and outcome not in _NOT_RUN and approval_reason(tool.spec.effects):
            running.changed = True
        seconds = max(0.0, execution.completed_at - execution.started_at)
        self._metrics.tool_calls.labels(server, result.name if tool else "(other)", outcome).inc()
        if tool is not None:
            self._metrics.tool_seconds.labels(server, result.name).observe(seconds)
        content: dict[str, JSON] = {}
        if running.log_content:
            content = {
                "arguments": dict(call.arguments) if isinstance(call, ToolCall) else call.raw,
                "result": result.text,
            }
        fields: dict[str, JSON] = {"id": running.request_id, "tool": result.name, "server": server or None}
        log("tool", {**fields, "outcome": outcome, "seconds": round(seconds, 4), **content})

    def _take_up(self) -> None:
        """Offers the tools that the servers list now."""
        changed_tools = self._servers.changed_tools
        for name, each in changed_tools.items():
            log("tool_changed", {"tool": name, "problem": each.reason}, level=logging.WARNING)
        # Not offered: the model would read what the server says now.
        self._toolset = self._servers.tools.filter(lambda tool: tool.name not in changed_tools)
        self._executor = Executor(self._toolset, policy=self._policy)
        for problem in self._servers.left_out:
            log("tool_left_out", {"problem": str(problem)}, level=logging.WARNING)
        names = [tool.name for tool in self._toolset]
        for pattern in self.settings.approve:
            if not any(fnmatchcase(name, pattern) for name in names):
                log("approves_no_tool", {"pattern": pattern, "tools": names}, level=logging.WARNING)
        if self.settings.web_search and not self.search:
            log("no_web_search", {"tool": self.settings.web_search, "tools": names}, level=logging.WARNING)

    def _policy(self, request: ApprovalRequest) -> Decision | None:
        changed_tool = self._servers.changed_tool(request.tool.name)  # since it was offered
        if changed_tool is not None:
            return Decision(False, changed_tool.reason, by="pins")
        approved_patterns = (self.settings.web_search, *self.settings.approve)
        if any(fnmatchcase(request.tool.name, pattern) for pattern in approved_patterns):
            return Decision(True, by="approve_tools")
        return None
