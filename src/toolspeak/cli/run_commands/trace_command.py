"""`toolspeak trace`: exports the trace of a recorded run."""

from __future__ import annotations

import click

from toolspeak.cli.options.command_options import write_text
from toolspeak.cli.options.journal_option import journal_option, with_journal
from toolspeak.errors import ConfigurationError
from toolspeak.journal.leases import is_held
from toolspeak.journal.maintenance import MaintainedJournal
from toolspeak.project.run_lookup import find_run
from toolspeak.telemetry import part


@click.command("trace")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print the spans, one JSON object per line, and send nothing.")
@click.option(
    "--content",
    is_flag=True,
    help="With messages, arguments and results. Secrets that toolspeak knows stay placeholders.",
)
@journal_option
def trace_command(run: str, as_json: bool, content: bool, journal: str | None) -> None:
    """Export RUN (the beginning of its id is enough) as OpenTelemetry spans, after the fact (needs the extra otel).

    The spans are those of a run that is traced live, with the times of the records, and include the runs that tools
    started. They go by OTLP to the address in the variables OTEL_*. A second export has the same trace id and span ids.
    """
    with_journal(journal, lambda open_journal: _trace(open_journal, run, as_json, content))


async def _trace(journal: MaintainedJournal, run: str, as_json: bool, content: bool) -> None:
    recorded_trace, setup = part("recorded_trace").recorded_trace, part("sdk_setup")
    info = await find_run(journal, run)
    if is_held(info):
        raise ConfigurationError(f"run {info.run_id} is driven by a process now: export it once it has ended or paused")
    resource = setup.resource_of("toolspeak")
    spans = await recorded_trace(journal, info.run_id, content=content, resource=resource)
    if as_json:
        for span in spans:
            write_text(span.to_json(indent=None) + "\n")
    else:
        setup.export(spans)
        trace_id = f"{spans[-1].context.trace_id:032x}"
        click.echo(f"toolspeak: {len(spans)} spans of the trace {trace_id} were exported", err=True)
