"""`toolspeak keys`: API keys for clients of the gateway."""

from __future__ import annotations

import secrets

import click

from toolspeak.cli.options import write_text
from toolspeak.gateway.keys import checked_name, digest

_BYTES = 24


@click.group()
def keys() -> None:
    """API keys for clients of the gateway."""


@keys.command("new")
@click.argument("name")
def new(name: str) -> None:
    """Make a key for the client NAME.

    The table for the gateway's configuration goes to standard output, with the key's digest; the key itself, this once,
    to standard error:

      toolspeak keys new alice >> gateway.toml
    """
    checked_name(name, "NAME")
    key = f"tsk-{secrets.token_hex(_BYTES)}"
    write_text(f'\n[[key]]\nname = "{name}"\nsha256 = "{digest(key)}"\n')
    click.echo(f"The key of {name}, shown this once: {key}", err=True)
