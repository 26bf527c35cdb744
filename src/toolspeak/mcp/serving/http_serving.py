"""Serves an application on a socket until the process is told to end."""

from __future__ import annotations

import socket

import uvicorn
from starlette.types import ASGIApp

_GRACE = 5
"""Seconds that answers under way may take after a SIGTERM."""


async def serve_http(app: ASGIApp, sock: socket.socket) -> None:
    """Serves on a socket that listens, until SIGTERM or Ctrl-C."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        ws="none",
        timeout_keep_alive=75,  # a client that sends its next request just when the connection is closed loses it
        timeout_graceful_shutdown=_GRACE,
    )
    await uvicorn.Server(config).serve(sockets=[sock])
