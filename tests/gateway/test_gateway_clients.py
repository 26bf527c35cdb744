"""Many clients of one model: each is answered as if it were alone."""

from __future__ import annotations

import asyncio

import pytest
from loopback_server import serve
from serving import CLOCK, TOOLS, WEATHER, at, in_turn, run_gateway, texts

from toolspeak.data.messages import Message
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect
from toolspeak.gateway.requests.request_mapping import LARGEST_BYTES, MOST_LISTS, KnownTools
from toolspeak.wire.base import ModelRequest, OutputSchema

QUESTION = Message.user("How is it?")
FORM = OutputSchema("city", {"type": "object", "properties": {"postcode": {"type": "string"}}})


def test_each_is_told_of_its_own_tools_and_form():
    requests = [
        ModelRequest([QUESTION], tools, output=output)
        for tools in (TOOLS, (WEATHER,), (CLOCK,), TOOLS)
        for output in (None, FORM, None)
    ]

    async def run() -> list[str]:
        async with serve(in_turn(*[texts("{}") for _ in requests])) as server:
            async with run_gateway(at(server, dialect="hermes")) as gateway:
                for request in requests:
                    await gateway.ask("/v1/chat/completions", request, stream=True)
            return [exchange.json["messages"][0]["content"] for exchange in server.exchanges]

    for request, prompt in zip(requests, asyncio.run(run()), strict=True):
        assert get_dialect("hermes").instructions(request.tools) in prompt
        assert ("postcode" in prompt) == (request.output is not None)


def spec(name: str, about: str = "") -> ToolSpec:
    return ToolSpec(name, about, {"type": "object", "properties": {}})


def test_lists_that_say_the_same_are_one():
    tools = KnownTools()
    first = tools.intern((spec("a"), spec("b")))
    assert tools.intern((spec("a"), spec("b"))) is first
    for other in ((spec("b"), spec("a")), (spec("a", "x"), spec("b")), (spec("a"),), ()):
        assert tools.intern(other) == other


def test_few_are_kept_and_none_that_is_large():
    tools = KnownTools()
    lists = [(spec(f"tool_{n}"),) for n in range(MOST_LISTS + 1)]
    for each in lists:
        assert tools.intern(each) is each
    assert tools.intern((spec(f"tool_{MOST_LISTS}"),)) is lists[-1]
    again = (spec("tool_0"),)
    assert tools.intern(again) is again
    large = (spec("a", "x" * LARGEST_BYTES),)
    assert tools.intern(large) is large
    assert tools.intern(again_large := (spec("a", "x" * LARGEST_BYTES),)) is again_large


@pytest.mark.parametrize("text", ["\ud800", "caf\u00e9"])
def test_whatever_a_description_says(text: str):
    tools = KnownTools()
    assert tools.intern((spec("a", text),)) == (spec("a", text),)
