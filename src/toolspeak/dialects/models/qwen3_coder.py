"""Qwen3-Coder's elements, `<function=f><parameter=k>`, and the models that adopted them."""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect, ResultLayout
from toolspeak.dialects.declarations.element_dialect import ElementLayout, element_dialect
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.readers.element_tags import ElementSyntax

_BLOCK = ("<tool_call>", "</tool_call>")
_IN_LINES = ResultLayout("<tool_response>\n", "\n</tool_response>")
_RULES = """\
- One element for each argument, its value between the tags as it is: no quotes, no escapes; objects and arrays as JSON.
- A text that holds one of these tags goes into <![CDATA[…]]>. Several blocks for several calls."""
_TYPING = "text, typed by the tool's schema"
_TRIMMING_SYNTAX = ElementSyntax("<function=", "<parameter=", trims=True)
_EXACT = ElementSyntax("<function=", "<parameter=")


def _coder(info: DialectInfo, syntax: ElementSyntax, layout: ElementLayout, results: ResultLayout) -> DeclaredDialect:
    return element_dialect(
        info,
        syntax,
        layout,
        wrappers=[_BLOCK],
        forms=("named_function", "json", "python", "pairs"),
        results=results,
        results_marker=("<tool_response>", "</tool_response>"),
        live=("tool_call", "tool_response", "function=", "think"),
        rules=_RULES,
    )


QWEN3_CODER = _coder(
    DialectInfo(
        "qwen3-coder",
        "<tool_call> <function=f> <parameter=k> value, each tag on its line; repeated",
        "chat template of Qwen/Qwen3-Coder-30B-A3B-Instruct and Qwen/Qwen3.5-4B",
        aliases=("nemotron-v3", "nemotron-v3-reasoning", "qwen3.5"),
        models=("qwen3-coder", "qwen3.5", "qwen3.6", "qwen3.8", "nemotron-3.x", "nemotron-nano-3.x", "nanbeige-4.x"),
        arguments=f"{_TYPING}; one line break on each side is dropped",
        results="<tool_response> in a user turn",
        earlier=EarlierThoughts("<think>\n", "\n</think>\n\n"),
        stop=("<|im_end|>", "<|endoftext|>"),
    ),
    _TRIMMING_SYNTAX,
    ElementLayout(block=_BLOCK, each=True, edge="\n"),
    _IN_LINES,
)

STEP3P5 = _coder(
    DialectInfo(
        "step3p5",
        "as qwen3-coder; blocks and results follow each other without a line break",
        "chat template of stepfun-ai/Step-3.5-Flash",
        aliases=("step-3.5",),
        models=("step-3.5", "step-3.7", "step-5"),
        arguments=f"{_TYPING}; one line break on each side is dropped",
        results="<tool_response> in a tool_response turn",
        earlier=EarlierThoughts("<think>\n", "\n</think>\n"),
        stop=("<|im_end|>", "<|endoftext|>"),
    ),
    _TRIMMING_SYNTAX,
    ElementLayout(block=_BLOCK, each=True, edge="\n", joint=""),
    ResultLayout("<tool_response>", "</tool_response>", between=""),
)

MIMO = _coder(
    DialectInfo(
        "mimo",
        "as qwen3-coder, without white space around values",
        "chat template of XiaomiMiMo/MiMo-V2-Flash",
        models=("mimo-v2.x",),
        arguments=_TYPING,
        results="<tool_response> in a tool turn",
        earlier=EarlierThoughts("<think>", "</think>"),
        stop=("<|im_end|>", "<|endoftext|>"),
    ),
    _EXACT,
    ElementLayout(block=_BLOCK, each=True),
    _IN_LINES,
)

SEED_OSS = element_dialect(
    DialectInfo(
        "seed-oss",
        "<seed:tool_call> <function=f> <parameter=k>value</parameter>",
        "chat template of ByteDance-Seed/Seed-OSS-36B-Instruct",
        models=("seed-oss",),
        arguments=_TYPING,
        results="plain text in a tool turn",
        earlier=EarlierThoughts("<seed:think>", "</seed:think>\n", "always"),
        reasoning="<seed:think>",
        stop=("<seed:eos>",),
    ),
    _EXACT,
    ElementLayout(block=("<seed:tool_call>", "</seed:tool_call>"), each=True),
    wrappers=[("<seed:tool_call>", "</seed:tool_call>")],
    forms=("named_function", "json"),
    reasoning=("<seed:think>", "</seed:think>"),
    results=ResultLayout(),
    results_marker=None,
    live=("seed:tool_call", "seed:think", "function=", "function>"),
    rules=_RULES,
)
