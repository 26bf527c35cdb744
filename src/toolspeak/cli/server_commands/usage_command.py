"""`toolspeak usage`: shows the usage of each key of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolspeak.cli.options.command_options import write_json
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.gateway_settings import read_toml
from toolspeak.gateway.settings.usage_settings import default_store, usage_of_table
from toolspeak.gateway.usage.usage_store import open_usage
from toolspeak.gateway.usage.usage_values import COLUMNS, COUNT_FIELDS, Column, UsageRow

_UNBOUNDED_WIDTH = 10_000
"""The width of a line in a file or a pipe, so that nothing is folded."""


@click.command("usage")
@click.option("--store", metavar="FILE|URL", help="The gateway's usage store (default: its file in your data folder).")
@click.option(
    "--config", metavar="FILE", type=click.Path(dir_okay=False), help="The gateway's configuration, with its store."
)
@click.option("--by", multiple=True, type=click.Choice(COLUMNS), help="The columns to group by (key); repeatable.")
@click.option(
    "--since", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="From this day on (UTC), e.g. 2026-11-01."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def usage_command(
    store: str | None, config: str | None, by: tuple[Column, ...], since: datetime | None, as_json: bool
) -> None:
    """Show the requests, tokens and calls of each key of the gateway.

    Tokens are counted by the model servers, or estimated if a server does not count them. Days are in UTC.
    """
    if store is not None and config is not None:
        raise ConfigurationError("use --store or --config, not both: the configuration names the store")
    if config is not None:
        store = usage_of_table(read_toml(config).get("usage", {}), Path(config).parent).store
    where = store or default_store()
    if not where.startswith(("postgresql://", "postgres://")) and not Path(where.removeprefix("sqlite://")).exists():
        raise ConfigurationError(
            f"there is no usage store at {where}: name the gateway's with --config FILE or --store FILE|URL"
        )
    columns: Sequence[Column] = tuple(dict.fromkeys(by)) or ("key",)
    rows = asyncio.run(_rows(where, columns, "" if since is None else f"{since:%Y-%m-%d}"))
    if as_json:
        write_json([{**{name: getattr(row, name) for name in columns}, **asdict(row.counts)} for row in rows])
        return
    table = Table(box=None)
    for name in columns:
        table.add_column(name, overflow="fold")
    for name in COUNT_FIELDS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [Text(getattr(row, name)) for name in columns]
        table.add_row(*cells, *(f"{getattr(row.counts, name):,}" for name in COUNT_FIELDS))
    out = Console(markup=False, highlight=False)
    if not out.is_terminal:
        out.width = _UNBOUNDED_WIDTH
    out.print(table)


async def _rows(where: str, by: Sequence[Column], since: str) -> Sequence[UsageRow]:
    store = open_usage(where)
    try:
        return await store.rows(by, since)
    finally:
        await store.aclose()
