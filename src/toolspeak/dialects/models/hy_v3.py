"""Hunyuan 3: GLM's pairs in one `<tool_calls>`, with `<tool_sep>` after the name.

Its later checkpoints add a suffix to every tag. A value without a type in the schema is text, as in the parsers of vLLM
and SGLang.
"""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo, EarlierThoughts
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect, ResultLayout
from toolspeak.dialects.declarations.pair_dialect import LINES, pair_dialect
from toolspeak.dialects.readers.pair_tags import PairTags
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.openings import Starts

_PLAIN = PairTags(block="tool_calls", name_end="tool_sep", guesses=False)
_SUFFIXED = PairTags(block="tool_calls", name_end="tool_sep", guesses=False, suffix=":opensource")


def _declare(info: DialectInfo, tags: PairTags, other: PairTags) -> DeclaredDialect:
    start, end = tags.start, tags.end
    return pair_dialect(
        info,
        tags,
        LINES,
        ResultLayout(
            f"{start('tool_response')}\n",
            f"\n{end('tool_response')}",
            "\n",
            f"{start('tool_responses')}\n",
            f"\n{end('tool_responses')}",
        ),
        thoughts=[Marker("reasoning", each.start("think"), each.end("think")) for each in (tags, other)],
        results_markers=[
            Marker("results", each.start("tool_responses"), each.end("tool_responses"), Starts("\n[{"), plain=True)
            for each in (tags, other)
        ],
        also=(other,),
    )


HY_V3 = _declare(
    DialectInfo(
        "hy-v3",
        "<tool_calls> with <tool_call>name<tool_sep>, <arg_key> and <arg_value> in it",
        "chat template of tencent/Hy3-preview",
        aliases=("hy-v3-reasoning",),
        models=("hy3-preview",),
        arguments="strings as they are, other values as JSON, by schema; strings where it says nothing",
        results="<tool_responses> with a <tool_response> for each call",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("<｜hy_eos｜>",),
    ),
    _PLAIN,
    _SUFFIXED,
)

HY_V3_SUFFIXED = _declare(
    DialectInfo(
        "hy-v3-opensource",
        "as hy-v3, every tag ending in `:opensource`",
        "chat template of tencent/Hy3",
        models=("hy3", "hy4"),
        arguments="strings as they are, other values as JSON, by schema; strings where it says nothing",
        results="<tool_responses:opensource> with a <tool_response:opensource> for each call",
        earlier=EarlierThoughts("<think:opensource>", "</think:opensource>", "always"),
        reasoning="<think:opensource>",
        stop=("<｜hy_eos:opensource｜>",),
    ),
    _SUFFIXED,
    _PLAIN,
)
