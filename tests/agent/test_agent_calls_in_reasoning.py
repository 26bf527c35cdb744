"""Runs of models that write calls in their thoughts: the tool runs or the model is told, and a draft never runs."""

from __future__ import annotations

import asyncio

import pytest

from toolspeak import Agent, Session, tool
from toolspeak.agent import NativeDriver
from toolspeak.data.deltas import CallCompleted, ReasoningDelta, TextDelta, TextWasReasoning
from toolspeak.data.messages import Message, ReasoningPart, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.journal import MemoryJournal
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn

FAMILIES = ["hermes", "qwen3-coder", "deepseek-v4", "ling3", "nemotron-v2", "glm45", "kimi-k2", "deepseek-v31", "auto"]
PUBLISHED_DIALECTS = ["cogency-json", "cogency-xml", "tool-call"]


class Looks:
    """A tool that counts, and an agent that has it."""

    def __init__(self, dialect: str, *replies: str) -> None:
        self.paths: list[str] = []

        @tool(read_only=True)
        def look(path: str) -> str:
            """Reads a file."""
            self.paths.append(path)
            return f"what is in {path}"

        self.provider = ScriptedProvider(list(replies))
        self.tools = [look]
        self.agent = Agent(self.provider, self.tools, dialect=dialect)

    def feedback(self) -> str:
        """What the model read before its last turn, behind the task."""
        messages = self.provider.requests[-1].messages
        return "\n".join(str(message.text) for message in messages[2:])


def call(dialect: str, path: str = "a.txt") -> str:
    own = get_dialect("hermes" if dialect == "auto" else dialect)
    return own.render([Message("assistant", (ToolCall("callid000", "look", {"path": path}),))])[0].text


@pytest.mark.parametrize("dialect", FAMILIES)
def test_a_call_in_thoughts_that_have_no_end_runs(dialect: str):
    run = Looks(dialect, f"<think>I'll look.\n{call(dialect)}", "Done.")
    result = run.agent.run_sync("go")
    assert (run.paths, result.status, result.answer) == (["a.txt"], "answered", "Done.")
    assert "what is in a.txt" in run.feedback()


@pytest.mark.parametrize("dialect", FAMILIES)
def test_a_draft_in_thoughts_that_end_does_not(dialect: str):
    run = Looks(dialect, f"<think>Maybe {call(dialect)} no.</think>The answer is 4.")
    result = run.agent.run_sync("go")
    assert (run.paths, result.answer, len(run.provider.requests)) == ([], "The answer is 4.", 1)
    run = Looks(dialect, f"<think>Maybe {call(dialect)}</think>{call(dialect, 'b.txt')}", "Done.")
    run.agent.run_sync("go")
    assert run.paths == ["b.txt"]


@pytest.mark.parametrize("dialect", [*FAMILIES, *PUBLISHED_DIALECTS])
def test_where_it_is_all_that_a_turn_holds_the_model_is_told_where_it_stood(dialect: str):
    for reply in (f"<think>I'll look.\n{call(dialect)}</think>", f"<think>I'll look: {call(dialect)} Good."):
        run = Looks(dialect, reply, "Done.")
        result = run.agent.run_sync("go")
        assert (run.paths, result.answer) == ([], "Done.")
        assert "in your thoughts" in run.feedback()
        assert "was empty" not in run.feedback()


@pytest.mark.parametrize("dialect", PUBLISHED_DIALECTS)
def test_the_published_protocols_run_none_in_thoughts(dialect: str):
    run = Looks(dialect, f"<think>I'll look.\n{call(dialect)}", "Done.")
    result = run.agent.run_sync("go")
    assert (run.paths, result.answer) == ([], "Done.")
    assert "in your thoughts" in run.feedback()


def test_in_a_native_turn_of_a_server_that_reads_neither_thoughts_nor_calls():
    for reply, paths in ((f"<think>I'll look.\n{call('hermes')}", ["a.txt"]), (f"<think>{call('hermes')}</think>", [])):
        run = Looks("hermes", reply, "Done.")
        run.agent = Agent(NativeDriver(run.provider), run.tools)
        assert run.agent.run_sync("go").answer == "Done."
        assert run.paths == paths
    messages = [str(message) for message in run.provider.requests[-1].messages]
    assert any("in your thoughts" in message for message in messages)


def test_a_stream_shows_thoughts_as_they_come_and_the_call_at_the_end():
    run = Looks("hermes", f"<think>One. Two.\n{call('hermes')}", "Done.")

    async def collect() -> list[object]:
        return [each async for each in run.agent.stream("go")]

    deltas = asyncio.run(collect())
    kinds = [type(each) for each in deltas]
    assert kinds.index(CallCompleted) > max(at for at, kind in enumerate(kinds) if kind is ReasoningDelta)
    assert "".join(each.text for each in deltas if isinstance(each, ReasoningDelta)).strip() == "One. Two."


# --- Thoughts that the prompt opened, and nobody said so ----------------------------------------


@pytest.mark.parametrize("dialect", ["hermes", "minimax-m3", "auto", "cogency-json", "native"])
def test_what_stands_before_a_lone_end_of_thoughts_is_none_of_the_answer(dialect: str):
    end = "</mm:think>" if dialect == "minimax-m3" else "</think>"
    for reply, thought in ((f"A plan.\n{end}\n\nThe answer.", "A plan."), (f"{end}The answer.", "")):
        run = Looks("hermes" if dialect == "native" else dialect, reply)
        if dialect == "native":
            run.agent = Agent(NativeDriver(run.provider), run.tools)
        result = run.agent.run_sync("go")
        assert (result.answer, result.messages[-1].text) == ("The answer.", "The answer.")
        parts = [part for part in result.messages[-1].parts if isinstance(part, ReasoningPart)]
        assert "".join(part.text for part in parts).strip() == thought


def test_a_stream_says_that_what_it_showed_was_reasoning():
    run = Looks("hermes", "A plan.</think>The answer.")

    async def collect() -> list[object]:
        return [each async for each in run.agent.stream("go") if isinstance(each, TextDelta | TextWasReasoning)]

    items = asyncio.run(collect())
    at = items.index(TextWasReasoning())
    assert "".join(each.text for each in items[:at] if isinstance(each, TextDelta)) == "A plan."
    assert "".join(each.text for each in items[at:] if isinstance(each, TextDelta)) == "The answer."


# --- Thoughts of earlier turns ------------------------------------------------------------------


def request_text(run: Looks, number: int) -> str:
    messages = run.provider.requests[number].messages
    return "\n".join(f"{message.role}: {message.text}" for message in messages[1:])


@pytest.mark.parametrize(
    ("dialect", "within", "after"),
    [
        ("hermes", True, False),
        ("cogency-json", True, True),
        ("deepseek-v31", False, False),
        ("tool-call", False, False),
    ],
)
def test_a_step_reads_what_was_thought_before_as_the_model_is_used_to(dialect: str, within: bool, after: bool):
    thinks = f"<think>My plan.</think>I look.\n{call(dialect)}"
    run = Looks(dialect, thinks, f"<think>Next.</think>{call(dialect, 'b.txt')}", "Done.", "Again.")

    async def answers() -> list[str]:
        session = Session(Agent(run.provider, run.tools, dialect=dialect, journal=MemoryJournal()))
        return [(await session.run(task)).answer for task in ("go", "and now?")]

    assert asyncio.run(answers()) == ["Done.", "Again."]
    assert (
        ("My plan." in request_text(run, 1))
        == ("My plan." in request_text(run, 2))
        == ("Next." in request_text(run, 2))
        == within
    )
    assert ("My plan." in request_text(run, 3)) == after
    for number in (0, 1):
        assert request_text(run, number + 1).startswith(request_text(run, number)), (
            "a server's prompt cache holds within a run"
        )


def test_thoughts_that_a_server_takes_out_of_the_text_are_told_as_well():
    run = Looks("hermes")
    run.provider = ScriptedProvider([ScriptedTurn(call("hermes"), reasoning="My plan."), "Done."])
    run.agent = Agent(run.provider, run.tools, dialect="hermes")
    assert run.agent.run_sync("go").answer == "Done."
    assert "<think>\nMy plan.\n</think>" in request_text(run, 1)


def test_a_secret_that_was_thought_of_is_not_told():
    run = Looks("hermes", f"<think>The key is s3cr3t-key.</think>{call('hermes')}", "Done.")
    run.agent = Agent(run.provider, run.tools, dialect="hermes", secrets={"KEY": "s3cr3t-key"})
    run.agent.run_sync("go")
    assert "The key is" in request_text(run, 1)
    assert "s3cr3t-key" not in request_text(run, 1)
