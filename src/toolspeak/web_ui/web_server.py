"""Serves the web view until it is stopped."""

from __future__ import annotations

import asyncio
import getpass
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvicorn

from toolspeak.engines import Engine, RunClient
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.listening_socket import listen
from toolspeak.gateway.ready_server import ReadyServer
from toolspeak.gateway.settings.gateway_settings import LOOPBACK
from toolspeak.journal.base import Journal
from toolspeak.web_ui.access import Access, UiKey, read_ui_keys
from toolspeak.web_ui.gateway_values import GatewayWatch
from toolspeak.web_ui.run_views import UiServices
from toolspeak.web_ui.web_app import web_app

_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class UiSettings:
    """Where the web view listens, and who may use it.

    - `keys`: a file of keys. None: a one-time token, on this machine alone.
    - `hosts`: the names by which it is called, besides those of this machine; empty with keys: any.
    - `secret_file`: what signs cookies, so that browsers stay logged in when the server starts again. None: nothing is
      stored.
    """

    host: str = "127.0.0.1"
    port: int = 8666
    keys: str | None = None
    hosts: Sequence[str] = ()
    secret_file: Path | None = None


class _UiServer(ReadyServer):
    """Ends the streams before it waits for open requests."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        services = cast("UiServices", cast("Any", self.config.app).state.services)
        await services.live.aclose()
        if services.gateway is not None:
            services.gateway.close_streams()
        await super().shutdown(sockets)


@dataclass(frozen=True, slots=True)
class UiListener:
    """A socket that listens, the keys for it (None: a one-time token), and the secret that signs cookies."""

    settings: UiSettings
    sock: socket.socket
    keys: tuple[UiKey, ...] | None
    secret: bytes


def open_listener(settings: UiSettings, *, option: str = "--") -> UiListener:
    """Listens where the settings say. `option`: how the names of the command's options begin.

    Raises ConfigurationError for a port that is in use, for keys or a secret that cannot be read, and for an address of
    other machines without keys.
    """
    if settings.keys is None and settings.host not in LOOPBACK:
        raise ConfigurationError(
            f"{option}host {settings.host} is open to other machines: give people keys (`toolspeak keys new NAME --role"
            f" approve >> keys.toml`, then {option}keys keys.toml)"
        )
    keys = None if settings.keys is None else read_ui_keys(settings.keys)
    secret = _secret(settings.secret_file)
    return UiListener(settings, listen(settings.host, settings.port, backlog=256, option=f"{option}port"), keys, secret)


async def serve_ui(
    journal: Journal | None,
    door: UiListener,
    say: Callable[[str], None],
    *,
    engine: Engine | None = None,
    gateway: GatewayWatch | None = None,
) -> None:
    """Serves until the task is cancelled, and closes the socket. Calls `say` with each address that people may open.
    `journal`, `gateway`: as in `web_app`."""
    settings, keys = door.settings, door.keys
    with door.sock as sock:
        port = sock.getsockname()[1]
        host_text = f"[{settings.host}]" if ":" in settings.host else settings.host

        def announce(token: str) -> None:
            say(f"http://{host_text}:{port}/#token={token}")

        access = Access(
            keys=keys,
            user="_".join(getpass.getuser().split()) or "user",
            secret=door.secret,
            hosts=(*settings.hosts, *LOOPBACK, settings.host) if keys is None or settings.hosts else (),
            cookie_name=f"toolspeak-ui-{port}",
            on_token=announce,
        )
        client = None if journal is None else RunClient(journal, engine)
        app = web_app(journal, access, client=client, gateway=gateway)
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,  # a client that sends its next request just when the connection is closed loses it
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=32 * 1024,
        )

        def ready() -> None:
            if keys is None:
                announce(access.token)
            else:
                say(f"http://{host_text}:{port}/")

        server = _UiServer(config, ready)
        # uvicorn takes SIGINT and SIGTERM while it serves, and gives them back at its end.
        serving = asyncio.ensure_future(server.serve([sock]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.should_exit = True
            await serving
            raise


def _secret(file: Path | None) -> bytes:
    """The secret that signs cookies, from its file. The first server makes the file, for its user alone."""
    if file is None:
        return secrets.token_bytes(_SECRET_BYTES)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(secrets.token_bytes(_SECRET_BYTES))
    content = file.read_bytes()
    if len(content) < _SECRET_BYTES:
        raise ConfigurationError(f"{file} is no secret of the web view: remove it, and start again")
    return content
