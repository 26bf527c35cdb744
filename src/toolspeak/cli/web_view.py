"""What the commands share that serve the web view."""

from __future__ import annotations

import importlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from toolspeak.cli.options.command_options import CommandT
from toolspeak.cli.options.journal_option import journal_of
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal, MemoryJournal
from toolspeak.project.user_files.user_folders import NO_FOLDER, data_folder

_OPTIONS = (
    click.option("--ui", "shows_ui", is_flag=True, help="Show the gateway in a browser, too: streams, latency, keys."),
    click.option("--ui-host", metavar="HOST", help="Where --ui listens (127.0.0.1); others need --ui-keys."),
    click.option("--ui-port", type=click.IntRange(0, 65535), help="The port of --ui (8666); 0 is any free one."),
    click.option(
        "--ui-keys", metavar="FILE", type=click.Path(dir_okay=False), help="A file of keys with roles for --ui."
    ),
    click.option(
        "--ui-name", "ui_names", multiple=True, metavar="HOST", help="A name by which browsers call --ui; repeatable."
    ),
    click.option("--journal", metavar="FILE|URL", help="With --ui: show the runs of this journal, too."),
)


def gateway_view_options(command: CommandT) -> CommandT:
    """The options of a gateway that shows itself in a browser."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def beside_gateway(
    *,
    shows_ui: bool,
    ui_host: str | None,
    ui_port: int | None,
    ui_keys: str | None,
    ui_names: tuple[str, ...],
    journal: str | None,
) -> Any:
    """What runs beside the gateway, of the values of `gateway_view_options`: the web view; None without `--ui`. The
    port is open then. Raises ConfigurationError."""
    if not shows_ui:
        options = {"--ui-host": ui_host, "--ui-port": ui_port, "--ui-keys": ui_keys, "--ui-name": ui_names}
        for name, value in {**options, "--journal": journal}.items():
            if value not in (None, ()):
                raise ConfigurationError(f"{name} is for the web view: add --ui, or leave it out")
        return None
    server, view = view_module("web_server"), view_module("beside_gateway")
    settings = server.UiSettings(
        ui_host or "127.0.0.1", 8666 if ui_port is None else ui_port, ui_keys, ui_names, secret_file()
    )
    open_store = None if journal is None else lambda: shared_journal(journal)
    if open_store is not None:
        shared_journal(journal)  # a wrong address is an error before anything is served
    return view.beside_gateway(server.open_listener(settings, option="--ui-"), print_view_address, open_store)


def view_module(name: str) -> Any:
    """A module of the web view, which needs an extra. Raises ConfigurationError without it."""
    try:
        return importlib.import_module(f"toolspeak.web_ui.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("toolspeak"):
            raise
        raise ConfigurationError(f"the web view needs: pip install 'toolspeak[ui]' ({error.name} is missing)") from None


def secret_file() -> Path | None:
    """The file of the secret that signs cookies; None where nothing is kept for the user."""
    folder = data_folder()
    return None if folder == NO_FOLDER else folder / "web-view.secret"


def shared_journal(where: str | None) -> Journal:
    """The journal for the value of `--journal`. Raises ConfigurationError for one without runs of other processes."""
    journal = journal_of(where)
    if isinstance(journal, MemoryJournal):
        raise ConfigurationError("a journal in memory has no runs of other processes: name a file or a URL (--journal)")
    return journal


def print_view_address(address: str) -> None:
    """Prints an address that people may open."""
    with suppress(OSError):  # a closed standard error must not stop the server
        click.echo(f"toolspeak: open {address}", err=True)
