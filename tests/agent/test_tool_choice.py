"""What the model is asked to do with its tools, natively and in text, and what happens if it does not."""

from __future__ import annotations

import pytest

from toolspeak import Agent, tool
from toolspeak.data.events import Limits
from toolspeak.data.messages import ToolChoice
from toolspeak.errors import ConfigurationError, UnknownTool
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


@tool(read_only=True)
def read(path: str = "a") -> str:
    """Reads a file."""
    return f"content of {path}"


@tool(read_only=True)
def ping() -> str:
    """Answers."""
    return "pong"


def turn(native: bool, *names: str) -> ScriptedTurn:
    if native:
        return ScriptedTurn("", calls=[ScriptedCall(name) for name in names])
    calls = ", ".join(f'{{"name": "{name}", "args": {{}}}}' for name in names)
    return ScriptedTurn(f"<execute>[{calls}]</execute>")


def run(native, turns, choice, **options):
    provider = ScriptedProvider(
        [turn(native, *each) if isinstance(each, tuple) else each for each in turns], tools=native
    )
    result = Agent(provider, [read, ping], **options).run_sync("Go.", tool_choice=choice)
    return provider, result


BOTH = pytest.mark.parametrize("native", [True, False])


def requested_choices(provider):
    """What each turn was asked with: natively the choice, in text whether its last message asks for a call."""
    return [
        request.choice.mode if request.tools else "must" if "must call" in request.messages[-1].text else "auto"
        for request in provider.requests
    ]


@BOTH
@pytest.mark.parametrize("choice", ["required", "read", ToolChoice("specific", "read")])
def test_a_choice_holds_for_the_first_step(native, choice):
    provider, result = run(native, [("read",), "Done."], choice)
    assert result.answer == "Done."
    first = "must" if not native else "required" if choice == "required" else "specific"
    assert requested_choices(provider) == [first, "auto"]


@BOTH
def test_a_model_that_answers_instead_is_told_once(native):
    provider, result = run(native, ["I need no tool.", ("ping",), "Done."], "required")
    assert result.answer == "Done."
    texts = [message.text for message in result.messages if message.role == "user"]
    assert texts == ["Go.", "You must call at least one tool before you answer. Call it now."]
    assert requested_choices(provider)[2] == "auto"


@BOTH
def test_a_model_that_will_not_is_left_with_its_answer(native):
    provider, result = run(native, ["No.", "I said no.", "never asked"], "ping")
    assert (result.status, result.answer, len(provider.requests)) == ("answered", "I said no.", 2)


@BOTH
def test_another_tool_runs_and_the_named_one_is_asked_for_again(native):
    provider, result = run(native, [("ping",), ("read",), "Done."], "read")
    assert result.answer == "Done."
    assert [message.results[0].text for message in result.messages if message.role == "tool"] == [
        "pong",
        "content of a",
    ]
    assert requested_choices(provider) == (["specific", "specific", "auto"] if native else ["must", "must", "auto"])


@BOTH
def test_a_choice_may_hold_for_every_step_until_the_limit(native):
    provider, result = run(
        native, [("ping",), ("read",), "Done."], ToolChoice("required", every_step=True), limits=Limits(steps=2)
    )
    assert (result.answer, result.reason) == ("Done.", "steps")
    assert requested_choices(provider)[:2] == (["required"] * 2 if native else ["must"] * 2)


@BOTH
def test_no_call_runs_where_none_is_allowed(native):
    _, result = run(
        native, [ScriptedTurn("So be it.", calls=[ScriptedCall("ping")]) if native else "So be it."], "none"
    )
    assert (result.status, result.answer) == ("answered", "So be it.")
    assert not [message for message in result.messages if message.role == "tool"]


@BOTH
@pytest.mark.parametrize(
    ("choice", "words"), [("required", "at least one"), ("read", "'read'"), ("none", "Do not call")]
)
def test_a_model_is_asked_in_words_where_the_api_cannot_hold_it_to_a_choice(native, choice, words):
    provider, _ = run(native, [("read",) if choice != "none" else "Done.", "Done."], choice)
    last = provider.requests[0].messages[-1]
    assert last.text.startswith("Go.\n\n")
    assert words in last.text
    assert all(request.tools == provider.requests[0].tools for request in provider.requests)


@BOTH
def test_a_model_that_calls_though_it_may_not_is_told_so(native):
    provider, result = run(native, [("ping",), "So be it."], "none")
    assert (result.answer, len(provider.requests)) == ("So be it.", 2)
    assert [each.text for each in result.messages if each.role == "user"][-1].startswith("No tool can be called now.")


@BOTH
def test_the_prompt_stays_the_same(native):
    provider, _ = run(native, [("read",), "Done."], "required", instructions="Be brief.")
    assert provider.requests[0].messages[0] == provider.requests[1].messages[0]


def test_a_name_that_no_tool_has_is_refused_with_the_nearest():
    with pytest.raises(UnknownTool, match=r"'raed'.*read"):
        Agent(ScriptedProvider([]), [read], tool_choice="raed")
    with pytest.raises(ConfigurationError, match="needs a tool"):
        Agent(ScriptedProvider([]), tool_choice="required")
