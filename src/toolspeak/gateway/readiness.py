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
        self._last_probe: tuple[float, Router, asyncio.Future[Reachability]] | None = None

    async def answer(self, request: Request, router: Router, *, draining: bool) -> None:
        """Answers one request. `draining`: the gateway is stopping."""
        if request.path != "/readyz":
            await request.respond(200, b'{"status":"ok"}')
            return
        if draining:
            await request.respond(503, b'{"status":"draining"}')
            return
        upstreams = await self._ask_upstreams(router)
        for problem in upstreams.problems:  # the client needs no key, so only the log has the reason
            log("unreachable", {"problem": problem}, level=logging.WARNING)
        body: dict[str, JSON] = {"status": "ready" if upstreams.is_ready else "upstream unreachable"}
        if upstreams.unreachable:
            body["unreachable"] = [*upstreams.unreachable]
        await request.respond(200 if upstreams.is_ready else 503, json_bytes(body))

    async def _ask_upstreams(self, router: Router) -> Reachability:
        now = time.monotonic()
        if self._last_probe is None or self._last_probe[1] is not router or now - self._last_probe[0] > _PROBED_SECONDS:
            self._last_probe = (now, router, asyncio.ensure_future(reachability(router)))
        return await asyncio.shield(self._last_probe[2])
