"""Every dialect there is. Adding one: its file, and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.dialects.base import Dialect
from toolspeak.dialects.claude_legacy import CLAUDE_LEGACY
from toolspeak.dialects.cogency_json import CogencyJson
from toolspeak.dialects.cogency_xml import CogencyXml
from toolspeak.dialects.cohere import COHERE_COMMAND, COMMAND_R_PLUS
from toolspeak.dialects.deepseek import DEEPSEEK_V3, DEEPSEEK_V31
from toolspeak.dialects.dots import DOTS
from toolspeak.dialects.dsml import DEEPSEEK_V4, DEEPSEEK_V32, DEEPSEEK_V41
from toolspeak.dialects.functionary import FUNCTIONARY_V31, FUNCTIONARY_V32
from toolspeak.dialects.gemma import FUNCTIONGEMMA, GEMMA4
from toolspeak.dialects.glm import GLM45, GLM47, LING3, POOLSIDE_V1, SPARK25
from toolspeak.dialects.harmony import HARMONY
from toolspeak.dialects.hermes import ERNIE45, GRANITE4, HERMES
from toolspeak.dialects.hy_v3 import HY_V3, HY_V3_SUFFIXED
from toolspeak.dialects.inkling import INKLING
from toolspeak.dialects.invoke import MINICPM5, MINIMAX_M2, STEP3
from toolspeak.dialects.k2_horizon import K2_HORIZON
from toolspeak.dialects.kimi import KIMI_K2
from toolspeak.dialects.kimi_k3 import KIMI_K3
from toolspeak.dialects.minimax_m3 import MINIMAX_M3
from toolspeak.dialects.mistral_args import MISTRAL_ARGS, MISTRAL_IDS, MISTRAL_V11
from toolspeak.dialects.muse import MUSE
from toolspeak.dialects.open_json import (
    GIGACHAT3,
    GRANITE3,
    GRANITE_20B_FC,
    LLAMA3_JSON,
    MISTRAL_V3,
    PHI4_MINI,
    XLAM,
)
from toolspeak.dialects.plamo3 import PLAMO3
from toolspeak.dialects.pythonic import LFM2, LLAMA4_PYTHONIC, OLMO3, PYTHONIC
from toolspeak.dialects.qwen3_coder import MIMO, QWEN3_CODER, SEED_OSS, STEP3P5
from toolspeak.dialects.tagged_json import (
    APERTUS,
    APRIEL,
    HUNYUAN_A13B,
    INTERNLM2,
    JAMBA,
    LONGCAT,
    NEMOTRON_V2,
)
from toolspeak.dialects.tool_call import ToolCallDialect

PROTOCOLS: tuple[Dialect, ...] = (CogencyJson(), CogencyXml(), ToolCallDialect())
"""The published text protocols, for models that know none of their own."""

_JSON: tuple[Dialect, ...] = (
    HERMES,
    GRANITE4,
    ERNIE45,
    LONGCAT,
    JAMBA,
    APRIEL,
    HUNYUAN_A13B,
    NEMOTRON_V2,
    APERTUS,
    INTERNLM2,
    INKLING,
    DOTS,
    LLAMA3_JSON,
    GRANITE3,
    GRANITE_20B_FC,
    PHI4_MINI,
    MISTRAL_V3,
    XLAM,
    GIGACHAT3,
    COHERE_COMMAND,
    COMMAND_R_PLUS,
)

_PAIRS: tuple[Dialect, ...] = (
    GLM45,
    GLM47,
    SPARK25,
    LING3,
    POOLSIDE_V1,
    HY_V3,
    HY_V3_SUFFIXED,
    K2_HORIZON,
    KIMI_K3,
    PLAMO3,
)

_NAMED: tuple[Dialect, ...] = (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
    MISTRAL_ARGS,
    MISTRAL_IDS,
    MISTRAL_V11,
    FUNCTIONARY_V31,
    FUNCTIONARY_V32,
    HARMONY,
)

_ELEMENTS: tuple[Dialect, ...] = (
    QWEN3_CODER,
    STEP3P5,
    MIMO,
    SEED_OSS,
    MINIMAX_M2,
    MINIMAX_M3,
    STEP3,
    MINICPM5,
    MUSE,
    DEEPSEEK_V32,
    DEEPSEEK_V4,
    DEEPSEEK_V41,
    CLAUDE_LEGACY,
)

_FUNCTIONS: tuple[Dialect, ...] = (PYTHONIC, LLAMA4_PYTHONIC, LFM2, OLMO3, GEMMA4, FUNCTIONGEMMA)

FAMILIES: Mapping[str, tuple[Dialect, ...]] = {
    "protocols": PROTOCOLS,
    "json": _JSON,
    "named": _NAMED,
    "elements": _ELEMENTS,
    "pairs": _PAIRS,
    "functions": _FUNCTIONS,
}
"""By how a call is written: published protocols, JSON between markers, the name outside of the JSON, elements, pairs of
key and value, function notation."""

DIALECTS: tuple[Dialect, ...] = tuple(dialect for family in FAMILIES.values() for dialect in family)

DETECTION: tuple[Dialect, ...] = (*DIALECTS[len(PROTOCOLS) :], *PROTOCOLS)
"""The order in which `auto` asks where several dialects know a marker: the models' own formats before the protocols,
so that JSON in <tool_call> is Hermes's, of whose calls all count."""
