"""Requests whose headers and bodies disagree, and what lists say to caches, as `McpApp` serves them: the rules of the
specification, revision 2026-07-28, "Server Validation" and "Caching"."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from mcp import types
from mcp_clients import MODES, address_of, client_of, first_answer
from mcp_helpers import call, mcp_servers
from pydantic import Field

from sweeps import case
from toolspeak import Effects, tool
from toolspeak.errors import ConfigurationError
from toolspeak.mcp import HttpServer, McpApp

REVISION = "2026-07-28"
MISMATCH = -32020


def header(name: str) -> Any:
    return Field(json_schema_extra={"x-mcp-header": name})


class Map:
    """Tools with annotated parameters. `looks` is what they were called with."""

    def __init__(self) -> None:
        self.looks: list[object] = []

    def tools(self) -> list:
        @tool(read_only=True)
        def look(
            region: Annotated[str, header("Region")] = "",
            count: Annotated[int, header("Count")] = 0,
            deep: Annotated[bool, header("Deep")] = False,
        ) -> str:
            """Looks at a place."""
            self.looks.append((region, count, deep))
            return region

        @tool(effects=Effects(writes={"map:"}))
        def draw(region: Annotated[str, header("Region")]) -> str:
            """Draws a place."""
            self.looks.append(region)
            return f"drew {region}"

        return [look, draw]


def meta(revision: str = REVISION) -> dict:
    return {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }


class RawClient:
    """Sends requests with exactly these header lines."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2].partition("/")[0])

    async def post(self, method: str, params: dict, lines: list[tuple[str, bytes]]) -> tuple[int, dict]:
        return await asyncio.to_thread(self._post, method, params, lines)

    def _post(self, method: str, params: dict, lines: list[tuple[str, bytes]]) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta(), **params}})
            connection.putrequest("POST", "/mcp")
            for name, value in lines:
                connection.putheader(name, value)
            connection.putheader("content-type", "application/json")
            connection.putheader("accept", "application/json, text/event-stream")
            connection.putheader("content-length", str(len(body)))
            connection.endheaders(body.encode())
            answer = connection.getresponse()
            text = answer.read().decode()
            events = re.findall(r"^data: (\{.*)$", text, re.MULTILINE)
            return answer.status, json.loads(events[-1] if events else text)
        finally:
            connection.close()

    async def look(self, arguments: dict, *lines: tuple[str, bytes], without: str = "") -> tuple[int, dict]:
        """Calls `look`, with the standard headers but one."""
        standard = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": "look"}
        head = [(name, value.encode()) for name, value in standard.items() if name != without]
        return await self.post("tools/call", {"name": "look", "arguments": arguments}, [*head, *lines])


@asynccontextmanager
async def raw_client(app: McpApp):
    async with address_of(app) as url:
        yield RawClient(url)


def region(value: bytes, name: str = "Mcp-Param-Region") -> tuple[str, bytes]:
    return name, value


def encode_bytes(data: bytes) -> bytes:
    return b"=?base64?" + base64.b64encode(data) + b"?="


AGREE = [
    ({"region": "us-west1"}, [region(b"us-west1")]),
    ({"region": "us-west1"}, [region(b"us-west1", "MCP-PARAM-REGION")]),
    ({"region": "us-west1"}, [region(encode_bytes(b"us-west1"))]),
    ({"region": "Hello, 世界"}, [region(b"=?base64?SGVsbG8sIOS4lueVjA==?=")]),
    ({"region": "=?base64?literal?="}, [region(b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=")]),
    ({"region": "a\r\nb"}, [region(encode_bytes(b"a\r\nb"))]),
    ({"region": "=?BASE64?x?="}, [region(b"=?BASE64?x?=")]),  # the marker is lower case
    ({"count": 42}, [("Mcp-Param-Count", b"42")]),
    ({"count": 42}, [("Mcp-Param-Count", b"42.0")]),
    ({"count": -7, "deep": True}, [("Mcp-Param-Count", b"-7"), ("Mcp-Param-Deep", b"true")]),
    ({"count": 2**70}, [("Mcp-Param-Count", str(2**70).encode())]),
    ({}, []),
    ({}, [("Mcp-Param-Other", b"anything")]),
]
DISAGREE = [
    ({"region": "us-west1"}, [region(b"eu-west1")]),
    ({"region": "us-west1"}, [region(b"US-WEST1")]),
    ({"region": "us-west1"}, [region(b"")]),
    ({"region": "us-west1"}, []),
    ({}, [region(b"us-west1")]),
    ({}, [region(b"")]),
    ({"region": "us-west1"}, [region(b"us-west1"), region(b"us-west1")]),
    ({"region": "us-west1"}, [region(b"us-west1"), region(b"eu-west1", "mcp-param-region")]),
    ({"region": "us-west1"}, [region(b"eu-west1"), region(b"us-west1")]),
    ({"region": "us-west1"}, [region(b"us-west1, eu-west1")]),
    ({"region": "us-west1"}, [region(b"=?base64?!!!!?=")]),
    ({"region": "us-west1"}, [region(b"=?base64?dXMtd2VzdDE?=")]),  # without its padding
    ({"region": "us-west1"}, [region(b"=?base64?dXMtd2VzdDF=?=")]),  # with other bits in the padding
    ({"region": "us-west1"}, [region(b"=?base64?dXMt d2VzdDE=?=")]),
    ({"region": "us-west1"}, [region(b"=?BASE64?dXMtd2VzdDE=?=")]),
    ({"region": "?>?>"}, [region(b"=?base64?Pz4_Pg==?=")]),  # the alphabet for addresses
    ({"region": "é"}, [region("é".encode())]),
    ({"region": "é"}, [region(b"\xe9")]),
    ({"region": "\ufffd"}, [region(encode_bytes(b"\xff"))]),
    ({"region": "=?base64?literal?="}, [region(b"=?base64?literal?=")]),
    ({"count": 42}, [("Mcp-Param-Count", b"43")]),
    ({"count": 42}, [("Mcp-Param-Count", b"42.5")]),
    ({"count": 40}, [("Mcp-Param-Count", b"4e1")]),
    ({"count": 42}, [("Mcp-Param-Count", b"0x2a")]),
    ({"count": 2**70}, [("Mcp-Param-Count", str(2**70 + 1).encode())]),
    ({"deep": True}, [("Mcp-Param-Deep", b"True")]),
    ({"deep": True}, [("Mcp-Param-Deep", b"1")]),
    ({"deep": True}, [("Mcp-Param-Deep", b"false")]),
]


def test_a_call_whose_headers_say_the_same_as_its_body_runs():
    places = Map()

    async def main():
        async with raw_client(McpApp(places.tools())) as client:
            for arguments, lines in AGREE:
                with case(arguments, lines):
                    status, answer = await client.look(arguments, *lines)
                    assert (status, answer["result"]["isError"]) == (200, False)

    asyncio.run(main())
    assert len(places.looks) == len(AGREE)


def test_a_call_whose_headers_say_something_else_is_refused_and_does_not_run():
    places = Map()

    async def main():
        async with raw_client(McpApp(places.tools())) as client:
            for arguments, lines in DISAGREE:
                with case(arguments, lines):
                    status, answer = await client.look(arguments, *lines)
                    assert (status, answer["error"]["code"]) == (400, MISMATCH)
            for name in ("mcp-method", "mcp-name"):
                with case("without", name):
                    status, answer = await client.look({}, without=name)
                    assert (status, answer["error"]["code"]) == (400, MISMATCH)
            for name, value in (("mcp-method", b"tools/list"), ("mcp-name", b"draw"), ("mcp-name", b"LOOK")):
                with case("other", name, value):
                    status, answer = await client.look({}, (name, value), without=name)
                    assert (status, answer["error"]["code"]) == (400, MISMATCH)
            for name, value in (("mcp-method", b"tools/call"), ("mcp-name", b"look")):
                with case("twice", name):
                    status, answer = await client.look({}, (name, value))
                    assert (status, answer["error"]["code"]) == (400, MISMATCH)
            status, answer = await client.post(
                "tools/call",
                {"name": "look", "arguments": {}, "_meta": meta("2025-11-25")},
                [("mcp-protocol-version", REVISION.encode()), ("mcp-method", b"tools/call"), ("mcp-name", b"look")],
            )
            assert (status, answer["error"]["code"]) == (400, MISMATCH)

    asyncio.run(main())
    assert places.looks == []


def test_the_answer_to_a_question_is_checked_as_the_call_was():
    places = Map()
    head = [("mcp-protocol-version", REVISION.encode()), ("mcp-method", b"tools/call"), ("mcp-name", b"draw")]
    draw_call = {"name": "draw", "arguments": {"region": "north"}}

    async def main():
        async with raw_client(McpApp(places.tools())) as client:
            _, question = await client.post("tools/call", draw_call, [*head, region(b"north")])
            (key,) = question["result"]["inputRequests"]
            yes = {"inputResponses": {key: {"action": "accept", "content": {"approve": True}}}}
            state = {"requestState": question["result"]["requestState"]}
            assert "ttlMs" not in question["result"]
            assert "cacheScope" not in question["result"]
            status, answer = await client.post("tools/call", {**draw_call, **yes, **state}, [*head, region(b"south")])
            assert (status, answer["error"]["code"]) == (400, MISMATCH)
            assert places.looks == []
            _, answer = await client.post("tools/call", {**draw_call, **yes, **state}, [*head, region(b"north")])
            return answer["result"]["content"][0]["text"]

    assert asyncio.run(main()) == "drew north"
    assert places.looks == ["north"]


TEXTS = [
    *("", " ", "a", " a", "a ", "\t", "é", "世界", "\U0001f600", "\u2028", "\x00", "\x7f", "\r\n", "a" * 5000),
    *("=?base64??=", "=?base64?YQ==?=", '"', ",", "a,b", "%20", "a: b"),
]


def test_our_client_and_our_server_agree_on_every_text():
    places = Map()

    async def main():
        async with (
            address_of(McpApp(places.tools())) as url,
            mcp_servers(HttpServer("s", url)) as servers,
        ):
            for text in TEXTS:
                with case(text):
                    result = await call(servers.tools, "s__look", region=text, count=len(text), deep=text > "a")
                    assert (result.status, result.text) == ("success", text)
            return (await call(servers.tools, "s__draw", region="über")).text

    text = asyncio.run(main())
    assert places.looks == [(text, len(text), text > "a") for text in TEXTS]
    assert "needs approval" in text  # this client cannot ask


def test_a_tool_with_a_header_that_clients_must_refuse_is_not_served():
    @tool(read_only=True)
    def look(place: Annotated[str, header("a b")]) -> str:
        """Looks."""
        return place

    @tool(read_only=True)
    def see(places: Annotated[list[str], header("Places")]) -> str:
        """Sees."""
        return places[0]

    with pytest.raises(ConfigurationError, match=r"the tool 'look' cannot be served to MCP clients: .*'a b' is not"):
        McpApp([look])
    with pytest.raises(ConfigurationError, match=r"'see' cannot be served .* only permitted on integer/string/boolean"):
        McpApp([see])


def numbered_tool(number: int):
    @tool(name=f"tool_{number:03}", read_only=True)
    def one() -> int:
        """One of many."""
        return number

    return one


@pytest.mark.parametrize("mode", MODES)
def test_lists_say_how_long_they_may_be_kept_and_by_whom(mode):
    tools = [numbered_tool(number) for number in (5, 3, *range(100, 300))]
    is_modern = mode == "auto"

    async def pages(app: McpApp):
        async with address_of(app) as url, client_of(url, mode) as client:
            pages, cursor = [], None
            while not pages or cursor is not None:
                page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                pages.append(page)
                cursor = page.next_cursor
            return pages, client.session.discover_result

    async def main():
        return await pages(McpApp(tools)), await pages(McpApp(tools))

    (first, about), (second, _) = asyncio.run(main())
    hints = {(page.ttl_ms, page.cache_scope) for page in first}
    assert hints == {(300_000, "private") if is_modern else (0, "private")}
    assert all(("ttl_ms" in page.model_fields_set) == is_modern for page in first)
    if is_modern:
        assert (about.ttl_ms, about.cache_scope) == (0, "private")
        assert {"ttl_ms", "cache_scope"} <= about.model_fields_set
    names = [each.name for page in first for each in page.tools]
    assert names == [each.name for each in tools]  # the order of the program, which prompt caches need
    assert names == [each.name for page in second for each in page.tools]
    assert [page.next_cursor for page in first] == [page.next_cursor for page in second]


def test_a_question_is_not_to_be_kept():
    async def main():
        async with address_of(McpApp(Map().tools())) as url, client_of(url, elicitation_callback=_nobody) as client:
            await client.list_tools()
            return await first_answer(client, "draw", {"region": "north"})

    answer = asyncio.run(main())
    assert isinstance(answer, types.InputRequiredResult)
    assert {"ttlMs", "cacheScope"}.isdisjoint(answer.model_dump(by_alias=True, exclude_none=True))


async def _nobody(_context: object, _params: object) -> types.ElicitResult:
    return types.ElicitResult(action="cancel")
