"""Tools of OpenAI Responses that are no functions, as codex sends them, before upstreams whose calls are text."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from loopback_server import serve
from serving import at, events, in_turn, pieces, run_gateway, texts

from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect

PATCH = '*** Begin Patch\n*** Update File: a "b".txt\n@@\n-<old>\n+né😀\\n\n*** End Patch\n'
GRAMMAR: Any = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" /.+/'}
APPLY_PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": GRAMMAR}
SPAWN: Any = {
    "type": "function",
    "name": "spawn",
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
}
AGENTS: Any = {"type": "namespace", "name": "agents", "description": "Sub-agents.", "tools": [SPAWN]}
DIALECTS = ["hermes", "qwen3-coder", "cogency-json", "harmony", "native"]


def call_turn(dialect: str, name: str, arguments: dict[str, Any]) -> list[bytes]:
    """The model's turn: a call."""
    spec = ToolSpec(name, "", {"type": "object", "properties": {"input": {"type": "string"}, "n": {"type": "integer"}}})
    if dialect == "native":
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
        return [b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n", b"data: [DONE]\n\n"]
    (message,) = get_dialect(dialect).render([Message("assistant", (ToolCall("c0", name, arguments),))], [spec])
    return texts(*pieces(message.text))


def ask(dialect: str, turns: list[list[bytes]], *bodies: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
    """The answers to these requests, and what the upstream was asked."""

    async def run() -> Any:
        async with serve(in_turn(*turns)) as server, run_gateway(at(server, dialect=dialect)) as gateway:
            requests = ({"model": "m", **body} for body in bodies)
            answers = [await gateway.client.post("/v1/responses", json=each, headers=headers) for each in requests]
            return answers, [exchange.json for exchange in server.exchanges]

    return asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_freeform_tool_is_called_with_a_text_and_answered(dialect: str, stream: bool):
    body = {"input": "Patch it.", "tools": [APPLY_PATCH], "stream": stream}
    turns = [call_turn(dialect, "apply_patch", {"input": PATCH}), texts("Done.")]
    (first,), _ = ask(dialect, turns, body)
    answer = events(first.text)[-1]["response"] if stream else first.json()
    (call,) = [item for item in answer["output"] if item["type"] == "custom_tool_call"]
    assert (call["name"], call["input"], call["status"]) == ("apply_patch", PATCH, "completed")
    result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "Success. Updated a.txt"}
    history = [{"role": "user", "content": "Patch it."}, *answer["output"], result]
    (second,), requests = ask(dialect, turns[1:], {**body, "input": history})
    assert "Done." in second.text
    text = json.dumps(requests, ensure_ascii=False)
    assert "Success. Updated a.txt" in text
    assert "Begin Patch" in text
    assert "lark grammar" in text


def test_a_freeform_call_streams_as_the_api_does():
    (answer,), _ = ask(
        "hermes",
        [call_turn("hermes", "apply_patch", {"input": PATCH})],
        {"input": "Patch it.", "tools": [APPLY_PATCH], "stream": True},
    )
    stream_events = [event for event in events(answer.text) if event != "[DONE]"]
    kinds = [event["type"] for event in stream_events]
    assert kinds[2:6] == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
    ]
    assert stream_events[2]["item"] == {**stream_events[5]["item"], "status": "in_progress", "input": ""}
    assert stream_events[4]["input"] == PATCH


def test_a_freeform_call_that_is_cut_never_reaches_the_client():
    turn = texts(*pieces('<tool_call>\n{"name": "apply_patch", "arguments": {"input": "*** Begin'), finish="length")
    (answer,), _ = ask("hermes", [turn], {"input": "Patch it.", "tools": [APPLY_PATCH], "stream": True})
    assert "custom_tool_call" not in {event["type"] for event in events(answer.text)}
    assert events(answer.text)[-1]["response"]["status"] == "incomplete"
    assert all(item["type"] != "custom_tool_call" for item in events(answer.text)[-1]["response"]["output"])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_functions_of_a_namespace_are_called_as_the_api_names_them(dialect: str, stream: bool):
    body = {"input": "Spawn.", "tools": [AGENTS], "stream": stream}
    (first,), _ = ask(dialect, [call_turn(dialect, "agents__spawn", {"n": 2})], body)
    answer = events(first.text)[-1]["response"] if stream else first.json()
    (call,) = [item for item in answer["output"] if item["type"] == "function_call"]
    assert (call["namespace"], call["name"], json.loads(call["arguments"])) == ("agents", "spawn", {"n": 2})
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "two are there"}
    history = [{"role": "user", "content": "Spawn."}, call, result]
    (second,), requests = ask(dialect, [texts("Done.")], {**body, "input": history})
    assert "Done." in second.text
    assert "agents__spawn" in json.dumps(requests)
    assert "two are there" in json.dumps(requests)


def test_tools_pass_to_an_upstream_of_the_same_api_as_they_came():
    tools: Any = [
        APPLY_PATCH,
        {**AGENTS, "tools": [{**SPAWN, "description": "", "strict": False}]},
        {"type": "web_search"},
    ]
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": PATCH}
    result = {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}

    async def run() -> Any:
        answer: Any = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}
        turn = [b"data: " + json.dumps(answer).encode() + b"\n\n"]
        async with serve(in_turn(turn, turn, turn)) as server:
            upstream = at(server, provider="openai-responses", model="m", dialect="native")
            async with run_gateway(upstream) as gateway:
                body = {"model": "m", "input": [{"role": "user", "content": "Go."}, call, result], "tools": tools}
                choice = {"type": "custom", "name": "apply_patch"}
                response = await gateway.client.post(
                    "/v1/responses", json={**body, "stream": True, "tool_choice": choice}
                )
                assert response.status_code == 200, response.text
                return server.exchanges[0].json

    body = asyncio.run(run())
    assert body["tools"] == tools
    assert body["input"][1:] == [call, result]
    assert body["tool_choice"] == {"type": "custom", "name": "apply_patch"}


@pytest.mark.parametrize("kind", ["web_search", "mcp", "local_shell", "tool_search", "image_generation"])
def test_a_tool_that_nobody_runs_here_is_refused(kind: str):
    (answer,), requests = ask("hermes", [], {"input": "Hi", "tools": [{"type": kind}]})
    assert (answer.status_code, requests) == (400, [])
    assert f"this gateway does not run the tool '{kind}'" in answer.json()["error"]["message"]
    (refusal,), _ = ask("hermes", [], {"input": "Hi", "tools": [SPAWN], "tool_choice": {"type": kind}})
    assert refusal.status_code == 400


@pytest.mark.parametrize(
    ("tools", "headers"),
    [([{"type": "mcp"}], {"x-toolspeak-optional-tools": "local_shell, mcp"}), ([{"type": "web_search"}, SPAWN], {})],
    ids=["by a header", "a search beside tools of its own, as codex"],
)
def test_a_tool_that_the_client_can_do_without_is_left_out_with_a_warning(tools: Any, headers: dict[str, str]):
    (answer,), requests = ask("hermes", [texts("Hello.")], {"input": "Hi", "tools": tools}, headers=headers)
    assert answer.status_code == 200
    assert [note["code"] for note in answer.json()["toolspeak"]["warnings"]] == ["tool_left_out"]
    assert tools[0]["type"] not in json.dumps(requests)


def test_a_search_that_has_to_be_made_is_refused():
    body = {"input": "Hi", "tools": [{"type": "web_search"}, SPAWN], "tool_choice": "required"}
    (answer,), requests = ask("hermes", [], body)
    assert (answer.status_code, requests) == (400, [])


def test_allowed_tools_are_the_only_ones_that_the_model_is_told_of():
    other: Any = {"type": "function", "name": "other", "parameters": {"type": "object", "properties": {}}}
    allowed_tools: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "apply_patch"}]}
    body: Any = {"input": "Hi", "tools": [APPLY_PATCH, other, AGENTS], "tool_choice": allowed_tools}
    (answer,), requests = ask("hermes", [texts("Hello.")], body)
    assert answer.status_code == 200
    text = json.dumps(requests)
    assert "apply_patch" in text
    assert "other" not in text
    assert "spawn" not in text
    unknown_tool = {**allowed_tools, "tools": [{"type": "function", "name": "nope"}]}
    (refusal,), _ = ask("hermes", [], {**body, "tool_choice": unknown_tool})
    assert refusal.status_code == 400
    assert "no tool is called 'nope'" in refusal.json()["error"]["message"]
