"""ReAct: decisions in JSON, found in whatever the model writes around them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspeak import Agent, tool
from toolspeak.agent import ReActDriver
from toolspeak.agent.drivers.base import DriverContext, TurnRequest
from toolspeak.agent.drivers.react_decision import BadDecision, ReActDecision, read_decision
from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.events import Limits
from toolspeak.data.messages import MalformedCall, Message, ToolCall, Usage
from toolspeak.dialects.text.extract import json_object, json_values, only_object
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.execute.calls.observe import DecisionExtractionFailed, DecisionValidationFailed, ToolCallStarted
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools import Toolset


@tool(read_only=True)
def read(path: str) -> str:
    """Reads a file."""
    if path == "missing":
        raise FileNotFoundError("no such file")
    return f"content of {path}"


@tool(read_only=True)
def ping() -> str:
    """Answers."""
    return "pong"


TOOLS = Toolset([read, ping])


def call(name, thought="Hm.", **args):
    return json.dumps({"thought": thought, "type": "call_tool", "tool": name, "args": args})


def final(answer="Done."):
    return json.dumps({"thought": "I know.", "type": "final_answer", "answer": answer})


def run(turns, *, observers=(), limits=None, choice="auto", **options):
    provider = ScriptedProvider(turns)
    agent = Agent(ReActDriver(provider, **options), TOOLS, observers=observers)
    return provider, agent.run_sync("Go.", limits=limits, tool_choice=choice)


def test_thoughts_actions_and_observations():
    provider, result = run([call("read", path="a"), call("read", path="missing"), call("ping"), final()])
    assert (result.status, result.answer) == ("answered", "Done.")
    texts = [(message.role, message.text) for message in provider.requests[-1].messages[1:]]
    assert texts == [
        ("user", "Go."),
        ("assistant", 'Thought: Hm.\nAction: read\nAction Input: {"path": "a"}'),
        ("user", "Observation: content of a"),
        ("assistant", 'Thought: Hm.\nAction: read\nAction Input: {"path": "missing"}'),
        ("user", "Observation: ERROR - FileNotFoundError: no such file"),
        ("assistant", "Thought: Hm.\nAction: ping\nAction Input: {}"),
        ("user", "Observation: pong"),
    ]
    prompt = provider.requests[0].messages[0].text
    assert "TOOL CATALOG (names, descriptions):" in prompt
    assert '"name": "read", "parameters"' in prompt


def test_it_is_chosen_by_name():
    agent = Agent(ScriptedProvider([final()]), TOOLS, dialect="react")
    assert agent.run_sync("Go.").answer == "Done."


# text, what it says
REPLIES = [
    ('I have {"a": 1} so far.\n' + call("ping"), ("call_tool", "ping")),
    ('```json\n[{"b": {}}]\n```\n```json\n' + final("Done.") + "\n```", ("final_answer", "Done.")),
    (f"{call('ping')}\nObservation: pong\n{final('Made up.')}", ("call_tool", "ping")),
    (call("ping"), ("call_tool", "ping")),
    (f"```json\n{call('ping')}\n```", ("call_tool", "ping")),
    (f"I think so:\n```\n{call('ping')}\n```\nThere.", ("call_tool", "ping")),
    (f"Well {{x}} then: {call('ping')} and so on", ("call_tool", "ping")),
    (f"[{call('ping')}]", ("call_tool", "ping")),
    (final(), ("final_answer", "Done.")),
    (json.dumps({"type": "final_answer", "answer": {"n": 1}}), ("final_answer", '{"n": 1}')),
    (json.dumps({"type": "call_tool", "tool": "ping"}), ("call_tool", "ping")),
    (json.dumps({"type": "call_tool", "tool": "ping", "args": None}), ("call_tool", "ping")),
    ("I do not know.", "decision_extraction"),
    ("", "decision_extraction"),
    ("[1, 2]", "decision_extraction"),
    ("{}", "decision_validation"),
    (json.dumps({"type": "think"}), "decision_validation"),
    (json.dumps({"type": "call_tool"}), "decision_validation"),
    (call("reed", path="a"), "decision_validation"),
    (call("read"), "decision_validation"),
    (json.dumps({"type": "call_tool", "tool": "read", "args": ["a"]}), "decision_validation"),
    (json.dumps({"type": "final_answer"}), "decision_validation"),
    (final(""), "decision_validation"),
]


@pytest.mark.parametrize(("text", "expected"), REPLIES)
def test_what_a_reply_decides(text, expected):
    decision = read_decision(text, TOOLS.specs)
    if isinstance(decision, ReActDecision):
        assert (decision.type, decision.tool or decision.answer) == expected
    else:
        assert decision.stage == expected


@pytest.mark.parametrize("bad", [text for text, expected in REPLIES if isinstance(expected, str)])
def test_a_bad_decision_is_asked_for_again_with_what_is_wrong(bad):
    observations = []
    provider, result = run([bad, call("ping"), final()], observers=[observations.append])
    assert (result.status, result.answer) == ("answered", "Done.")
    stage = read_decision(bad, TOOLS.specs)
    assert isinstance(stage, BadDecision)
    assert [message.text for message in provider.requests[1].messages[-2:]] == [
        bad,
        f"That was no valid decision: {stage.reason}. Write the corrected JSON object alone.",
    ]
    assert all(bad != message.text for message in provider.requests[2].messages) or not bad
    kind = DecisionExtractionFailed if stage.stage == "decision_extraction" else DecisionValidationFailed
    (failure,) = [event for event in observations if isinstance(event, kind)]
    assert (failure.raw, failure.attempt, failure.max_attempts) == (bad, 1, 3)
    assert any(isinstance(event, ToolCallStarted) for event in observations)


@pytest.mark.parametrize(("bad", "stage"), [("no", "decision_extraction"), ("{}", "decision_validation")])
def test_after_the_last_retry_it_is_a_failed_pseudo_call_and_the_run_goes_on(bad, stage):
    provider, result = run([bad, bad, final()], max_retries=1)
    assert (result.status, result.answer) == ("answered", "Done.")
    (malformed_call,) = [part for message in result.messages for part in message.calls]
    assert isinstance(malformed_call, MalformedCall)
    assert (malformed_call.name, malformed_call.code, malformed_call.raw) == (stage, stage, bad)
    assert provider.requests[2].messages[-2].text == bad
    assert provider.requests[2].messages[-1].text.startswith("Observation: ERROR - ")


def test_only_bad_decisions_end_at_the_limit_not_as_an_answer():
    _, result = run(["no"] * 2 + ["no"], max_retries=0, limits=Limits(failures=2))
    assert (result.status, result.reason) == ("no_answer", "failures")


def test_invalid_arguments_never_end_a_run_as_an_answer():
    list_call = json.dumps({"thought": "t", "type": "call_tool", "tool": "read", "args": ["a"]})
    _, result = run([list_call, list_call, list_call, call("ping"), final("Later.")])
    assert result.answer == "Later."


def test_the_final_answer_may_be_asked_for_once_more():
    better = ScriptedProvider([ScriptedTurn("The better answer.", usage=Usage(7, 2, 0, 0))], chunk=3)
    turns = [ScriptedTurn(final("short"), usage=Usage(5, 1, 0, 0))]
    provider, result = run(turns, final_via_inference=True, final_model=better)
    assert result.answer == "The better answer."
    assert better.requests[0].messages[-1].text == "Return only the final answer as plain text."
    assert len(provider.requests) == 1
    assert result.usage == Usage(12, 3, 0, 0)  # both, not the last one alone


def test_usage_counts_every_attempt():
    turns = [ScriptedTurn(text, usage=Usage(10, 2, 1, 0)) for text in ("no", "{}", final())]
    assert run(turns)[1].usage == Usage(30, 6, 3, 0)


def test_usage_that_is_unknown_of_one_attempt_is_estimated():
    """A sum of the others would count as if it were all."""

    class Silent(ScriptedProvider):
        async def stream(self, request):
            async for delta in super().stream(request):
                is_unknown = isinstance(delta, TurnEnded) and len(self.requests) == 1
                yield replace(delta, usage=Usage()) if is_unknown else delta

    turns = [ScriptedTurn(text, usage=Usage(10_000, 2)) for text in ("no", final())]
    result = Agent(ReActDriver(Silent(turns)), TOOLS).run_sync("Go.")
    assert result.state.totals.estimated
    assert 0 < result.usage.input < 10_000
    usages = [Usage(1, 2, 1), Usage(3, 4, None, 2)]
    assert Usage.of_one_turn(usages) == Usage(4, 6, 1, 2)
    assert Usage.of_one_turn([*usages, Usage(5, None)]) == Usage()
    assert Usage.of_one_turn([]) == Usage()


def test_an_api_with_schemas_is_asked_for_one():
    class StructuredProvider(ScriptedProvider):
        capabilities = Capabilities(output=True)

    provider = StructuredProvider([final()])
    Agent(ReActDriver(provider), TOOLS).run_sync("Go.")
    output = provider.requests[0].output
    assert output is not None
    assert output.schema["properties"]["tool"]["enum"] == ["read", "ping", ""]


@pytest.mark.parametrize(("choice", "first"), [("required", "a tool"), ("read", "the tool 'read'")])
def test_a_tool_choice_is_part_of_what_is_valid(choice, first):
    provider, result = run([final(), call("read", path="a"), final()], choice=choice)
    assert result.answer == "Done."
    assert f"you must call {first} first" in provider.requests[1].messages[-1].text


def test_a_wrap_up_is_an_answer():
    _, result = run([call("ping"), call("ping"), final("As far as I got.")], limits=Limits(steps=1))
    assert (result.answer, result.reason) == ("As far as I got.", "steps")


def test_a_filtered_reply_is_not_asked_for_again():
    provider, result = run([ScriptedTurn("I cannot", "content_filter")])
    assert len(provider.requests) == 1
    assert (result.answer, result.reason) == ("I cannot", "content_filter")


def test_a_run_of_another_driver_goes_on_with_it():
    _, result = run([call("read", path="a"), final()])
    again = Agent(ScriptedProvider(["Yes."]), TOOLS).run_sync("Sure?", history=result.messages)
    assert again.answer == "Yes."
    (first_call,) = [part for message in result.messages for part in message.calls]
    assert isinstance(first_call, ToolCall)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigurationError, match="max_retries"):
        ReActDriver(ScriptedProvider([]), max_retries=-1)
    with pytest.raises(ConfigurationError, match="final_via_inference"):
        ReActDriver(ScriptedProvider([]), final_model=ScriptedProvider([]))


@given(st.dictionaries(st.text(), st.integers() | st.text(), min_size=1), st.text("ab `\n", max_size=9))
def test_an_object_is_found_whatever_stands_around_it(value, prose):
    for text in (
        json.dumps(value),
        f"{prose}{json.dumps(value)}{prose}",
        f"{prose}\n```json\n{json.dumps(value)}\n```",
    ):
        assert json_object(text) == value


def test_brackets_without_json_take_no_long():
    assert list(json_values("{" * 100_000)) == []
    assert list(json_values("[" * 100_000 + "1")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        (' \n{"a": 1}\n', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```{"a": 1}```', {"a": 1}),
        ('```json {"a": 1}```', {"a": 1}),
        ('So: {"a": 1}', None),
        ('```\n{"a": 1}\n```\nand more', None),
        ('[{"a": 1}]', None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_what_is_nothing_but_an_object(text, expected):
    assert only_object(text) == expected
    assert expected is None or json_object(text) == expected


def test_options_of_a_turn_go_to_the_api():
    provider = ScriptedProvider([final()])

    async def turn():
        request = TurnRequest([Message.user("Go.")], TOOLS.specs, options={"temperature": 0})
        return [delta async for delta in ReActDriver(provider).open().turn(request)]

    asyncio.run(turn())
    assert provider.requests[0].options == {"temperature": 0}


@pytest.mark.parametrize("opening", ["<think>", ""], ids=["tags", "opened by the template"])
def test_a_draft_in_a_thought_is_no_decision(opening):
    """Servers without a reasoning parser leave the thought in the text."""
    draft = f'{opening}Perhaps {final("too early")}, or {{"type": 1}}?</think>\n'
    provider, result = run([draft + call("read", path="a"), draft + final("Read </think>.")])
    assert (result.answer, len(provider.requests)) == ("Read </think>.", 2)


def test_a_decision_that_quotes_the_end_of_a_thought_is_whole():
    fenced_text = f"```json\n{final('</think> ends it')}\n```"
    assert [run([text])[1].answer for text in (final("</think> [1]"), fenced_text)] == [
        "</think> [1]",
        "</think> ends it",
    ]


def test_arguments_written_as_a_text_are_read():
    decision = {"thought": "Hm.", "type": "call_tool", "tool": "read", "args": '{"path": "a"}'}
    _, result = run([json.dumps(decision), final()])
    assert [each.text for message in result.messages for each in message.results] == ["content of a"]


@pytest.mark.parametrize(
    ("choice", "words"),
    [("required", '"type" must be "call_tool".'), ("read", 'and "tool" "read".'), ("none", 'must be "final_answer".')],
)
def test_a_tool_choice_is_asked_for_in_words(choice, words):
    turns = [final()] if choice == "none" else [call("read", path="a"), final()]
    provider, result = run([*turns, "Done."], choice=choice, final_via_inference=True)
    first, *_, last = [request.messages for request in provider.requests]
    assert (result.answer, words in first[-1].text, words in first[0].text) == ("Done.", True, False)
    assert [message.text for message in last if words in message.text] == []


def test_calls_that_the_server_made_of_decisions_are_its_mistake():
    with pytest.raises(ProviderError, match="tool-call parser off"):
        run([ScriptedTurn("", calls=[ScriptedCall("read", {"path": "a"})]), final()])


def test_the_answer_that_is_asked_for_once_more_is_heard_too():
    """So that it is kept if it is cut off."""
    provider, deltas = ScriptedProvider([final(), "In plain words."]), []

    async def turn():
        request = TurnRequest([Message.user("Go.")], TOOLS.specs)
        conversation = ReActDriver(provider, final_via_inference=True).open(DriverContext(deltas.append))
        return [delta async for delta in conversation.turn(request)]

    asyncio.run(turn())
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == [final(), "In plain words."]
