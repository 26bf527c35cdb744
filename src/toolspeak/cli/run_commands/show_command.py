"""`toolspeak show`: shows what happened in a run."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import click

from toolspeak.agent import RunState
from toolspeak.agent.charts.chart_svg import as_chart_svg
from toolspeak.agent.charts.run_chart import ChartBuilder
from toolspeak.agent.sent_requests import sent_request
from toolspeak.agent.storage.runs import load_state
from toolspeak.cli.options.command_options import write_json_line, write_text
from toolspeak.cli.options.journal_option import journal_of, journal_option
from toolspeak.cli.signals import run_to_end
from toolspeak.cli.timeline_file import write_picture
from toolspeak.data.codec import dumps
from toolspeak.data.events import ModelAsked, RunFinished
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal
from toolspeak.project.run_lookup import find_run, short_id, status_of
from toolspeak.ui import summary
from toolspeak.ui.timeline import Timeline

_POLL_SECONDS = 0.2
"""Seconds between two reads of a running run."""


@click.command("show")
@click.argument("run")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the records, one JSON object per line, and then a summary."
)
@click.option("--follow", is_flag=True, help="Follow the run until it has ended.")
@click.option("--svg", metavar="FILE", type=click.Path(dir_okay=False), help="Write the timeline as a picture to FILE.")
@click.option(
    "--request",
    "step",
    metavar="STEP",
    type=click.IntRange(1),
    help="Print the body of the request that the model was sent at this step, and nothing else.",
)
@journal_option
def show_command(run: str, as_json: bool, follow: bool, svg: str | None, step: int | None, journal: str | None) -> None:
    """Show what happened in RUN (the beginning of its id is enough): steps, calls, times, tokens, approvals."""
    if step is not None and (as_json or follow or svg is not None):
        raise click.UsageError("--request allows no other option but --journal")
    if step is not None:
        run_to_end(_show_request(run, step, journal_of(journal)))
        return
    run_to_end(_show(run, as_json, follow, svg, journal_of(journal)))


async def _show_request(run: str, step: int, journal: Journal) -> None:
    """Prints a request as it was sent, and says on standard error what proves it. Raises ConfigurationError if there is
    none."""
    try:
        run_id = (await find_run(journal, run)).run_id
        seq, start = -1, 0
        while page := await journal.read(run_id, start, 200):
            seqs = [each.seq for each in page if isinstance(each.event, ModelAsked) and each.step == step]
            seq, start = max([seq, *seqs]), start + len(page)
        if seq < 0:
            steps = (await load_state(journal, run_id)).step
            raise ConfigurationError(f"run {short_id(run_id)} has no step {step}: it asked the model {steps} times")
        request = await sent_request(journal, run_id, seq)
        if not request.body:
            raise ConfigurationError(request.note)
        write_text(request.body + "\n")
        note = (
            f"as it was sent: its SHA-256 is the recorded one, {request.digest}" if request.is_proved else request.note
        )
        click.echo(f"toolspeak: {note}", err=True)
    finally:
        await journal.aclose()


async def _show(run: str, as_json: bool, follow: bool, svg: str | None, journal: Journal) -> None:
    try:
        run_id = (await find_run(journal, run)).run_id
        lines, position, chart = Timeline(), 0, ChartBuilder()
        while True:
            records = await journal.read(run_id, position)
            for record in records:
                chart.add(record)
                for line in [dumps(record)] if as_json else lines.lines(record):
                    write_text(line + "\n")
            position += len(records)
            if not follow or (records and isinstance(records[-1].event, RunFinished)):
                break
            await asyncio.sleep(_POLL_SECONDS)
            if await journal.run(run_id) is None:
                raise ConfigurationError(f"run {run_id} was deleted while it was shown")
        state, info = await load_state(journal, run_id), await journal.run(run_id)
        status = state.status if info is None else status_of(info)
        if as_json:
            write_json_line({"summary": {**_totals(run_id, state), "status": status}})
        else:
            write_text(f"{run_id}: {summary(state, status)}\n")
        if svg is not None:
            title = "" if info is None else info.title
            write_picture(svg, as_chart_svg(chart.chart(), title or run_id), "--svg")
    finally:
        await journal.aclose()


def _totals(run_id: str, state: RunState) -> dict[str, Any]:
    """A run's status and totals: seconds, tokens (None if unknown), cost in US dollars (None without a known price)."""
    return {
        "run_id": run_id,
        "status": state.status,
        "steps": state.step,
        "calls": state.totals.calls,
        "seconds": round(state.time - state.started_at, 3),
        "tokens": asdict(state.totals.usage),
        "tokens_estimated": state.totals.estimated,
        "cost": state.totals.cost,
    }
