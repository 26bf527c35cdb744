"""Answers whether the process works, and whether its upstreams do."""

from __future__ import annotations

import asyncio
import logging
import time

from toolspeak.data.messages import JSON
from toolspeak.gateway.client_request import Request
from toolspeak.gateway.model_list import Reachability, reachability
from toolspeak.gateway.observability import log
from toolspeak.gateway.upstreams.routing import Router
from toolspeak.providers.http_client import json_bytes

OPEN = ("/health", "/healthz", "/readyz")
"""The endpoints without a key."""

_PROBED_SECONDS = 2.0


class Readiness:
    """Answers `GET /healthz` and `/readyz`. Asks the upstreams at most every two seconds."""

    def __init__(self) -> None:
        self._probed: tuple[float, Router, asyncio.Future[Reachability]] | None = None

    async def answer(self, request: Request, router: Router, *, draining: bool) -> None:
        """Answers one request. `draining`: the gateway is stopping."""
        if request.path != "/readyz":
            await request.respond(200, b'{"status":"ok"}')
            return
        if draining:
            await request.respond(503, b'{"status":"draining"}')
            return
        reached = await self._ask_upstreams(router)
        for problem in reached.problems:  # the client needs no key, so only the log has the reason
            log("unreachable", {"problem": problem}, level=logging.WARNING)
        body: dict[str, JSON] = {"status": "ready" if reached.is_ready else "upstream unreachable"}
        if reached.unreachable:
            body["unreachable"] = [*reached.unreachable]
        await request.respond(200 if reached.is_ready else 503, json_bytes(body))

    async def _ask_upstreams(self, router: Router) -> Reachability:
        now = time.monotonic()
        if self._probed is None or self._probed[1] is not router or now - self._probed[0] > _PROBED_SECONDS:
            self._probed = (now, router, asyncio.ensure_future(reachability(router)))
        return await asyncio.shield(self._probed[2])
