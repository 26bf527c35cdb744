"""The engines' own cases for GLM and its kin, Kimi K3 and PLaMo 3: whole, in 4-character chunks and by characters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolspeak.data.deltas import TurnEnded
from toolspeak.data.messages import Message, Part, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import ParsedTurn, TurnCollector, get_dialect
from toolspeak.testing.splits import chunks

SAMPLES = Path(__file__).parent.parent / "samples"
NAMES = [
    *("glm45", "glm47", "glm47_reasoning", "ling3", "spark25", "poolside_v1", "hy_v3", "hy_v3_reasoning"),
    *("k2_horizon", "k2_horizon_reasoning", "kimi_k3", "plamo3"),
]

OFF = "recorded with tool parsing switched off; here the call is read, and the executor says that the tool is unknown"
DISAGREEMENTS = {
    "vllm-glm47-034": OFF,
    "vllm-glm47-035": OFF,
    "vllm-glm47-036": OFF,
    "vllm-hy_v3_reasoning-001": "the prompt had opened the reasoning and the case does not say so; started in "
    "reasoning it passes, and text that has left cannot become reasoning later",
    "vllm-k2_horizon-005": "the same text is a call where the request asked for typed pairs; the text alone says what "
    "is meant, so all three forms are read",
    "vllm-k2_horizon-006": "a call of an unknown tool is a call; the executor says so and names the known ones",
    "vllm-k2_horizon-007": "soft: a call that the turn cut off is malformed, so that the model hears of it, not text",
    "vllm-plamo3-011": "the beginning of a marker at a normal end is text of the model; text is never dropped",
    "vllm-plamo3-022": "the arguments are missing because the turn was cut off: malformed, never an executable {}",
}


def rows() -> Iterator[Any]:
    for name in NAMES:
        for line in (SAMPLES / f"{name}.jsonl").read_text("utf-8").splitlines():
            yield json.loads(line)


ROWS = list(rows())


def read(row: Any, pieces: Iterable[str], starts_in: Any = None) -> ParsedTurn:
    tools = [ToolSpec(tool["name"], tool.get("description") or "", tool["parameters"]) for tool in row["tools"]]
    dialect = get_dialect(row["dialect"].replace("_", "-"))
    parser = dialect.parser(tools, starts_in or row.get("starts_in", "text"))
    collector = TurnCollector(lambda index: f"call_{index}")
    finish = "length" if row.get("partial") else "stop"
    for piece in pieces:
        for delta in parser.feed(piece):
            collector.add(delta)
    for delta in (*parser.close(finish), TurnEnded(finish)):
        collector.add(delta)
    return collector.turn()


def agrees(row: Any, turn: ParsedTurn) -> bool:
    expected = row["expect"]
    calls = [(call.name, dict(call.arguments)) for call in turn.calls if isinstance(call, ToolCall)]
    thought = expected["reasoning"]
    return (
        json.dumps(calls) == json.dumps([(call["name"], call["arguments"]) for call in expected["calls"]])
        and turn.text.strip() == expected["content"].strip()
        and (thought is None or bool(row.get("reasoning_off")) or turn.reasoning.strip() == thought.strip())
    )


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_case_is_read_as_expected_however_it_is_cut(row: Any):
    whole = read(row, [row["input"]])
    assert agrees(row, whole) == (row["id"] not in DISAGREEMENTS)
    for size in (4, 1):
        assert read(row, chunks(row["input"], size)) == whole


def test_every_disagreement_is_one_of_these_cases():
    assert {row["id"] for row in ROWS} >= set(DISAGREEMENTS)


def test_hunyuan_reasoning_is_read_where_the_prompt_opened_it():
    row = json.loads((SAMPLES / "hy_v3_reasoning.jsonl").read_text("utf-8").splitlines()[0])
    assert agrees(row, read(row, [row["input"]], "reasoning"))


TOOL = ToolSpec(
    "get_weather",
    "Get weather",
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
)
FIRST = ("get_weather", {"city": "Paris", "days": 2})
SECOND = ("get_weather", {"city": "Rome"})
# What the models' own chat templates write after the role markers: the calls, then the results.
INLINE = (
    "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key>"
    "<arg_value>2</arg_value></tool_call><tool_call>get_weather<arg_key>city</arg_key>"
    "<arg_value>Rome</arg_value></tool_call>"
)
LINES = (
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
    "<arg_value>Rome</arg_value>\n</tool_call>"
)
LINES_OF_LING = LINES.replace("</arg_value>\n<arg_key>", "</arg_value><arg_key>")
RESULTS_INLINE = "<tool_response>sunny</tool_response><tool_response>rain</tool_response>"
RESULTS_IN_LINES = "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nrain\n</tool_response>"
HISTORIES = {
    "glm45": (LINES, RESULTS_IN_LINES),
    "glm47": (INLINE, RESULTS_INLINE),
    "spark25": (INLINE, RESULTS_INLINE),
    "ling3": (LINES_OF_LING, RESULTS_IN_LINES),
    "poolside-v1": (LINES, RESULTS_IN_LINES),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_calls_and_results_stand_as_the_chat_template_writes_them(name: str):
    calls: list[Part] = [ToolCall(f"c{i}", tool, arguments) for i, (tool, arguments) in enumerate((FIRST, SECOND))]
    results = [
        ToolResult(f"c{i}", "get_weather", "success", (TextPart(text),)) for i, text in enumerate(("sunny", "rain"))
    ]
    messages = [Message("assistant", tuple(calls)), Message("tool", tuple(results))]
    rendered = get_dialect(name).render(messages, [TOOL])
    assert tuple(message.text for message in rendered) == HISTORIES[name]
