"""What upstreams say of themselves: which models they have, and whether they can be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.errors import ToolspeakError
from toolspeak.gateway.request import Request
from toolspeak.gateway.routing import Router, UnknownModel
from toolspeak.gateway.sse import json_bytes
from toolspeak.providers.api import ApiProvider
from toolspeak.providers.base import Provider

PROBE_SECONDS = 5.0


async def answer_models(request: Request, wanted: str) -> None:
    """Answers `GET /v1/models`, or with one model of this name. Raises UnknownModel."""
    rows = [row for row in await listed_models(request.current.router) if request.allows(cast("str", row["id"]))]
    if not wanted:
        await request.respond(200, json_bytes({"object": "list", "data": rows}))
        return
    found = [row for row in rows if row["id"] == wanted]
    if not found:
        raise UnknownModel(f"there is no model {wanted!r}; GET /v1/models lists them")
    await request.respond(200, json_bytes(found[0]))


async def listed_models(router: Router) -> list[dict[str, JSON]]:
    """The names that are configured, and what the upstreams of globs list themselves, each with what its upstream says
    of it."""
    found: dict[str, Mapping[str, JSON]] = {name: {} for name in router.names}
    with router.probes() as probes:
        upstreams = [upstream for upstream, _ in probes]
        answers = await asyncio.gather(*(probe(provider) for _, provider in probes))
    for upstream, (rows, _) in zip(upstreams, answers, strict=True):
        said = rows or {}
        for name in upstream.exact:
            found[name] = said.get(upstream.model or name) or found[name]
        if upstream.model and not upstream.exact:  # it answers to any name: this is its own
            found.setdefault(upstream.model, said.get(upstream.model, {}))
        elif not upstream.model and len(upstream.exact) != len(upstream.names):
            for name, row in said.items():
                if upstream.serves(name):
                    found.setdefault(name, row)
    return [_row(name, row) for name, row in found.items()]


def _row(name: str, said: Mapping[str, JSON]) -> dict[str, JSON]:
    """What a client reads of a model under its name here."""
    theirs = said.get("id") or said.get("name")
    told = {field: name if value == theirs else value for field, value in said.items()}
    return {"object": "model", "created": 0, "owned_by": "toolspeak", **told, "id": name}


async def probe(provider: Provider, *, checks_key: bool = False) -> tuple[Mapping[str, Mapping[str, Any]] | None, str]:
    """What a server says of each model it lists, and what is wrong: "" if it answers, whatever it answers.

    None for a server that says nothing. A provider that is not an API of its own is not asked.
    """
    if not isinstance(provider, ApiProvider):
        return None, ""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return model_rows(await provider.probe(checks_key=checks_key)), ""
    except TimeoutError:
        return None, f"no answer within {PROBE_SECONDS:g} seconds"
    except ToolspeakError as error:
        return None, str(error)


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
        upstreams = [upstream for upstream, _ in probes]
        answers = await asyncio.gather(*(probe(provider) for _, provider in probes))
    return [f"{each.names[0]}: {problem}" for each, (_, problem) in zip(upstreams, answers, strict=True) if problem]
