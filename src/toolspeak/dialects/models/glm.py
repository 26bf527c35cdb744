"""GLM and the models that learned its format: `<tool_call>name`, then `<arg_key>` and `<arg_value>` in turn."""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect, ResultLayout
from toolspeak.dialects.declarations.pair_dialect import LINES, PairLayout, pair_dialect
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.readers.pair_tags import PairTags
from toolspeak.dialects.text.block_delimiters import Starts
from toolspeak.dialects.text.markers import Marker

_TYPING = "strings as they are, other values as JSON, by schema"


def _in_lines(info: DialectInfo, layout: PairLayout = LINES) -> DeclaredDialect:
    results = ResultLayout("<tool_response>\n", "\n</tool_response>")
    marker = Marker("results", "<tool_response>", "</tool_response>", Starts('\n[{"'), plain=True)
    return pair_dialect(info, PairTags(), layout, results, results_markers=(marker,))


def _without_lines(info: DialectInfo) -> DeclaredDialect:
    results = ResultLayout("<tool_response>", "</tool_response>", between="")
    marker = Marker("results", "<tool_response>", "</tool_response>", plain=True)
    return pair_dialect(info, PairTags(), PairLayout(), results, results_markers=(marker,))


GLM45 = _in_lines(
    DialectInfo(
        "glm45",
        "<tool_call>name, then <arg_key>k</arg_key> and <arg_value>v</arg_value> on lines of their own",
        "chat template of zai-org/GLM-4.5",
        models=("glm-4.5", "glm-4.6", "ring-2.6"),
        arguments=_TYPING,
        results="<tool_response> in lines, in an observation turn",
        earlier=EarlierThoughts("<think>", "</think>\n"),
        stop=("<|observation|>", "<|user|>", "<|endoftext|>"),
    )
)

GLM47 = _without_lines(
    DialectInfo(
        "glm47",
        "<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>, without line breaks",
        "chat template of zai-org/GLM-4.7-Flash",
        aliases=("glm47-reasoning",),
        models=("glm-4.7", "glm-5.x"),
        arguments=_TYPING,
        results="<tool_response> in an observation turn",
        earlier=EarlierThoughts("<think>", "</think>"),
        stop=("<|observation|>", "<|user|>", "<|endoftext|>"),
    )
)

SPARK25 = _without_lines(
    DialectInfo(
        "spark25",
        "as glm47",
        "chat template of Spark2.5",
        models=("spark-2.5",),
        arguments=_TYPING,
        results="<tool_response> in a tool turn",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("<｜end▁of▁sentence｜>",),
    )
)

LING3 = _in_lines(
    DialectInfo(
        "ling3",
        "as glm45, without a line break between arguments",
        "chat template of inclusionAI/Ling-3.0-flash",
        models=("ling-3", "ring-3"),
        arguments=_TYPING,
        results="<tool_response> in lines, in an observation turn",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("<|role_end|>", "<|endoftext|>"),
    ),
    PairLayout(gap="\n", last="\n", between="\n"),
)

POOLSIDE_V1 = _in_lines(
    DialectInfo(
        "poolside-v1",
        "as glm45",
        "chat template of poolside/Laguna-XS.2",
        models=("laguna",),
        arguments=_TYPING,
        results="<tool_response> in lines",
        earlier=EarlierThoughts("<think>\n", "\n</think>\n", "always"),
        stop=("</assistant>", "〈|EOS|〉"),
    )
)

LAGUNA_S = _without_lines(
    DialectInfo(
        "laguna-s",
        "as glm47",
        "chat template of poolside/Laguna-S-2.1",
        models=("laguna-s",),
        arguments=_TYPING,
        results="<tool_response>",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("</assistant>",),
    )
)
