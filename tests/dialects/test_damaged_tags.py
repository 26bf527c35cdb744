"""A damaged tag: its call is reported, and nothing runs with the rest of the tag in a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sweeps import parts
from toolspeak import Agent, tool
from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import check_splits, chunks


def spec(name: str, **types: str) -> ToolSpec:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return ToolSpec(name, "", {"type": "object", "properties": properties})


TOOLS = [spec("write", file="string", mode="string", days="integer")]
ARGUMENTS_SENT = {"file": "alpha", "mode": "omega", "days": 7}
BATCHES = [
    [{"file": "alpha", "mode": "omega"}],
    [{"file": "alpha", "days": 7}],
    [{"days": 7, "file": "alpha"}],
    [{"file": "alpha"}, {"mode": "omega"}],
]
WORDS = re.compile("alpha|omega|7|write|file|mode|days")
TAG = re.compile(r"<[^<>]+>")


def batch_text(dialect: Dialect, batch: list[dict[str, Any]]) -> str:
    calls = tuple(ToolCall(f"callid00{i}", "write", arguments) for i, arguments in enumerate(batch))
    return dialect.render([Message("assistant", calls)], TOOLS)[0].text


def damages_of(text: str) -> Iterator[str]:
    """The text without one of its characters, without one of its tags, and with one of them cut."""
    words = [range(*match.span()) for match in WORDS.finditer(text)]
    for at in range(len(text)):
        if not any(at in word for word in words):
            yield text[:at] + text[at + 1 :]
    for match in TAG.finditer(text):
        for stop in range(match.start(), match.end()):
            yield text[:stop] + text[match.end() :]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@parts(3)
def test_nothing_runs_with_what_is_left_of_a_tag(dialect: Dialect, part: int):
    for batch in BATCHES:
        for reply in list(dict.fromkeys(damages_of(batch_text(dialect, batch))))[part::3]:
            for call in read_turn(dialect, reply, TOOLS).calls:
                if isinstance(call, MalformedCall):
                    continue
                for name, value in call.arguments.items():
                    if name in ARGUMENTS_SENT:
                        assert value == ARGUMENTS_SENT[name], reply
                    assert not re.search("alpha|omega", name), reply


def function(*lines: str) -> str:
    return "\n".join(("<tool_call>", "<function=write>", *lines, "</function>", "</tool_call>"))


def invoke(*parts: str) -> str:
    return f'<minimax:tool_call>\n<invoke name="write">\n{"".join(parts)}</invoke>\n</minimax:tool_call>'


FILE, MODE = "<parameter=file>\nalpha\n</parameter>", "<parameter=mode>\nomega\n</parameter>"
STEP = (
    '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="write">{}'
    "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>"
)
DAMAGES = {
    "a start tag without its end": ("qwen3-coder", function(FILE, "<parameter=mode\nomega\n</parameter>")),
    "a start tag without its sign": ("qwen3-coder", function(FILE, "<parameter mode\nomega\n</parameter>")),
    "an end tag without its end": ("qwen3-coder", function(FILE, "<parameter=mode>\nomega\n</parameter")),
    "an end tag that is a start tag": ("qwen3-coder", function("<parameter=file>\nalpha\n<parameter>", MODE)),
    "an end tag of another name": ("qwen3-coder", function("<parameter=file>\nalpha\n</file>", MODE)),
    "half of an end tag": ("qwen3-coder", function("<parameter=file>\nalpha\n</para", MODE)),
    "half of an end tag in a line": ("qwen3-coder", function("<parameter=file>alpha</paramete" + MODE)),
    "a start tag that runs into its value": (
        "minimax-m2",
        invoke('<parameter name="file">alpha</parameter>\n<parameter name="days"2</parameter>\n'),
    ),
    "a line break that may be a value's": (
        "minimax-m2",
        invoke('<parameter name="file">alpha\n<parameter name="mode">omega</parameter>\n'),
    ),
    "a start tag without its bracket": (
        "step3",
        STEP.format('<steptml:parameter name="file">alpha</steptml:parameter>steptml:parameter name="mode">omega'),
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_the_model_gets_a_report_of_a_damaged_tag(case: str):
    name, reply = DAMAGES[case]
    halves = [(reply[:at], reply[at:]) for at in range(1, len(reply))]
    check_splits(get_dialect(name), reply, TOOLS, splits=[*(tuple(chunks(reply, size)) for size in (1, 3)), *halves])
    written_to: list[str] = []

    @tool()
    def write(file: str = "", mode: str = "", days: int = 0) -> str:
        written_to.append(file)
        return "written"

    provider = ScriptedProvider([reply, "I see."])
    result = Agent(provider, [write], dialect=name, approve="all").run_sync("go")
    assert (result.answer, written_to) == ("I see.", [])
    assert len(provider.requests) == 2


@pytest.mark.parametrize("case", DAMAGES)
def test_the_next_call_runs_after_a_damaged_tag(case: str):
    name, reply = DAMAGES[case]
    dialect = get_dialect(name)
    *_, last = read_turn(dialect, f"{reply}\n{batch_text(dialect, [{'mode': 'omega'}])}", TOOLS).calls
    assert isinstance(last, ToolCall)
    assert last.arguments == {"mode": "omega"}


@pytest.mark.parametrize("value", ["<b>alpha</b>", "if a < b and c > d: pass"])
@pytest.mark.parametrize("end", ["\n</parameter>", ""])
def test_markup_of_its_own_is_no_damage(value: str, end: str):
    reply = function(f"<parameter=file>\n{value}{end}")
    (call,) = read_turn(get_dialect("qwen3-coder"), reply, TOOLS).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"file": value}
