"""Arguments that a client sends as headers too (`x-mcp-header`), and what lists say to caches: the rules of the
specification, revision 2026-07-28, "Custom Headers from Tool Parameters" and "Caching"."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager

import pytest
from loopback_server import serve
from mcp_helpers import call, mcp_servers
from modern_server import FRESH, READS, ModernServer

from sweeps import case
from toolspeak.mcp import HttpServer

PLACE = {
    "name": "place",
    "annotations": READS,
    "inputSchema": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "x-mcp-header": "Text"},
            "number": {"type": "integer", "x-mcp-header": "Number"},
            "flag": {"type": "boolean", "x-mcp-header": "Flag"},
            "area": {"type": "object", "properties": {"name": {"type": "string", "x-mcp-header": "Area-Name"}}},
            "plain": {"type": "string"},
        },
    },
}


@asynccontextmanager
async def served_by(server: ModernServer):
    async with serve(server) as place, mcp_servers(HttpServer("s", f"{place.base_url}/mcp")) as servers:
        yield servers


def encode_header(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


ENCODINGS = [
    # The specification's examples.
    ({"text": "us-west1"}, {"text": "us-west1"}),
    ({"text": "Hello, 世界"}, {"text": "=?base64?SGVsbG8sIOS4lueVjA==?="}),
    ({"text": " padded "}, {"text": "=?base64?IHBhZGRlZCA=?="}),
    ({"text": "line1\nline2"}, {"text": "=?base64?bGluZTEKbGluZTI=?="}),
    ({"text": "=?base64?literal?="}, {"text": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}),
    # Text that would be another header, or that a proxy may read in two ways.
    ({"text": "a\r\nMcp-Param-Flag: true"}, {"text": encode_header("a\r\nMcp-Param-Flag: true")}),
    ({"text": "a\0b"}, {"text": encode_header("a\0b")}),
    ({"text": "\x7f"}, {"text": encode_header("\x7f")}),
    ({"text": "é"}, {"text": encode_header("é")}),
    ({"text": "\tx"}, {"text": encode_header("\tx")}),
    ({"text": "=?BASE64?x?="}, {"text": "=?BASE64?x?="}),
    ({"text": "=?base64?x"}, {"text": "=?base64?x"}),
    ({"text": "a, b; c: d"}, {"text": "a, b; c: d"}),
    # Other types.
    ({"number": 42, "flag": True}, {"number": "42", "flag": "true"}),
    ({"number": -7, "flag": False}, {"number": "-7", "flag": "false"}),
    ({"number": 0}, {"number": "0"}),
    # At the property's own path alone.
    ({"area": {"name": "north"}}, {"area-name": "north"}),
    ({"area": {}}, {}),
    ({"plain": "x", "name": "y"}, {}),
    ({}, {}),
]


def test_arguments_are_sent_as_headers_in_the_specifications_encoding():
    server = ModernServer([PLACE])

    async def main():
        async with served_by(server) as servers:
            for arguments, headers in ENCODINGS:
                with case(arguments):
                    assert (await call(servers.tools, "s__place", **arguments)).text == "fine"
                    exchange = server.calls[-1]
                    prefix = "mcp-param-"
                    custom = {name[len(prefix) :]: text for name, text in exchange.headers.items() if prefix in name}
                    assert custom == headers
                    assert exchange.json["params"]["arguments"] == arguments
                    assert (exchange.headers["mcp-method"], exchange.headers["mcp-name"]) == ("tools/call", "place")

    asyncio.run(main())
    assert len(server.calls) == len(ENCODINGS)


def test_a_name_that_is_no_plain_text_is_encoded_too():
    server = ModernServer([{**PLACE, "name": "größe"}])

    async def main():
        async with served_by(server) as servers:
            (name,) = (tool.name for tool in servers.tools if "resource" not in tool.name)
            return (await call(servers.tools, name)).text

    assert asyncio.run(main()) == "fine"
    assert server.calls[0].headers["mcp-name"] == encode_header("größe")


def test_text_without_a_form_in_bytes_fails_before_it_is_sent():
    server = ModernServer([PLACE])

    async def main():
        async with served_by(server) as servers:
            return await call(servers.tools, "s__place", text="a\ud800"), await call(servers.tools, "s__place")

    bad, good = asyncio.run(main())
    assert bad.status == "failure"
    assert "half of a character" in bad.text
    assert good.text == "fine"
    assert len(server.calls) == 1


def schema_with(kind: object, header: object) -> dict:
    return {"type": "object", "properties": {"a": {"type": kind, "x-mcp-header": header}}}


DEEP = {"a": {"type": "string", "x-mcp-header": "A"}}
INVALID = {
    "empty": schema_with("string", ""),
    "space": schema_with("string", "a b"),
    "colon": schema_with("string", "a:b"),
    "line": schema_with("string", "a\r\nCookie: x"),
    "umlaut": schema_with("string", "ü"),
    "no_text": schema_with("string", 7),
    "fraction": schema_with("number", "A"),
    "object": schema_with("object", "A"),
    "null": schema_with("null", "A"),
    "two_types": schema_with(["string", "null"], "A"),
    "root": {"type": "object", "x-mcp-header": "A"},
    "in_a_list": {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
    },
    "in_a_branch": {"type": "object", "anyOf": [{"properties": DEEP}]},
    "in_a_condition": {"type": "object", "if": {"properties": DEEP}},
    "in_a_definition": {"type": "object", "$defs": {"b": {"type": "object", "properties": DEEP}}},
    "twice": {
        "type": "object",
        "properties": {
            "a": {"type": "string", "x-mcp-header": "Area"},
            "b": {"type": "string", "x-mcp-header": "AREA"},
        },
    },
}
VALID = {
    "token": schema_with("string", "a!#$%&'*+-.^_`|~Z9"),
    "data": {"type": "object", "properties": {"a": {"default": {"x-mcp-header": "a b"}}}},
}


def test_a_tool_with_an_invalid_header_is_left_out_alone_and_the_reason_is_given():
    listing = [{"name": name, "inputSchema": schema, "annotations": READS} for name, schema in INVALID.items()]
    good = [{"name": name, "inputSchema": schema, "annotations": READS} for name, schema in VALID.items()]

    async def main():
        async with served_by(ModernServer([*listing, *good])) as servers:
            return (
                [tool.name for tool in servers.tools],
                servers.left_out,
                [(await call(servers.tools, f"s__{name}", a="x")).text for name in VALID],
            )

    names, left_out, texts = asyncio.run(main())
    assert {name for name in names if "resource" not in name} == {f"s__{name}" for name in VALID}
    assert texts == ["fine", "fine"]
    assert {each.tool for each in left_out} == {*INVALID}
    for each in left_out:
        assert "x-mcp-header" in each.reason
        assert each.reason.isprintable()


def test_a_very_long_reason_is_cut():
    async def main():
        listing = [{"name": "long", "inputSchema": schema_with("string", "a b" * 50_000)}]
        async with served_by(ModernServer(listing)) as servers:
            return servers.left_out

    (one,) = asyncio.run(main())
    assert len(str(one)) < 700


NEW = {**PLACE, "inputSchema": {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Region"}}}}
OLD = {**PLACE, "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}


def test_a_call_that_is_refused_for_its_headers_is_made_again_only_for_the_definition_that_was_approved():
    server = ModernServer([OLD], [NEW], refusals=1)

    async def main():
        async with served_by(server) as servers:
            return [(await call(servers.tools, "s__place", text="x")).text for _ in range(2)]

    first, second = asyncio.run(main())
    assert "has changed the definition of 'place'" in first
    assert second == "fine"
    assert [exchange.headers.get("mcp-param-region") for exchange in server.calls] == [None, "x"]


@pytest.mark.parametrize("refusals", [1, 9])
def test_a_call_that_is_refused_for_its_headers_is_made_once_more_at_most(refusals):
    server = ModernServer([NEW], refusals=refusals)

    async def main():
        async with served_by(server) as servers:
            return await call(servers.tools, "s__place", text="x")

    result = asyncio.run(main())
    assert len(server.calls) == 2
    assert (result.text == "fine") == (refusals == 1)
    if refusals > 1:
        assert "refused the call: Mcp-Param-Region header is missing" in result.text


HINTS = {
    "none": {},
    "only one": {"ttlMs": 5},
    "negative": {**FRESH, "ttlMs": -1},
    "a fraction": {**FRESH, "ttlMs": 0.5},
    "text": {**FRESH, "ttlMs": "soon"},
    "null": {"ttlMs": None, "cacheScope": None},
    "true": {**FRESH, "ttlMs": True},
    "an unknown scope": {**FRESH, "cacheScope": "galaxy"},
    "for ever": {"ttlMs": 10**30, "cacheScope": "public"},
    "an object": {"ttlMs": {}, "cacheScope": []},
}


@pytest.mark.parametrize("hints", HINTS)
def test_hints_for_caches_lose_no_tool_and_nothing_is_answered_from_a_cache(hints):
    server = ModernServer([PLACE], hints=HINTS[hints])

    async def main():
        async with served_by(server) as servers:
            texts = [(await call(servers.tools, "s__read_resource", uri="x:1")).text for _ in range(2)]
            return (await call(servers.tools, "s__place", text="x")).text, texts

    text, texts = asyncio.run(main())
    assert text == "fine"
    assert ["read 1" in texts[0], "read 2" in texts[1]] == [True, True]
    assert server.calls[0].headers["mcp-param-text"] == "x"  # it speaks the newer revision
