"""Every dialect, by family and name. A new dialect is a file in models/, and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache

from toolspeak.dialects.base import Dialect

FAMILIES: Mapping[str, Mapping[str, str]] = {
    "protocols": {
        "cogency-json": "cogency_json:COGENCY_JSON",
        "cogency-xml": "cogency_xml:COGENCY_XML",
        "tool-call": "tool_call:TOOL_CALL",
    },
    "json": {
        "hermes": "hermes:HERMES",
        "granite4": "hermes:GRANITE4",
        "ernie45": "hermes:ERNIE45",
        "longcat": "tagged_json:LONGCAT",
        "jamba": "tagged_json:JAMBA",
        "apriel": "tagged_json:APRIEL",
        "minimax-m1": "tagged_json:MINIMAX_M1",
        "hunyuan-a13b": "tagged_json:HUNYUAN_A13B",
        "nemotron-v2": "tagged_json:NEMOTRON_V2",
        "apertus": "tagged_json:APERTUS",
        "internlm2": "tagged_json:INTERNLM2",
        "inkling": "inkling:INKLING",
        "dots": "dots:DOTS",
        "llama3-json": "open_json:LLAMA3_JSON",
        "granite3": "open_json:GRANITE3",
        "granite-20b-fc": "open_json:GRANITE_20B_FC",
        "phi4-mini": "open_json:PHI4_MINI",
        "mistral-v3": "open_json:MISTRAL_V3",
        "xlam": "open_json:XLAM",
        "gigachat3": "open_json:GIGACHAT3",
        "gigachat31": "open_json:GIGACHAT31",
        "cohere-command": "cohere:COHERE_COMMAND",
        "command-r-plus": "cohere:COMMAND_R_PLUS",
    },
    "named": {
        "deepseek-v3": "deepseek:DEEPSEEK_V3",
        "deepseek-v31": "deepseek:DEEPSEEK_V31",
        "kimi-k2": "kimi:KIMI_K2",
        "solar-open": "solar:SOLAR_OPEN",
        "mistral-args": "mistral_args:MISTRAL_ARGS",
        "mistral-ids": "mistral_args:MISTRAL_IDS",
        "mistral-v11": "mistral_args:MISTRAL_V11",
        "functionary-v31": "functionary:FUNCTIONARY_V31",
        "functionary-v32": "functionary:FUNCTIONARY_V32",
        "harmony": "harmony:HARMONY",
    },
    "elements": {
        "qwen3-coder": "qwen3_coder:QWEN3_CODER",
        "step3p5": "qwen3_coder:STEP3P5",
        "mimo": "qwen3_coder:MIMO",
        "seed-oss": "qwen3_coder:SEED_OSS",
        "minimax-m2": "invoke:MINIMAX_M2",
        "minimax-m3": "minimax_m3:MINIMAX_M3",
        "step3": "invoke:STEP3",
        "minicpm5": "invoke:MINICPM5",
        "muse": "muse:MUSE",
        "deepseek-v32": "dsml:DEEPSEEK_V32",
        "deepseek-v4": "dsml:DEEPSEEK_V4",
        "deepseek-v41": "dsml:DEEPSEEK_V41",
        "claude-legacy": "claude_legacy:CLAUDE_LEGACY",
    },
    "pairs": {
        "glm45": "glm:GLM45",
        "glm47": "glm:GLM47",
        "spark25": "glm:SPARK25",
        "ling3": "glm:LING3",
        "poolside-v1": "glm:POOLSIDE_V1",
        "laguna-s": "glm:LAGUNA_S",
        "hy-v3": "block_pairs:HY_V3",
        "hy-v3-opensource": "block_pairs:HY_V3_SUFFIXED",
        "k2-horizon": "block_pairs:K2_HORIZON",
        "kimi-k3": "kimi_k3:KIMI_K3",
        "plamo3": "plamo3:PLAMO3",
    },
    "functions": {
        "pythonic": "pythonic:PYTHONIC",
        "llama4-pythonic": "pythonic:LLAMA4_PYTHONIC",
        "lfm2": "pythonic:LFM2",
        "lfm25": "pythonic:LFM25",
        "olmo3": "pythonic:OLMO3",
        "gemma4": "gemma:GEMMA4",
        "functiongemma": "gemma:FUNCTIONGEMMA",
    },
}
"""The `module:attribute` of each dialect, which is imported on first use.

The families are ways to write a call: published protocols, JSON between markers, the name outside of the JSON,
elements, pairs of key and value, function notation.

The order counts: `DETECTION` follows it. A dialect before another wins where both know a marker.
"""

PLACES: Mapping[str, str] = {name: place for family in FAMILIES.values() for name, place in family.items()}

DETECTION: Sequence[str] = (*(name for name in PLACES if name not in FAMILIES["protocols"]), *FAMILIES["protocols"])
"""The order in which `auto` tries dialects that know the same marker: that of `FAMILIES`, with the protocols last.

So JSON in <tool_call> is read as Hermes's, in which all calls count.
"""


@cache  # each new agent loads its dialect
def load_dialect(name: str) -> Dialect:
    """The dialect of this name in the table. Raises KeyError for another name."""
    module, _, attribute = PLACES[name].partition(":")
    folder = "protocols" if name in FAMILIES["protocols"] else "models"
    return getattr(importlib.import_module(f"toolspeak.dialects.{folder}.{module}"), attribute)
