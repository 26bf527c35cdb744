"""`toolspeak keys`: makes API keys for clients of the gateway."""

from __future__ import annotations

import json
import secrets

import click

from toolspeak.cli.options.command_options import write_text
from toolspeak.gateway.settings.api_keys import checked_name, digest

_BYTES = 24


@click.group("keys")
def keys_command() -> None:
    """API keys for clients of the gateway."""


@keys_command.command("new")
@click.argument("name")
@click.option("--models", multiple=True, metavar="NAME|GLOB", help="A model that the key may use; repeatable (all).")
@click.option("--requests-per-minute", type=click.IntRange(1), help="The most requests in any 60 seconds (no limit).")
@click.option("--streams", type=click.IntRange(1), help="The most answers at the same time (no limit).")
@click.option("--tokens-per-day", type=click.IntRange(1), help="The most tokens in a day, in UTC (no limit).")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["approve", "run"]),
    help="For a key of `toolspeak ui`: what it may do besides reading; repeatable.",
)
@click.option(
    "--principal", metavar="NAME", help="For a key of `toolspeak ui`: it sees only runs on behalf of NAME (all runs)."
)
@click.option("--digest-only", is_flag=True, help="Print only the digest, to add it to the `sha256` of an old key.")
def new(
    name: str,
    models: tuple[str, ...],
    roles: tuple[str, ...],
    principal: str | None,
    digest_only: bool,
    **limits: int | None,
) -> None:
    """Make a key for the client NAME.

    Prints a table for the gateway's configuration, with the key's digest, to standard output. Prints the key itself,
    only this once, to standard error:

      toolspeak keys new alice >> gateway.toml

    To replace a key's secret, add a second digest to its table, give the client the new key, and remove the old digest
    later:

    \b
      toolspeak keys new alice --digest-only
      sha256 = ["OLD DIGEST", "NEW DIGEST"]
    """
    checked_name(name, "NAME")
    key = f"tsk-{secrets.token_hex(_BYTES)}"
    if digest_only:
        write_text(f"{digest(key)}\n")
    else:
        rows = [f'name = "{name}"', f'sha256 = "{digest(key)}"']
        if models:
            rows.append(f"models = {json.dumps(models, ensure_ascii=False)}")
        if roles:
            rows.append(f"roles = {json.dumps(roles)}")
        if principal is not None:
            rows.append(f"principal = {json.dumps(principal, ensure_ascii=False)}")
        rows += [f"{limit} = {count}" for limit, count in limits.items() if count is not None]
        write_text("\n".join(["", "[[key]]", *rows, ""]))
    click.echo(f"The key of {name}, shown only now: {key}", err=True)
