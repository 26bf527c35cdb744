"""Calls as JSON after a marker without an end marker, or bare: the JSON itself ends the block."""

from __future__ import annotations

import re
from dataclasses import replace

from toolspeak.data.messages import ToolResult
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect, Tools
from toolspeak.dialects.declarations.json_dialect import (
    BARE,
    EACH_ALONE,
    ONE_ARRAY,
    THINK,
    bare_markers,
    frames,
    json_dialect,
)
from toolspeak.dialects.models.mistral_args import CALLS, new_body
from toolspeak.dialects.models.pythonic import LLAMA_HEAD, PythonOrJson, call_shape
from toolspeak.dialects.prompts.rendering import MarkerEscaper
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.text.block_delimiters import Signature, Starts
from toolspeak.dialects.text.candidates import one_of
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.scan import Caps

_ARRAY = CallShape("arguments", array=True, arguments_required=False)
_SPACE = re.compile(r"\s*")

_RESPONSE_STARTS = ("Here is my response:", "Here's my response:")

GRANITE3 = json_dialect(
    DialectInfo(
        "granite3",
        '<|tool_call|>[{"name": …, "arguments": {…}}, …]',
        "chat templates of ibm-granite/granite-3.0 to 3.3; vLLM's granite parsers",
        aliases=("granite-reasoning",),
        models=("granite-3.x",),
        results="a tool turn",
        reasoning="Here is my thought process: … Here is my response:; <think>",
        stop=("<|end_of_text|>",),
    ),
    [
        # Phi-4-mini's marker differs only in its end.
        Marker("calls", "<|tool_call|>", None, Starts("[{"), tails=("<|/tool_call|>",)),
        Marker("calls", "<tool_call>", None, Starts("[{")),
        *bare_markers(),  # the marker is a special token, which some servers leave out of the text
        Marker(  # a prompt that ends inside reasoning may have opened it as <think> (granite-3.3)
            "reasoning",
            "Here is my thought process:",
            _RESPONSE_STARTS[0],
            also_ends=(*_RESPONSE_STARTS[1:], "</think>"),
        ),
        Marker("reasoning", "Here's my thought process:", _RESPONSE_STARTS[0], also_ends=_RESPONSE_STARTS[1:]),
        THINK,
        *frames("<response>", "</response>"),
    ],
    _ARRAY,
    around=("<|tool_call|>", ""),
    rules=ONE_ARRAY,
)

GRANITE_20B_FC = json_dialect(
    DialectInfo(
        "granite-20b-fc",
        '<function_call> {"name": …, "arguments": {…}}, repeated',
        "model card of ibm-granite/granite-20b-functioncalling",
        models=("granite-20b-functioncalling",),
        results="a tool turn",
        reasoning="",
        stop=("<|endoftext|>",),
        text_aside=True,
    ),
    [Marker("calls", "<function_call>", None, Starts("{["))],
    CallShape("arguments", array=False, arguments_required=False),
    around=("<function_call> ", ""),
    between="\n",
    rules=EACH_ALONE,
)

PHI4_MINI = json_dialect(
    DialectInfo(
        "phi4-mini",
        'functools[{"name": …, "arguments": {…}}, …]',
        "microsoft/Phi-4-mini-instruct and fireworks-ai/llama-3-firefunction-v2",
        aliases=("firefunction-v2",),
        models=("phi-4-mini", "firefunction-v2"),
        results="a tool turn",
        reasoning="<think>",
        stop=("<|end|>", "<|endoftext|>", "<|eot_id|>"),
        text_aside=True,
    ),
    [
        Marker(
            "calls",
            "functools",
            None,
            opening=Signature(
                ("functools", _SPACE, "[", _SPACE, "{"),
                2,
                "f",
                ("f", r"unctools\s*+(?:\Z|\[\s*+(?:\Z|\{)|\{)"),
            ),
        ),
        Marker(
            "calls",
            "functools",
            None,
            opening=Signature(("functools", _SPACE, "{", _SPACE, '"'), 2, "f", ("f", r"unctools\s*+(?:\Z|\{)")),
        ),
        Marker("calls", "<|tool_call|>", "<|/tool_call|>", Starts("[{")),
        Marker("calls", "<|tool_calls|>", "<|/tool_calls|>", Starts("[{")),  # as vLLM's template asks for it
        THINK,
    ],
    _ARRAY,
    around=("functools", ""),
    rules=ONE_ARRAY,
)


def _mistral_result(escaper: MarkerEscaper, result: ToolResult) -> str:
    text, call_id = escaper.result_text(result), escaper.dump(result.call_id)
    return f'[TOOL_RESULTS]{{"content": {text}, "call_id": {call_id}}}[/TOOL_RESULTS]'


MISTRAL_V3 = replace(
    json_dialect(
        DialectInfo(
            "mistral-v3",
            '[TOOL_CALLS][{"name": …, "arguments": {…}, "id": …}, …]',
            "chat template of mistralai/Mistral-Nemo-Instruct-2407",
            models=(
                *("mistral-7b-instruct-v0.3", "mistral-nemo", "mixtral", "mistral-large-instruct-2407"),
                *("mistral-small-24b-instruct-2501", "mistral-small-3.1", "mistral-large-instruct-2411"),
            ),
            results="[TOOL_RESULTS]{…}[/TOOL_RESULTS]",
            reasoning="",
        ),
        [
            # A name after it is the newer models' form; `auto` notes that.
            replace(CALLS, opening=Starts("[{"), forms=(CALLS,)),
            Marker("results", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", Starts("{["), plain=True),
        ],
        _ARRAY,
        around=("[TOOL_CALLS]", ""),
        write_result=_mistral_result,
        results_between="",
        ids="after",
        rules=f"- The id of each call is nine letters or digits that you choose.\n{ONE_ARRAY}",
    ),
    new_body=new_body,
)

_PYTHON_TAG = "<|python_tag|>"


def _python_calls(names: tuple[str, ...]) -> list[Marker]:
    """The markers of calls after the tag. Each needs a tool's name: the tag may hold any Python code."""
    name = one_of((*names, *(f"{name}.call" for name in names)))
    opening = Signature((_PYTHON_TAG, _SPACE, name, _SPACE, "("), 2, "<", ("<", re.escape(_PYTHON_TAG[1:])))
    return [Marker("calls", _PYTHON_TAG, None, opening, tails=(";",))]


def _llama3_body(marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
    if marker.text == BARE and isinstance(marker.opening, Signature):  # the marker tells whether it is an array
        shape = call_shape("parameters", marker.opening.first == "[")
        return JsonCalls(shape, first_index, caps, tools)
    return PythonOrJson(first_index, caps, tools, several=False, arguments_key="parameters")


LLAMA3_JSON = replace(
    json_dialect(
        DialectInfo(
            "llama3-json",
            '{"name": …, "parameters": {…}}, the next after ";"',
            "chat template of meta-llama/Llama-3.1-8B-Instruct",
            models=("llama-3.1", "llama-3.2", "llama-3.3"),
            results="a JSON string in an ipython turn",
            reasoning="",
            stop=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
        ),
        [
            Marker("calls", _PYTHON_TAG, None, Starts("{["), tails=(";",)),
            *bare_markers(";"),
            *frames("<|start_header_id|>assistant<|end_header_id|>"),
        ],
        CallShape("parameters", array=False, arguments_required=False),
        between="; ",
        write_result=MarkerEscaper.result_string,
        by_names=_python_calls,
        rules=f"- The two keys in this order, and nothing between the calls but a semicolon.\n{EACH_ALONE}",
    ),
    new_body=_llama3_body,
)

XLAM = json_dialect(
    DialectInfo(
        "xlam",
        '[{"name": …, "arguments": {…}}, …], bare, in a code fence or after [TOOL_CALLS]',
        "Salesforce/Llama-xLAM-2-8b-fc-r; vLLM's xlam parser",
        models=("xlam",),
        results="a JSON string in an ipython turn",
        stop=("<|eot_id|>", "<|im_end|>"),
    ),
    [
        *bare_markers(),
        Marker("calls", "[TOOL_CALLS]", None, Starts("[{")),
        Marker("calls", "<tool_call>", "</tool_call>", Starts("[{")),
        THINK,
        *frames(LLAMA_HEAD),
    ],
    _ARRAY,
    write_result=MarkerEscaper.result_string,
    rules=f'- Each call starts with the keys "name" and "arguments", in this order.\n{ONE_ARRAY}',
)

_ROLE, _SEPARATOR = "<|role_sep|>", "<|message_sep|>"

_GIGACHAT_MARKERS = [
    Marker(
        "calls",
        f"function call{_ROLE}",
        None,
        opening=Signature(
            (_SEPARATOR, _SPACE, f"function call{_ROLE}", _SPACE, "{"),
            4,
            "<",
            ("<", re.escape(_SEPARATOR[1:])),
        ),
    ),
    Marker("calls", f"function call{_ROLE}", None, Starts("{")),
    Marker("calls", "<|function_call|>", None, Starts("{[")),
    Marker("results", f"function result{_ROLE}", _SEPARATOR, Starts('\n[{"'), plain=True),
    *frames(f"assistant{_ROLE}", _SEPARATOR, "</s>"),
]


def _gigachat(name: str, summary: str, source: str, models: tuple[str, ...], opening: str) -> DeclaredDialect:
    return json_dialect(
        DialectInfo(name, summary, source, "parallel", models=models, results="a function result turn", reasoning=""),
        _GIGACHAT_MARKERS,
        CallShape("arguments", array=False, arguments_required=True),
        around=(opening, ""),
        rules=EACH_ALONE,
    )


GIGACHAT3 = _gigachat(
    "gigachat3",
    '<|message_sep|>function call<|role_sep|>{"name": …, "arguments": {…}}, repeated',
    "chat template of ai-sage/GigaChat3-10B-A1.8B",
    ("gigachat-3",),
    f"{_SEPARATOR}\n\nfunction call{_ROLE}\n",
)
GIGACHAT31 = _gigachat(
    "gigachat31",
    '<|function_call|>{"name": …, "arguments": {…}}, repeated',
    "chat template of ai-sage/GigaChat3.1-10B-A1.8B",
    ("gigachat-3.1",),
    "<|function_call|>",
)
