"""`toolspeak ui`: runs in a browser."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import click

from toolspeak.cli.options.agents_option import engine_option
from toolspeak.cli.options.journal_option import journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.cli.web_view import print_view_address, secret_file, shared_journal, view_module
from toolspeak.engines import open_engine
from toolspeak.journal import Journal


@click.command("ui")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; others need --keys.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8666, show_default=True, help="The port; 0 is any free one."
)
@click.option("--keys", metavar="FILE", type=click.Path(dir_okay=False), help="A file of keys with roles.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name by which browsers call it; repeatable.")
@engine_option
@journal_option
def ui_command(
    host: str, port: int, keys: str | None, names: tuple[str, ...], engine: str | None, journal: str | None
) -> None:
    """Show runs in a browser: what they do, what they wait for, what they cost. Decide about their calls there.

    Prints an address that lets one browser in, once. With --keys, people log in with their keys instead
    (`toolspeak keys new NAME --role approve >> FILE`).
    """
    server = view_module("web_server")
    settings = server.UiSettings(host, port, keys, names, secret_file())
    with suppress(KeyboardInterrupt):
        run_to_end(_serve(server, settings, shared_journal(journal), engine))


async def _serve(server: Any, settings: Any, journal: Journal, url: str | None) -> None:
    engine = open_engine(url, journal) if url else None
    try:
        await server.serve_ui(journal, server.open_listener(settings), print_view_address, engine=engine)
    finally:
        await asyncio.gather(journal.aclose(), *([] if engine is None else [engine.aclose()]))
