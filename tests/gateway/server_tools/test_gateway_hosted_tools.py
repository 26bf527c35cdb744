"""Tools that OpenAI Responses would run itself, run by the gateway: `mcp` and `web_search`, over a real MCP server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from loopback_server import Server, serve
from mcp_helpers import http_server, traces
from serving import Gateway, at, call_text, events, in_turn, pieces, run_gateway, texts

from toolspeak.gateway.settings.gateway_settings import ResponseSettings, ToolSettings

PATH = "/v1/responses"
CITY = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
MCP = {"type": "mcp", "server_label": "s", "require_approval": "never"}


def calling(*calls: tuple[str, dict[str, Any]], before: str = "") -> list[bytes]:
    return texts(*pieces(call_text("hermes", *calls, before=before)))


@asynccontextmanager
async def run_tool_gateway(
    folder: Path, *turns: Any, dialect: str = "hermes", memory: bool = False, **tools: Any
) -> AsyncGenerator[tuple[Gateway, Server, str]]:
    """A gateway with the test server's tools, before a model that says these turns, and the server's address."""
    async with http_server(folder) as server, serve(in_turn(*turns)) as upstream:
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"s": {"url": server.url}}}), encoding="utf-8")
        settings = ToolSettings(str(folder / "mcp.json"), **tools)
        store = ResponseSettings(str(folder / "responses.db")) if memory else None
        async with run_gateway(at(upstream, dialect=dialect), tools=settings, responses=store) as gateway:
            yield gateway, upstream, server.url


async def response(gateway: Gateway, prompt: Any, *, stream: bool = False, **fields: Any) -> Any:
    answer = await gateway.client.post(PATH, json={"model": "m", "input": prompt, "stream": stream, **fields})
    assert answer.status_code == 200, answer.text
    return events(answer.text)[-1]["response"] if stream else answer.json()


def prompt(upstream: Server, index: int = -1) -> str:
    return json.dumps(upstream.exchanges[index].json["messages"], ensure_ascii=False)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_call_of_an_mcp_server_is_an_item_of_the_answer(stream: bool, tmp_path: Path):
    async def run() -> None:
        turns = (calling(("s__echo", {"text": "né"}), before="I ask."), texts("It says né."), texts("Twice."))
        async with run_tool_gateway(tmp_path, *turns) as (gateway, upstream, url):
            tool = {**MCP, "server_url": url, "allowed_tools": ["echo"]}
            answer = await response(gateway, "Ask it.", stream=stream, tools=[tool, CITY])
            first, call, last = answer["output"]
            assert (first["content"][0]["text"], last["content"][0]["text"]) == ("I ask.", "It says né.")
            assert call == {
                "type": "mcp_call", "id": call["id"], "status": "completed", "server_label": "s", "name": "echo",
                "arguments": '{"text": "né"}', "output": "né", "error": None, "approval_request_id": None,
            }  # fmt: skip
            prompt_text = prompt(upstream, 0)
            assert "s__echo" in prompt_text
            assert "s__fails" not in prompt_text
            history = [{"role": "user", "content": "Ask it."}, *answer["output"], {"role": "user", "content": "Again?"}]
            await response(gateway, history, stream=stream, tools=[tool])
            assert prompt(upstream).count("<tool_response>") == 1
            assert prompt(upstream).index("I ask.") < prompt(upstream).index("It says né.")

    asyncio.run(run())
    assert traces(tmp_path, "calls") == ["echo"]


def test_the_events_are_those_of_the_api(tmp_path: Path):
    async def run() -> None:
        turns = (calling(("s__echo", {"text": "a"})), calling(("s__fails", {})), texts("No."))
        async with run_tool_gateway(tmp_path, *turns, approve=("*",)) as (gateway, _, _url):
            body = {"model": "m", "input": "Go.", "stream": True, "tools": [MCP]}
            stream_events = events((await gateway.client.post(PATH, json=body)).text)
            assert [event["sequence_number"] for event in stream_events] == [*range(len(stream_events))]
            kinds = [event["type"].removeprefix("response.") for event in stream_events]
            assert kinds[2:14] == [
                "output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done",
                "mcp_call.completed", "output_item.done",
                "output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done",
                "mcp_call.failed", "output_item.done",
            ]  # fmt: skip
            failed_call = stream_events[13]["item"]
            assert (failed_call["status"], failed_call["output"], failed_call["error"]["type"]) == (
                "failed", None, "mcp_tool_execution_error",
            )  # fmt: skip
            assert stream_events[-1]["response"]["output"][:2] == [stream_events[7]["item"], failed_call]

    asyncio.run(run())


def test_a_tool_that_the_operator_does_not_approve_is_not_run(tmp_path: Path):
    async def run() -> None:
        async with run_tool_gateway(tmp_path, calling(("s__learns", {"name": "x"})), texts("No.")) as (
            gateway,
            _,
            _url,
        ):
            call, _ = (await response(gateway, "Go.", tools=[MCP]))["output"]
            assert call["status"] == "failed"
            assert "--approve-tools" in call["error"]["content"][0]["text"]

    asyncio.run(run())
    assert traces(tmp_path, "calls") == []


def test_a_web_search_is_the_tool_that_the_operator_names(tmp_path: Path):
    async def run() -> None:
        turns = (calling(("s__echo", {"text": "cats"}), ("weather", {})), texts("Cats."))
        async with run_tool_gateway(tmp_path, *turns, web_search="s__echo") as (gateway, upstream, _):
            answer = await response(gateway, "Search.", tools=[{"type": "web_search"}, CITY])
            search, call = answer["output"]
            assert search == {
                "type": "web_search_call", "id": search["id"], "status": "completed",
                "action": {"type": "search", "query": "cats"},
            }  # fmt: skip
            assert "s__fails" not in prompt(upstream)
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "snow"}
            history = [{"role": "user", "content": "Search."}, *answer["output"], result]
            await response(gateway, history, tools=[{"type": "web_search"}, CITY])
            assert prompt(upstream).count("cats") == 2  # the call's id carries the search and what it found

    asyncio.run(run())


def test_a_stored_conversation_continues_after_calls_that_ran_here(tmp_path: Path):
    async def run() -> None:
        turns = (calling(("s__echo", {"text": "né"})), texts("It says né."), texts("Yes."))
        async with run_tool_gateway(tmp_path, *turns, memory=True) as (gateway, upstream, _):
            first = await response(gateway, "Ask it.", tools=[MCP])
            await response(gateway, "Sure?", previous_response_id=first["id"], tools=[MCP])
            text = prompt(upstream)[prompt(upstream).index("Ask it.") :]
            places = [text.index(part) for part in ("<tool_call>", "<tool_response>", "It says né.", "Sure?")]
            assert places == sorted(places)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("choice", "expected_tool"),
    [
        ({"type": "mcp", "server_label": "s", "name": "echo"}, "s__echo"),
        ({"type": "mcp", "server_label": "s"}, None),
        ({"type": "web_search"}, "s__huge"),
    ],
)
def test_a_tool_choice_of_theirs_is_obeyed(choice: Any, expected_tool: str | None, tmp_path: Path):
    async def run() -> None:
        turns = (
            calling((expected_tool or "s__echo", {"text": "a"} if expected_tool != "s__huge" else {})),
            texts("Yes."),
        )
        async with run_tool_gateway(tmp_path, *turns, dialect="native", web_search="s__huge") as (gateway, upstream, _):
            tools = [MCP, {"type": "web_search"}]
            await gateway.client.post(PATH, json={"model": "m", "input": "x", "tools": tools, "tool_choice": choice})
            tool_choice = upstream.exchanges[0].json["tool_choice"]
            assert tool_choice == (
                {"type": "function", "function": {"name": expected_tool}} if expected_tool else "required"
            )

    asyncio.run(run())


def test_no_more_calls_run_than_the_client_allows(tmp_path: Path):
    async def run() -> None:
        turns = (calling(("s__echo", {"text": "a"}), ("s__echo", {"text": "b"})), texts("Enough."))
        async with run_tool_gateway(tmp_path, *turns) as (gateway, _, _url):
            answer = await response(gateway, "x", tools=[MCP], max_tool_calls=1)
            calls = [item for item in answer["output"] if item["type"] == "mcp_call"]
            assert [call["status"] for call in calls] == ["completed", "failed"]
            assert [note["code"] for note in answer["toolspeak"]["warnings"]] == ["tool_limit"]

    asyncio.run(run())
    assert traces(tmp_path, "calls") == ["echo"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"tools": [{**MCP, "server_label": "other"}]},
            "this gateway does not run the tool 'mcp' of the server 'other'",
        ),
        ({"tools": [{**MCP, "server_label": ["s"]}]}, "this gateway does not run the tool 'mcp'"),
        ({"tools": [{**MCP, "server_url": "http://169.254.169.254/"}]}, "tools[0].server_url"),
        ({"tools": [{**MCP, "authorization": "secret"}]}, "omit authorization"),
        ({"tools": [{**MCP, "headers": {"x": "y"}}]}, "omit headers"),
        ({"tools": [{"type": "mcp", "server_label": "s"}]}, "tools[0].require_approval"),
        ({"tools": [{**MCP, "require_approval": {"never": {"tool_names": ["echo"]}}}]}, "require_approval"),
        ({"tools": [{**MCP, "allowed_tools": ["none"]}]}, "offers no tool 'none'"),
        ({"tools": [{**MCP, "allowed_tools": {"read_only": True}}]}, "tools[0].allowed_tools"),
        ({"tools": [{**MCP, "allowed_tools": [7]}]}, "tools[0].allowed_tools[0]"),
        ({"tools": [{"type": "web_search"}]}, "this gateway does not run the tool 'web_search'"),
        (
            {"tools": [MCP], "tool_choice": {"type": "mcp", "server_label": "s", "name": "none"}},
            "offers no tool 'none'",
        ),
        ({"tools": [MCP], "tool_choice": {"type": "mcp", "server_label": "t"}}, "tool_choice.type"),
        ({"tools": [MCP], "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_what_cannot_be_is_a_400_that_says_so(fields: Any, problem: str, stream: bool, tmp_path: Path):
    async def run() -> None:
        async with run_tool_gateway(tmp_path) as (gateway, upstream, _):
            answer = await gateway.client.post(PATH, json={"model": "m", "input": "x", "stream": stream, **fields})
            assert answer.status_code == 400
            assert problem in answer.json()["error"]["message"]
            assert upstream.exchanges == []

    asyncio.run(run())
