"""A real MCP server made with the official SDK, which does what servers do and what they must not.

As a program it speaks over its standard input and output: `mcp_server.py FOLDER [legacy] [only NAME…]`. What must be
told across processes (how often it was started, which calls ran or were cancelled) it writes into FOLDER.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
HUGE = 300_000  # characters of the huge result: far more than a model is shown
READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NONE: dict[str, Any] = {"type": "object"}


def text(value: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)], **more)


class Tools:
    """What the server offers; `folder` is where it leaves its traces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bus = InMemorySubscriptionBus()
        self.tools = {tool.name: tool for tool in tools()}

    def trace(self, name: str, line: str) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    async def list_tools(
        self, _ctx: ServerRequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """One tool a page: a client that does not turn pages sees one."""
        names = list(self.tools)
        index = int(params.cursor) if params is not None and params.cursor else 0
        following = str(index + 1) if index + 1 < len(names) else None
        return types.ListToolsResult(tools=[self.tools[names[index]]], next_cursor=following)

    async def call_tool(self, ctx: ServerRequestContext, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.trace("calls", params.name)
        arguments: dict[str, Any] = params.arguments or {}
        handler = getattr(self, params.name, None)
        if handler is not None:
            return await handler(ctx, **arguments)
        return text(f"{params.name} {arguments}")

    async def echo(self, _ctx: ServerRequestContext, text: str) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    async def traceparent(self, ctx: ServerRequestContext) -> types.CallToolResult:
        return text(str((ctx.meta or {}).get("traceparent")))

    async def fails(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        return text("there is no such ticket: 7; known: 1 to 6", is_error=True)

    async def breaks(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        raise RuntimeError("an exception of the server's own")

    async def shows(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        data = base64.b64encode(PIXEL).decode()
        page = types.TextResourceContents(uri="file:///notes.txt", text="a note")
        return types.CallToolResult(
            content=[
                types.TextContent(type="text", text="a pixel"),
                types.ImageContent(type="image", data=data, mime_type="image/png"),
                types.ImageContent(type="image", data="no base64!", mime_type="image/png"),
                types.AudioContent(type="audio", data=data, mime_type="audio/wav"),
                types.EmbeddedResource(type="resource", resource=page),
                types.ResourceLink(type="resource_link", name="the rest", uri="https://example.org/rest"),
            ]
        )

    async def weather(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        return text("It is 20 degrees.", structured_content={"degrees": 20})

    async def lies(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        return text("It is warm.", structured_content={"degrees": "warm"})

    async def huge(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        return text("x" * HUGE)

    async def reports(self, ctx: ServerRequestContext) -> types.CallToolResult:
        await ctx.session.report_progress(1, 2, "half of it")
        return text("all of it")

    async def waits(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        """Until it is cancelled."""
        self.trace("waiting", "yes")
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            self.trace("cancelled", "yes")
            raise

    async def freezes(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        """The whole server says nothing more."""
        self.trace("waiting", "yes")
        time.sleep(1000)  # noqa: ASYNC251 - what a server must not do
        return text("never")

    async def dies(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        sys.stderr.write("out of memory, I fear\n")
        sys.stderr.flush()
        os._exit(3)

    async def pid(self, _ctx: ServerRequestContext) -> types.CallToolResult:
        return text(str(os.getpid()))

    async def asks(self, _ctx: ServerRequestContext) -> types.InputRequiredResult:
        request = types.ElicitRequest(
            params=types.ElicitRequestFormParams(message="Sure?", requested_schema={"type": "object", "properties": {}})
        )
        return types.InputRequiredResult(input_requests={"one": request}, request_state="s")

    async def learns(self, ctx: ServerRequestContext, name: str) -> types.CallToolResult:
        """A tool more from now on."""
        self.tools[name] = types.Tool(name=name, input_schema=NONE)
        await self.bus.publish(ToolsListChanged())
        await ctx.session.send_tool_list_changed()
        return text(f"now there is {name}")


def tools() -> list[types.Tool]:
    def of(name: str, schema: dict[str, Any] = NONE, **more: Any) -> types.Tool:
        return types.Tool(name=name, input_schema=schema, **more)

    degrees = {"type": "object", "properties": {"degrees": {"type": "integer"}}, "required": ["degrees"]}
    schema = {"type": "string"}
    odd_names = dict.fromkeys(("self", "context", "arguments", "from", "a b", "ctx_"), schema)
    annotations_type = types.ToolAnnotations
    return [
        of("echo", TEXT, annotations=READS, description="Says it again."),
        of("plain", TEXT),
        of("fails"),
        of("breaks"),
        of("shows", annotations=READS),
        of("weather", output_schema=degrees, annotations=READS),
        of("lies", output_schema=degrees, annotations=READS),
        of("huge", annotations=READS),
        of("reports", annotations=READS),
        of("waits", annotations=READS),
        of("freezes", annotations=READS),
        of("dies", annotations=READS),
        of("pid", annotations=READS),
        of("traceparent", annotations=READS),
        of("asks", annotations=READS),
        of("learns", {"type": "object", "properties": {"name": schema}, "required": ["name"]}),
        of("wetter-für/heute ☀", TEXT, annotations=READS),
        of("named oddly", {"type": "object", "properties": odd_names}, annotations=READS),
        of(
            "referring",
            {"$defs": {"n": {"type": "integer"}}, "type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}},
        ),
        of("fetching", {"type": "object", "properties": {"n": {"$ref": os.environ.get("REMOTE", "http://x/")}}}),
        of("misspelt", {"type": "object", "properties": {"n": {"type": "integr"}}}),
        of("drops", annotations=annotations_type(read_only_hint=False, destructive_hint=True, open_world_hint=False)),
        of("adds", annotations=annotations_type(destructive_hint=False, idempotent_hint=True, open_world_hint=False)),
        of("searches", annotations=annotations_type(read_only_hint=True)),
    ]


def build(folder: Path) -> Server:
    tools = Tools(folder)
    tools.trace("starts", str(os.getpid()))
    return Server(
        "tests",
        on_list_tools=tools.list_tools,
        on_call_tool=tools.call_tool,
        on_subscriptions_listen=ListenHandler(tools.bus),
    )


async def main(folder: Path, *, legacy: bool) -> None:
    server = build(folder)
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        if legacy:
            await serve_loop(server, read, write, lifespan_state={}, init_options=options)
        else:
            await server.run(read, write, options)


if __name__ == "__main__":
    anyio.run(lambda: main(Path(sys.argv[1]), legacy="legacy" in sys.argv[2:]))
