"""Answers over HTTP as a server may pack them, and those that unpack to far too much."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import Exchange, serve
from mcp_helpers import call, mcp_servers

from toolspeak.mcp import HttpServer
from toolspeak.mcp.answer_limits import DEEPEST, TOO_DEEP, DepthLimiter

MIB = 1024 * 1024
TOOL = {"name": "ask", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True, "openWorldHint": False}}


async def send(exchange: Exchange, body: bytes, kind: str = "application/json", encoding: str = "identity") -> None:
    head = f"content-type: {kind}\r\ncontent-encoding: {encoding}\r\ncontent-length: {len(body)}\r\n\r\n"
    await exchange.send(b"HTTP/1.1 200 OK\r\n" + head.encode() + body)


def answers(body: bytes, kind: str, encoding: str, *tools: Any):
    """A server whose answer to a call is this; `{id}` in it is the call's. `tools` stand in its listing, too."""

    async def answer(exchange: Exchange) -> None:
        if not exchange.request_line.startswith("POST"):
            await exchange.send(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
            return
        request = exchange.json
        match request.get("method"):
            case "initialize":
                about = {"name": "raw", "version": "1"}
                version = request["params"]["protocolVersion"]
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
            case "tools/list":
                result = {"tools": [TOOL, *tools]}
            case "tools/call":
                packers = {"gzip": gzip.compress, "deflate": zlib.compress}
                content = body.replace(b"{id}", str(request["id"]).encode())
                await send(exchange, packers.get(encoding, bytes)(content), kind, encoding)
                return
            case _ if "id" in request:
                error = {"code": -32601, "message": "no such method"}
                await send(exchange, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode())
                return
            case _:
                await exchange.send(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                return
        content = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        if tools and kind == "text/event-stream":
            await send(exchange, b': say "\n\nevent: message\ndata: ' + content + b"\n\n", kind)
        else:
            await send(exchange, content)

    return answer


def call_answer(body: bytes, kind: str = "application/json", encoding: str = "identity") -> str:
    async def main():
        async with (
            serve(answers(body, kind, encoding)) as server,
            mcp_servers(HttpServer("s", f"{server.base_url}/mcp")) as servers,
        ):
            return (await call(servers.tools, "s__ask")).text

    return asyncio.run(main())


GOOD = b'{"jsonrpc": "2.0", "id": {id}, "result": {"content": [{"type": "text", "text": "fine"}]}}'


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_an_answer_may_be_packed(kind, encoding):
    assert call_answer(GOOD if kind == "application/json" else b"data: " + GOOD + b"\n\n", kind, encoding) == "fine"


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
def test_an_answer_of_far_too_many_bytes_is_ended(encoding):
    result = call_answer(b" " * (20 * MIB) + GOOD, encoding=encoding)
    assert "it is not known whether the call took effect" in result
    assert "the server's answer has more than 16777216 bytes" in result


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_an_event_of_far_too_many_bytes_is_ended(encoding):
    assert "16777216 byte limit" in call_answer(
        b"data: " + b" " * (20 * MIB) + GOOD + b"\n\n", "text/event-stream", encoding
    )


def test_an_answer_packed_in_a_way_that_was_not_asked_for_is_told():
    assert "compressed its answer with 'br', which was not requested" in call_answer(GOOD, encoding="br")


def nested_schema(depth: int) -> Any:
    schema: Any = {"type": "string", "description": 'a "quoted" \\ [{'}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("depth", [64, 120, 150])
def test_a_schema_that_is_too_deep_leaves_out_that_tool_alone(kind: str, depth: int):
    tools = [{**TOOL, "name": "deep", "inputSchema": nested_schema(depth)}, {**TOOL, "name": "last"}]
    good = GOOD if kind == "application/json" else b"data: " + GOOD + b"\n\n"

    async def main():
        async with (
            serve(answers(good, kind, "identity", *tools)) as server,
            mcp_servers(HttpServer("s", f"{server.base_url}/mcp")) as servers,
        ):
            return [tool.name for tool in servers.tools], servers.left_out, (await call(servers.tools, "s__ask")).text

    names, left_out, text = asyncio.run(main())
    assert {*names} == {"s__ask", "s__last"}
    assert ["deep" in str(each) and "more than 128 deep" in str(each) for each in left_out] == [True]
    assert text == "fine"


@given(
    st.recursive(st.text(st.sampled_from('a"\\[{}]\n,')) | st.none(), lambda inner: st.lists(inner) | st.lists(inner)),
    st.integers(1, 7),
)
def test_what_is_not_too_deep_passes_as_it_is_in_every_cut(value: Any, size: int):
    for text in (json.dumps(value).encode(), json.dumps(value, indent=1).encode()):
        cutter = DepthLimiter()
        assert b"".join(cutter.cut(text[i : i + size]) for i in range(0, len(text), size)) == text


@given(st.integers(1, 3), st.integers(0, 2), st.sampled_from([1, 2, 7, 1 << 20]))
def test_what_is_too_deep_is_cut_alone(beside: int, below: int, size: int):
    deep: Any = ["x"]
    for _ in range(DEEPEST + below):
        deep = [*["]["] * beside, deep, 5]
    text = json.dumps({"a": deep, "b": [1, {"c": "d"}]}).encode()
    for again in (text, text + b'\n\n: "[\n\n' + text):
        cutter = DepthLimiter()
        cut = b"".join(cutter.cut(again[i : i + size]) for i in range(0, len(again), size))
        read = json.loads(cut[-len(cut) if again is text else cut.index(b"\n\n{") + 2 :])
        assert read["b"] == [1, {"c": "d"}]
        assert depth_of(read) <= DEEPEST
        assert TOO_DEEP.decode().strip('"') in json.dumps(read)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)
