"""DeepSeek's DSML, from V3.2 on: elements that say of each value whether it is text or JSON."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect, ResultLayout
from toolspeak.dialects.declarations.element_dialect import ElementLayout, Spelling, element_dialect
from toolspeak.dialects.prompt import EarlierThoughts
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
_SYNTAX_WITH_BLANK = ElementSyntax(f"<{_DSML} invoke", f"<{_DSML} parameter", typed=True, wrappers=("arguments",))


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


def _dsml(
    info: DialectInfo,
    syntax: ElementSyntax,
    wrappers: Sequence[tuple[str, str]],
    also: Sequence[Spelling],
    results: ResultLayout,
    results_name: str,
    *live: str,
    tails: Sequence[str] = (),
) -> DeclaredDialect:
    return element_dialect(
        info,
        syntax,
        ElementLayout(block=wrappers[0]),
        wrappers=wrappers,
        forms=("json",),
        also=also,
        tails=tails,
        results=results,
        results_marker=(f"<{results_name}>", f"</{results_name}>"),
        live=(_DSML, *_LIVE, results_name, *live, "think"),
        rules=_RULES,
    )


DEEPSEEK_V32 = _dsml(
    DialectInfo(
        "deepseek-v32",
        f'<{_DSML}function_calls> <{_DSML}invoke name="f"> <{_DSML}parameter name="k" string="true">value',
        "deepseek-ai/DeepSeek-V3.2, encoding/encoding_dsv32.py",
        aliases=("deepseek-v3.2",),
        models=("deepseek-v3.2",),
        arguments=_TYPING,
        results="<function_results> with a <result> each",
        earlier=EarlierThoughts("<think>", "</think>"),
        stop=("<｜end▁of▁sentence｜>",),
        text_aside=True,
    ),
    _SYNTAX,
    [(f"<{_DSML}function_calls>", f"</{_DSML}function_calls>")],
    _spellings("function_calls", "tool_calls"),
    ResultLayout("<result>", "</result>", "\n", "<function_results>\n", "\n</function_results>"),
    "function_results",
    "result>",
)

_V4_RESULTS = ResultLayout("<tool_result>", "</tool_result>", "\n\n")
_V4_END = f"</{_DSML}tool_calls>"
DEEPSEEK_V4 = _dsml(
    DialectInfo(
        "deepseek-v4",
        "as deepseek-v32, in <｜DSML｜tool_calls>",
        "chat template of deepseek-ai/DeepSeek-V4",
        models=("deepseek-v4",),
        arguments=_TYPING,
        results="<tool_result> in a user turn",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("<｜end▁of▁sentence｜>",),
        text_aside=True,
    ),
    _SYNTAX,
    # `toolcalls` and `tool` are how the model misspells it (vLLM reads them too).
    [(f"<{_DSML}{name}>", _V4_END) for name in ("tool_calls", "toolcalls", "tool")],
    _spellings("tool_calls", "function_calls", bars=(*_BARS, *_BLANKS)),
    _V4_RESULTS,
    "tool_result",
    tails=(f"</{_DSML}function_calls>",),
)

DEEPSEEK_V41 = _dsml(
    DialectInfo(
        "deepseek-v41",
        "as deepseek-v4, with a space in the tags: <｜DSML｜ calls> <｜DSML｜ invoke",
        "chat template of deepseek-ai/DeepSeek-V4.1",
        aliases=("deepseek-v4.1",),
        models=("deepseek-v4.1",),
        arguments=_TYPING,
        results="<tool_result> in a user turn",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("<｜end▁of▁sentence｜>",),
        text_aside=True,
    ),
    _SYNTAX_WITH_BLANK,
    [(f"<{_DSML} calls>", f"</{_DSML} calls>")],
    _spellings("calls", "tool_calls"),
    _V4_RESULTS,
    "tool_result",
)
