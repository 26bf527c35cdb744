"""The socket that the gateway listens on."""

from __future__ import annotations

import errno
import socket

from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.gateway_settings import Settings


class PortInUse(ConfigurationError):
    """Another process listens on the port."""


def listen(settings: Settings) -> socket.socket:
    """A socket that listens, for any process that inherits it. Raises ConfigurationError, PortInUse among them."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((settings.host, settings.port))
        sock.listen(2048)
        sock.set_inheritable(True)
    except OSError as error:
        sock.close()
        kind = PortInUse if error.errno == errno.EADDRINUSE else ConfigurationError
        raise kind(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another --port"
        ) from error
    return sock
