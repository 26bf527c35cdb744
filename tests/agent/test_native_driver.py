"""Models whose API has calls of its own: the driver, calls left in the text, servers that take no tools."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from toolspeak import Agent, tool
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.data.deltas import LEAK_NOTE
from toolspeak.data.events import ModelAnswered
from toolspeak.data.messages import MalformedCall, Message, TextMessage, ToolCall, ToolChoice, Usage
from toolspeak.errors import ConfigurationError, ProviderError, UnknownDialect
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


@tool(read_only=True)
def read(path: str) -> str:
    """Reads a file."""
    return f"content of {path}"


@tool(read_only=True)
def ping() -> str:
    """Answers."""
    return "pong"


def run(provider, **options):
    agent = Agent(provider, [read, ping], approve="all", **options)
    return agent.run_sync("Go.")


def answers_of(result):
    return [message for message in result.messages if message.role == "assistant"]


READ_A = ScriptedCall("read", {"path": "a"}, "abc")


@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_native_calls_run_and_their_results_go_back(chunk):
    provider = ScriptedProvider(
        [ScriptedTurn("Let me see.", calls=[READ_A, ScriptedCall("ping")]), "Done."], chunk=chunk
    )
    result = run(provider, instructions="Be brief.")
    assert (result.status, result.answer) == ("answered", "Done.")
    first, second = provider.requests
    assert [spec.name for spec in first.tools] == ["read", "ping"]
    assert first.messages[0] == Message.system("Be brief.")  # without any dialect's rules
    turn = answers_of(result)[0]
    assert [(call.name, call.arguments, call.provider_id) for call in turn.calls] == [
        ("read", {"path": "a"}, "abc"),
        ("ping", {}, None),
    ]
    assert [each.text for each in second.messages[-1].results] == ["content of a", "pong"]


def test_the_messages_of_a_run_are_kept_and_only_grow():
    provider = ScriptedProvider([ScriptedTurn("", calls=[ScriptedCall("ping")])] * 3 + ["Done."])
    run(provider)
    histories = [list(request.messages) for request in provider.requests]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(histories))


BLOCK = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'


@pytest.mark.parametrize("chunk", [None, 1, 7])
@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        (BLOCK, "hermes"),
        ("<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>", "qwen3-coder"),
        ('[TOOL_CALLS]read[ARGS]{"path": "a"}', "mistral-args"),
    ],
)
def test_a_call_left_in_the_text_is_used_and_reported(text, dialect, chunk):
    provider = ScriptedProvider([f"I read it. {text}", "Done."], chunk=chunk, tools=True)
    agent = Agent(provider, [read, ping], approve="all")
    run = agent.start("Go.")

    async def main():
        return [item async for item in run.stream()]

    records = asyncio.run(main())
    (turn,) = [each.event for each in records if isinstance(getattr(each, "event", None), ModelAnswered)][:1]
    (call,) = turn.message.calls
    assert (call.name, call.arguments, call.notes) == ("read", {"path": "a"}, (LEAK_NOTE,))
    assert set(turn.notes) == {LEAK_NOTE, f"dialect:{dialect}"}
    assert turn.message.text == "I read it."
    assert run.state.answer == "Done."


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "reed", "arguments": {"path": "a"}}\n</tool_call>',
        'Write `<tool_call>{"name": "read"` and so on.',
        'I read it: <tool_call>\n{"name": "read", "arguments": {"path": "a',
    ],
)
def test_what_is_no_complete_call_of_a_known_tool_stays_text(text):
    result = run(ScriptedProvider([text], tools=True))
    assert (result.answer, answers_of(result)[0].calls) == (text, ())


def test_a_call_that_came_natively_too_runs_once():
    provider = ScriptedProvider([ScriptedTurn(BLOCK, calls=[READ_A]), "Done."])
    result = run(provider)
    assert [call.provider_id for call in answers_of(result)[0].calls] == ["abc"]


@pytest.mark.parametrize("chunk", [None, 1, 4])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"path": "a"}', ""),
        ('\n{ "path" : "a" }\n', ""),
        ('```json\n{"path": "a"}\n```', ""),
        ('{"path": "b"}', '{"path": "b"}'),
        ('I read {"path": "a"}', 'I read {"path": "a"}'),
        ('{"path": "a"} is what I read', '{"path": "a"} is what I read'),
        ("{}", "{}"),
        ("``", "``"),
        ("{ this is no JSON", "{ this is no JSON"),
    ],
)
def test_text_that_only_repeats_a_calls_arguments_is_dropped(text, expected, chunk):
    turn = ScriptedTurn(text, calls=[READ_A, ScriptedCall("ping")])
    result = run(ScriptedProvider([turn, "Done."], chunk=chunk))
    assert answers_of(result)[0].text == expected
    assert len(answers_of(result)[0].calls) == 2


def test_an_answer_in_json_is_an_answer():
    assert run(ScriptedProvider(['{"path": "a"}'], tools=True, chunk=3)).answer == '{"path": "a"}'


def test_arguments_that_cannot_be_read_are_told_and_the_other_call_runs():
    turn = ScriptedTurn("", calls=[ScriptedCall("read", '{"path": "a', "x"), ScriptedCall("read", {"path": "b"}, "y")])
    provider = ScriptedProvider([turn, "Done."])
    result = run(provider)
    malformed_call, whole = answers_of(result)[0].calls
    assert isinstance(malformed_call, MalformedCall)
    assert isinstance(whole, ToolCall)
    failure, read_b = provider.requests[1].messages[-1].results
    assert (failure.code, failure.status) == ("malformed", "failure")
    assert "write one JSON object" in failure.text
    assert read_b.text == "content of b"


def test_a_call_that_the_token_limit_cut_never_runs():
    turn = ScriptedTurn("", "length", calls=[ScriptedCall("read", '{"path": "a', "x")])
    result = run(ScriptedProvider([turn, "Done."]))
    assert isinstance(answers_of(result)[0].calls[0], MalformedCall)
    assert "the turn ended in the middle" in result.messages[-2].results[0].text


REFUSALS = [
    (400, "registry.ollama.ai/library/gemma3:4b does not support tools"),
    (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    (500, "tools param requires --jinja flag"),
]


@pytest.mark.parametrize(("status", "message"), REFUSALS)
def test_a_server_that_takes_no_tools_gets_them_as_text(status, message):
    refusal = ScriptedTurn("", error=ProviderError(message, status=status))
    call = '<execute>[{"name": "read", "args": {"path": "a"}}]</execute>'
    provider = ScriptedProvider([refusal, call, "Done."], tools=True)
    result = run(provider)
    assert result.answer == "Done."
    native, text, last = provider.requests
    assert native.tools
    assert not text.tools
    assert not last.tools
    assert isinstance(text.messages[0], TextMessage)
    assert "<execute>" in text.messages[0].text


REFUSALS = [
    "Thinking may not be enabled when tool_choice forces tool use.",  # Anthropic
    "Thinking mode does not support this tool_choice",  # DeepSeek
    "Invalid tool_choice type: 'object'. Supported string values: none, auto, required",  # LM Studio
]


class Forcing(ScriptedProvider):
    capabilities = Capabilities(tools=True, tool_choice=True)


@pytest.mark.parametrize("message", REFUSALS)
@pytest.mark.parametrize("dialect", ["auto", "native"])
def test_a_server_that_has_no_call_forced_is_asked_in_words(message, dialect):
    refusal = ScriptedTurn("", error=ProviderError(message, status=400))
    turns = [refusal, "I would rather not.", ScriptedTurn("", calls=[READ_A]), "Done.", "No.", "No."]
    provider = Forcing(turns)
    agent = Agent(provider, [read, ping], dialect=dialect, tool_choice=ToolChoice("specific", "read"))
    assert agent.run_sync("Go.").answer == "Done."
    agent.run_sync("Once more.", tool_choice=ToolChoice("required"))
    choices = [(request.choice.mode, "must call" in request.messages[-1].text) for request in provider.requests[:5]]
    assert choices == [("specific", False), ("auto", True), ("auto", True), ("auto", False), ("auto", True)]
    assert all(request.tools for request in provider.requests)


def test_tools_that_a_server_does_not_take_are_text_although_a_call_was_to_be_forced():
    refusals = [
        'tool_choice="required" requires --tool-call-parser to be set',
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    ]
    turns = [ScriptedTurn("", error=ProviderError(each, status=400)) for each in refusals]
    call = '<execute>[{"name": "read", "args": {"path": "a"}}]</execute>'
    provider = ScriptedProvider([*turns, call, "Done."], tools=True)
    result = run(provider, tool_choice="required")
    assert (result.answer, [bool(request.tools) for request in provider.requests]) == (
        "Done.",
        [True, True, False, False],
    )


@pytest.mark.parametrize(
    "error", [ProviderError("no such model", status=404), ProviderError("tools are overloaded", status=503)]
)
def test_any_other_error_is_the_runs(error):
    with pytest.raises(ProviderError, match=str(error)):
        run(ScriptedProvider([ScriptedTurn("", error=error), "Done."], tools=True))


def test_a_native_driver_is_chosen_by_name_whatever_is_known_of_the_model():
    provider = ScriptedProvider(["Done."], tools=False)
    run(provider, dialect="native")
    assert provider.requests[0].tools


def test_usage_and_finish_are_the_apis():
    result = run(ScriptedProvider([ScriptedTurn("Yes", usage=Usage(5, 1, 2, 0))], tools=True))
    assert result.usage == Usage(5, 1, 2, 0)


@pytest.mark.parametrize("size", [1, 3, 64])
def test_a_playbook_file_holds_native_calls(tmp_path, size):
    turns = [{"calls": [{"name": "read", "arguments": {"path": "a"}, "id": "c"}]}, "Done."]
    path = tmp_path / "book.json"
    path.write_text(json.dumps({"turns": turns, "chunk": size}))
    result = run(f"scripted:{path}")
    assert result.messages[-2].results[0].text == "content of a"


@pytest.mark.parametrize(("name", "suggestion"), [("nativ", "native"), ("ReAct!", "react")])
def test_a_driver_that_is_misspelled_is_named(name, suggestion):
    with pytest.raises(UnknownDialect, match=f"Did you mean '{suggestion}'"):
        Agent(ScriptedProvider([]), dialect=name)


@pytest.mark.parametrize("wrong", [{"model": None}, {"model": 5}, {"model": ScriptedProvider([]), "dialect": 5}])
def test_what_is_no_model_or_no_dialect_is_refused_with_what_would_be_one(wrong: dict[str, Any]):
    with pytest.raises(ConfigurationError, match=r"not (None|5)"):
        Agent(**wrong)


LEAK = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'


def test_a_driver_made_by_hand_reads_leaked_calls_too():
    result = Agent(NativeDriver(ScriptedProvider([LEAK, "Done."]), resume=True), [read]).run_sync("Go.")
    assert (result.answer, [call.name for call in answers_of(result)[0].calls]) == ("Done.", ["read"])
    assert Agent(NativeDriver(ScriptedProvider([LEAK]), leaks=None), [read]).run_sync("Go.").answer == LEAK
