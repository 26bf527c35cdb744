"""Serves an application on an address until the process is told to end."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from toolspeak.errors import ConfigurationError

_GRACE = 5
"""Seconds that answers under way may take after a SIGTERM."""


async def serve_http(app: ASGIApp, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C. `ready` gets the address once it listens.

    Raises ConfigurationError for an address that it cannot listen on.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from error
    name = f"[{host}]" if ":" in host else host
    ready(f"http://{name}:{sock.getsockname()[1]}")
    config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=_GRACE)
    await uvicorn.Server(config).serve(sockets=[sock])
