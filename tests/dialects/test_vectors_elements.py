"""The engines' own cases for the element dialects: whole, in 4-character chunks and one character at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolspeak.data.deltas import TurnEnded
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import ParsedTurn, TurnCollector, get_dialect
from toolspeak.testing.splits import chunks

SAMPLES = Path(__file__).parent.parent / "samples"
FILES = {
    "qwen3_coder": "qwen3-coder",
    "nemotron_v3": "nemotron-v3",
    "nemotron_v3_reasoning": "nemotron-v3-reasoning",
    "step3p5": "step3p5",
    "mimo": "mimo",
    "seed_oss": "seed-oss",
    "minimax_m2": "minimax-m2",
    "minimax_m2_reasoning": "minimax-m2-reasoning",
    "minimax_m3": "minimax-m3",
    "minimax_m3_reasoning": "minimax-m3-reasoning",
    "muse": "muse",
    "step3": "step3",
    "minicpm5": "minicpm5",
    "deepseek_v32": "deepseek-v32",
    "deepseek_v4": "deepseek-v4",
    "deepseek_v41": "deepseek-v41",
}

_AFTER = "text around calls is kept, never dropped"
_UNKNOWN = "a call of an unknown tool is a call: its error names the known tools to the model"
_LATE = "text that has left is not turned into something else; the caller says that a turn starts in reasoning"
DISAGREEMENTS = {
    **dict.fromkeys(["vllm-minicpm5-002", "vllm-minicpm5-012", "vllm-deepseek_v4-018", "vllm-minimax_m3-009"], _AFTER),
    **dict.fromkeys(["vllm-minimax_m2-047", "vllm-minimax_m2-043", "vllm-minimax_m2-021"], _UNKNOWN),
    "vllm-minicpm5-026": "another tool is put in place of an unknown one: a guessed call never runs",
    "vllm-minicpm5-018": "marks of byte-level tokens are the detokenizer's to remove",
    "vllm-nemotron_v3_reasoning-004": _LATE,
    "vllm-minimax_m3_reasoning-005": _LATE,
    "vllm-seed_oss-024": "soft: a start tag that cannot be read is an error, not a call without arguments",
    "vllm-step3-002": "soft: an unclosed block is an error that the model is told, not text",
}


def rows() -> list[Any]:
    found: list[Any] = []
    for file in FILES:
        for line in (SAMPLES / f"{file}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found.append(pytest.param(file, row, id=row["id"]))
    return found


def read(file: str, row: dict[str, Any], size: int) -> ParsedTurn:
    tools: list[ToolSpec] = []
    for each in row["tools"]:
        tool = each.get("function", each)
        tools.append(ToolSpec(tool["name"], "", tool.get("parameters") or {"type": "object", "properties": {}}))
    parser = get_dialect(FILES[file]).parser(tools, row.get("starts_in", "text"))
    collector = TurnCollector(lambda index: f"call_{index}")
    for chunk in chunks(row["input"], size):
        for delta in parser.feed(chunk):
            collector.add(delta)
    for delta in (*parser.close("stop"), TurnEnded("stop")):
        collector.add(delta)
    return collector.turn()


def agrees(turn: ParsedTurn, row: dict[str, Any]) -> bool:
    expected = row["expect"]
    calls = [[call.name, dict(call.arguments)] for call in turn.calls if isinstance(call, ToolCall)]
    wanted = [[call["name"], call["arguments"]] for call in expected["calls"]]
    same = json.dumps(calls, sort_keys=True) == json.dumps(wanted, sort_keys=True)
    same = same and turn.text.strip() == (expected["content"] or "").strip()
    if expected["reasoning"] is None or row.get("reasoning_off"):
        return same
    return same and turn.reasoning.strip() == expected["reasoning"].strip()


@pytest.mark.parametrize(("file", "row"), rows())
def test_we_read_what_the_engines_read(file: str, row: dict[str, Any]) -> None:
    whole = read(file, row, max(1, len(row["input"])))
    assert agrees(whole, row) != (row["id"] in DISAGREEMENTS), (whole, row["expect"])
    for size in (1, 4):
        assert read(file, row, size) == whole


def templates() -> list[Any]:
    lines = (SAMPLES / "render-templates.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [pytest.param(row, id=row["id"]) for row in found if row["dialect"] in FILES]


@pytest.mark.parametrize("row", templates())
def test_history_reads_as_the_models_own_template_writes_it(row: dict[str, Any]) -> None:
    function = row["tools"][0].get("function", row["tools"][0])
    spec = ToolSpec(function["name"], "", function["parameters"])
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    for message in row["messages"]:
        for call in message.get("tool_calls") or ():
            call = call.get("function", call)
            arguments = call["arguments"]
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
            calls.append(ToolCall(f"c{len(calls)}", call["name"], arguments))
        if message["role"] == "tool":
            results.append(ToolResult(f"c{len(results)}", spec.name, "success", (TextPart(message["content"]),)))
    messages = [Message("assistant", tuple(calls)), Message("tool", tuple(results))]
    rendered = [entry.text for entry in get_dialect(FILES[row["dialect"]]).render(messages, [spec])]
    assert len(rendered) == 2
    at = row["history"].index(rendered[0])
    assert rendered[1] in row["history"][at + len(rendered[0]) :]
