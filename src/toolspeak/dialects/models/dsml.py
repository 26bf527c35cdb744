"""DeepSeek's DSML, from V3.2 on: elements that say of each value whether it is text or JSON."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.dialects.base import DialectInfo, EarlierThoughts
from toolspeak.dialects.declarations.element_dialect import ElementLayout, Spelling, element_dialect
from toolspeak.dialects.readers.element_tags import ElementSyntax

_DSML = "｜DSML｜"
_BARS = ("|DSML|", "||DSML||", "｜｜DSML｜｜", "‖DSML‖")
_BLANKS = (" | DSML | ", " ｜ DSML ｜ ")
_LIVE = (*(bar.strip() for bar in (*_BARS, *_BLANKS)), "invoke", "tool_calls", "calls>", "function")
_RULES = """\
- One parameter element for each argument. `string="true"`: a text, as it is, without quotes or escapes;
  `string="false"`: any other value, as JSON. A text that holds one of these tags goes into <![CDATA[…]]>.
- One block for all calls of a turn."""
_TYPING = 'string="true": text; string="false": JSON; where the schema says otherwise, the schema'
_SYNTAX = ElementSyntax(f"<{_DSML}invoke", f"<{_DSML}parameter", typed=True, wrappers=("arguments",))
_SPACED = ElementSyntax(f"<{_DSML} invoke", f"<{_DSML} parameter", typed=True, wrappers=("arguments",))


def _spellings(*blocks: str, bars: Sequence[str] = _BARS) -> list[Spelling]:
    """How models write DSML if their vocabulary has no token for it.

    The spellings have other bars, blanks, no end of the first tag, or no token at all. `blocks` are the names of the
    block's element.
    """
    spellings = [
        Spelling(
            ElementSyntax(f"<{bar}{gap}invoke", f"<{bar}{gap}parameter", typed=True, wrappers=("arguments",)),
            [(f"<{bar}{gap}{block}>", f"</{bar}{gap}{block}>") for block in blocks],
        )
        for bar in (_DSML, *bars)
        for gap in ("", " ")
    ]
    spellings += [
        Spelling(each.syntax, [(start.removesuffix(">"), end) for start, end in each.wrappers])
        for each in spellings[:2]
    ]
    plain = ElementSyntax("<invoke", "<parameter", typed=True, wrappers=("arguments",))
    inside = ElementSyntax("<function>", "<parameter", typed=True, named_inside=True)
    return [*spellings, Spelling(plain, [(f"<{block}>", f"</{block}>") for block in blocks]), Spelling(inside, ())]


DEEPSEEK_V32 = element_dialect(
    DialectInfo(
        "deepseek-v32",
        f'<{_DSML}function_calls> <{_DSML}invoke name="f"> <{_DSML}parameter name="k" string="true">value',
        "deepseek-ai/DeepSeek-V3.2, encoding/encoding_dsv32.py",
        "parallel",
        aliases=("deepseek-v3.2",),
        models=("deepseek-v3.2",),
        arguments=_TYPING,
        results="<function_results> with a <result> each",
        earlier=EarlierThoughts("<think>", "</think>"),
        stop=("<｜end▁of▁sentence｜>",),
        text_aside=True,
    ),
    _SYNTAX,
    ElementLayout(
        block=(f"<{_DSML}function_calls>", f"</{_DSML}function_calls>"),
        result="<result>{}</result>",
        results="<function_results>\n{}\n</function_results>",
    ),
    wrappers=[(f"<{_DSML}function_calls>", f"</{_DSML}function_calls>")],
    forms=("json",),
    also=_spellings("function_calls", "tool_calls"),
    results=("<function_results>", "</function_results>"),
    live=(_DSML, *_LIVE, "function_results", "result>", "think"),
    rules=_RULES,
)

_V4_END = f"</{_DSML}tool_calls>"
DEEPSEEK_V4 = element_dialect(
    DialectInfo(
        "deepseek-v4",
        "as deepseek-v32, in <｜DSML｜tool_calls>",
        "chat template of deepseek-ai/DeepSeek-V4",
        "parallel",
        models=("deepseek-v4",),
        arguments=_TYPING,
        results="<tool_result> in a user turn",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("<｜end▁of▁sentence｜>",),
        text_aside=True,
    ),
    _SYNTAX,
    ElementLayout(
        block=(f"<{_DSML}tool_calls>", _V4_END),
        result="<tool_result>{}</tool_result>",
        results_joint="\n\n",
    ),
    # `toolcalls` and `tool` are how the model misspells it (vLLM reads them too).
    wrappers=[(f"<{_DSML}{name}>", _V4_END) for name in ("tool_calls", "toolcalls", "tool")],
    forms=("json",),
    also=_spellings("tool_calls", "function_calls", bars=(*_BARS, *_BLANKS)),
    tails=(f"</{_DSML}function_calls>",),
    results=("<tool_result>", "</tool_result>"),
    live=(_DSML, *_LIVE, "tool_result", "think"),
    rules=_RULES,
)

DEEPSEEK_V41 = element_dialect(
    DialectInfo(
        "deepseek-v41",
        "as deepseek-v4, with a space in the tags: <｜DSML｜ calls> <｜DSML｜ invoke",
        "chat template of deepseek-ai/DeepSeek-V4.1",
        "parallel",
        aliases=("deepseek-v4.1",),
        models=("deepseek-v4.1",),
        arguments=_TYPING,
        results="<tool_result> in a user turn",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("<｜end▁of▁sentence｜>",),
        text_aside=True,
    ),
    _SPACED,
    ElementLayout(
        block=(f"<{_DSML} calls>", f"</{_DSML} calls>"),
        result="<tool_result>{}</tool_result>",
        results_joint="\n\n",
    ),
    wrappers=[(f"<{_DSML} calls>", f"</{_DSML} calls>")],
    forms=("json",),
    also=_spellings("calls", "tool_calls"),
    results=("<tool_result>", "</tool_result>"),
    live=(_DSML, *_LIVE, "tool_result", "think"),
    rules=_RULES,
)
