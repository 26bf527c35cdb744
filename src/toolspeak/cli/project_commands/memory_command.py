"""`toolspeak memory`: shows and changes what models remember about a user."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict

import click

from toolspeak.data.tools import WEB
from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.project.user_files.memory_folder import memory_files
from toolspeak.ui import printable
from toolspeak.ui.format import count, one_line

_principal = click.option(
    "--principal", metavar="NAME", help="Whom the facts are about (default: the user of this machine)."
)


@click.group("memory")
def memory_command() -> None:
    """Show, edit and delete what models remember about you (`toolspeak run --memory`).

    The facts are lines of JSON in one file, which you may also edit yourself: `toolspeak memory list` names it.
    """


@memory_command.command("list")
@_principal
@click.option("--json", "as_json", is_flag=True, help="Print each fact as a line of JSON, as it is in the file.")
def list_facts(principal: str | None, as_json: bool) -> None:
    """List the facts, the oldest first."""
    store = memory_files()
    facts, problems = store.read(principal)
    for fact in facts:
        line = json.dumps(asdict(fact), ensure_ascii=False) if as_json else f"{fact.id}  {fact.time[:10]}  {fact.text}"
        click.echo(one_line(line))
    for problem in problems:
        click.echo(f"toolspeak: {printable(problem)}", err=True)
    if not as_json:
        click.echo(f"{count(len(facts), 'fact')} in {printable(str(store.path(principal)))}", err=True)


@memory_command.command("show")
@click.argument("fact_id", metavar="ID")
@_principal
def show_fact(fact_id: str, principal: str | None) -> None:
    """Show a fact: its text, when it was saved, and by which run."""
    with _refusals():
        fact = memory_files().get(principal, fact_id)
    click.echo(one_line(fact.text))
    by = f"run {fact.run_id} (`toolspeak show {fact.run_id[:8]}`)" if fact.run_id else "you"
    click.echo(one_line(f"saved {fact.time} by {by}"))
    if fact.sources:
        hosts = ", ".join(each.removeprefix(WEB) or "the web" for each in fact.sources)
        click.echo(one_line(f"the run had read the web ({hosts}); `toolspeak memory edit` makes the fact yours"))


@memory_command.command("edit")
@click.argument("fact_id", metavar="ID")
@click.argument("text", required=False)
@_principal
def edit_fact(fact_id: str, text: str | None, principal: str | None) -> None:
    """Replace the text of a fact by TEXT, or by the text that you write in your editor."""
    store = memory_files()
    with _refusals():
        fact = store.get(principal, fact_id)
    new_text = click.edit(fact.text) if text is None else text
    if new_text is None:
        raise ConfigurationError("nothing was changed: you left the editor without saving")
    with _refusals():
        fact = store.change(principal, fact_id, new_text)
    click.echo(one_line(fact.text))


@memory_command.command("delete")
@click.argument("fact_ids", metavar="ID…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Delete all facts of the user or of --principal.")
@_principal
def delete_facts(fact_ids: tuple[str, ...], everything: bool, principal: str | None) -> None:
    """Delete facts for good."""
    store = memory_files()
    if everything == bool(fact_ids):
        raise ConfigurationError("name the facts to delete by their ids, or write --all")
    if everything:
        click.echo(f"{count(store.erase(principal), 'fact')} deleted")
        return
    with _refusals():
        for fact_id in fact_ids:
            store.get(principal, fact_id)  # none is deleted if one does not exist
        for fact_id in dict.fromkeys(fact_ids):
            click.echo(one_line(f"deleted: {store.forget(principal, fact_id).text}"))


@contextmanager
def _refusals() -> Generator[None, None, None]:
    """What is wrong with an id or a text is a mistake of the command line here."""
    try:
        yield
    except ToolError as error:
        raise ConfigurationError(str(error)) from None
