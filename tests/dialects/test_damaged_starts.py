"""A call without one character of its beginning runs or is reported, in every dialect, alone or beside another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweeps import parts
from toolspeak import Agent, tool
from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import check_splits, chunks

TYPES = {"file": {"type": "string"}, "days": {"type": "integer"}}
TOOLS = [ToolSpec("write", "", {"type": "object", "properties": TYPES})]
PROTOCOL_NAMES = [each.name for each in DIALECTS if each.batch.counts != "all_calls"]
FAULTS: dict[str, Callable[[str, int], str]] = {
    "one too many": lambda text, at: text[: at + 1] + text[at:],
    "another one": lambda text, at: text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :],
    "a space": lambda text, at: f"{text[:at]} {text[at:]}",
    "two in each other's place": lambda text, at: text[:at] + text[at + 1 : at + 2] + text[at] + text[at + 2 :],
}
SILENT_PARTS = {  # swapping two characters leaves markers that begin and end in the middle
    "gigachat3": {"<|role_sep|\n>"},
    "cohere-command": {"|[>"},
    "deepseek-v3": {"｜<>｜"},
    "solar-open": {"|<>|"},
}


def call_text(dialect: Dialect, **arguments: object) -> str:
    return dialect.render([Message("assistant", (ToolCall("callid000", "write", arguments),))], TOOLS)[0].text.strip()


def beside(dialect: Dialect, damaged_text: str) -> list[tuple[str, int]]:
    """Turns with it, and how many calls they hold."""
    other = call_text(dialect, days=7)
    return [
        (damaged_text, 1),
        (f"So.\n{damaged_text}", 1),
        (f"{damaged_text}\n{other}", 2),
        (f"{other}\n{damaged_text}", 2),
    ]


@pytest.mark.parametrize(
    "dialect", [d for d in DIALECTS if d.name not in PROTOCOL_NAMES], ids=lambda dialect: dialect.name
)
@parts(2)
def test_a_call_without_one_character_runs_or_is_told(dialect: Dialect, part: int):
    whole = call_text(dialect, file="alpha")
    head = whole[: whole.index("alpha")]
    for at in range(part, len(head), 2):
        for i, (text, calls) in enumerate(beside(dialect, whole[:at] + whole[at + 1 :])):
            turn = read_turn(dialect, text, TOOLS)
            is_reported = any(isinstance(call, MalformedCall) for call in turn.calls)
            assert is_reported or len(turn.calls) >= calls, (text, turn.calls)
            if (at + i) % 7 == 0:
                check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 7))])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "dialect", [d for d in DIALECTS if d.name not in PROTOCOL_NAMES], ids=lambda dialect: dialect.name
)
@parts(4)
def test_a_call_with_one_wrong_character_runs_or_is_told(dialect: Dialect, fault: str, part: int):
    whole = call_text(dialect, file="alpha")
    for at in range(part, whole.index("alpha"), 4):
        damaged_text = FAULTS[fault](whole, at)
        if any(part in damaged_text for part in SILENT_PARTS.get(dialect.name, ())):
            continue
        for i, (text, calls) in enumerate(beside(dialect, damaged_text)):
            turn = read_turn(dialect, text, TOOLS)
            is_reported = any(isinstance(call, MalformedCall) for call in turn.calls)
            assert is_reported or len(turn.calls) >= calls, (text, turn.calls)
            if (at + i) % 29 == 0:
                check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 7))])


DAMAGES = {
    "the fence": ("command-r-plus", 'Action:\n[{"tool_name": "write", "parameters": {"file": "alpha"}}]\n```'),
    "the word before the fence": ("command-r-plus", '```json\n[{"tool_name": "write", "parameters": {}}]\n```'),
    "the bracket": ("pythonic", "write(file='alpha')]"),
    "the equals sign": ("functionary-v31", '<functionwrite>{"file": "alpha"}</function>'),
    "a quote of the key": ("llama3-json", '{name": "write", "parameters": {"file": "alpha"}}'),
    "a quote of the name": ("xlam", '[{"name": "write, "arguments": {"file": "alpha"}}]'),
    "a letter of the arguments": ("llama3-json", '{"name": "write", "paramters": {"file": "alpha"}}'),
    "the marker, after text": (
        "cohere-command",
        '<|START_ACTION[{"tool_name": "write", "parameters": {}}]<|END_ACTION|>',
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_every_cut_of_a_damaged_start(case: str):
    name, damaged_text = DAMAGES[case]
    dialect = get_dialect(name)
    for text, _ in beside(dialect, damaged_text):
        check_splits(dialect, text, TOOLS)
    (call,) = read_turn(dialect, damaged_text, TOOLS).calls
    assert isinstance(call, MalformedCall)


@pytest.mark.parametrize("case", [case for case in DAMAGES if DAMAGES[case][0] != "command-r-plus"])
def test_a_damaged_bare_call_is_told_without_a_models_name_too(case: str):
    auto = get_dialect("auto")
    for text in (DAMAGES[case][1], f"So.\n{DAMAGES[case][1]}"):
        (call,) = read_turn(auto, text, TOOLS).calls
        assert isinstance(call, MalformedCall)
        assert "write" in call.reason
        check_splits(auto, text, TOOLS)


@pytest.mark.parametrize(
    "prose",
    [
        '{"name": "read", "paramters": {"file": "alpha"}}',  # of no tool that there is
        'The tool takes `{"name": "write", "paramters": {"file": "alpha"}}`.',
        'An example:\n\n```json\n{"name": "write", "paramters": {"file": "alpha"}}\n```',
        'The tool write is {"name": "write", "parameters": {"type": "object", "properties": {"file": {}}}}',
        "I call write(file='alpha').",
        "def write(file):\n    return open(file)[0]",
        '{"file": "alpha", "mode": "write"}',
    ],
)
def test_without_a_models_name_prose_stays_an_answer(prose: str):
    turn = read_turn(get_dialect("auto"), prose, TOOLS)
    assert (turn.calls, turn.text) == ((), prose)


@pytest.mark.parametrize("damage", ["</toolname>", "<tool_name>", "</tool_name"])
def test_a_damaged_end_of_a_name_takes_no_other_call(damage: str):
    dialect = get_dialect("claude-legacy")
    whole = call_text(dialect, file="alpha")
    text = f"{whole.replace('</tool_name>', damage)}\n{call_text(dialect, days=7)}"
    first, last = read_turn(dialect, text, TOOLS).calls
    assert isinstance(first, MalformedCall)
    assert isinstance(last, ToolCall)
    assert last.arguments == {"days": 7}
    check_splits(dialect, text, TOOLS)


ONE_WRONG = [
    ("pythonic", """[writ(file='alpha')]"""),
    ("pythonic", """[wrtie(file='alpha', days=3)]"""),
    ("pythonic", """[write( (file='alpha')]"""),
    ("llama4-pythonic", """[writ(file='alpha')]"""),
    ("llama3-json", '{"name": "write,", "parameters": {"file": "alpha"}}'),
    ("xlam", '[{"name": "write"", "arguments": {"file": "alpha"}}]'),
    ("command-r-plus", 'Action: ``json\n[{"tool_name": "write", "parameters": {"file": "alpha"}}]\n```'),
    ("command-r-plus", 'Action:\n``json\n[{"tool_name": "write", "parameters": {"file": "alpha"}}]\n``'),
    ("phi4-mini", 'functools{"name": "write", "arguments": {"file": "alpha"}}'),
    ("phi4-mini", 'functools{write {"file": "alpha"}}'),
    ("phi4-mini", 'functools[{"name": "write" "arguments": {"file": "alpha"}}'),
    ("phi4-mini", 'functools([{"name": "write", "arguments": {"file": "alpha"}}])'),
    ("functionary-v32", '>>write\n{"file": "alpha"}'),
    ("harmony", '<|start|>assistantto=functions.write<|channel|>commentary json<|message|>{"file": "alpha"}<|call|>'),
    ("harmony", '<|start|>assistnt<|channel|>commentary to=function.write<|message|>{"file": "alpha"}<|call|>'),
]


@pytest.mark.parametrize(("name", "damaged_text"), ONE_WRONG)
def test_a_damaged_call_is_no_answer(name: str, damaged_text: str):
    files: list[str] = []

    @tool(read_only=True)
    def write(file: str, days: int = 0) -> str:
        """Writes."""
        files.append(file)
        return "written"

    result = Agent(ScriptedProvider([damaged_text, "Done."]), tools=[write], dialect=name).run_sync("Write.")
    assert result.answer == "Done."
    check_splits(get_dialect(name), damaged_text, TOOLS)


MUSE = """ to=write<|message|><atem:function_calls>
<atem:invoke name="write">
<atem:parameter name="file">alpha</atem:parameter>
</atem:invoke>
</atem:function_calls>"""


@pytest.mark.parametrize(
    "fault", ['name=write"', 'nam="write"', 'name="write', "name=write", 'name"write"', '="write"']
)
@pytest.mark.parametrize("front", ["", "So.\n", " to=user<|message|>So.<|eom|><|start|>assistant"])
def test_a_damaged_attribute_of_muse_is_told(fault: str, front: str):
    dialect = get_dialect("muse")
    text = front + MUSE.replace('name="write"', fault)
    turn = read_turn(dialect, text, TOOLS)
    assert turn.calls, turn.text
    check_splits(dialect, text, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        'The tool is {"name": "write", "description": "Writes."}.',
        "You call write(file='alpha') for that.",
        "- `write(file='alpha')`\n- [write](docs.md)",
        "> [writ(file='alpha')]",
        "`[writ(file='alpha')]`",
        "Write where the file is, see [1]",
        "calls = [writ(file='alpha')]",
        "So:\n\n    [writ(file='alpha')]",
        "The list is [writer, writes]",
        'As in:\n```json\n[{"name": "write", "arguments": {"file": "alpha"}}]\n```\nSo it is.',
    ],
)
def test_prose_about_a_tool_is_text(text: str):
    for name in ("hermes", "pythonic", "lfm2", "cohere-command", "command-r-plus", "auto"):
        turn = read_turn(get_dialect(name), text, TOOLS)
        assert (turn.calls, turn.text) == ((), text), name
