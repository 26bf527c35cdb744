"""The engines' own test cases for the JSON dialects, and their chat templates' histories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolspeak.data.messages import FinishReason, Message, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, ParsedTurn, TurnCollector, get_dialect
from toolspeak.testing import chunks

SAMPLES = Path(__file__).parent.parent / "samples"
NAMES = (
    *("hermes", "granite4", "ernie45", "ernie45_reasoning", "qwen3_reasoning", "think_forced", "longcat", "jamba"),
    *("apriel", "hunyuan_a13b", "hunyuan_a13b_reasoning", "nemotron_v2", "apertus", "internlm2", "granite3"),
    *("granite_reasoning", "granite_20b_fc", "phi4_mini", "firefunction_v2", "xlam", "inkling", "dots"),
    *("cohere_command", "command_r_plus", "mistral_v3", "llama3_json", "gigachat3"),
)
KEEPS_TEXT = "text around the calls is kept, the engine drops it"
DISAGREEMENTS = {
    "vllm-hermes-010": "an unclosed block is malformed, so that the model is told; the engine shows it as text",
    "vllm-longcat-006": KEEPS_TEXT,
    "vllm-hunyuan_a13b-005": KEEPS_TEXT,
    "vllm-phi4_mini-005": KEEPS_TEXT,
    "vllm-llama3_json-008": KEEPS_TEXT,
    "vllm-granite3-009": "one whole call without the array around it is read and noted; the engine shows it as text",
}


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def tool_spec(tool: dict[str, Any]) -> ToolSpec:
    tool = tool.get("function", tool)
    return ToolSpec(tool["name"], tool.get("description") or "", tool.get("parameters") or {"type": "object"})


def read(dialect: Dialect, row: dict[str, Any], size: int) -> ParsedTurn:
    parser = dialect.parser([tool_spec(tool) for tool in row["tools"]], row.get("starts_in", "text"))
    collector = TurnCollector(lambda index: f"call_{index}")
    finish: FinishReason = "length" if row.get("partial") else "stop"
    for piece in chunks(row["input"], size):
        for delta in parser.feed(piece):
            collector.add(delta)
    for delta in parser.close(finish):
        collector.add(delta)
    return collector.turn()


def agrees(turn: ParsedTurn, row: dict[str, Any]) -> bool:
    expect = row["expect"]
    calls = [call for call in turn.calls if isinstance(call, ToolCall)]
    got = [{"name": call.name, "arguments": call.arguments} for call in calls]
    wanted = [{"name": call["name"], "arguments": call["arguments"]} for call in expect["calls"]]
    ids = all(
        call.provider_id == each["id"] for call, each in zip(calls, expect["calls"], strict=False) if each.get("id")
    )
    unread = expect["reasoning"] is None or row.get("reasoning_off")
    return (
        json.dumps(got, sort_keys=True) == json.dumps(wanted, sort_keys=True)
        and ids
        and turn.text.strip() == (expect["content"] or "").strip()
        and (unread or turn.reasoning.strip() == expect["reasoning"].strip())
    )


@pytest.mark.parametrize("size", [10_000_000, 4, 1], ids=["whole", "four", "one"])
@pytest.mark.parametrize("name", NAMES)
def test_the_vectors_of_a_dialect(name: str, size: int):
    dialect = get_dialect(name.replace("_", "-"))
    for row in rows(name):
        turn = read(dialect, row, size)
        assert agrees(turn, row) != (row["id"] in DISAGREEMENTS), f"{row['id']}: {turn}"


HISTORY = {  # what a dialect's template writes around the calls of a turn, and around its results
    "hermes": ("<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>{role}\n", "<|im_end|>"),
    "granite4": (
        "<|start_of_role|>assistant<|end_of_role|>",
        "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>\n",
        "<|end_of_text|>",
    ),
    "nemotron_v2": ("<SPECIAL_11>Assistant\n", "\n<SPECIAL_12>\n<SPECIAL_11>User\n", ""),
    "mistral_v3": ("", "", ""),
    "llama3_json": (
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n",
        "<|eot_id|>",
    ),
    "apriel": ("\n<|begin_assistant|>\n\n", "\n<|end|>\n<|begin_tool_result|>\n", ""),
    "gigachat3": ("assistant<|role_sep|>\n", "<|message_sep|>\n\nfunction result<|role_sep|>\n", "<|message_sep|>"),
}
OTHER_TEMPLATES = {
    "render-006": "Bielik puts its results between markers of its own (<|function_output|>)",
    "render-018": "GigaChat's template writes the first call of a turn and drops the others",
}
TURN_PER_RESULT = {"gigachat3": "<|message_sep|>\n\nfunction result<|role_sep|>\n"}
"""Where each result is a turn of its own: what the template writes between two, where we break the line."""

TEMPLATES = [row for row in rows("render-templates") if row["dialect"] in HISTORY and row["id"] not in OTHER_TEMPLATES]


@pytest.mark.parametrize("row", TEMPLATES, ids=lambda row: row["id"])
def test_history_is_what_the_chat_template_writes(row: dict[str, Any]):
    before, between, after = HISTORY[row["dialect"]]
    told = row["messages"]
    calls = [ToolCall(f"c{i}", e["name"], e["arguments"], e["id"]) for i, e in enumerate(told[1]["tool_calls"])]
    results = [ToolResult(f"c{i}", e["name"], "success", (TextPart(e["content"]),)) for i, e in enumerate(told[2:])]
    dialect = get_dialect(row["dialect"].replace("_", "-"))
    shown = dialect.render([Message("assistant", tuple(calls)), Message("tool", tuple(results))])
    first, second = (entry.text for entry in shown)
    if row["dialect"] in TURN_PER_RESULT:
        second = second.replace("\n", TURN_PER_RESULT[row["dialect"]])
    role = "tool" if "<|im_start|>tool" in row["history"] else "user"
    ours = before + first + between.replace("{role}", role) + second + after
    assert row["history"].rstrip() == ours.rstrip()
