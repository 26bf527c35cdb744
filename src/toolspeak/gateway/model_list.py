"""The models of the upstreams, and whether the upstreams answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.gateway.client_request import Request
from toolspeak.gateway.upstreams.routing import Router, UnknownModel
from toolspeak.providers.http_client import json_bytes
from toolspeak.providers.server_probe import probe


async def answer_models(request: Request, model_name: str) -> None:
    """Answers `GET /v1/models`, or with one model of this name. Raises UnknownModel."""
    rows = [row for row in await listed_models(request.current.router) if request.allows(cast("str", row["id"]))]
    if not model_name:
        await request.respond(200, json_bytes({"object": "list", "data": rows}))
        return
    matches = [row for row in rows if row["id"] == model_name]
    if not matches:
        raise UnknownModel(f"there is no model {model_name!r}; GET /v1/models lists them")
    await request.respond(200, json_bytes(matches[0]))


async def listed_models(router: Router) -> list[dict[str, JSON]]:
    """The configured names, and the models that upstreams of globs list, each with its upstream's description."""
    models: dict[str, Mapping[str, JSON]] = {name: {} for name in router.names}
    with router.probes() as probes:
        upstreams = [upstream for upstream, _ in probes]
        answers = await asyncio.gather(*(probe(provider) for _, provider in probes))
    for upstream, (rows, _) in zip(upstreams, answers, strict=True):
        rows_by_name = rows or {}
        for name in upstream.exact:
            models[name] = models[name] or rows_by_name.get(upstream.model or name, {})
        if upstream.model and not upstream.exact:  # it answers to any name, and this is its own
            models.setdefault(upstream.model, rows_by_name.get(upstream.model, {}))
        elif not upstream.model and len(upstream.exact) != len(upstream.names):
            for name, row in rows_by_name.items():
                if upstream.serves(name):
                    models.setdefault(name, row)
    return [_row(name, row) for name, row in models.items()]


def _row(name: str, row_fields: Mapping[str, JSON]) -> dict[str, JSON]:
    """A model's description for clients, under its name here."""
    theirs = row_fields.get("id") or row_fields.get("name")
    fields = {field: name if value == theirs else value for field, value in row_fields.items()}
    return {"object": "model", "created": 0, "owned_by": "toolspeak", **fields, "id": name}


@dataclass(frozen=True, slots=True)
class Reachability:
    """Which models can be answered."""

    is_ready: bool
    """At least one model can."""
    unreachable: Sequence[str]
    """The names of the models without an upstream that answers."""
    problems: Sequence[str]
    """A line for each upstream that does not answer."""


async def reachability(router: Router) -> Reachability:
    """Asks every upstream for its models. An upstream that refuses the gateway's key, or without an API at its address,
    counts as not answering."""
    with router.probes() as probes:
        upstreams = [upstream for upstream, _ in probes]
        answers = await asyncio.gather(*(probe(provider, thorough=True) for _, provider in probes))
    problems = [(upstream, problem) for upstream, (_, problem) in zip(upstreams, answers, strict=True)]
    reachable = {upstream.names for upstream, problem in problems if not problem}
    unreachable = dict.fromkeys(
        name for upstream in upstreams if upstream.names not in reachable for name in upstream.names
    )
    return Reachability(
        bool(reachable), tuple(unreachable), [f"{each.names[0]}: {problem}" for each, problem in problems if problem]
    )
