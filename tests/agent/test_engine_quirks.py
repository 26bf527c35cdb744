"""What inference engines were found to do with native calls, each with what comes of it in a run.

Measured in November 2026 with the engines named here and a made-up model; their bytes are in the form they sent.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, Literal

import pytest
from clocks import TestClock
from loopback_server import Answer, Exchange, Server, event, hang_up, http_chunks, serve, stream, whole
from openai_turns import CHUNKED_HEAD
from pydantic import BaseModel

from toolspeak import Agent, Output, RunResult, tool
from toolspeak.data.messages import Message
from toolspeak.errors import ProviderError
from toolspeak.providers import Capabilities
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.wire.base import ModelRequest, WireRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT

PLACES: list[str] = []
NATIVE = Capabilities(tools=True, output=True, parallel=True, tool_choice=True)


@tool(read_only=True)
def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    "Tells the weather."
    PLACES.append(city)
    return f"12 {unit} in {city}"


class Town(BaseModel):
    name: str


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return event({"model": "tiny", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def fragment(arguments: str, **fields: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": "weather"} if "id" in fields else {})}
    return {"tool_calls": [{"index": 0, **fields, "type": "function", "function": function}]}


def stream_until_done(*chunks: bytes) -> Answer:
    return stream(*chunks, event("[DONE]"))


def plain(finish: str, content: str | None = None, *arguments: str) -> Answer:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "weather", "arguments": text}}
        for at, text in enumerate(arguments)
    ]
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    body = {"model": "tiny", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return whole("200 OK", json.dumps(body).encode())


DONE_ANSWER = stream_until_done(chunk({"content": "Done."}), chunk({}, "stop"))
CALL = stream_until_done(chunk(fragment('{"city": "Rome"}', id="a")), chunk({}, "tool_calls"))


def run(*answers: Answer, retries: int = 0, capabilities: Capabilities = NATIVE, **options: Any) -> RunResult:
    PLACES.clear()

    async def work() -> tuple[RunResult, Server]:
        async with serve(*answers) as server:
            provider = OpenAIProvider(
                "m", base_url=server.base_url, capabilities=capabilities, retries=retries, clock=TestClock()
            )
            async with Agent(provider, options.pop("tools", [weather]), **options) as agent:
                return await agent.run("How is it?"), server

    result, server = asyncio.run(work())
    BODIES[:] = [exchange.json for exchange in server.exchanges]
    return result


BODIES: list[Any] = []


def came_of(result: RunResult) -> list[str | None]:
    return [each.code for message in result.messages for each in message.results]


# --- llama-cpp-python ---------------------------------------------------------------------------------------------


def test_id_and_name_in_every_chunk_make_one_call():
    pieces = [
        chunk(
            {
                "role": None,
                "content": None,
                "function_call": {"name": "weather", "arguments": text},
                **fragment(text, id="call__0_weather_cmpl-1"),
            }
        )
        for text in ('{"city"', ': "Ro', 'me"}')
    ]
    result = run(stream_until_done(*pieces, chunk({}, "tool_calls")), DONE_ANSWER)
    assert (result.answer, PLACES) == ("Done.", ["Rome"])
    # No client of ours hears of it more than once: popular ones join what comes twice.
    wire = OPENAI_CHAT.encoder(WireRequest(ModelRequest([Message.user("x")]), "m"), response_id="r", created_at=1)
    decoder = OPENAI_CHAT.decoder()
    read = [json.loads(piece.removeprefix(b"data: ")) for piece in pieces]
    deltas = [*(delta for piece in read for delta in decoder.feed(piece)), *decoder.close()]
    frames = json.dumps([wire.feed(delta) for delta in deltas])
    assert [frames.count(word) for word in ("call__0", '"weather"', '"type": "function"')] == [1, 1, 1]


def test_a_choice_that_it_answers_with_500_is_told():
    refusal = whole("500 Internal Server Error", b'{"error": {"message": "list index out of range", "type": "server"}}')
    with pytest.raises(ProviderError, match=r"HTTP 500: 'list index out of range'.*Tried 2 times"):
        run(refusal, retries=1, tool_choice="required")


def test_no_content_of_a_message_is_null():
    """It answers null with 500, in the history of any call."""
    run(CALL, DONE_ANSWER)
    assert all(message["content"] is not None for body in BODIES for message in body["messages"])


# --- vLLM ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
@pytest.mark.parametrize("stream", [True, False])
def test_broken_arguments_never_run(stream: bool, finish: str):
    bad_arguments = '{"city": "Ro'
    cut = (
        stream_until_done(chunk(fragment(bad_arguments, id="a")), chunk({}, finish))
        if stream
        else plain(finish, None, bad_arguments)
    )
    result = run(cut, DONE_ANSWER)
    assert (came_of(result), PLACES, result.answer) == (["malformed"], [], "Done.")


BROKEN_CALLS = [
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Ro',
    '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome}}\n</tool_call>',
    '<tool_call>{"name": "weather", "arguments": {"city": Rome}}</tool_call> Let me see.',
    "<function=weather>\n<parameter=city>\nRo",
    '[TOOL_CALLS]weather[ARGS]{"city": "Ro',
]


@pytest.mark.parametrize("text", BROKEN_CALLS)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_broken_call_that_was_put_back_into_the_text_is_told(text: str, finish: str):
    """That is what it does with one in an answer that is not streamed."""
    result = run(plain(finish, text), DONE_ANSWER)
    assert (came_of(result), PLACES, result.answer) == (["malformed"], [], "Done.")


@pytest.mark.parametrize(
    "text", [f"You write {BROKEN_CALLS[0]}", '<tool_call>{"name": "wether", "arguments": {"city": "Ro']
)
def test_a_broken_call_after_other_text_or_of_no_tool_is_text(text: str):
    result = run(plain("stop", text))
    assert (PLACES, result.answer) == ([], text)


def test_arguments_that_break_the_schema_are_told_and_strict_is_passed_on():
    wrong = stream_until_done(chunk(fragment('{"city": "Rome", "unit": "K"}', id="a")), chunk({}, "stop"))
    strict = replace(weather, spec=replace(weather.spec, extra={"strict": True}))
    result = run(wrong, DONE_ANSWER, tools=[strict], tool_choice="weather")
    assert BODIES[0]["tools"][0]["function"]["strict"] is True
    assert BODIES[0]["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert (came_of(result), PLACES, result.answer) == (["invalid_arguments"], [], "Done.")


def test_a_named_call_that_ends_with_stop_runs():
    named_call = stream_until_done(chunk(fragment('{"city": "Rome"}', id="a")), chunk({}, "stop"))
    assert run(named_call, DONE_ANSWER, tool_choice="weather").answer == "Done."
    assert PLACES == ["Rome"]


def test_reasoning_comes_in_a_field_of_another_name():
    thinks = stream_until_done(
        chunk({"reasoning": "Hm."}), chunk(fragment('{"city": "Rome"}', id="a")), chunk({}, "tool_calls")
    )
    result = run(thinks, DONE_ANSWER)
    assert [part.text for part in result.messages[1].parts if type(part).__name__ == "ReasoningPart"] == ["Hm."]


def test_required_calls_that_do_not_come_are_asked_for_once():
    none = stream_until_done(chunk({"role": "assistant", "content": "", "tool_calls": []}), chunk({}, "tool_calls"))
    result = run(none, CALL, DONE_ANSWER, tool_choice="required")
    assert (result.answer, PLACES) == ("Done.", ["Rome"])
    assert [body.get("tool_choice") for body in BODIES][:2] == ["required", "required"]
    result = run(none, none, tool_choice="required")
    assert (result.status, len(BODIES)) == ("no_answer", 2)


def test_white_space_until_the_limit_is_no_answer_of_the_type():
    blank = stream_until_done(*[chunk({"content": "\n\n"})] * 3, chunk({"content": ""}, "length"))
    good = stream_until_done(chunk({"content": '{"name": "Ulm"}'}), chunk({}, "stop"))
    result = run(blank, good, output=Output(Town, mode="native"))
    assert (result.output, len(BODIES)) == (Town(name="Ulm"), 2)
    assert BODIES[0]["response_format"]["type"] == "json_schema"


# --- mlx-lm, llama.cpp's server -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer_without_call",
    [stream_until_done(chunk({"content": None}), chunk({}, "tool_calls")), plain("tool_calls")],
    ids=["streamed", "whole"],
)
def test_a_call_that_the_server_dropped_is_asked_for_again(answer_without_call: Answer):
    """Its finish reason promises calls, and there is nothing."""
    result = run(answer_without_call, CALL, DONE_ANSWER)
    assert (result.answer, PLACES) == ("Done.", ["Rome"])


def test_text_ahead_of_a_required_call_is_no_answer():
    talks = stream_until_done(
        chunk({"content": "Let me see."}), chunk(fragment('{"city": "Rome"}', id="a")), chunk({}, "tool_calls")
    )
    result = run(talks, DONE_ANSWER, tool_choice="required")
    assert (result.answer, result.messages[1].text, PLACES) == ("Done.", "Let me see.", ["Rome"])


def test_a_named_tool_that_the_server_ignores_is_asked_for_once():
    result = run(DONE_ANSWER, CALL, DONE_ANSWER, tool_choice="weather")
    assert (result.answer, PLACES, len(BODIES)) == ("Done.", ["Rome"], 3)


@pytest.mark.parametrize("finish", ["tool_calls", "length", "stop"])
def test_half_arguments_never_run_whatever_the_finish_reason(finish: str):
    half = stream_until_done(chunk(fragment('{"city": "Paris", "', id="a")), chunk({}, finish))
    result = run(half, DONE_ANSWER)
    assert (came_of(result), PLACES, result.answer) == (["malformed"], [], "Done.")


def test_a_connection_that_it_closes_although_it_promised_to_keep_it_costs_nothing():
    result = run(CALL, hang_up(), DONE_ANSWER)
    assert (result.answer, PLACES) == ("Done.", ["Rome"])


def test_a_read_starts_while_the_server_still_writes_the_next_call():
    start = asyncio.Event()

    @tool(read_only=True)
    async def look(place: str) -> str:
        "Looks."
        start.set()
        return place

    def piece(index: int, text: str, **fields: Any) -> bytes:
        function = {"arguments": text, **({"name": "look"} if fields else {})}
        return chunk({"tool_calls": [{"index": index, **fields, "function": function}]})

    async def answer(exchange: Exchange) -> None:
        await exchange.send(
            CHUNKED_HEAD, http_chunks([piece(0, "{", id="a"), piece(0, '"place": "x"}'), piece(1, "{", id="b")])
        )
        await start.wait()  # for ever, if it waits for the end of the turn
        rest = [piece(1, '"place": "y"}'), chunk({}, "tool_calls"), event("[DONE]")]
        await exchange.send(http_chunks(rest), b"0\r\n\r\n")

    result = run(answer, DONE_ANSWER, tools=[look])
    assert [each.text for each in result.messages[2].results] == ["x", "y"]


# --- transformers serve -------------------------------------------------------------------------------------------

RAW = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def test_calls_that_stay_in_the_text_are_used():
    result = run(stream_until_done(chunk({"content": RAW}), chunk({}, "stop")), DONE_ANSWER)
    assert (result.answer, PLACES) == ("Done.", ["Rome"])


def test_a_tool_choice_that_it_ignores_without_a_word_is_asked_for_once():
    result = run(
        DONE_ANSWER, stream_until_done(chunk({"content": RAW}), chunk({}, "stop")), DONE_ANSWER, tool_choice="required"
    )
    assert (result.answer, PLACES) == ("Done.", ["Rome"])


def test_a_response_format_that_it_ignores_without_a_word_is_checked_here():
    prose, good = (
        stream_until_done(chunk({"content": text}), chunk({}, "stop")) for text in ("It is Ulm.", '{"name": "Ulm"}')
    )
    result = run(prose, good, output=Town)
    assert result.output == Town(name="Ulm")
    assert "JSON" in BODIES[1]["messages"][-1]["content"]
