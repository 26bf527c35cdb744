"""Through the gateway the server writes the prompt, and the client reads calls that we read."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from loopback_server import serve
from serving import ENDPOINTS, at, run_gateway
from vllm_server import CALL, Vllm

from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.wire.base import ModelRequest

LOOK = ToolSpec("look", "Looks somewhere.", {"type": "object", "properties": {"where": {"type": "string"}}})
FIRST_REQUEST = ModelRequest([Message.system("Be brief."), Message.user("go")], (LOOK,))
SECOND_REQUEST = replace(
    FIRST_REQUEST,
    messages=[
        *FIRST_REQUEST.messages,
        Message("assistant", (ToolCall("c1", "look", {"where": "here"}, "c1"),)),
        Message("tool", (ToolResult("c1", "look", "success", (TextPart("empty"),)),)),
    ],
)


def ask(server: Vllm, *requests: ModelRequest, path: str, stream: bool, **upstream: Any) -> list[Any]:
    async def go() -> list[Any]:
        upstream_fields = {"provider": "vllm", "model": "Qwen/Qwen3-8B", "dialect": "hermes", **upstream}
        async with serve(server) as model_server, run_gateway(at(model_server, **upstream_fields)) as front:
            return [(await front.ask(path, request, stream=stream))[0] for request in requests]

    return asyncio.run(go())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("excluded", [False, True], ids=["the server writes", "it leaves the tools out"])
def test_a_client_reads_the_same_whoever_writes_the_prompt(path: str, stream: bool, excluded: bool):
    server = Vllm([CALL, "Empty."], excluded=excluded)
    first_turn, second_turn = ask(server, FIRST_REQUEST, SECOND_REQUEST, path=path, stream=stream)
    (call,) = first_turn.calls
    assert (call.name, call.arguments, first_turn.finish) == ("look", {"where": "here"}, "tool_calls")
    assert (second_turn.text, second_turn.finish) == ("Empty.", "stop")
    assert len(server.checks) == 2  # for both requests
    first, second = server.bodies
    if excluded:
        assert "tools" not in first
        assert "look" in first["messages"][0]["content"]
        return
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}
    assert [tool["function"]["name"] for tool in first["tools"]] == ["look"]
    assert (first["tool_choice"], second["tool_choice"]) == ("none", "none")
    call_message, result = second["messages"][-2:]
    assert json.loads(call_message["tool_calls"][0]["function"]["arguments"]) == {"where": "here"}
    assert (result["role"], result["content"]) == ("tool", "empty")
    assert result["tool_call_id"] == call_message["tool_calls"][0]["id"]


@pytest.mark.parametrize("listing", ["trained", "prose"])
def test_an_operator_may_have_the_prompt_written_here(listing: str):
    server = Vllm([CALL])
    ask(server, FIRST_REQUEST, path="/v1/chat/completions", stream=True, listing=listing)
    assert server.checks == []
    assert "tools" not in server.first
