"""A complete call in the middle of a sentence stays text. Beside a call that runs, it is reported. In every dialect."""

from __future__ import annotations

import pytest

from toolspeak import Agent, tool
from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.dialects.parser.quotes import MAX_REPORTS
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import check_splits, chunks

READ = ToolSpec("read", "", {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]})
TOOLS = [READ]
MESSAGES = ("harmony", "muse")  # whose calls are messages, in no sentence
NAMES = [each.name for each in DIALECTS if each.batch.counts == "all_calls" and each.name not in MESSAGES] + ["auto"]


def call_text(dialect: Dialect, file: str = "a.txt") -> str:
    call = ToolCall("callid000", "read", {"file": file})
    return dialect.render([Message("assistant", (call,))], TOOLS)[0].text.strip()


@pytest.mark.parametrize("name", NAMES)
def test_the_model_gets_a_report_of_a_call_in_a_sentence(name: str):
    dialect = get_dialect(name)
    mention, ran = call_text(dialect, "b.txt"), call_text(dialect)
    for text in (f"I would use {mention} and see.\n{ran}", f"{ran}\nI would use {mention} and see."):
        turn = read_turn(dialect, text, TOOLS)
        reports = [call for call in turn.calls if isinstance(call, MalformedCall)]
        runs = [call.arguments for call in turn.calls if isinstance(call, ToolCall)]
        assert runs == [{"file": "a.txt"}], text
        assert [(call.code, call.name) for call in reports] == [("quoted_call", "read")], text
        assert "in the middle of a sentence" in reports[0].reason
        check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 7))])


@pytest.mark.parametrize(
    "text",
    [
        "I would use `{0}` and see.\n{1}",
        'I would use "{0}" and see.\n{1}',
        "I would use “{0}” and see.\n{1}",
        "I would use:\n```\n{0}\n```\nand see.\n{1}",
        "I would use {0} and see.",
        "{1}\nDone, not `{0}`.",
    ],
)
def test_of_what_is_quoted_or_alone_nothing_is_said(text: str):
    for name in ("hermes", "qwen3-coder", "gemma4", "mistral-args"):
        dialect = get_dialect(name)
        mention, ran = call_text(dialect, "b.txt").replace("\n", " "), call_text(dialect)
        turn = read_turn(dialect, text.format(mention, ran), TOOLS)
        assert not any(isinstance(call, MalformedCall) for call in turn.calls), turn.calls
        check_splits(dialect, text.format(mention, ran), TOOLS)


def test_a_call_of_an_unknown_tool_in_a_sentence_is_not_reported():
    dialect = get_dialect("hermes")
    text = f"As in {call_text(dialect).replace('read', 'write')} and so.\n{call_text(dialect)}"
    (call,) = read_turn(dialect, text, TOOLS).calls
    assert isinstance(call, ToolCall)


def test_of_many_the_model_gets_a_report_of_the_first():
    dialect = get_dialect("hermes")
    text = f"First {call_text(dialect)} and then. " * 20 + f"\n{call_text(dialect)}"
    reports = [call for call in read_turn(dialect, text, TOOLS).calls if isinstance(call, MalformedCall)]
    assert len(reports) == MAX_REPORTS


def test_a_run_continues_and_says_which_call_did_not_run():
    files_read: list[str] = []

    @tool(read_only=True)
    def read(file: str) -> str:
        """Reads a file."""
        files_read.append(file)
        return file

    dialect = get_dialect("hermes")
    text = f"First {call_text(dialect, 'b.txt')} and then\n{call_text(dialect)}"
    provider = ScriptedProvider([text, "Done."])
    result = Agent(provider, [read], dialect="hermes").run_sync("go")
    assert (result.answer, files_read) == ("Done.", ["a.txt"])
    assert "in the middle of a sentence" in str(provider.requests[1].messages)
