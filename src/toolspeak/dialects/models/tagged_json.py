"""Calls as a JSON object or array between two markers. Each dialect is one model family's spelling."""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.json_dialect import (
    EACH_ALONE,
    ONE_ARRAY,
    STRICT_JSON,
    THINK,
    frames,
    json_dialect,
    tagged_result,
)
from toolspeak.dialects.grammar.ir import optional
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.text.block_delimiters import Starts
from toolspeak.dialects.text.markers import Marker

_OBJECT = CallShape("arguments", array=False, arguments_required=False)
_ARRAY = CallShape("arguments", array=True, arguments_required=False)
_TOOL_CALLS = Marker("calls", "<tool_calls>", "</tool_calls>", Starts("[{<"))
_TOOL_CALLS_TEXT = '<tool_calls>[{"name": …, "arguments": {…}}, …]</tool_calls>'

LONGCAT = json_dialect(
    DialectInfo(
        "longcat",
        '<longcat_tool_call>{"name": …, "arguments": {…}}</longcat_tool_call>, repeated',
        "meituan-longcat/LongCat-Flash-Chat, read as vLLM's longcat parser does",
        models=("longcat",),
        results="a tool turn",
        reasoning="<longcat_think> or <think>",
        stop=("</longcat_s>",),
        text_aside=True,
    ),
    [
        Marker("calls", "<longcat_tool_call>", "</longcat_tool_call>", Starts("{[")),
        Marker("reasoning", "<longcat_think>", "</longcat_think>", also_ends=("</think>",)),
        THINK,
    ],
    _OBJECT,
    around=("<longcat_tool_call>", "</longcat_tool_call>"),
    between="\n",
    rules=EACH_ALONE,
)

JAMBA = json_dialect(
    DialectInfo(
        "jamba",
        _TOOL_CALLS_TEXT,
        "chat template of ai21labs/AI21-Jamba-1.5",
        models=("jamba",),
        results="a tool turn",
        text_aside=True,
    ),
    [_TOOL_CALLS, THINK],
    _ARRAY,
    around=("<tool_calls>", "</tool_calls>"),
    rules=ONE_ARRAY,
)

APRIEL = json_dialect(
    DialectInfo(
        "apriel",
        '<tool_calls>[{"name": …, "arguments": {…}, "id": …}, …]</tool_calls>',
        "chat templates of ServiceNow-AI/Apriel-1.5-15b-Thinker and Apriel-1.6-15b-Thinker",
        models=("apriel",),
        results="a tool result turn",
        reasoning="Here are my reasoning steps: … [BEGIN FINAL RESPONSE]; <thinking>",
        stop=("<|end|>",),
    ),
    [
        _TOOL_CALLS,
        # A prompt that ends inside reasoning may have opened it either way.
        Marker(
            "reasoning",
            "Here are my reasoning steps:",
            "[BEGIN FINAL RESPONSE]",
            also_ends=("</thinking>",),
        ),
        Marker("reasoning", "<thinking>", "</thinking>"),
        *frames("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"),
    ],
    _ARRAY,
    around=("<tool_calls>", "</tool_calls>"),
    ids="after",
    lead=optional("\n"),
    rules=ONE_ARRAY,
)

MINIMAX_M1 = json_dialect(
    DialectInfo(
        "minimax-m1",
        '<tool_calls>, a line {"name": …, "arguments": {…}} for each call, </tool_calls>',
        "chat template and docs/function_call_guide.md of MiniMaxAI/MiniMax-M1-80k",
        models=("minimax-m1",),
        results="`tool result: …` in a tool turn",
        stop=("<end_of_sentence>",),
    ),
    [_TOOL_CALLS, THINK],
    _OBJECT,
    block=("<tool_calls>\n", "\n</tool_calls>"),
    between="\n",
    rules=f"- One block holds all calls, each a JSON object on a line of its own.\n{STRICT_JSON}",
)

HUNYUAN_A13B = json_dialect(
    DialectInfo(
        "hunyuan-a13b",
        f"{_TOOL_CALLS_TEXT}, the answer in <answer>",
        "chat template of tencent/Hunyuan-A13B-Instruct",
        aliases=("hunyuan-a13b-reasoning",),
        models=("hunyuan-a13b",),
        results="<tool_response> in a user turn",
        stop=("<|eos|>",),
        text_aside=True,
    ),
    [
        _TOOL_CALLS,
        Marker("results", "<tool_response>", "</tool_response>", Starts('\n[{"'), plain=True),
        THINK,
        *frames("<answer>", "</answer>"),
    ],
    _ARRAY,
    around=("<tool_calls>", "</tool_calls>"),
    write_result=tagged_result("tool_response"),
    rules=ONE_ARRAY,
)

NEMOTRON_V2 = json_dialect(
    DialectInfo(
        "nemotron-v2",
        '<TOOLCALL>[{"name": …, "arguments": {…}}, …]</TOOLCALL>',
        "chat template of nvidia/NVIDIA-Nemotron-Nano-9B-v2",
        models=("nemotron-nano-v2", "nemotron-nano-9b-v2", "nemotron-nano-12b-v2", "llama-3.1-nemotron"),
        results="<TOOL_RESPONSE>[…, …]</TOOL_RESPONSE> in a user turn",
        stop=("<SPECIAL_12>", "</s>"),
    ),
    [
        Marker("calls", "<TOOLCALL>", "</TOOLCALL>", Starts("[{<")),
        Marker("results", "<TOOL_RESPONSE>", "</TOOL_RESPONSE>", Starts('\n[{"'), plain=True),
        THINK,
    ],
    _ARRAY,
    around=("<TOOLCALL>", "</TOOLCALL>"),
    results_around=("<TOOL_RESPONSE>[", "]</TOOL_RESPONSE>"),
    results_between=", ",
    rules=ONE_ARRAY,
)

APERTUS = json_dialect(
    DialectInfo(
        "apertus",
        '<|tools_prefix|>[{"f": {…}}, …]<|tools_suffix|>',
        "swiss-ai/apertus_format docs/format.md; chat template of swiss-ai/Apertus-8B-Instruct",
        models=("apertus",),
        results="[…, …] after the calls",
        reasoning="<|inner_prefix|> … <|inner_suffix|>; calls may be inside",
        stop=("<|assistant_end|>",),
    ),
    [
        # The inner part may hold calls too, as elements.
        Marker("calls", "<|tools_prefix|>", "<|tools_suffix|>", Starts("[{"), ends_reasoning=True),
        Marker("reasoning", "<|inner_prefix|>", "<|inner_suffix|>"),
        *frames("<|inner_suffix|>"),  # the end of an inner part that held a call
    ],
    CallShape("arguments", array=True, arguments_required=True, keyed=True),
    around=("<|tools_prefix|>", "<|tools_suffix|>"),
    results_around=("[", "]"),
    results_between=", ",
    rules=f"- Each call is an object with one key, the tool's name; its value is the arguments.\n{ONE_ARRAY}",
)

INTERNLM2 = json_dialect(
    DialectInfo(
        "internlm2",
        '<|action_start|><|plugin|>{"name": …, "parameters": {…}}<|action_end|>',
        "InternLM/InternLM agent/README (lagent protocol); vLLM's internlm parser",
        models=("internlm2.x", "internlm3"),
        results="an environment turn named <|plugin|>",
        stop=("<|im_end|>", "</s>"),
        text_aside=True,
    ),
    [Marker("calls", "<|action_start|><|plugin|>", "<|action_end|>", Starts("{[")), THINK],
    CallShape("parameters", array=False, arguments_required=False),
    around=("<|action_start|><|plugin|>\n", "<|action_end|>"),
    between="\n",
    rules=EACH_ALONE,
)
