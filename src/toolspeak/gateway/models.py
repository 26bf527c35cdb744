"""What upstreams say of themselves: which models they have, and whether they can be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.errors import ToolspeakError
from toolspeak.gateway.config import Upstream
from toolspeak.gateway.routing import Router
from toolspeak.providers.api import ApiProvider
from toolspeak.providers.base import Provider

PROBE_SECONDS = 5.0


async def listed_models(router: Router) -> Sequence[str]:
    """The names that are configured, and what the upstreams of globs list themselves, as far as they say."""
    names = dict.fromkeys(router.names)
    asked: list[tuple[Upstream, Provider]] = []
    with router.probes() as probes:
        for upstream, provider in probes:
            if not upstream.model and len(upstream.exact) != len(upstream.names):
                asked.append((upstream, provider))
            elif not upstream.exact:  # it answers to any name: this is its own
                names.setdefault(upstream.model)
        found = await asyncio.gather(*(_models_of(provider) for _, provider in asked))
    for (upstream, _), listed in zip(asked, found, strict=True):
        names.update((name, None) for name in listed if upstream.serves(name))
    return list(names)


async def _models_of(provider: Provider) -> list[str]:
    if not isinstance(provider, ApiProvider):
        return []
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            found = await provider.probe()
    except (ToolspeakError, TimeoutError):
        return []
    return list(model_rows(found))


def model_rows(found: JSON) -> dict[str, Mapping[str, Any]]:
    """What an API says of each model it lists, by the model's name."""
    if not isinstance(found, dict):
        return {}
    table = cast("dict[str, Any]", found)
    rows: Any = table.get("data") or table.get("models") or []
    listed = cast("list[Any]", rows) if isinstance(rows, list) else []
    tables = [cast("dict[str, Any]", row) for row in listed if isinstance(row, dict)]
    named = [(row.get("id") or row.get("name"), row) for row in tables]
    return {name.removeprefix("models/"): row for name, row in named if isinstance(name, str)}


async def unreachable(router: Router) -> list[str]:
    """What is wrong with the upstreams, one line each: nothing if all of them answer, whatever they answer."""
    with router.probes() as probes:
        found = await asyncio.gather(*(_problem(upstream, provider) for upstream, provider in probes))
    return [problem for problem in found if problem]


async def _problem(upstream: Upstream, provider: Provider) -> str:
    if not isinstance(provider, ApiProvider):
        return ""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await provider.probe()
    except TimeoutError:
        return f"{upstream.names[0]}: no answer within {PROBE_SECONDS:g} seconds"
    except ToolspeakError as error:
        return f"{upstream.names[0]}: {error}"
    return ""
