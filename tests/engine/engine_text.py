"""Calls as text over a real llama.cpp server: dialects, early close, our grammars (`make test-engine`)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2
import pytest
from asking import (
    CHOICES,
    SMALL,
    SPECS,
    TOOLS,
    VALID,
    Engine,
    ask,
    end_of,
    plain_and_streamed,
    provider,
    text_of,
)

from toolspeak import Agent
from toolspeak.data.messages import Message, ToolCall, ToolChoice
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.providers.capabilities import Capabilities

PARIS = "3 days of rain in Paris"
RUNS = [
    ("hermes", "one", [PARIS]),
    ("hermes", "two", ["1 days of rain in Rome", "noon in Rome"]),
    ("hermes", "text", ["noon in Lima"]),
    ("hermes", "bytes", ["2 days of rain in Zürich 東京 😀"]),
    ("hermes", "done", []),
    ("cogency-json", "execute", [PARIS]),
    ("cogency-json", "done", []),
]


def run(engine: Engine, dialect: str, task: str, **options: Any) -> tuple[Any, list[str]]:
    async def go() -> Any:
        async with Agent(provider(engine, **options), TOOLS, dialect=dialect) as agent:
            return await agent.run(task)

    result = asyncio.run(go())
    # In some dialects results are messages of the user; in a run they are results.
    return result, [each.text for message in result.messages for each in message.results]


@plain_and_streamed
@pytest.mark.parametrize(("dialect", "script", "results"), RUNS)
def test_an_agent_runs_calls_that_are_text(engine: Engine, dialect: str, script: str, results: list[str], stream: bool):
    result, calls = run(engine, dialect, f"#{script}", stream=stream)
    assert (result.status, result.answer, calls) == ("answered", "It is 21 degrees in Paris.", results)


@plain_and_streamed
def test_json_that_cannot_be_read_is_told_to_the_model(engine: Engine, stream: bool):
    """As text nobody mends it: the server's grammar guards native calls alone."""
    result, (feedback,) = run(engine, "hermes", "#broken", stream=stream)
    assert result.answer == "It is 21 degrees in Paris."
    assert "expected a value, found '}'" in feedback


def is_busy(engine: Engine) -> bool:
    slots = httpx2.get(f"{engine.root}/slots", trust_env=False, timeout=60).json()
    return any(slot["is_processing"] for slot in slots)


def test_the_server_stops_once_the_calls_are_known(engine: Engine):
    """The model goes on with made-up results; to the end of its context it would take minutes."""
    result, calls = run(engine, "cogency-json", "#endless", max_tokens=None)
    assert (result.answer, calls) == ("It is 21 degrees in Paris.", [PARIS])
    assert "I guess" not in str(result.messages)
    deadline = time.monotonic() + 30
    while is_busy(engine) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_busy(engine)


# --- grammars ----------------------------------------------------------------------------------------------------


def check_calls(engine: Engine, dialect: Dialect, choice: ToolChoice, prompt: str, stream: bool, seed: int) -> None:
    grammar = dialect.grammar(SMALL, choice, target="gbnf", max_calls=2, reasoning=False)
    options = {"grammar": grammar.source, "seed": seed, "max_tokens": 1500}
    deltas = ask(engine, prompt, stream=stream, tools=(), options=options)
    turn = read_turn(dialect, text_of(deltas), SMALL)
    assert end_of(deltas).finish == "stop", text_of(deltas)
    assert turn.calls
    for call in turn.calls:
        assert isinstance(call, ToolCall), call
        assert VALID[call.name](dict(call.arguments)), call
        assert choice.name in (None, call.name)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_under_a_grammar_every_turn_is_a_valid_call(engine: Engine, dialect: Dialect, choice: str):
    for seed in range(3):
        check_calls(engine, dialect, CHOICES[choice], "Go.", seed % 2 == 0, seed)


@plain_and_streamed
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("prompt", ["#done", "#broken", "#unknown", "#cut", "#endless"])
@pytest.mark.parametrize("dialect", ["hermes", "cogency-json"])
def test_a_grammar_holds_against_what_the_model_wants_to_say(
    engine: Engine, dialect: str, prompt: str, choice: str, stream: bool
):
    check_calls(engine, get_dialect(dialect), CHOICES[choice], prompt, stream, 7)


def test_what_a_grammar_admits_is_not_changed(engine: Engine):
    grammar = get_dialect("hermes").grammar(SPECS, ToolChoice("required"), target="gbnf")
    deltas = ask(engine, [Message.user("#two")], tools=(), options={"grammar": grammar.source})
    calls = [(call.name, call.arguments) for call in read_turn(get_dialect("hermes"), text_of(deltas)).calls]
    assert calls == [("get_weather", {"city": "Rome", "days": 1}), ("get_time", {"city": "Rome"})]


@pytest.mark.parametrize("dialect", ["hermes", "deepseek-v31", "cogency-json"])
def test_a_required_call_of_an_agent_is_held_to_the_grammar(engine: Engine, dialect: str):
    """The model wants to say a sentence (`#done`); it is the server that makes it call."""
    model = provider(engine, capabilities=Capabilities(grammar="gbnf"))

    async def go() -> Any:
        async with Agent(model, TOOLS, dialect=dialect) as agent:
            return await agent.run("#done", tool_choice="get_time")

    result = asyncio.run(go())
    call_names = [call.name for message in result.messages for call in message.calls if isinstance(call, ToolCall)]
    assert call_names == ["get_time"]
