"""A call with a damaged marker is text, and is reported because it did not run: alone, before another call, and after
one."""

from __future__ import annotations

from typing import cast

import pytest

from toolspeak import Agent, tool
from toolspeak.data.messages import MalformedCall, Message, TextMessage, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, StrictDialect, get_dialect, read_turn
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import check_splits, chunks, join_deltas, parse_pieces

STRING = {"type": "string"}
TOOLS = [
    ToolSpec("write", "", {"type": "object", "properties": {"file": STRING, "mode": STRING}}),
    ToolSpec("read", "", {}),
]
FIRST, SECOND = ("write", {"file": "alpha"}), ("write", {"mode": "omega"})
# Their calls stand in a code fence or are Python, which an answer may end with too; or one block holds them all.
OTHERS = {"command-r-plus", "pythonic", "claude-legacy"}
WITH_MARKERS = [
    each
    for each in DIALECTS
    if each.batch.counts == "all_calls" and each.batch.max_calls is None and each.name not in OTHERS
]


def calls_text(dialect: Dialect, *calls: tuple[str, dict[str, str]]) -> str:
    tool_calls = tuple(ToolCall(f"callid00{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    return dialect.render([Message("assistant", tool_calls)], TOOLS)[0].text


def damages_of(reply: str, start: int) -> list[str]:
    """The reply without one of the first characters after `start`."""
    start = len(reply) - len(reply[start:].lstrip())
    return [reply[:at] + reply[at + 1 :] for at in range(start, min(reply.index("write", start), start + 8))]


def reports(dialect: Dialect, reply: str) -> int:
    """The number of calls reported because they did not run."""
    check_splits(dialect, reply, TOOLS, splits=[list(reply), list(chunks(reply, 7))])
    return sum(isinstance(call, MalformedCall) for call in read_turn(dialect, reply, TOOLS).calls)


@pytest.mark.parametrize("dialect", WITH_MARKERS, ids=lambda dialect: dialect.name)
def test_the_model_gets_a_report_of_a_call_whose_marker_is_damaged(dialect: Dialect):
    for text in damages_of(calls_text(dialect, FIRST), 0):
        for reply in (text, f"I will write it.\n{text.lstrip()}"):
            assert reports(dialect, reply) or read_turn(dialect, reply, TOOLS).calls, reply


@pytest.mark.parametrize("dialect", WITH_MARKERS, ids=lambda dialect: dialect.name)
def test_beside_a_call_that_runs_too(dialect: Dialect):
    one, both = calls_text(dialect, FIRST), calls_text(dialect, FIRST, SECOND)
    for reply in damages_of(both, 0):
        assert reports(dialect, reply) or len(read_turn(dialect, reply, TOOLS).calls) == 2, reply
    if both.startswith(one.rstrip()):  # each call has a marker of its own
        for reply in damages_of(both, len(one.rstrip())):
            assert reports(dialect, reply) or len(read_turn(dialect, reply, TOOLS).calls) == 2, reply
            assert [call.arguments for call in read_turn(dialect, reply, TOOLS).calls if isinstance(call, ToolCall)], (
                reply
            )


PROSE = [
    'Call it with {"name": "write", "arguments": {}}',
    'It looks like this:\n```json\n{"name": "write", "arguments": {}}\n```\nThat is all.',
    '{"used": ["read", "write"]}',
    '[{"name": "write", "parameters": {"type": "object", "properties": {}}}]',
    'A call is {"name": "write", "arguments": {"file": "a"}}, as you see.',
    "class write {\n  int mode;\n}",
    'I would call write(file="a")',
    'The tools are ["read", "write"]',
    'No:\n    {"name": "write", "arguments": {}}',
    'It said "{"name": "write", "arguments": {}}"',
]


@pytest.mark.parametrize("name", ["hermes", "mistral-args", "qwen3-coder", "glm45", "kimi-k2"])
def test_what_names_a_tool_in_prose_stays_text(name: str):
    dialect = get_dialect(name)
    for prose in PROSE:
        turn = read_turn(dialect, prose, TOOLS)
        assert (turn.text, turn.calls) == (prose, ())
    for strict in (StrictDialect(dialect), StrictDialect(dialect, broken=True)):
        text = 'Then:\n[TOOL_CALL]write{"file": "a"}'
        assert read_turn(strict, text, TOOLS).calls == ()


def test_the_model_is_shown_how_to_write_it():
    runs: list[str] = []

    @tool(read_only=True)
    def look(file: str) -> str:
        """Looks at a file."""
        runs.append(file)
        return "seen"

    reply = '[TOOL_CALL]look{"file": "a"}[TOOL_CALLS]look{"file": "b"}'
    provider = ScriptedProvider([reply, "Done."])
    result = Agent(provider, [look], dialect="mistral-v11").run_sync("go")
    assert (result.answer, runs) == ("Done.", ["b"])
    assert "TOOL_CALLS]look{" in cast("TextMessage", provider.requests[1].messages[-1]).text


@pytest.mark.parametrize(
    "dialect",
    [each for each in WITH_MARKERS if each.name not in ("kimi-k2", "deepseek-v3")],
    ids=lambda each: each.name,
)
def test_a_call_without_a_name_is_told_beside_a_good_one(dialect: Dialect):
    reply = calls_text(dialect, FIRST, ("read", {"file": "b"}))
    for name, rest in (("write", ("read", {"file": "b"})), ("read", FIRST)):
        turn = read_turn(dialect, reply.replace(name, ""), TOOLS)
        assert [type(call) for call in turn.calls].count(MalformedCall) == 1, reply
        assert [(call.name, call.arguments) for call in turn.calls if isinstance(call, ToolCall)] in ([rest], [])
        check_splits(dialect, reply.replace(name, ""), TOOLS, splits=[list(reply.replace(name, ""))])


@pytest.mark.parametrize("start", ["", "<| ", "a <| b <|other|> ", "`<|end|>` is no token there. "])
def test_a_harmony_call_without_tokens_is_found_after_what_only_begins_as_one(start: str):
    harmony = get_dialect("harmony")
    reply = f'{start}I use to=fu and to=functions.reader, then:\ncommentary to=functions.read json{{"file": "a"}}'
    check_splits(harmony, reply, TOOLS, splits=[list(reply), *([reply[:at], reply[at:]] for at in range(len(reply)))])
    (call,) = read_turn(harmony, reply, TOOLS).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"file": "a"}


@pytest.mark.parametrize("text", ["functions.?:5<|tool_call_argument_begin|>", "functions.a?b:5 says"])
def test_an_id_with_any_name_is_read_the_same_however_it_is_cut(text: str):
    dialect = get_dialect("kimi-k2")  # without tools every name is known
    whole = join_deltas(parse_pieces(dialect, [text], (), "stop"))
    for cut in range(1, len(text)):
        assert join_deltas(parse_pieces(dialect, [text[:cut], text[cut:]], (), "stop")) == whole, cut
