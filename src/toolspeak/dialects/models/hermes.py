"""Hermes: `<tool_call>` with one JSON object, repeated. The most widely copied format of open models."""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo, EarlierThoughts
from toolspeak.dialects.declarations.json_dialect import THINK, WriteResult, frames, json_dialect, tagged_result
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.openings import Starts

_CALL = Marker("calls", "<tool_call>", "</tool_call>", Starts("{[<"))
_AROUND = ("<tool_call>\n", "\n</tool_call>")
_SUMMARY = '<tool_call>{"name": …, "arguments": {…}}</tool_call>, repeated'
_RULES = "- One JSON object in each block: double quotes, no comments; several blocks for several calls."
_RESPONSE: WriteResult = tagged_result("tool_response")


def _results(name: str) -> Marker:
    return Marker("results", f"<{name}>", f"</{name}>", Starts('\n[{"'), plain=True)


HERMES = json_dialect(
    DialectInfo(
        "hermes",
        _SUMMARY,
        "chat template of NousResearch/Hermes-3-Llama-3.1-8B (tool_use), of Qwen/Qwen2.5 and Qwen/Qwen3",
        "parallel",
        aliases=("qwen3-reasoning", "think-forced"),
        models=("hermes", "qwen2.5", "qwen3", "qwq", "mimo-vl", "reka", "bielik", "mellum-2", "trinity", "smollm-3"),
        results="<tool_response> in a user turn (Hermes: a tool turn)",
        earlier=EarlierThoughts("<think>\n", "\n</think>\n\n"),
        stop=("<|im_end|>", "<|endoftext|>"),
    ),
    [_CALL, _results("tool_response"), THINK],
    CallShape("arguments", array=False, arguments_required=False),
    around=_AROUND,
    between="\n",
    write_result=_RESPONSE,
    rules=_RULES,
)

GRANITE4 = json_dialect(
    DialectInfo(
        "granite4",
        f"{_SUMMARY}; arguments may be a JSON string",
        "chat template of ibm-granite/granite-4.0",
        "parallel",
        models=("granite-4.x",),
        results="<tool_response> in a user turn",
        stop=("<|end_of_text|>",),
    ),
    [_CALL, _results("tool_response"), THINK],
    CallShape("arguments", array=False, arguments_required=False),
    around=_AROUND,
    between="\n",
    write_result=_RESPONSE,
    rules=_RULES,
)

ERNIE45 = json_dialect(
    DialectInfo(
        "ernie45",
        f"{_SUMMARY}; the answer may stand in <response>",
        "chat template of baidu/ERNIE-4.5-21B-A3B-Thinking",
        "parallel",
        aliases=("ernie45-reasoning",),
        models=("ernie-4.5",),
        results="<tool_output> in a tool turn",
        stop=("<|im_end|>", "</s>"),
    ),
    [_CALL, _results("tool_output"), THINK, *frames("<response>", "</response>")],
    CallShape("arguments", array=False, arguments_required=False),
    around=_AROUND,
    between="\n",
    write_result=tagged_result("tool_output"),
    rules=_RULES,
)
