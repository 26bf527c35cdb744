"""A call that lost one character of its beginning runs or is told, in every dialect, alone and beside another call."""

from __future__ import annotations

import pytest

from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.testing import check_splits, chunks

TYPES = {"file": {"type": "string"}, "days": {"type": "integer"}}
TOOLS = [ToolSpec("write", "", {"type": "object", "properties": TYPES})]
PUBLISHED = [each.name for each in DIALECTS if each.batch.counts != "all_calls"]
SHOWN = {
    "muse": {'name="write'},  # behind another message, where its own text is the answer's
    "pythonic": {"write"},  # a list of what no tool is
    "command-r-plus": {"```"},  # in front of a call it begins inline code
}


def written(dialect: Dialect, **arguments: object) -> str:
    return dialect.render([Message("assistant", (ToolCall("callid000", "write", arguments),))], TOOLS)[0].text.strip()


def beside(dialect: Dialect, damaged: str) -> list[tuple[str, int]]:
    """Turns with it, and how many calls they hold."""
    other = written(dialect, days=7)
    return [(damaged, 1), (f"So.\n{damaged}", 1), (f"{damaged}\n{other}", 2), (f"{other}\n{damaged}", 2)]


def may_be_text(name: str, head: str, at: int) -> bool:
    for part in SHOWN.get(name, ()):
        start = head.find(part)
        while start >= 0:
            if start - 1 <= at < start + len(part) + 1:
                return True
            start = head.find(part, start + 1)
    return False


@pytest.mark.parametrize("dialect", [d for d in DIALECTS if d.name not in PUBLISHED], ids=lambda dialect: dialect.name)
def test_a_call_without_one_character_runs_or_is_told(dialect: Dialect):
    whole = written(dialect, file="alpha")
    head = whole[: whole.index("alpha")]
    for at in range(len(head)):
        if may_be_text(dialect.name, head, at):
            continue
        for i, (text, calls) in enumerate(beside(dialect, whole[:at] + whole[at + 1 :])):
            turn = read_turn(dialect, text, TOOLS)
            told = any(isinstance(call, MalformedCall) for call in turn.calls)
            assert told or len(turn.calls) >= calls, (text, turn.calls)
            if (at + i) % 7 == 0:
                check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 7))])


DAMAGED = {
    "the fence": ("command-r-plus", 'Action:\n[{"tool_name": "write", "parameters": {"file": "alpha"}}]\n```'),
    "the word in front of the fence": ("command-r-plus", '```json\n[{"tool_name": "write", "parameters": {}}]\n```'),
    "the bracket": ("pythonic", "write(file='alpha')]"),
    "the equals sign": ("functionary-v31", '<functionwrite>{"file": "alpha"}</function>'),
    "a quote of the key": ("llama3-json", '{name": "write", "parameters": {"file": "alpha"}}'),
    "a quote of the name": ("xlam", '[{"name": "write, "arguments": {"file": "alpha"}}]'),
    "a letter of the arguments": ("llama3-json", '{"name": "write", "paramters": {"file": "alpha"}}'),
    "the marker, behind text": (
        "cohere-command",
        '<|START_ACTION[{"tool_name": "write", "parameters": {}}]<|END_ACTION|>',
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_every_cut_of_a_damaged_start(case: str):
    name, damaged = DAMAGED[case]
    dialect = get_dialect(name)
    for text, _ in beside(dialect, damaged):
        check_splits(dialect, text, TOOLS)
    (call,) = read_turn(dialect, damaged, TOOLS).calls
    assert isinstance(call, MalformedCall)


@pytest.mark.parametrize("damage", ["</toolname>", "<tool_name>", "</tool_name"])
def test_a_damaged_end_of_a_name_takes_no_other_call(damage: str):
    dialect = get_dialect("claude-legacy")
    whole = written(dialect, file="alpha")
    text = f"{whole.replace('</tool_name>', damage)}\n{written(dialect, days=7)}"
    first, last = read_turn(dialect, text, TOOLS).calls
    assert isinstance(first, MalformedCall)
    assert isinstance(last, ToolCall)
    assert last.arguments == {"days": 7}
    check_splits(dialect, text, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        'The tool is {"name": "write", "description": "Writes."}.',
        "You call write(file='alpha') for that.",
        "- `write(file='alpha')`\n- [write](docs.md)",
        'As in:\n```json\n[{"name": "write", "arguments": {"file": "alpha"}}]\n```\nSo it is.',
    ],
)
def test_prose_about_a_tool_is_text(text: str):
    for name in ("hermes", "pythonic", "lfm2", "cohere-command", "command-r-plus", "auto"):
        turn = read_turn(get_dialect(name), text, TOOLS)
        assert (turn.calls, turn.text) == ((), text), name
