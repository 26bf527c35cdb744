"""The socket that a server listens on."""

from __future__ import annotations

import errno
import socket

from toolspeak.errors import ConfigurationError


class PortInUse(ConfigurationError):
    """Another process listens on the port."""


def listen(host: str, port: int, *, backlog: int, option: str = "--port") -> socket.socket:
    """A socket that listens, with at most `backlog` connections that wait. Raises ConfigurationError, which names
    `option` as the remedy, PortInUse among them."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        kind = PortInUse if error.errno == errno.EADDRINUSE else ConfigurationError
        raise kind(f"cannot listen on {host}:{port}: {error.strerror}; choose another {option}") from error
    return sock
