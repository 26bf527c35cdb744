"""What a model behind an API can do: what the API is known for, less what its model is known not to have."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`None` of a number is unknown.

    `tools`: native tool calls. `parallel`: several in one turn. `output`: an answer of a JSON Schema. `grammar`: the
    language of the grammars that a request may hold the model to (`wire.base.Constraint`), if any. `reasoning`: the
    API keeps reasoning apart. `tool_choice`: `required` and a named tool are enforced. `tool_role`: messages of role
    `tool` that carry no call id are taken. `context`: the model's window in tokens. `resume`: the server keeps a
    conversation, so that only what is new is sent. `cache_markers`: a prompt is only cached where the request says so.
    """

    tools: bool = False
    parallel: bool = True
    output: bool = False
    grammar: Literal["gbnf", "xgrammar"] | None = None
    reasoning: bool = False
    tool_choice: bool = False
    tool_role: bool = False
    context: int | None = None
    resume: bool = False
    cache_markers: bool = False


APIS: Mapping[str, Capabilities] = {
    "anthropic": Capabilities(tools=True, output=True, reasoning=True, tool_choice=True, cache_markers=True),
    "gemini": Capabilities(tools=True, output=True, reasoning=True, tool_choice=True),
    "ollama": Capabilities(tools=True, output=True, reasoning=True),
    "openai": Capabilities(tools=True, output=True, tool_choice=True),
    "openai-responses": Capabilities(tools=True, output=True, tool_choice=True, reasoning=True, resume=True),
    "openrouter": Capabilities(tools=True, reasoning=True),
    "groq": Capabilities(tools=True, tool_choice=True),
    "mistral": Capabilities(tools=True, output=True, reasoning=True, tool_choice=True),
    "deepseek": Capabilities(tools=True, reasoning=True),
    "together": Capabilities(tools=True, output=True, tool_choice=True),
    "vllm": Capabilities(tools=True, output=True, grammar="xgrammar", reasoning=True, tool_choice=True),
    "sglang": Capabilities(tools=True, output=True, grammar="xgrammar", reasoning=True, tool_choice=True),
    # A named tool choice is ignored with a warning.
    "llamacpp": Capabilities(tools=True, output=True, grammar="gbnf", reasoning=True),
    "lmstudio": Capabilities(tools=True, output=True),
}
"""What each provider's API can do, by the provider's name."""

_FLAGS = ("tools", "parallel", "output", "reasoning")


@dataclass(frozen=True, slots=True)
class Family:
    """A row of `models.toml`: what is known of the models whose whole name `names` matches, at these providers.

    None is unknown. `source` is where it was read, `date` when.
    """

    names: re.Pattern[str]
    providers: tuple[str, ...]
    source: str
    date: str
    context: int | None = None
    tools: bool | None = None
    parallel: bool | None = None
    output: bool | None = None
    reasoning: bool | None = None


def capabilities_of(provider: str, model: str, *, own_server: bool = False) -> Capabilities:
    """What a model is known to do at a provider (its name in `PROVIDERS`); nothing at one that is not known.

    A flag is what the API has and the model is not known to lack. The context is only known where a service sets it:
    with `own_server`, and where people run models themselves, the server's settings decide, so it stays None.
    """
    known = APIS.get(provider)
    if known is None:
        return Capabilities()
    family = family_of(provider, model)
    if family is None:
        return known
    lacks = {flag: False for flag in _FLAGS if getattr(family, flag) is False}
    return replace(known, context=None if own_server else family.context, **lacks)


def family_of(provider: str, model: str) -> Family | None:
    """The first row for the model at this provider. OpenRouter names a model with its vendor in front."""
    name = model.lower()
    return next(
        (row for row in families() if provider in row.providers and row.names.fullmatch(name) is not None), None
    )


@cache
def families() -> tuple[Family, ...]:
    """The rows of `models.toml`, in their order."""
    table = tomllib.loads(files("toolspeak.providers").joinpath("models.toml").read_text(encoding="utf-8"))
    return tuple(_family(row) for row in cast("list[dict[str, Any]]", table["family"]))


def _family(row: dict[str, Any]) -> Family:
    fields: dict[str, Any] = {**row, "names": re.compile(row["names"]), "providers": tuple(row["providers"])}
    return Family(**{**fields, "date": row["date"].isoformat()})
