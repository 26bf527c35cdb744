"""Hermes: `<tool_call>` with one JSON object, repeated. The most widely copied format of open models."""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.declarations.json_dialect import THINK, frames, json_dialect, tagged_result
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.text.block_delimiters import Starts
from toolspeak.dialects.text.markers import Marker

_SUMMARY = '<tool_call>{"name": …, "arguments": {…}}</tool_call>, repeated'


def _hermes(info: DialectInfo, results: str = "tool_response", *further: Marker) -> DeclaredDialect:
    markers = [
        Marker("calls", "<tool_call>", "</tool_call>", Starts("{[<")),
        Marker("results", f"<{results}>", f"</{results}>", Starts('\n[{"'), plain=True),
        THINK,
        *further,
    ]
    return json_dialect(
        info,
        markers,
        CallShape("arguments", array=False, arguments_required=False),
        around=("<tool_call>\n", "\n</tool_call>"),
        between="\n",
        write_result=tagged_result(results),
        rules="- One JSON object in each block: double quotes, no comments; several blocks for several calls.",
    )


HERMES = _hermes(
    DialectInfo(
        "hermes",
        _SUMMARY,
        "chat template of NousResearch/Hermes-3-Llama-3.1-8B (tool_use), of Qwen/Qwen2.5 and Qwen/Qwen3",
        aliases=("qwen3-reasoning", "think-forced"),
        models=("hermes", "qwen2.5", "qwen3", "qwq", "mimo-vl", "reka", "bielik", "mellum-2", "trinity", "smollm-3"),
        results="<tool_response> in a user turn (Hermes: a tool turn)",
        earlier=EarlierThoughts("<think>\n", "\n</think>\n\n"),
        stop=("<|im_end|>", "<|endoftext|>"),
    ),
)

GRANITE4 = _hermes(
    DialectInfo(
        "granite4",
        f"{_SUMMARY}; arguments may be a JSON string",
        "chat template of ibm-granite/granite-4.0",
        models=("granite-4.x",),
        results="<tool_response> in a user turn",
        stop=("<|end_of_text|>",),
    ),
)

ERNIE45 = _hermes(
    DialectInfo(
        "ernie45",
        f"{_SUMMARY}; the answer may be in <response>",
        "chat template of baidu/ERNIE-4.5-21B-A3B-Thinking",
        aliases=("ernie45-reasoning",),
        models=("ernie-4.5",),
        results="<tool_output> in a tool turn",
        stop=("<|im_end|>", "</s>"),
    ),
    "tool_output",
    *frames("<response>", "</response>"),
)
