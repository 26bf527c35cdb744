"""Whether the process answers, and whether its upstreams do."""

from __future__ import annotations

import asyncio
import logging
import time

from toolspeak.gateway.logs import log
from toolspeak.gateway.models import unreachable
from toolspeak.gateway.request import Request
from toolspeak.gateway.routing import Router

OPEN = ("/health", "/healthz", "/readyz")
"""The endpoints that need no key."""

_PROBED_SECONDS = 2.0


class Readiness:
    """Answers `GET /healthz` and `/readyz`. The upstreams are asked once in a while, however often the gateway is."""

    def __init__(self) -> None:
        self._probed: tuple[float, Router, asyncio.Future[tuple[bool, list[str]]]] | None = None

    async def answer(self, request: Request, router: Router, *, draining: bool) -> None:
        """`draining`: the gateway is being stopped."""
        if request.path != "/readyz":
            await request.respond(200, b'{"status":"ok"}')
            return
        if draining:
            await request.respond(503, b'{"status":"draining"}')
            return
        is_ready, problems = await self._problems(router)
        for problem in problems:  # who asks need not have a key, so only the log says which
            log("unreachable", {"problem": problem}, level=logging.WARNING)
        await request.respond(
            200 if is_ready else 503, b'{"status":"ready"}' if is_ready else b'{"status":"upstream unreachable"}'
        )

    async def _problems(self, router: Router) -> tuple[bool, list[str]]:
        """Whether every model has an upstream that answers, and what is wrong with the others."""
        now = time.monotonic()
        if self._probed is None or self._probed[1] is not router or now - self._probed[0] > _PROBED_SECONDS:
            self._probed = (now, router, asyncio.ensure_future(unreachable(router)))
        return await asyncio.shield(self._probed[2])
