"""Servers for tests, and calls to them as an agent makes them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import uvicorn
from mcp.server.sse import SseServerTransport
from mcp_server import build
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from toolspeak.data.messages import ToolCall, ToolResult
from toolspeak.execute import BatchContext, Executor, approve_all
from toolspeak.mcp import HttpServer, McpServers, StdioServer
from toolspeak.tools import Toolset
from uvicorn_here import serving

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
PATIENT = 60.0  # seconds: a machine may be busy, and a test that passes never waits for it


def program(folder: Path, *arguments: str, name: str = "s", **env: str) -> StdioServer:
    """The test server as a program of its own."""
    return StdioServer(name, sys.executable, (SCRIPT, str(folder), *arguments), env=env)


def mcp_servers(*servers: StdioServer | HttpServer, **options: float) -> McpServers:
    return McpServers(servers, **{"connect_timeout": PATIENT, "call_timeout": PATIENT, **options})


async def call(tools: Toolset, name: str, /, **arguments: object) -> ToolResult:
    """What comes of one call, with its result as a model gets it."""
    return (await calls(tools, (name, arguments)))[0]


async def calls(
    tools: Toolset, *named_calls: tuple[str, dict], progress: list[str] | None = None
) -> tuple[ToolResult, ...]:
    async def emit(_event: object) -> None:
        pass

    lines = progress if progress is not None else []
    context = BatchContext("run", progress=lambda _call, line: lines.append(line))
    batch = await Executor(tools).run(
        [ToolCall(f"c{index}", name, arguments) for index, (name, arguments) in enumerate(named_calls)],
        emit=emit,
        context=context,
        approver=approve_all,
    )
    return batch.results


def traces(folder: Path, name: str) -> list[str]:
    """What the server left behind."""
    path = folder / name
    return path.read_text("utf-8").splitlines() if path.exists() else []


async def wait_for_trace(folder: Path, name: str) -> None:
    """Returns once the server has left such a trace."""
    async with asyncio.timeout(PATIENT):
        while not traces(folder, name):  # noqa: ASYNC110 - another process tells it
            await asyncio.sleep(0.005)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@asynccontextmanager
async def http_server(
    folder: Path, port: int = 0, *, transport: Literal["http", "sse"] = "http", **options: object
) -> AsyncGenerator[HttpServer]:
    """The test server over streamable HTTP, or over HTTP+SSE, on the loopback interface."""
    app = sse_app(folder) if transport == "sse" else build(folder).streamable_http_app(**options)
    # The streams for what the server may have to tell stay open as long as it serves: waiting for them is in vain.
    config = uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=0)
    async with serving(config, port) as (_, bound):
        path = "sse" if transport == "sse" else "mcp"
        yield HttpServer("s", f"http://127.0.0.1:{bound}/{path}", transport=transport)


def sse_app(folder: Path) -> Starlette:
    """The test server over HTTP+SSE, as the SDK's documentation serves it."""
    mcp_server, messages = build(folder), SseServerTransport("/messages/")

    class Events:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async with messages.connect_sse(scope, receive, send) as streams:
                await mcp_server.run(*streams, mcp_server.create_initialization_options())

    return Starlette(routes=[Route("/sse", Events()), Mount("/messages/", app=messages.handle_post_message)])
