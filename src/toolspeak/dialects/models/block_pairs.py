"""GLM's pairs in one block around all calls: Hunyuan 3 and K2-Horizon."""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect, ResultLayout
from toolspeak.dialects.declarations.pair_dialect import LINES, pair_dialect
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.readers.pair_tags import PairTags
from toolspeak.dialects.text.block_delimiters import Starts
from toolspeak.dialects.text.markers import Marker

# --- Hunyuan 3 ----------------------------------------------------------------------------------

# Later checkpoints add a suffix to every tag. A value without a type in the schema is text, as in the parsers of vLLM
# and SGLang.
_PLAIN = PairTags(block="tool_calls", name_end="tool_sep", guesses=False)
_WITH_SUFFIX = PairTags(block="tool_calls", name_end="tool_sep", guesses=False, suffix=":opensource")


def _hunyuan(info: DialectInfo, tags: PairTags, other: PairTags) -> DeclaredDialect:
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


HY_V3 = _hunyuan(
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
    _WITH_SUFFIX,
)

HY_V3_SUFFIXED = _hunyuan(
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
    _WITH_SUFFIX,
    _PLAIN,
)

# --- K2-Horizon ---------------------------------------------------------------------------------

# The template can ask for three forms: pairs, pairs with a type, and JSON objects. Only the prompt says which, so all
# three are read, and pairs are written. A JSON value keeps its type, as in every dialect of JSON; the schema types only
# text. (vLLM's parser turns the number 5 into the text "5" if the schema asks for text.)
K2_HORIZON = pair_dialect(
    DialectInfo(
        "k2-horizon",
        "<ifm|tool_calls> with <ifm|tool_call>name, <ifm|arg_key> and <ifm|arg_value> in it",
        "chat template of IFM/K2-Horizon",
        aliases=("k2-horizon-reasoning",),
        models=("k2-horizon", "jais-3"),
        arguments="strings as they are, other values as JSON, by the written type if there is one, else by schema",
        results="the text of a tool turn",
        reasoning="<ifm|think>",
        stop=("<|ifm|im_end|>",),
    ),
    PairTags(block="tool_calls", kind="arg_type", json=True, prefix="ifm|"),
    LINES,
    ResultLayout(),
    thoughts=[
        Marker("reasoning", f"<ifm|{effort}>", f"</ifm|{effort}>") for effort in ("think", "think_fast", "think_faster")
    ],
    live=("ifm|", "|ifm|"),
)
