"""`toolspeak rules`: what was allowed for always, listed and revoked."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from toolspeak.data.protected import protect
from toolspeak.errors import ConfigurationError, FormatError
from toolspeak.execute import StandingRule, StandingRules
from toolspeak.tools.builtin.folder import Folder
from toolspeak.ui import printable

_LOCK_SECONDS = 10.0


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
    """The rules in a file, which follows every change; no file is no rules. Raises ConfigurationError for a file that
    holds anything else."""
    file = Path(path)
    protect(file, "the file of the rules that are kept")

    def read() -> list[StandingRule]:
        return list(StandingRules.loads(file.read_text("utf-8") if file.exists() else ""))

    def store(rules: StandingRules) -> None:
        # What this process has added and revoked, to what another has written since: that must not come back, nor go.
        try:
            with Folder.top(os.path.realpath(file.parent)) as folder, folder.alone(_LOCK_SECONDS):
                now, known = read(), [each.rule for each in seen]
                mine = [each.rule for each in rules]
                kept = [each for each in now if each.rule in mine or each.rule not in known]
                there = [each.rule for each in kept]
                last = max((int(each.id) for each in now if each.id.isdigit()), default=0)
                for each in rules:
                    if each.rule not in known and each.rule not in there:
                        last += 1
                        kept.append(replace(each, id=str(last)))
                # Whoever reads the file finds the rules before or after, never half of them.
                beside = file.with_name(f"{file.name}.{os.getpid()}.new")
                beside.write_text(StandingRules(kept).dumps(), "utf-8")
                beside.replace(file)
        except (OSError, FormatError) as error:
            raise ConfigurationError(f"--rules {path}: the change was not kept: {error}") from error
        seen[:] = rules

    seen: list[StandingRule] = []
    try:
        seen += read()
        return StandingRules(seen, store)
    except (OSError, ValueError, FormatError) as error:
        raise ConfigurationError(f"--rules {path}: {error}") from None


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
