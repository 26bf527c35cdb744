"""`toolspeak rules`: lists or revokes the rules that approve calls."""

from __future__ import annotations

import click

from toolspeak.execute import StandingRule
from toolspeak.project.user_files.rules_file import RulesFile
from toolspeak.ui import printable


@click.command("rules")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--revoke", metavar="ID", multiple=True, help="Revoke this rule: such calls need approval again.")
def rules_command(file: str, revoke: tuple[str, ...]) -> None:
    """List the rules that `toolspeak run --rules FILE` stores in FILE, or revoke some."""
    rules = RulesFile(file)
    for rule_id in revoke:
        click.echo(f"revoked {_line(rules.revoke(rule_id))}")
    if revoke:
        return
    for each in rules:
        click.echo(_line(each))
    if not len(rules):
        click.echo("no rules")


def _line(each: StandingRule) -> str:
    rule = each.rule
    words = [f"{rule.action} {rule.tool}"]
    words += [f"on {path}" for path in rule.paths]
    words += [f"with {name}={value!r}" for name, value in (rule.arguments or {}).items()]
    words += ["and nothing else"] if rule.exact else []
    words += [f"where each command begins with {' or '.join(map(repr, rule.begins))}"] if rule.begins else []
    words += [f"after {rule.after}"] if rule.after else []
    words += ["while its definition is unchanged"] if rule.definition else []
    words += [f"(by {each.by})"] if each.by else []
    return printable(f"{each.id}  {' '.join(words)}")
