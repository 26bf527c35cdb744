"""`toolspeak rules`: list or revoke the rules that approve calls."""

from __future__ import annotations

import click

from toolspeak.cli.rules_file import open_rules
from toolspeak.execute import StandingRule
from toolspeak.ui import printable


@click.command("rules")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--revoke", metavar="ID", multiple=True, help="Forget this rule: such calls are asked about again.")
def rules_command(file: str, revoke: tuple[str, ...]) -> None:
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
