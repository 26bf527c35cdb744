"""`toolspeak doctor`: looks at what a run needs, and says what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from click.core import ParameterSource

from toolspeak.cli.attended_run import open_streams
from toolspeak.cli.configuration import choices_of
from toolspeak.cli.exit_codes import NO_ANSWER, SUCCESS
from toolspeak.cli.options.command_options import env_option, write_json
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.options.run_options import workspace_option
from toolspeak.cli.signals import run_to_end
from toolspeak.errors import ConfigurationError
from toolspeak.project.configuration.config import Config, read_config
from toolspeak.project.configuration.configured_setup import configured_setup
from toolspeak.project.doctor import Diagnosis, diagnose
from toolspeak.project.run_setup import Setup
from toolspeak.ui.format import one_line

_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}
_PLAIN_MARKS = {"ok": "ok", "warning": "!!", "problem": "NO"}
"""For a terminal that cannot show the others."""


@click.command("doctor")
@click.argument("model", required=False)
@click.option("--model", "named_model", metavar="MODEL", help="The same as MODEL, as for `run`.")
@workspace_option
@click.option("--dialect", metavar="NAME", help="How the model writes calls (default: as configured).")
@click.option("--mcp", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="As `run --mcp`.")
@env_option
@journal_option
@click.option("--json", "as_json", is_flag=True, help="Print {`ok`, `findings`} as JSON.")
@click.pass_context
def doctor_command(
    context: click.Context,
    model: str | None,
    named_model: str | None,
    workspace: str,
    journal: str | None,
    as_json: bool,
    **_of_setup: object,
) -> None:
    """Check what `run` needs: configuration, model and server, key, dialect, window, MCP servers, journal, extras.

    MODEL is a model string or an alias (default: the configured one). No request goes to the model itself. The exit
    code is 1 if something does not work that a run needs.
    """
    if named_model is not None:
        if model is not None:
            raise click.UsageError(f"name one model: {model} or --model {named_model}")
        context.params["model"] = named_model
        context.set_parameter_source("model", ParameterSource.COMMANDLINE)
    open_streams()
    findings: list[Diagnosis] = []
    try:
        config = read_config(workspace)
        choices = choices_of(context)
        setup = configured_setup(config, workspace, **choices)
    except ConfigurationError as error:
        findings.append(Diagnosis("configuration", "problem", str(error), "`toolspeak config edit` opens your file"))
        config, setup = Config(), configured_setup(Config(), workspace, **choices_of(context))
    findings += run_to_end(_diagnose(setup, config, journal))
    works = not any(each.state == "problem" for each in findings)
    if as_json:
        rows = [{"subject": f.subject, "state": f.state, "text": f.text, "remedy": f.remedy} for f in findings]
        write_json({"ok": works, "findings": rows})
    else:
        _print(findings)
    context.exit(SUCCESS if works else NO_ANSWER)


async def _diagnose(setup: Setup, config: Config, where: str | None) -> Sequence[Diagnosis]:
    try:
        journal = journal_of(where)
    except ConfigurationError as error:
        return [Diagnosis("journal", "problem", str(error)), *await diagnose(setup, config, journal_of("none"))]
    try:
        return await diagnose(setup, config, journal)
    finally:
        await journal.aclose()


def _print(findings: Sequence[Diagnosis]) -> None:
    try:
        "✓✗".encode(sys.stdout.encoding or "ascii")
        marks = _MARKS
    except (UnicodeEncodeError, LookupError):
        marks = _PLAIN_MARKS
    width = max(len(each.subject) for each in findings)
    for each in findings:
        remedy = f": {each.remedy}" if each.remedy else ""
        click.echo(f"{marks[each.state]} {one_line(each.subject):{width}}  {one_line(each.text + remedy)}")
