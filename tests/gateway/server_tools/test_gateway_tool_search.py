"""More tools than a small model can read: the gateway gives it their names and a search, as clients of three APIs see
it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from loopback_server import Server, event, serve
from mcp_helpers import http_server
from serving import ENDPOINTS, USAGE, at, call_text, in_turn, pieces, run_gateway, texts

from toolspeak.data.messages import Message, TextPart, ToolChoice, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import ParsedTurn
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.gateway_settings import ToolSettings
from toolspeak.gateway.settings.upstream_settings import upstreams_of_table
from toolspeak.wire.base import ModelRequest

QUESTION = Message.user("How is it?")
CHAT = "/v1/chat/completions"
PATHS = pytest.mark.parametrize("path", ENDPOINTS)


def service(name: str, description: str) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": {"place": {"type": "string"}}})


MANY = tuple(service(f"shop_{i}", f"Sells article {i}.") for i in range(398))
SKY, TIDE = service("sky_now", "Tells how the weather is."), service("tide_now", "Tells the height of the sea.")
TOOLS = (*MANY, SKY, TIDE)
FIND, LOOK, TIDES = (
    ("find_tools", {"query": "weather"}),
    ("sky_now", {"place": "Rome"}),
    ("tide_now", {"place": "Bari"}),
)


def calling(*calls: tuple[str, dict[str, Any]]) -> list[bytes]:
    return texts(*pieces(call_text("hermes", *calls)))


def asked_of(upstream: Server, index: int) -> str:
    return json.dumps(upstream.exchanges[index].json["messages"], ensure_ascii=False)


def with_results(turn: ParsedTurn, text: str) -> list[Message]:
    """The conversation as a client sends it back."""
    results = tuple(ToolResult(call.id, call.name or "", "success", (TextPart(text),)) for call in turn.calls)
    return [QUESTION, turn.message, Message("tool", results)]


@PATHS
@pytest.mark.parametrize("stream", [True, False])
def test_the_model_finds_a_tool_and_the_client_sees_its_call_alone(path: str, stream: bool):
    async def run() -> None:
        turns = [calling(FIND), calling(LOOK), texts("Sunny."), texts("Still sunny.")]
        async with (
            serve(in_turn(*turns)) as upstream,
            run_gateway(at(upstream, dialect="hermes", defer_tools=20)) as gateway,
        ):
            turn, _ = await gateway.ask(path, ModelRequest([QUESTION], TOOLS), stream=stream)
            assert [(call.name, dict(call.arguments)) for call in turn.calls] == [LOOK]
            first, second = asked_of(upstream, 0), asked_of(upstream, 1)
            assert "Tells how the weather is." not in first
            assert "shop_*: 0, 1, 2" in first
            assert len(first) < 9_000
            assert "Tells how the weather is." in second
            assert "Sells article" not in second

            more = with_results(turn, "25 degrees")
            answer, _ = await gateway.ask(path, ModelRequest(more, TOOLS), stream=stream)
            third = asked_of(upstream, 2)
            assert answer.text == "Sunny."
            assert "Added to your tools" in third, "the model remembers its search"
            assert third.count("Tells how the weather is.") == second.count("Tells how the weather is.")

            later = [*more, answer.message, Message.user("And now?")]
            await gateway.ask(path, ModelRequest(later, TOOLS), stream=stream)
            assert "Tells how the weather is." in asked_of(upstream, 3), "what was called stays"

    asyncio.run(run())


def test_few_tools_are_read_as_they_are():
    async def run() -> None:
        turns = [calling(LOOK)] * 2
        async with serve(in_turn(*turns)) as upstream:
            for most, tools in ((2, (SKY, TIDE)), (None, TOOLS)):
                async with run_gateway(at(upstream, dialect="hermes", defer_tools=most)) as gateway:
                    turn, _ = await gateway.ask(CHAT, ModelRequest([QUESTION], tools), stream=True)
                    assert [call.name for call in turn.calls] == ["sky_now"]
            assert all("find_tools" not in asked_of(upstream, index) for index in (0, 1))
            assert all("Tells the height" in asked_of(upstream, index) for index in (0, 1))

    asyncio.run(run())


def test_the_call_of_a_tool_that_was_not_found_does_not_leave():
    async def run() -> None:
        turns = [calling(LOOK), calling(LOOK, TIDES), texts("Sunny.")]
        async with (
            serve(in_turn(*turns)) as upstream,
            run_gateway(at(upstream, dialect="hermes", defer_tools=20)) as gateway,
        ):
            turn, _ = await gateway.ask(CHAT, ModelRequest([QUESTION], TOOLS), stream=True)
            assert [call.name for call in turn.calls] == ["sky_now"]
            assert "sky_now did not run: you had not read its definition." in asked_of(upstream, 1)
            more = with_results(turn, "25 degrees")
            assert len(upstream.exchanges) == 2
            async with run_gateway(at(upstream, dialect="hermes", defer_tools=20)) as other:
                await other.ask(CHAT, ModelRequest(more, TOOLS), stream=True)
            assert "tide_now did not run" in asked_of(upstream, 2), "another process knows it, from the call's id"
            assert "Tells the height of the sea." in asked_of(upstream, 2)

    asyncio.run(run())


def test_a_model_that_searches_for_ever_has_to_answer():
    async def run() -> None:
        turns = [*[calling(("find_tools", {"query": "*"}))] * 12, texts("I found nothing.")]
        async with (
            serve(in_turn(*turns)) as upstream,
            run_gateway(at(upstream, dialect="hermes", defer_tools=20)) as gateway,
        ):
            turn, response = await gateway.ask(CHAT, ModelRequest([QUESTION], TOOLS), stream=False)
            assert (turn.text, turn.calls) == ("I found nothing.", ())
            assert response.headers["x-toolspeak-warning"] == "tool_limit"
            assert "No tool fits" in asked_of(upstream, 1)
            assert len(upstream.exchanges) == 13

    asyncio.run(run())


def test_a_required_call_is_required_until_it_is_not_a_search():
    def native(call_id: str, name: str, arguments: dict[str, str]) -> list[bytes]:
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"index": 0, "id": call_id, "type": "function", "function": function}]
        return [
            event({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]}),
            event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            event(USAGE),
            event("[DONE]"),
        ]

    async def run() -> None:
        turns = [native("a", *FIND), native("b", *LOOK)]
        async with (
            serve(in_turn(*turns)) as upstream,
            run_gateway(at(upstream, dialect="native", defer_tools=3)) as gateway,
        ):
            request = ModelRequest([QUESTION], TOOLS, ToolChoice("required"))
            turn, _ = await gateway.ask(CHAT, request, stream=True)
            assert [call.name for call in turn.calls] == ["sky_now"]
            bodies = [exchange.json for exchange in upstream.exchanges]
            names = [[tool["function"]["name"] for tool in body["tools"]] for body in bodies]
            assert names == [["find_tools"], ["find_tools", "sky_now"]]
            assert [body["tool_choice"] for body in bodies] == ["required", "required"]

    asyncio.run(run())


def test_a_client_may_have_a_tool_of_that_name():
    async def run() -> None:
        own = service("find_tools", "Looks for hammers.")
        turns = [calling(("gateway_find_tools", {"query": "hammers"})), calling(("find_tools", {"place": "cellar"}))]
        async with (
            serve(in_turn(*turns)) as upstream,
            run_gateway(at(upstream, dialect="hermes", defer_tools=3)) as gateway,
        ):
            turn, _ = await gateway.ask(CHAT, ModelRequest([QUESTION], (*TOOLS, own)), stream=True)
            assert [(call.name, dict(call.arguments)) for call in turn.calls] == [("find_tools", {"place": "cellar"})]

    asyncio.run(run())


def test_tools_that_the_gateway_runs_are_found_beside_the_clients(tmp_path: Path):
    async def run() -> None:
        turns = [calling(("find_tools", {"query": "echo"})), calling(("s__echo", {"text": "hello"})), texts("Done.")]
        async with http_server(tmp_path) as server, serve(in_turn(*turns)) as upstream:
            (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"s": {"url": server.url}}}), encoding="utf-8")
            tools = ToolSettings(str(tmp_path / "mcp.json"))
            async with run_gateway(at(upstream, dialect="hermes", defer_tools=20), tools=tools) as gateway:
                turn, _ = await gateway.ask(CHAT, ModelRequest([QUESTION], TOOLS), stream=True)
            assert (turn.text, turn.calls) == ("Done.", ())
            assert "Says it again." not in asked_of(upstream, 0)
            assert "hello" in upstream.exchanges[2].json["messages"][-1]["content"]

    asyncio.run(run())


def test_the_option_is_one_of_the_model():
    row = {"name": "m", "upstream": "http://127.0.0.1:1/v1", "defer_tools": 30}
    assert upstreams_of_table(row, "model[0]")[0].defer_tools == 30
    for value in (-1, "many", True):
        with pytest.raises(ConfigurationError, match="defer_tools"):
            upstreams_of_table({**row, "defer_tools": value}, "model[0]")
