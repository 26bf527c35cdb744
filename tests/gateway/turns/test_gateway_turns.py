"""Turns through the gateway, as clients of three APIs see them."""

from __future__ import annotations

import asyncio
import json

import pytest
from loopback_server import serve
from serving import ENDPOINTS, TOOLS, at, call_text, events, in_turn, pieces, run_gateway, texts

from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult, Usage
from toolspeak.wire.base import ModelRequest

DIALECTS = ["hermes", "qwen3-coder", "cogency-json", "harmony", "deepseek-v3.1"]
CALLS = (("weather", {"city": 'Grüß </tool_call> "Gott"', "days": 3}), ("clock", {"zone": "UTC"}))
QUESTION = Message.user("How is it?")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_steps_with_calls_in_text(dialect: str, path: str, stream: bool):
    calls = CALLS if dialect != "harmony" else CALLS[:1]

    async def run() -> None:
        first = pieces(call_text(dialect, *calls), 3)
        async with (
            serve(in_turn(texts(*first), texts("It is ", "fine."), cut=37)) as upstream,
            run_gateway(at(upstream, dialect=dialect)) as gateway,
        ):
            request = ModelRequest([Message.system("Be brief."), QUESTION], TOOLS)
            turn, _ = await gateway.ask(path, request, stream=stream)
            assert [(call.name, call.arguments) for call in turn.calls if isinstance(call, ToolCall)] == list(calls)
            assert turn.text.strip() == ""
            ids = [call.provider_id for call in turn.calls if isinstance(call, ToolCall)]
            assert len({*ids}) == len(calls)
            assert all(ids)
            results = tuple(
                ToolResult(call.id, call.name or "", "success", (TextPart("sunny"),)) for call in turn.calls
            )
            request = ModelRequest([QUESTION, turn.message, Message("tool", results)], TOOLS)
            turn, _ = await gateway.ask(path, request, stream=stream)
            assert (turn.text, turn.calls, turn.finish) == ("It is fine.", (), "stop")
            assert turn.usage == Usage(30, 12) or path != "/v1/chat/completions"
            messages = upstream.exchanges[1].json["messages"]
            assert "tools" not in upstream.exchanges[1].json
            assert "sunny" in messages[-1]["content"]

    asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_two_steps_with_native_calls(path: str, stream: bool):
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    chunks = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": ' "Rome"}'}}]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    native = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"]

    async def run() -> None:
        async with (
            serve(in_turn(native, texts("Fine."), cut=11)) as upstream,
            run_gateway(at(upstream, dialect="native")) as gateway,
        ):
            turn, _ = await gateway.ask(path, ModelRequest([QUESTION], TOOLS), stream=stream)
            (call,) = turn.calls
            assert isinstance(call, ToolCall)
            assert (call.name, call.arguments, call.provider_id) == ("weather", {"city": "Rome"}, "call_1")
            assert [tool["function"]["name"] for tool in upstream.exchanges[0].json["tools"]] == ["weather", "clock"]
            results = (ToolResult(call.id, "weather", "success", (TextPart("sunny"),)),)
            request = ModelRequest([QUESTION, turn.message, Message("tool", results)], TOOLS)
            turn, _ = await gateway.ask(path, request, stream=stream)
            assert turn.text == "Fine."
            assert upstream.exchanges[1].json["messages"][-1] == {
                "role": "tool", "tool_call_id": "call_1", "content": "sunny"
            }  # fmt: skip

    asyncio.run(run())


def test_id_type_and_name_of_a_call_are_sent_once():
    async def run() -> str:
        text = call_text("hermes", *CALLS)
        async with (
            serve(in_turn(texts(*pieces(text, 2)))) as upstream,
            run_gateway(at(upstream, dialect="hermes")) as gateway,
        ):
            body = {"stream_options": {"include_usage": True}}
            _, response = await gateway.ask(
                "/v1/chat/completions", ModelRequest([QUESTION], TOOLS), stream=True, **body
            )
            return response.text

    chunks = events(asyncio.run(run()))
    assert chunks.pop() == "[DONE]"
    assert chunks.pop()["usage"] == {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert [call["index"] for call in calls if "id" in call] == [0, 1]
    assert [call["function"]["name"] for call in calls if "name" in call["function"]] == ["weather", "clock"]
    assert sum("type" in call for call in calls) == 2
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert len([call for call in calls if call["index"] == 0]) > 5, "arguments leave as they come"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_thoughts_that_the_prompt_opened_are_no_part_of_a_whole_answer(path: str, stream: bool):
    """A stream has sent them by then: it leaves the marker out, and warns."""

    async def run() -> None:
        frames = texts("A plan.\n", "</thi", "nk>\n\n", "It is ", "fine.")
        async with (
            serve(in_turn(frames)) as upstream,
            run_gateway(at(upstream, dialect="hermes")) as gateway,
        ):
            turn, response = await gateway.ask(path, ModelRequest([QUESTION], TOOLS), stream=stream)
            if stream:
                assert turn.text.split() == ["A", "plan.", "It", "is", "fine."]
                assert "reasoning_sent_as_text" in response.text
            else:
                assert turn.text.strip() == "It is fine."
                assert "x-toolspeak-warning" not in response.headers

    asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_call_that_ends_a_turn_in_open_thoughts_leaves_as_one(stream: bool):
    async def run() -> None:
        frames = texts("<think>I look.\n", *pieces(call_text("hermes", CALLS[1]), 3))
        async with (
            serve(in_turn(frames)) as upstream,
            run_gateway(at(upstream, dialect="hermes")) as gateway,
        ):
            turn, _ = await gateway.ask("/v1/chat/completions", ModelRequest([QUESTION], TOOLS), stream=stream)
            assert [(call.name, call.arguments) for call in turn.calls if isinstance(call, ToolCall)] == [CALLS[1]]
            assert (turn.text.strip(), turn.reasoning.strip()) == ("", "I look.")

    asyncio.run(run())
