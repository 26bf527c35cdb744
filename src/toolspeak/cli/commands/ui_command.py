"""`toolspeak ui`: runs in a browser."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import suppress
from typing import Any

import click

from toolspeak.cli.agents_option import engine_option
from toolspeak.cli.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.engines import open_engine
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal, MemoryJournal
from toolspeak.project.user_folders import NO_FOLDER, data_folder


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
    try:
        server = importlib.import_module("toolspeak.web_ui.web_server")  # not at the top: it needs an extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("toolspeak"):
            raise
        raise ConfigurationError(f"the web view needs: pip install 'toolspeak[ui]' ({error.name} is missing)") from None
    folder = data_folder()
    secret_file = None if folder == NO_FOLDER else folder / "web-view.secret"
    settings = server.UiSettings(host, port, keys, names, secret_file)
    with suppress(KeyboardInterrupt):
        run_to_end(_serve(server, settings, journal_of(journal), engine))


async def _serve(server: Any, settings: Any, journal: Journal, url: str | None) -> None:
    if isinstance(journal, MemoryJournal):
        raise ConfigurationError("a journal in memory has no runs of other processes: name a file or a URL (--journal)")
    engine = open_engine(url, journal) if url else None
    try:
        await server.serve_ui(journal, settings, _print_address, engine=engine)
    finally:
        await asyncio.gather(journal.aclose(), *([] if engine is None else [engine.aclose()]))


def _print_address(address: str) -> None:
    with suppress(OSError):  # a closed standard error must not stop the server
        click.echo(f"toolspeak: open {address}", err=True)
