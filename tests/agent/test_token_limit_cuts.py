"""A last call of a turn that reached its limit of tokens may lack its end, whatever the server says: it never runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_servers import APIS, Api, ReachableModel, each_api, reach, turn
from loopback_server import event, serve, stream

from toolspeak import Agent, tool
from toolspeak.agent.drivers.base import TurnRequest
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.data.deltas import CallStarted, TextDelta, TurnEnded
from toolspeak.data.messages import MalformedCall, Message, Usage
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

LIMIT = 40
AT_LIMIT = Usage(10, LIMIT)
BELOW = Usage(10, LIMIT - 1)

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("openai", {"max_tokens": LIMIT}),
    ("openai", {"max_completion_tokens": LIMIT}),
    ("openai", {"max_completion_tokens": LIMIT, "max_tokens": 10 * LIMIT}),
    ("openai", {"n_predict": LIMIT}),
    ("openai-responses", {"max_output_tokens": LIMIT}),
    ("anthropic", {"max_tokens": LIMIT}),
    ("gemini", {"maxOutputTokens": LIMIT}),
    ("ollama", {"num_predict": LIMIT}),
    ("ollama", {"options": {"num_predict": LIMIT}}),
]
each_option = pytest.mark.parametrize(
    ("api", "options"),
    [(APIS[name], options) for name, options in OPTIONS],
    ids=[f"{n}-{'-'.join(o)}" for n, o in OPTIONS],
)

ONE = ("write", {"path": "a"})
TWO = ("write", {"path": "b", "text": "half of i"})


class Disk:
    """A tool that writes, and what it was asked to write."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str]] = []

        @tool()
        def write(path: str, text: str = "") -> str:
            """Writes a file."""
            self.writes.append((path, text))
            return "written"

        self.tool = write


def run(api: Api, *script: Any, **settings: Any) -> tuple[Disk, Any, ReachableModel]:
    async def go() -> tuple[Disk, Any, ReachableModel]:
        disk = Disk()
        async with (
            reach(api, *script, **settings) as endpoint,
            Agent(endpoint.provider, [disk.tool], approve="all") as agent,
        ):
            return disk, await agent.run("go"), endpoint

    return asyncio.run(go())


def second_request(endpoint: ReachableModel) -> str:
    """All that the second request says."""
    return str(endpoint.model.bodies[1])


@each_option
def test_a_last_call_at_the_limit_never_runs(api: Api, options: dict[str, Any]):
    disk, result, endpoint = run(api, turn("", ONE, TWO, usage=AT_LIMIT), "done", options=options)
    assert disk.writes == [("a", "")]
    assert (result.status, result.answer) == ("answered", "done")
    assert "limit of tokens" in second_request(endpoint)


@each_option
def test_a_turn_that_passes_its_limit_is_taken_for_cut_too(api: Api, options: dict[str, Any]):
    disk, _, endpoint = run(api, turn("", TWO, usage=Usage(10, LIMIT + 3)), "done", options=options)
    assert disk.writes == []
    assert "limit of tokens" in second_request(endpoint)


@each_option
def test_below_the_limit_every_call_runs(api: Api, options: dict[str, Any]):
    disk, _, _ = run(api, turn("", ONE, TWO, usage=BELOW), "done", options=options)
    assert sorted(disk.writes) == [("a", ""), ("b", "half of i")]


@pytest.mark.parametrize("no_limit", [0, -1, -2, None, "many"])
def test_what_is_no_limit_cuts_nothing(no_limit: Any):
    disk, _, _ = run(APIS["ollama"], turn("", TWO, usage=AT_LIMIT), "done", options={"num_predict": no_limit})
    assert disk.writes == [("b", "half of i")]


@each_api
def test_a_last_call_of_a_turn_that_says_it_was_cut_never_runs(api: Api):
    """Also where nobody asked for a limit: a full context, a server's own limit."""
    disk, result, endpoint = run(api, turn("", ONE, TWO, usage=BELOW, finish="length"), "done")
    assert disk.writes == [("a", "")]
    assert result.status == "answered"
    assert "limit of tokens" in second_request(endpoint)


@each_api
def test_an_answer_at_the_limit_is_what_the_server_says(api: Api):
    """A model may end by itself with its last token; nobody is harmed who reads a text."""
    name = {"openai-chat": "max_tokens", "openai-responses": "max_output_tokens", "ollama": "num_predict"}
    limit = {name.get(api.wire.name, "max_tokens" if api.wire.name == "anthropic" else "maxOutputTokens"): LIMIT}
    _, result, _ = run(api, turn("Whole.", usage=AT_LIMIT), options=limit)
    assert (result.status, result.answer) == ("answered", "Whole.")


@pytest.mark.parametrize("name", ["anthropic", "gemini", "openai-responses"])
def test_a_call_that_text_follows_was_whole(name: str):
    """What these APIs send comes in the order it was written."""
    first, *rest = turn("", TWO)
    script = [first, *rest[:-2], TextDelta("And now"), *rest[-2:-1], TurnEnded("length", AT_LIMIT)]
    disk, _, _ = run(APIS[name], script, "done")
    assert disk.writes == [("b", "half of i")]


def test_a_server_that_says_tool_calls_where_it_cut():
    """As vLLM streams it: the arguments closed by its own parser, the usage in an event of its own."""
    head = {"index": 0, "id": "c1", "type": "function", "function": {"name": "write", "arguments": '{"path": "b"'}}
    tail = {"index": 0, "function": {"arguments": "}"}}
    choices = [
        {"delta": {"tool_calls": [head]}},
        {"delta": {"tool_calls": [tail]}},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]
    chunks = [event({"choices": [{"index": 0, **choice}]}) for choice in choices]
    chunks += [event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": LIMIT}}), event("[DONE]")]

    async def go() -> list[Any]:
        async with serve(stream(*chunks)) as server:
            model = OpenAIProvider("m", base_url=server.base_url, options={"max_tokens": LIMIT})
            request = TurnRequest([Message.user("go")], [Disk().tool.spec])
            try:
                return [delta async for delta in NativeDriver(model).open().turn(request)]
            finally:
                await model.aclose()

    # A client of the gateway has read the arguments by then: it must not read that the call is complete.
    start, first, second, malformed_call, batch, turn_end = asyncio.run(go())
    assert isinstance(start, CallStarted)
    assert (first.text + second.text) == '{"path": "b"}'
    assert (malformed_call.name, malformed_call.code, malformed_call.raw) == ("write", "truncated", '{"path": "b"}')
    assert (batch.selected, turn_end.finish) == ((), "length")


# --- calls in text -----------------------------------------------------------------------------------------------

OPEN = '<tool_call>\n{"name": "write", "arguments": {"path": "b"}}\n'


def run_text(text: str, *, dialect: str, usage: Usage, **turn_: Any) -> tuple[Disk, Any]:
    async def go() -> tuple[Disk, Any]:
        disk = Disk()
        options = {"max_tokens": LIMIT}
        playing = APIS["openai"]
        async with (
            reach(playing, turn(text, usage=usage, **turn_), "done", options=options) as endpoint,
            Agent(endpoint.provider, [disk.tool], dialect=dialect, approve="all") as agent,
        ):
            return disk, await agent.run("go")

    return asyncio.run(go())


def test_in_text_a_call_without_its_end_marker_is_cut_at_the_limit():
    """A model that ends by itself may leave the marker out."""
    disk, result = run_text(OPEN, dialect="hermes", usage=BELOW)
    assert (disk.writes, result.status) == ([("b", "")], "answered")
    disk, result = run_text(OPEN, dialect="hermes", usage=AT_LIMIT)
    assert (disk.writes, result.status) == ([], "answered")
    (cut,) = [part for message in result.messages for part in message.parts if isinstance(part, MalformedCall)]
    assert cut.code == "truncated"


WHOLE = [
    ("hermes", OPEN + "</tool_call>"),
    ("qwen3-coder", "<tool_call>\n<function=write>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>"),
    # The bracket that closes the call is its end: nothing of the call can come behind it.
    ("llama3-json", '{"name": "write", "parameters": {"path": "b"}}'),
    ("mistral-v3", '[TOOL_CALLS][{"name": "write", "arguments": {"path": "b"}}]'),
    ("pythonic", "[write(path='b')]"),
]


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize(("dialect", "text"), WHOLE, ids=[name for name, _ in WHOLE])
def test_in_text_a_call_whose_end_was_read_is_whole(dialect: str, text: str, finish: str):
    disk, _ = run_text(text, dialect=dialect, usage=AT_LIMIT, finish=finish)
    assert disk.writes == [("b", "")]
    disk, _ = run_text(text[:-1], dialect=dialect, usage=AT_LIMIT, finish=finish)
    assert disk.writes == []


@pytest.mark.parametrize(("usage", "ran"), [(AT_LIMIT, []), (BELOW, [("b", "")])])
def test_a_call_that_a_server_left_in_its_text(usage: Usage, ran: Any):
    disk, result = run_text(OPEN, dialect="native", usage=usage)
    assert (disk.writes, result.status) == (ran, "answered")


def test_a_limit_that_a_client_asks_for_needs_no_provider_that_knows_it():
    async def go() -> list[Any]:
        model = ScriptedProvider([ScriptedTurn("", usage=AT_LIMIT, calls=[ScriptedCall("write", {"path": "b"})])])
        request = TurnRequest([Message.user("go")], [Disk().tool.spec], options={"max_tokens": LIMIT})
        return [delta async for delta in NativeDriver(model).open().turn(request)]

    *_, malformed_call, batch, turn_end = asyncio.run(go())
    assert (malformed_call.code, batch.selected, batch.ok, turn_end.finish) == ("truncated", (), False, "length")


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize(
    ("dialect", "text"),
    [("mistral-args", '[TOOL_CALLS]write[ARGS]{"path": "b"}'), ("functionary-v32", '>>>write\n{"path": "b"}')],
)
def test_in_text_a_call_that_a_bracket_more_would_break_is_cut(dialect: str, text: str, finish: str):
    """A model that ends by itself leaves nothing out."""
    disk, _ = run_text(text, dialect=dialect, usage=BELOW)
    assert disk.writes == [("b", "")]
    disk, _ = run_text(text, dialect=dialect, usage=AT_LIMIT, finish=finish)
    assert disk.writes == []
