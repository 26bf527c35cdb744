"""What models can do at each service: the rows of `models.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, cast

from toolspeak.data.values import quick
from toolspeak.providers.capabilities import APIS, Capabilities

_FLAGS = ("tools", "parallel", "output", "output_with_tools", "reasoning", "tool_references")


@quick()
class Family:
    """A row of `models.toml`: facts about models at these providers. None is unknown."""

    names: re.Pattern[str]
    """Matches the whole name of each model, in small letters."""
    providers: tuple[str, ...]
    source: str
    """The documentation that the facts are from."""
    date: str
    """When the source was read."""
    context: int | None = None
    tools: bool | None = None
    parallel: bool | None = None
    output: bool | None = None
    output_with_tools: bool | None = None
    reasoning: bool | None = None
    tool_references: bool | None = None


def capabilities_of(provider: str, model: str, *, own_server: bool = False) -> Capabilities:
    """What a model can do at a provider (a name in `PROVIDERS`); nothing at an unknown provider.

    A flag is True if the API has the feature, and no row says that the model lacks it. The context is only known at a
    service: with `own_server`, and at servers that people run themselves, the server's settings decide, and it is None.
    Nor are references to tools known there, which few servers with a service's API have.
    """
    api_capabilities = APIS.get(provider)
    if api_capabilities is None:
        return Capabilities()
    if own_server:
        api_capabilities = replace(api_capabilities, tool_references=False)
    family = family_of(provider, model)
    if family is None:
        return api_capabilities
    lacks = {flag: False for flag in _FLAGS if getattr(family, flag) is False}
    return replace(api_capabilities, context=None if own_server else family.context, **lacks)


def family_of(provider: str, model: str) -> Family | None:
    """The first row for the model at this provider. OpenRouter's names begin with the vendor."""
    name = model.lower()
    return next(
        (row for row in families() if provider in row.providers and row.names.fullmatch(name) is not None), None
    )


@cache
def families() -> tuple[Family, ...]:
    """The rows of `models.toml`, in the file's order."""
    table = tomllib.loads(files("toolspeak.providers").joinpath("models.toml").read_text(encoding="utf-8"))
    return tuple(_family(row) for row in cast("list[dict[str, Any]]", table["family"]))


def _family(row: dict[str, Any]) -> Family:
    fields: dict[str, Any] = {**row, "names": re.compile(row["names"]), "providers": tuple(row["providers"])}
    return Family(**{**fields, "date": row["date"].isoformat()})
