"""Native calls of a real llama.cpp server, plain and streamed, through the provider `openai` (`make test-engine`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from asking import (
    SPECS,
    TOOLS,
    Engine,
    ask,
    calls_of,
    end_of,
    malformed_of,
    plain_and_streamed,
    provider,
    text_of,
)

from toolspeak import Agent
from toolspeak.data.deltas import BatchEnded, CallCompleted, CallStarted, Delta
from toolspeak.data.messages import Message, ToolChoice
from toolspeak.errors import ProviderError
from toolspeak.providers import ModelRequest, Provider
from toolspeak.providers.anthropic import AnthropicProvider
from toolspeak.providers.openai_responses import OpenAIResponsesProvider
from toolspeak.wire.base import OutputSchema

PARIS = ("get_weather", {"city": "Paris", "days": 3})
SCRIPTS: dict[str, tuple[str, list[Any]]] = {
    "done": ("It is 21 degrees in Paris.", []),
    "one": ("", [PARIS]),
    "two": ("", [("get_weather", {"city": "Rome", "days": 1}), ("get_time", {"city": "Rome"})]),
    "text": ("Let me look that up.", [("get_time", {"city": "Lima"})]),
    "bytes": ("", [("get_weather", {"city": "Zürich 東京 😀", "days": 2})]),
}
VALID = {spec.name: jsonschema_rs.validator_for(dict(spec.parameters)).is_valid for spec in SPECS}


def check_said(deltas: list[Delta], script: str) -> None:
    text, calls = SCRIPTS[script]
    assert (text_of(deltas).rstrip(), calls_of(deltas), malformed_of(deltas)) == (text, calls, [])
    end = end_of(deltas)
    assert (end.finish, end.model) == ("tool_calls" if calls else "stop", "tiny")
    assert end.usage.input
    assert end.usage.output
    if calls:
        assert deltas[-2] == BatchEnded(tuple(range(len(calls))), True)


@plain_and_streamed
@pytest.mark.parametrize("script", SCRIPTS)
def test_what_the_model_says_is_what_is_read(engine: Engine, script: str, stream: bool):
    check_said(ask(engine, f"#{script}", stream=stream), script)


APIS: dict[str, Callable[[Engine], Provider]] = {
    "anthropic": lambda engine: AnthropicProvider("tiny", base_url=engine.root),
    "openai-responses": lambda engine: OpenAIResponsesProvider("tiny", base_url=engine.base_url),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_servers_other_apis_say_the_same(engine: Engine, script: str, api: str):
    async def run() -> list[Delta]:
        model = APIS[api](engine)
        try:
            return [delta async for delta in model.stream(ModelRequest([Message.user(f"#{script}")], SPECS))]
        finally:
            await model.aclose()

    check_said(asyncio.run(run()), script)


def test_each_call_has_one_start_and_an_id_of_its_own(engine: Engine):
    deltas = ask(engine, "#two")
    starts = [delta for delta in deltas if isinstance(delta, CallStarted)]
    assert [(delta.index, delta.name) for delta in starts] == [(0, "get_weather"), (1, "get_time")]
    ids = {delta.id for delta in deltas if isinstance(delta, CallCompleted)}
    assert len(ids - {None, ""}) == 2


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_agent_runs_the_calls_and_gets_its_answer(engine: Engine, script: str):
    async def run() -> tuple[Any, list[str]]:
        async with Agent(provider(engine), TOOLS, instructions="Be brief.") as agent:
            result = await agent.run(f"#{script}")
            return result, [each.text for message in result.messages for each in message.results]

    result, results = asyncio.run(run())
    assert (result.status, result.answer) == ("answered", "It is 21 degrees in Paris.")
    tools = {"get_weather": "{days} days of rain in {city}", "get_time": "noon in {city}"}
    assert results == [tools[name].format(**arguments) for name, arguments in SCRIPTS[script][1]]


def test_turns_at_the_same_time_do_not_mix(engine: Engine):
    """Twice as many as the server has places for."""

    async def run() -> list[list[Delta]]:
        model = provider(engine)
        try:

            async def turn(script: str) -> list[Delta]:
                return [delta async for delta in model.stream(ModelRequest([Message.user(f"#{script}")], SPECS))]

            return await asyncio.gather(*map(turn, [*SCRIPTS] * 4))
        finally:
            await model.aclose()

    for script, deltas in zip([*SCRIPTS] * 4, asyncio.run(run()), strict=True):
        check_said(deltas, script)


# --- calls that go wrong -----------------------------------------------------------------------------------------


@plain_and_streamed
@pytest.mark.parametrize("script", ["broken", "unknown", "cut"])
def test_under_auto_the_server_mends_what_the_model_gets_wrong(engine: Engine, script: str, stream: bool):
    """From the marker on its grammar holds the call to the tools' names and schemas, whatever the model wants; a text
    that it then writes without an end is cut by the token limit."""
    deltas = ask(engine, f"#{script}", stream=stream)
    assert {name for name, _ in calls_of(deltas)} <= set(VALID)
    assert all(VALID[name](arguments) for name, arguments in calls_of(deltas))
    assert len(calls_of(deltas)) + len(malformed_of(deltas)) == 1
    assert end_of(deltas).finish == ("length" if malformed_of(deltas) else "tool_calls")


@plain_and_streamed
def test_arguments_that_the_token_limit_cut_never_run(engine: Engine, stream: bool):
    """The server sends half an object; where it is whole although the turn was cut behind it, the call counts."""
    turns = {limit: ask(engine, "#one", stream=stream, options={"max_tokens": limit}) for limit in range(1, 16)}
    cut = [deltas for deltas in turns.values() if malformed_of(deltas)]
    assert len(cut) >= 3
    for deltas in turns.values():
        assert calls_of(deltas) in ([], [PARIS])
        assert not (calls_of(deltas) and malformed_of(deltas))
    for deltas in cut:
        (malformed_call,) = malformed_of(deltas)
        assert json.dumps(PARIS[1]).startswith(malformed_call.raw)
        assert "the turn ended in the middle of its arguments" in malformed_call.reason
        assert end_of(deltas).finish == "length"
    assert (calls_of(turns[15]), end_of(turns[15]).finish) == ([PARIS], "tool_calls")


@plain_and_streamed
@pytest.mark.parametrize("stop", ["days", "Paris"])
def test_arguments_that_a_stop_text_cut_never_run(engine: Engine, stop: str, stream: bool):
    """The finish reason says `tool_calls` all the same."""
    deltas = ask(engine, "#one", stream=stream, options={"stop": [stop]})
    (malformed_call,) = malformed_of(deltas)
    assert (calls_of(deltas), malformed_call.code, stop in malformed_call.raw) == ([], "invalid_arguments", False)
    assert deltas[-2] == BatchEnded((), False)
    assert end_of(deltas).finish == "tool_calls"


@plain_and_streamed
def test_an_agent_tells_the_model_about_a_cut_call(engine: Engine, stream: bool):
    async def run() -> Any:
        async with Agent(provider(engine, stream=stream, stop=["days"]), TOOLS) as agent:
            return await agent.run("#one")

    messages = asyncio.run(run()).messages
    assert not [message for message in messages if message.role == "tool" and message.results[0].status == "success"]
    texts = [message.text for message in messages] + [each.text for message in messages for each in message.results]
    assert any("write one JSON object" in text for text in texts)


# --- what is asked of the server, and what it makes of it --------------------------------------------------------


@plain_and_streamed
def test_required_does_not_keep_the_model_from_text_first(engine: Engine, stream: bool):
    deltas = ask(engine, "#text", stream=stream, choice=ToolChoice("required"))
    check_said(deltas, "text")


@plain_and_streamed
def test_a_named_tool_is_ignored(engine: Engine, stream: bool):
    """So the server's entry in `providers/compatible.py` does not say that it enforces a tool choice."""
    assert calls_of(ask(engine, "#one", stream=stream, choice=ToolChoice("specific", "get_time"))) == [PARIS]


@plain_and_streamed
def test_where_no_tool_may_be_called_a_call_stays_text(engine: Engine, stream: bool):
    deltas = ask(engine, "#one", stream=stream, choice=ToolChoice("none"))
    assert calls_of(deltas) == []
    assert text_of(deltas).startswith('<tool_call>\n{"name": "get_weather"')


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


@plain_and_streamed
@pytest.mark.parametrize("prompt", ["#answer", "#done", "#one", "Which town?"])
def test_an_answer_has_the_schema_whatever_the_model_wants_to_say(engine: Engine, prompt: str, stream: bool):
    deltas = ask(engine, prompt, stream=stream, output=OutputSchema("trip", SCHEMA), tools=())
    assert end_of(deltas).finish == "stop"
    jsonschema_rs.validator_for(SCHEMA).validate(json.loads(text_of(deltas)))


@plain_and_streamed
@pytest.mark.parametrize(
    ("prompt", "options", "problem"),
    [
        ("#one", {"grammar": 'root ::= "a"'}, "Cannot use custom grammar constraints with tools"),
        ("x" * 40_000, {}, "The conversation is longer than the model's context"),
    ],
    ids=["a grammar beside tools", "a prompt that is too long"],
)
def test_what_the_server_refuses_is_told(engine: Engine, prompt: str, options: Any, problem: str, stream: bool):
    with pytest.raises(ProviderError, match=problem) as raised_error:
        ask(engine, prompt, stream=stream, options=options)
    assert (raised_error.value.status, raised_error.value.retryable) == (400, False)


# --- connections -------------------------------------------------------------------------------------------------


@plain_and_streamed
def test_kept_connections_that_the_server_closes_lose_nothing(engine: Engine, stream: bool):
    """It promises to keep them and closes each behind a streamed answer, and behind the hundredth plain one: the next
    request may meet the end of the connection. Then nothing was said, and the provider asks again."""

    async def run() -> list[list[Delta]]:
        model = provider(engine, stream=stream)
        try:
            request = ModelRequest([Message.user("#done")])
            return [[delta async for delta in model.stream(request)] for _ in range(220)]
        finally:
            await model.aclose()

    for deltas in asyncio.run(run()):
        check_said(deltas, "done")
