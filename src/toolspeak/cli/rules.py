"""`toolspeak rules`: what was allowed for always, listed and revoked."""

from __future__ import annotations

import os
from pathlib import Path

import click

from toolspeak.data.protected import protect
from toolspeak.errors import FormatError, UsageError
from toolspeak.execute import StandingRule, StandingRules
from toolspeak.ui import printable


@click.command("rules")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--revoke", metavar="ID", multiple=True, help="Forget this rule: such calls are asked about again.")
def rules(file: str, revoke: tuple[str, ...]) -> None:
    """List the rules that `toolspeak run --rules FILE` keeps in FILE, or revoke some."""
    kept = open_rules(file)
    for rule_id in revoke:
        click.echo(f"revoked {_line(kept.revoke(rule_id))}")
    if revoke:
        return
    for each in kept:
        click.echo(_line(each))
    if not len(kept):
        click.echo("no rules are kept")


def open_rules(path: str) -> StandingRules:
    """The rules in a file, which follows every change; no file is no rules. Raises UsageError for a file that holds
    anything else."""
    file = Path(path)
    protect(file, "the file of the rules that are kept")

    def store(rules: StandingRules) -> None:
        # Whoever reads the file finds the rules before or after, never half of them.
        beside = file.with_name(f"{file.name}.{os.getpid()}.new")
        beside.write_text(rules.dumps(), "utf-8")
        beside.replace(file)

    try:
        return StandingRules.loads(file.read_text("utf-8") if file.exists() else "", store)
    except (OSError, ValueError, FormatError) as error:
        raise UsageError(f"--rules {path}: {error}") from None


def _line(each: StandingRule) -> str:
    rule = each.rule
    said = [f"{rule.action} {rule.tool}"]
    said += [f"on {path}" for path in rule.paths]
    said += [f"with {name}={value!r}" for name, value in (rule.arguments or {}).items()]
    said += ["and nothing else"] if rule.exact else []
    said += [f"where each command begins with {' or '.join(map(repr, rule.begins))}"] if rule.begins else []
    said += [f"after {rule.after}"] if rule.after else []
    said += ["while its definition is what it was"] if rule.definition else []
    said += [f"(said by {each.by})"] if each.by else []
    return printable(f"{each.id}  {' '.join(said)}")
