"""A uvicorn server that says when it is ready."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn


class ReadyServer(uvicorn.Server):
    """Calls `ready` once the application has opened its stores and accepts requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts, and calls `ready` unless the application could not start."""
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()
