"""Calls of `fetch` and `search` as an agent makes them, and pages of a server on the loopback interface."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from loopback_server import Answer, Exchange, Server, serve

from toolspeak import Agent, Approval
from toolspeak.data.messages import ToolResult
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools import Tool
from toolspeak.tools.web import WebAccess, fetch_tool


async def call_tool(tool: Tool, *calls: dict[str, Any], **options: Any) -> list[ToolResult]:
    """The results of these calls, one in each turn, of an agent that approves all of them."""
    turns = [ScriptedTurn("", calls=[ScriptedCall(tool.name, arguments)]) for arguments in calls]
    agent = Agent(
        ScriptedProvider([*turns, "Done."]), [tool], **{"approve": Approval("all", after_web="allow"), **options}
    )
    run = await agent.run("go")
    return [result for message in run.messages for result in message.results]


async def fetch_page(url: str, access: WebAccess, **arguments: Any) -> ToolResult:
    """The result of one call of `fetch`."""
    (result,) = await call_tool(fetch_tool(access), {"url": url, **arguments})
    return result


def access_to(*servers: Server, host: str = "127.0.0.1", **options: Any) -> WebAccess:
    """What an operator allows who lets tools reach these servers."""
    return WebAccess(allow=tuple(f"{host}:{server.port}" for server in servers), **options)


def from_server(*answers: Answer, path: str = "/", want: str = "text", **options: Any) -> ToolResult:
    """The result of `fetch` for a server that gives these answers."""

    async def run() -> ToolResult:
        async with serve(*answers) as server:
            return await fetch_page(f"http://127.0.0.1:{server.port}{path}", access_to(server, **options), want=want)

    return asyncio.run(run())


def page(body: str | bytes, *headers: str, status: str = "200 OK", content_type: str = "text/html") -> Answer:
    """An answer with a body of known length, on a connection that ends with it."""
    data = body.encode() if isinstance(body, str) else body
    head = [f"HTTP/1.1 {status}", f"content-length: {len(data)}", "connection: close", *headers]
    head += [f"content-type: {content_type}"] if content_type else []

    async def answer(exchange: Exchange) -> None:
        await exchange.send("\r\n".join(head).encode() + b"\r\n\r\n" + data)

    return answer


def redirect(location: str, status: str = "302 Found") -> Answer:
    return page("", f"location: {location}", status=status)


def endless(head: Sequence[str], piece: bytes, pause: float = 0.0) -> Answer:
    """An answer whose body has no end: the piece comes again until the client has gone."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send("\r\n".join(["HTTP/1.1 200 OK", *head]).encode() + b"\r\n\r\n")
        while not exchange.writer.is_closing():
            await exchange.send(piece)
            await asyncio.sleep(pause)

    return answer


def resolving(*answers: Sequence[str]) -> tuple[Any, list[str]]:
    """A resolver that gives these addresses in turn, the last ones for ever; and the hosts that it was asked for."""
    hosts: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        hosts.append(host)
        return answers[min(len(hosts), len(answers)) - 1]

    return resolve, hosts
