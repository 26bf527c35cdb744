"""Finds the first record at which two runs differ."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from toolspeak.journal.base import Journal
from toolspeak.ui.timeline import Timeline
from toolspeak.web_ui.api_values import ComparisonQuery, RunComparison
from toolspeak.web_ui.run_views import ApiCall, info_of, seen_run

_PAGE = 200


async def compare_runs(call: ApiCall) -> RunComparison:
    """Compares the run that the path names with another one, as `toolspeak diff` does: without times, tokens and
    ids."""
    query: ComparisonQuery = call.query
    journal, info = call.services.journal, await info_of(call)
    other = await seen_run(call, query.other)
    ours, theirs = _entries(journal, info.run_id), _entries(journal, other.run_id)
    common = 0
    empty: tuple[None, tuple[str, ...]] = (None, ())
    try:
        while True:
            # Python 3.11 takes no tuple as the default of `anext`.
            (seq, lines), (other_seq, other_lines) = (
                await anext(ours, None) or empty,
                await anext(theirs, None) or empty,
            )
            if lines != other_lines:
                return RunComparison(common, seq, other_seq)
            if seq is None:
                return RunComparison(common)
            common += 1
    finally:
        await ours.aclose()
        await theirs.aclose()


async def _entries(journal: Journal, run_id: str) -> AsyncGenerator[tuple[int | None, tuple[str, ...]]]:
    """The records that have lines in a timeline, each with its number and these."""
    timeline, start = Timeline(times=False), 0
    while page := await journal.read(run_id, start, _PAGE):
        for record in page:
            lines = tuple(timeline.lines(record))
            if lines:
                yield record.seq, lines
        start += len(page)
