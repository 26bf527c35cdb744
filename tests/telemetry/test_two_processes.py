"""One run in two processes, whose telemetry goes to one collector."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from otlp_receiver import OtlpCollector, attributes, collecting
from traced_program import PARENT

from toolspeak import SqliteJournal

PROGRAM = str(Path(__file__).with_name("traced_program.py"))


def program(journal: Path, *arguments: str, collector: OtlpCollector) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, str(journal), *arguments],
        env={"PATH": "", **collector.environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.over_a_second
def test_a_run_whose_process_is_killed_is_one_trace_with_the_process_that_goes_on(tmp_path):
    journal = tmp_path / "runs.db"

    async def run_id() -> str:
        reading = SqliteJournal(journal)
        (info,) = await reading.runs()
        records = await reading.read(info.run_id)
        await reading.aclose()
        assert len({record.traceparent for record in records}) == 1
        return info.run_id

    with collecting() as collector:
        assert program(journal, "start", collector=collector).returncode == -signal.SIGKILL
        run = asyncio.run(run_id())
        resume_result = program(journal, "resume", run, collector=collector)
        assert (resume_result.stdout, resume_result.stderr) == ("Done.\n", "")
        spans = {span.name: span for span in collector.spans}
        assert {span.trace_id.hex() for span in collector.spans} == {PARENT.split("-")[1]}
        # The parent of all is the caller's, which is not here.
        assert collector.tree() == ["? invoke_agent worker"]
        first, second = sorted(
            (span for span in collector.spans if span.name == "invoke_agent worker"),
            key=lambda span: span.start_time_unix_nano,
        )
        assert first.parent_span_id.hex() == PARENT.split("-")[2]
        assert second.parent_span_id == first.span_id
        assert attributes(first)["toolspeak.run.status"] == "lost"
        assert attributes(second)["toolspeak.run.status"] == "answered"
        assert attributes(second)["toolspeak.run.resumed_from"] == "takeover"
        takeover = spans["takeover"]
        assert takeover.parent_span_id == first.span_id
        assert [link.span_id for link in takeover.links] == [first.span_id]
        assert first.end_time_unix_nano <= takeover.start_time_unix_nano + 1_000_000
        assert takeover.end_time_unix_nano <= second.start_time_unix_nano + 1_000_000_000
        below_first = sorted(span.name for span in collector.spans if span.parent_span_id == first.span_id)
        assert below_first == ["chat scripted", "chat scripted", "execute_tool note", "invoke_agent worker", "takeover"]
        below_second = sorted(span.name for span in collector.spans if span.parent_span_id == second.span_id)
        assert below_second == ["chat scripted", "execute_tool die"]
        assert collector.services == {"traced"}
        assert "toolspeak.takeovers" in collector.metrics
