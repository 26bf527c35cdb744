"""History as the models' own chat templates write it: calls, and the results after them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from vectors import SAMPLES, TEMPLATES

from toolspeak.data.messages import Message, Part, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect

ROWS = [json.loads(line) for line in (SAMPLES / f"{TEMPLATES}.jsonl").read_text("utf-8").splitlines()]

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
    "apriel": ("\n<|begin_assistant|>\n", "\n<|end|>\n<|begin_tool_result|>\n", ""),
    "gigachat3": ("assistant<|role_sep|>\n", "<|message_sep|>\n\nfunction result<|role_sep|>\n", "<|message_sep|>"),
}
OTHER_TEMPLATES = {
    "render-006": "Bielik puts its results between markers of its own (<|function_output|>)",
    "render-018": "GigaChat's template writes the first call of a turn and drops the others",
}
TURN_PER_RESULT = {"gigachat3": "<|message_sep|>\n\nfunction result<|role_sep|>\n"}
"""Where each result is a turn of its own: what the template writes between two, where we break the line."""

CASES = [row for row in ROWS if row["dialect"] in HISTORY and row["id"] not in OTHER_TEMPLATES]


@pytest.mark.parametrize("row", CASES, ids=lambda row: row["id"])
def test_history_is_what_the_chat_template_writes(row: dict[str, Any]):
    before, between, after = HISTORY[row["dialect"]]
    expected = row["messages"]
    calls = [ToolCall(f"c{i}", e["name"], e["arguments"], e["id"]) for i, e in enumerate(expected[1]["tool_calls"])]
    results = [ToolResult(f"c{i}", e["name"], "success", (TextPart(e["content"]),)) for i, e in enumerate(expected[2:])]
    dialect = get_dialect(row["dialect"].replace("_", "-"))
    history_sent = dialect.render([Message("assistant", tuple(calls)), Message("tool", tuple(results))])
    first, second = (entry.text for entry in history_sent)
    if row["dialect"] in TURN_PER_RESULT:
        second = second.replace("\n", TURN_PER_RESULT[row["dialect"]])
    role = "tool" if "<|im_start|>tool" in row["history"] else "user"
    ours = before + first + between.replace("{role}", role) + second + after
    assert row["history"].rstrip() == ours.rstrip()


ELEMENTS = {
    "qwen3_coder",
    "nemotron_v3",
    "nemotron_v3_reasoning",
    "step3p5",
    "mimo",
    "seed_oss",
    "minimax_m2",
    "minimax_m2_reasoning",
    "minimax_m3",
    "minimax_m3_reasoning",
    "muse",
    "step3",
    "minicpm5",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
}


@pytest.mark.parametrize("row", [row for row in ROWS if row["dialect"] in ELEMENTS], ids=lambda row: row["id"])
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
    texts = [entry.text for entry in get_dialect(row["dialect"]).render(messages, [spec])]
    assert len(texts) == 2
    at = row["history"].index(texts[0])
    assert texts[1] in row["history"][at + len(texts[0]) :]


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
    "laguna-s": (INLINE, RESULTS_INLINE),
    "gigachat31": (
        (
            '<|function_call|>{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}'
            '<|function_call|>{"name": "get_weather", "arguments": {"city": "Rome"}}'
        ),
        "sunny\nrain",
    ),
    "lfm25": (
        "<|tool_call_start|>[get_weather(city='Paris', days=2), get_weather(city='Rome')]<|tool_call_end|>",
        "sunny\nrain",
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_calls_and_results_stand_as_the_chat_template_writes_them(name: str):
    calls: list[Part] = [ToolCall(f"c{i}", tool, arguments) for i, (tool, arguments) in enumerate((FIRST, SECOND))]
    results = [
        ToolResult(f"c{i}", "get_weather", "success", (TextPart(text),)) for i, text in enumerate(("sunny", "rain"))
    ]
    messages = [Message("assistant", tuple(calls)), Message("tool", tuple(results))]
    history = get_dialect(name).render(messages, [TOOL])
    assert tuple(message.text for message in history) == HISTORIES[name]


COHERE_CALLS = """\
<|START_ACTION|>[
    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris", "days": 2}},
    {"tool_call_id": "1", "tool_name": "get_weather", "parameters": {"city": "Rome"}}
]<|END_ACTION|>"""
COHERE_RESULTS = """\
<|START_TOOL_RESULT|>[
    {
        "tool_call_id": "2",
        "results": {
            "0": {"content": "rain"}
        },
        "is_error": null
    }
]<|END_TOOL_RESULT|>"""


def test_cohere_counts_the_calls_of_the_conversation():
    """Whatever ids they had: those of another dialect's calls, or of an API."""
    calls: list[Part] = [ToolCall(f"c{i}", tool, arguments, "x") for i, (tool, arguments) in enumerate((FIRST, SECOND))]
    results = [ToolResult(f"c{i}", "get_weather", "success", (TextPart("sunny"),)) for i in range(2)]
    again = ToolCall("c2", *SECOND, "7"), ToolResult("c2", "get_weather", "success", (TextPart("rain"),))
    messages = [Message("assistant", tuple(calls)), Message("tool", tuple(results))]
    messages += [Message("assistant", again[:1]), Message("tool", again[1:])]
    first, _, second, last = (message.text for message in get_dialect("cohere-command").render(messages, [TOOL]))
    assert first == COHERE_CALLS
    opening, _, one, closing = COHERE_CALLS.splitlines()
    assert second.splitlines() == [opening, one.replace("1", "2", 1), closing]
    assert last == COHERE_RESULTS


def test_text_in_an_object_is_quoted_as_in_json():
    call = ToolCall("c0", "get_weather", {"city": "it's", "days": {"a": ["b"]}, "list": ["c"]})
    (message,) = get_dialect("lfm25").render([Message("assistant", (call,))], [TOOL])
    calls_text = r"""[get_weather(city='it\'s', days={"a": ["b"]}, list=['c'])]"""
    assert message.text == f"<|tool_call_start|>{calls_text}<|tool_call_end|>"
