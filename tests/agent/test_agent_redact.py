"""What a person watches of a turn shows no secret, however the model's text was cut."""

import asyncio

import pytest
from agent_helpers import DIALECTS
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak import Agent, tool
from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, ForgedResults, ReasoningDelta, TextDelta
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

KEY = 'sk-"quoted"-0123456789'
NAMES = {"KEY": KEY, "PEM": "-----BEGIN-----\\nabcdefghij\\nklmnopqrst\\n-----END-----"}


@tool(read_only=True)
def note(text: str) -> str:
    "Takes a note."
    return "noted"


def watch(turns, chunk, dialect="cogency-json"):
    async def main():
        agent = Agent(ScriptedProvider(turns, chunk=chunk), [note], secrets=NAMES, dialect=dialect)
        return [item async for item in agent.stream("go")]

    return asyncio.run(main())


def join_texts(items, kind):
    return "".join(item.text for item in items if isinstance(item, kind))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, None])
def test_no_delta_shows_a_secret(dialect, chunk):
    calls = (
        get_dialect(dialect).render([Message("assistant", (ToolCall("c", "note", {"text": f"so {KEY}!"}),))])[0].text
    )
    turns = [ScriptedTurn(f"It is {KEY}, {KEY} sk.\n{calls}", reasoning=f"Hm: {NAMES['PEM']}"), "Done."]
    items = watch(turns, chunk, dialect)
    assert join_texts(items, TextDelta).startswith("It is {{secret:KEY}}, {{secret:KEY}} sk.")
    assert join_texts(items, ReasoningDelta) == "Hm: {{secret:PEM}}"
    assert "{{secret:KEY}}" in join_texts(items, ArgumentsDelta)
    assert [item.arguments for item in items if isinstance(item, CallCompleted)] == [{"text": "so {{secret:KEY}}!"}]
    text = "".join(map(repr, items)) + join_texts(items, TextDelta) + join_texts(items, ArgumentsDelta)
    assert "0123456789" not in text
    assert "klmnopqrst" not in text


def test_results_that_the_model_made_up_show_none_either():
    items = watch([f"<results>[{KEY!r}]</results>", "Done."], 3)
    forged_results = [item.raw for item in items if isinstance(item, ForgedResults)]
    assert forged_results
    assert "0123456789" not in "".join(forged_results)


def test_only_what_may_begin_a_secret_waits():
    items = watch(["a sk-x b s"], 1)
    texts = [item.text for item in items if isinstance(item, TextDelta)]
    assert texts == ["a", " ", "sk-x", " ", "b", " ", "s"]


SECRETS = st.lists(st.text("ab{", min_size=4, max_size=7), min_size=1, max_size=3, unique=True)


@settings(max_examples=fewer(300), deadline=None)
@given(SECRETS, st.lists(st.text("ab{s", max_size=5), max_size=12))
def test_pieces_that_go_on_are_hidden_like_the_whole(values, pieces):
    secrets = Secrets({f"S{number}": value for number, value in enumerate(values)})
    pending_text = output = ""
    for piece in pieces:
        pending_text += piece
        certain = secrets.certain(pending_text)
        output, pending_text = output + secrets.hide_text(pending_text[:certain]), pending_text[certain:]
        assert len(pending_text) < 2 * secrets.longest
    assert output + secrets.hide_text(pending_text) == secrets.hide_text("".join(pieces))


@pytest.mark.parametrize("dialect", [*DIALECTS, "native", "hermes", "qwen3-coder", "glm45"])
def test_a_secret_that_is_called_as_a_tool_is_nowhere(dialect):
    """Nor as the name of an argument, nor as a call's id."""
    call = ToolCall("c", KEY, {"text": KEY, KEY: 1})
    if dialect == "native":
        turn = ScriptedTurn("", calls=[ScriptedCall(KEY, {"text": KEY, KEY: 1}, id=KEY)])
    else:
        turn = get_dialect(dialect).render([Message("assistant", (call,))])[0].text
    provider = ScriptedProvider([turn, "Done."], tools=dialect == "native")
    items = []

    async def main():
        agent = Agent(provider, [note], secrets=NAMES, dialect=dialect)
        run = agent.start("go")
        items.extend([item async for item in run.stream()])
        return run.state

    state = asyncio.run(main())
    text = "".join(map(repr, items)) + repr(list(state.messages)) + repr(provider.requests)
    assert "0123456789" not in text
    assert "secret" in text
    assert state.answer == "Done."
