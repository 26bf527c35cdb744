"""Every template, by dialect. A new template is a declaration in a file of this folder, and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from toolspeak.dialects.model_lookup import family_rank, words_of
from toolspeak.dialects.trained.template import Template

TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "hermes": (
        "hermes:QWEN3",
        "hermes:QWEN25",
        "hermes:QWQ",
        "hermes:MIMO_VL",
        "hermes:HERMES2",
        "listing:BIELIK",
        "listing:REKA",
    ),
    "granite4": ("granite:GRANITE4",),
    "granite3": ("granite:GRANITE3",),
    "nemotron-v2": ("granite:NEMOTRON2",),
    "llama3-json": ("llama:LLAMA31",),
    "deepseek-v3": ("dsml:R1",),
    "deepseek-v32": ("dsml:V32",),
    "deepseek-v4": ("dsml:V4",),
    "kimi-k2": ("kimi:K2",),
    "kimi-k3": ("kimi:K3",),
    "glm45": ("pair:GLM46",),
    "glm47": ("pair:GLM47",),
    "ling3": ("pair:LING3",),
    "hy-v3-opensource": ("pair:HY3",),
    "qwen3-coder": ("element:CODER", "element:QWEN35", "element:NEMOTRON3"),
    "gemma4": ("gemma:GEMMA4",),
    "harmony": ("harmony:GPT_OSS",),
    "mistral-v3": ("mistral:NEMO",),
    "mistral-ids": ("mistral:TEKKEN",),
    "mistral-args": ("mistral:TEKKEN",),
    "mistral-v11": ("mistral:TEKKEN",),
    "apertus": ("apriel:APERTUS",),
    "apriel": ("apriel:APRIEL16", "apriel:APRIEL15"),
    "cohere-command": ("cohere:COMMAND_R7B", "cohere:COMMAND_MOE"),
    "command-r-plus": ("cohere:COMMAND_R_PLUS",),
    "functionary-v31": ("functionary:FUNCTIONARY_V31",),
    "functionary-v32": ("functionary:FUNCTIONARY_V32",),
    "gigachat3": ("gigachat:GIGACHAT3",),
    "gigachat31": ("gigachat:GIGACHAT3",),
    "lfm2": ("listing:LFM2",),
    "lfm25": ("listing:LFM25",),
    "minicpm5": ("listing:MINICPM5",),
    "minimax-m2": ("listing:MINIMAX_M2",),
    "minimax-m3": ("listing:MINIMAX_M3",),
    "minimax-m1": ("listing:MINIMAX_M1",),
    "muse": ("muse:MUSE",),
    "poolside-v1": ("poolside:LAGUNA_XS2", "poolside:LAGUNA_XS21"),
    "laguna-s": ("poolside:LAGUNA_S21",),
    "seed-oss": ("seed:SEED_OSS",),
    "solar-open": ("listing:SOLAR",),
    "spark25": ("poolside:SPARK25",),
    "step3p5": ("listing:STEP35",),
}
"""The `module:attribute` of each template, which is imported on first use. A dialect's first one is its default."""


@cache
def templates_of(dialect: str) -> tuple[Template, ...]:
    """The templates of the models that write this dialect, the default first."""
    return tuple(map(_load, TEMPLATES.get(dialect, ())))


@cache
def default_template(dialect: str) -> Template | None:
    """The template of an unknown model of this dialect."""
    return next(iter(templates_of(dialect)), None)


def template_for(dialect: str, model: str) -> Template | None:
    """The dialect's template for the model of this name, None if it is a template of another dialect or unknown."""
    words = words_of(model)
    candidates = [
        (rank, -i, each)
        for i, each in enumerate(templates_of(dialect))
        if (rank := family_rank(words, each.models)) is not None
    ]
    return max(candidates, key=lambda each: each[:2])[2] if candidates else None


def _load(place: str) -> Template:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(f"toolspeak.dialects.trained.{module}_template"), attribute)
