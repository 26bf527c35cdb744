"""The engines' own cases for the dialects in function notation: whole, in fours, and one character at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import ParsedTurn, Section, TurnCollector, get_dialect
from toolspeak.testing import chunks

SAMPLES = Path(__file__).parent.parent / "samples"
NAMES = ["pythonic", "llama4_pythonic", "lfm2", "olmo3", "gemma4", "gemma4_reasoning", "functiongemma"]
ROWS = [json.loads(line) for name in NAMES for line in (SAMPLES / f"{name}.jsonl").read_text("utf-8").splitlines()]
DISAGREEMENTS = {
    "llamacpp-lfm2-015": "cut off: the fragments so far are those expected, and the call is malformed, not completed",
    "vllm-lfm2-024": "an echo of the calls behind their end marker stays text: text is never dropped",
    "vllm-gemma4-089": "an unclosed string (soft): malformed, no argument is made up from its beginning",
    "vllm-gemma4-123": "an unclosed string (soft): malformed, no argument is made up from its beginning",
    "vllm-gemma4_reasoning-002": "text that was said cannot become reasoning; a prompt that opened it says starts_in",
    "vllm-gemma4_reasoning-003": "text that was said cannot become reasoning; a prompt that opened it says starts_in",
}


def spec(tool: dict[str, Any]) -> ToolSpec:
    tool = tool.get("function", tool)
    return ToolSpec(tool["name"], tool.get("description", ""), tool.get("parameters") or {"type": "object"})


def read(row: dict[str, Any], size: int, starts_in: Section | None = None) -> ParsedTurn:
    dialect = get_dialect(row["dialect"].replace("_", "-"))
    parser = dialect.parser([spec(tool) for tool in row["tools"]], starts_in or row.get("starts_in", "text"))
    collector = TurnCollector(lambda index: f"call_{index}")
    for piece in chunks(row["input"], size):
        for delta in parser.feed(piece):
            collector.add(delta)
    for delta in parser.close("length" if row.get("partial") else "stop"):
        collector.add(delta)
    return collector.turn()


def says(turn: ParsedTurn, row: dict[str, Any]) -> bool:
    expect = row["expect"]
    calls = [
        {"name": call.name, "arguments": dict(call.arguments)} for call in turn.calls if isinstance(call, ToolCall)
    ]
    known = [{"name": call["name"], "arguments": call["arguments"]} for call in expect["calls"]]
    same = json.dumps(calls, sort_keys=True) == json.dumps(known, sort_keys=True)
    same = same and turn.text.strip() == (expect["content"] or "").strip()
    thought = expect["reasoning"]
    return same and (thought is None or bool(row.get("reasoning_off")) or turn.reasoning.strip() == thought.strip())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_vector_reads_as_the_engine_reads_it_however_it_is_cut(row: dict[str, Any]):
    whole = read(row, len(row["input"]))
    assert says(whole, row) == (row["id"] not in DISAGREEMENTS)
    assert read(row, 4) == read(row, 1) == whole


def test_a_turn_that_starts_in_reasoning_reads_as_gemma_expects():
    rows = [row for row in ROWS if row["id"] in ("vllm-gemma4_reasoning-002", "vllm-gemma4_reasoning-003")]
    assert [says(read(row, 1, "reasoning"), row) for row in rows] == [True, True]


def test_the_reviewed_disagreements_are_cases():
    assert {row["id"] for row in ROWS} >= set(DISAGREEMENTS)
