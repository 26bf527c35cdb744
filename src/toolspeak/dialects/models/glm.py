"""GLM and the models that learned its format: `<tool_call>name`, then `<arg_key>` and `<arg_value>` in turn."""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo, EarlierThoughts
from toolspeak.dialects.declarations.pair_dialect import (
    LINES,
    RESPONSE_INLINE,
    RESPONSE_LINES,
    PairLayout,
    pair_dialect,
)
from toolspeak.dialects.readers.pair_tags import PairTags
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.text.openings import Starts

_TAGS = PairTags()
_TYPING = "strings as they are, other values as JSON, by schema"
_IN_LINES = (Marker("results", "<tool_response>", "</tool_response>", Starts('\n[{"'), plain=True),)
_IN_LINE = (Marker("results", "<tool_response>", "</tool_response>", plain=True),)

GLM45 = pair_dialect(
    DialectInfo(
        "glm45",
        "<tool_call>name, then <arg_key>k</arg_key> and <arg_value>v</arg_value> on lines of their own",
        "chat template of zai-org/GLM-4.5",
        "parallel",
        models=("glm-4.5", "glm-4.6", "ring-2.6"),
        arguments=_TYPING,
        results="<tool_response> in lines, in an observation turn",
        earlier=EarlierThoughts("<think>", "</think>\n"),
        stop=("<|observation|>", "<|user|>", "<|endoftext|>"),
    ),
    _TAGS,
    LINES,
    RESPONSE_LINES,
    results=_IN_LINES,
)

GLM47 = pair_dialect(
    DialectInfo(
        "glm47",
        "<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>, without line breaks",
        "chat template of zai-org/GLM-4.7-Flash",
        "parallel",
        aliases=("glm47-reasoning",),
        models=("glm-4.7", "glm-5.x"),
        arguments=_TYPING,
        results="<tool_response> in an observation turn",
        earlier=EarlierThoughts("<think>", "</think>"),
        stop=("<|observation|>", "<|user|>", "<|endoftext|>"),
    ),
    _TAGS,
    PairLayout(),
    RESPONSE_INLINE,
    results=_IN_LINE,
)

SPARK25 = pair_dialect(
    DialectInfo(
        "spark25",
        "as glm47",
        "chat template of Spark2.5",
        "parallel",
        models=("spark-2.5",),
        arguments=_TYPING,
        results="<tool_response> in a tool turn",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("<｜end▁of▁sentence｜>",),
    ),
    _TAGS,
    PairLayout(),
    RESPONSE_INLINE,
    results=_IN_LINE,
)

LING3 = pair_dialect(
    DialectInfo(
        "ling3",
        "as glm45, without a line break between arguments",
        "chat template of inclusionAI/Ling-3.0-flash",
        "parallel",
        models=("ling-3", "ring-3"),
        arguments=_TYPING,
        results="<tool_response> in lines, in an observation turn",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("<|role_end|>", "<|endoftext|>"),
    ),
    _TAGS,
    PairLayout(gap="\n", last="\n", between="\n"),
    RESPONSE_LINES,
    results=_IN_LINES,
)

POOLSIDE_V1 = pair_dialect(
    DialectInfo(
        "poolside-v1",
        "as glm45",
        "chat template of poolside/Laguna-XS.2",
        "parallel",
        models=("laguna",),
        arguments=_TYPING,
        results="<tool_response> in lines",
        earlier=EarlierThoughts("<think>\n", "\n</think>\n", "always"),
        stop=("</assistant>", "〈|EOS|〉"),
    ),
    _TAGS,
    LINES,
    RESPONSE_LINES,
    results=_IN_LINES,
)

LAGUNA_S = pair_dialect(
    DialectInfo(
        "laguna-s",
        "as glm47",
        "chat template of poolside/Laguna-S-2.1",
        "parallel",
        models=("laguna-s",),
        arguments=_TYPING,
        results="<tool_response>",
        earlier=EarlierThoughts("<think>", "</think>", "always"),
        stop=("</assistant>",),
    ),
    _TAGS,
    PairLayout(),
    RESPONSE_INLINE,
    results=_IN_LINE,
)
