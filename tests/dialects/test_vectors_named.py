"""The engines' own cases for the dialects whose names stand outside of the JSON: whole, and in pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolspeak.data.deltas import ArgumentsDelta, TurnEnded
from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import ParsedTurn, TurnCollector, get_dialect
from toolspeak.testing import chunks, parse_pieces

SAMPLES = Path(__file__).parents[1] / "samples"
NAMES = (
    "deepseek_v3",
    "deepseek_v31",
    "kimi_k2",
    "mistral_args",
    "mistral_v11",
    "functionary_v31",
    "functionary_v32",
    "harmony",
)
ROWS: list[dict[str, Any]] = [
    json.loads(line) for name in NAMES for line in (SAMPLES / f"{name}.jsonl").read_text("utf-8").splitlines()
]

DISAGREEMENTS = {
    "vllm-kimi_k2-026": ("content", "text after the calls is kept: nothing that the model said is dropped"),
    "vllm-mistral_v11-009": ("names", "a call without a name is malformed, and the model is told; nothing runs as ''"),
}
"""Reviewed: what differs, and why we keep it so."""


def spec(tool: dict[str, Any]) -> ToolSpec:
    return ToolSpec(tool["name"], tool.get("description") or "", tool.get("parameters") or {"type": "object"})


def read(row: dict[str, Any], size: int) -> ParsedTurn:
    dialect = get_dialect(row["dialect"].replace("_", "-"))
    collector = TurnCollector(lambda index: f"call_{index}")
    pieces = list(chunks(row["input"], size))
    tools = [spec(tool) for tool in row["tools"]]
    for delta in parse_pieces(dialect, pieces, tools, "stop", row.get("starts_in", "text")):
        collector.add(delta)
    collector.add(TurnEnded("stop"))
    return collector.turn()


def difference(row: dict[str, Any], turn: ParsedTurn) -> str:
    expected = row["expect"]
    calls = [call for call in turn.calls if isinstance(call, ToolCall)]
    if [call.name for call in calls] != [call["name"] for call in expected["calls"]]:
        return "names"
    for call, wanted in zip(calls, expected["calls"], strict=True):
        if json.dumps(call.arguments, sort_keys=True) != json.dumps(wanted["arguments"], sort_keys=True):
            return "arguments"
        if wanted.get("id") not in (None, call.provider_id):
            return "id"
    if turn.text.strip() != (expected["content"] or "").strip():
        return "content"
    if expected["reasoning"] is None or row.get("reasoning_off"):
        return ""
    return "" if turn.reasoning.strip() == expected["reasoning"].strip() else "reasoning"


@pytest.mark.parametrize("size", [1_000_000, 4, 1], ids=["whole", "chunks", "characters"])
@pytest.mark.parametrize("row", [row for row in ROWS if not row.get("partial")], ids=lambda row: row["id"])
def test_the_engines_cases(row: dict[str, Any], size: int):
    agreed, _ = DISAGREEMENTS.get(row["id"], ("", ""))
    assert difference(row, read(row, size)) == agreed


@pytest.mark.parametrize("size", [1_000_000, 4, 1], ids=["whole", "chunks", "characters"])
@pytest.mark.parametrize("row", [row for row in ROWS if row.get("partial")], ids=lambda row: row["id"])
def test_the_arguments_of_a_turn_that_was_cut_off_came_as_far(row: dict[str, Any], size: int):
    dialect = get_dialect(row["dialect"].replace("_", "-"))
    pieces = list(chunks(row["input"], size))
    deltas = parse_pieces(dialect, pieces, [spec(tool) for tool in row["tools"]], "length")
    (wanted,) = row["expect"]["calls"]
    assert "".join(delta.text for delta in deltas if isinstance(delta, ArgumentsDelta)) == wanted["arguments"]
