"""The SDK's client of servers that toolspeak serves: over HTTP in this event loop, and over pipes to a process."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp import Client, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from toolspeak.mcp import McpApp
from uvicorn_here import serving

MODES = ("auto", "legacy")  # the revision 2026-07-28, and the newest one before it


class Person:
    """Answers a server's questions, and remembers them."""

    def __init__(self, *answers: dict[str, Any] | str) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []

    async def __call__(self, _context: object, params: Any) -> types.ElicitResult:
        self.questions.append(params.message)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            return types.ElicitResult(action=answer)
        return types.ElicitResult(action="accept", content=answer)


YES, NO = {"approve": True}, {"approve": False, "reason": "not today"}


@asynccontextmanager
async def address_of(app: McpApp) -> AsyncGenerator[str]:
    """The address of the application, which serves in this event loop."""
    async with serving(uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=0)) as (_, port):
        yield f"http://127.0.0.1:{port}/mcp"


@asynccontextmanager
async def client_of(url: str, mode: str = "auto", key: str = "", **options: Any) -> AsyncGenerator[Client]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **options) as client,
    ):
        yield client


@asynccontextmanager
async def client_of_app(app: McpApp, mode: str = "auto", **options: Any) -> AsyncGenerator[Client]:
    async with address_of(app) as url, client_of(url, mode, **options) as client:
        yield client


def command(*arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> StdioServerParameters:
    """`toolspeak mcp serve`, as a client starts it."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "toolspeak", "mcp", "serve", *arguments],
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )


@asynccontextmanager
async def client_of_command(
    parameters: StdioServerParameters, mode: str = "auto", **options: Any
) -> AsyncGenerator[Client]:
    async with Client(stdio_client(parameters), mode=mode, **options) as client:
        yield client


async def first_answer(client: Client, name: str, arguments: dict[str, Any], **more: Any) -> Any:
    """What the server answers to one request: a result, or what it needs first."""
    return await client.session.call_tool(name, arguments, allow_input_required=True, **more)


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
