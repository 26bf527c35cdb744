"""Answers over HTTP as a server may pack them, and those that unpack to far too much."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest
from loopback_server import Exchange, serve
from mcp_helpers import call, connected

from toolspeak.mcp import HttpServer

MIB = 1024 * 1024
TOOL = {"name": "ask", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True, "openWorldHint": False}}


async def send(exchange: Exchange, body: bytes, kind: str = "application/json", packed: str = "identity") -> None:
    head = f"content-type: {kind}\r\ncontent-encoding: {packed}\r\ncontent-length: {len(body)}\r\n\r\n"
    await exchange.send(b"HTTP/1.1 200 OK\r\n" + head.encode() + body)


def answers(body: bytes, kind: str, packed: str):
    """A server whose answer to a call is this; `{id}` in it is the call's."""

    async def answer(exchange: Exchange) -> None:
        if not exchange.request_line.startswith("POST"):
            await exchange.send(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
            return
        asked = exchange.json
        match asked.get("method"):
            case "initialize":
                about = {"name": "raw", "version": "1"}
                version = asked["params"]["protocolVersion"]
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
            case "tools/list":
                result = {"tools": [TOOL]}
            case "tools/call":
                packers = {"gzip": gzip.compress, "deflate": zlib.compress}
                told = body.replace(b"{id}", str(asked["id"]).encode())
                await send(exchange, packers.get(packed, bytes)(told), kind, packed)
                return
            case _ if "id" in asked:
                error = {"code": -32601, "message": "no such method"}
                await send(exchange, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode())
                return
            case _:
                await exchange.send(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                return
        await send(exchange, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode())

    return answer


def asked(body: bytes, kind: str = "application/json", packed: str = "identity") -> str:
    async def main():
        async with (
            serve(answers(body, kind, packed)) as server,
            connected(HttpServer("s", f"{server.base_url}/mcp")) as servers,
        ):
            return (await call(servers.tools, "s__ask")).text

    return asyncio.run(main())


GOOD = b'{"jsonrpc": "2.0", "id": {id}, "result": {"content": [{"type": "text", "text": "fine"}]}}'


@pytest.mark.parametrize("packed", ["identity", "gzip", "deflate"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_an_answer_may_be_packed(kind, packed):
    assert asked(GOOD if kind == "application/json" else b"data: " + GOOD + b"\n\n", kind, packed) == "fine"


@pytest.mark.parametrize("packed", ["identity", "gzip", "deflate"])
def test_an_answer_of_far_too_many_bytes_is_ended(packed):
    told = asked(b" " * (20 * MIB) + GOOD, packed=packed)
    assert "whether the call took effect is not known" in told
    assert "the server's answer has more than 16777216 bytes" in told


@pytest.mark.parametrize("packed", ["identity", "gzip"])
def test_an_event_of_far_too_many_bytes_is_ended(packed):
    assert "16777216 byte limit" in asked(b"data: " + b" " * (20 * MIB) + GOOD + b"\n\n", "text/event-stream", packed)


def test_an_answer_packed_in_a_way_that_was_not_asked_for_is_told():
    assert "packed with 'br', which was not asked for" in asked(GOOD, packed="br")
