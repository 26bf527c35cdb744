"""`toolspeak --telemetry`, with a collector at the loopback address."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from otlp_receiver import attributes, collecting

from toolspeak.data.events import RunFinished, RunPaused
from toolspeak.journal import SqliteJournal
from toolspeak.testing.journal import a_run, write


def toolspeak(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolspeak", *arguments],
        cwd=folder,
        env={"PATH": "", "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.over_a_second
def test_the_command_line_exports_its_runs(tmp_path):
    (tmp_path / "script.json").write_text(json.dumps({"turns": ["The answer is forty-two."]}))
    run = ("run", "--model", "scripted:script.json", "the question")
    with collecting() as collector:
        assert toolspeak(tmp_path, *run, **collector.environ).returncode == 0
        assert collector.spans == []  # only if it is asked for
        result = toolspeak(tmp_path, "--telemetry", *run, **collector.environ)
        assert result.returncode == 0, result.stderr
        assert [name.split()[0] for name in collector.tree()] == ["invoke_agent", "chat"]
        by_variable = toolspeak(
            tmp_path,
            *run,
            TOOLSPEAK_TELEMETRY="1",
            OTEL_SERVICE_NAME="mine",
            OTEL_METRICS_EXPORTER="none",
            **collector.environ,
        )
        assert by_variable.returncode == 0, by_variable.stderr
        assert len(collector.spans) == 4
        assert collector.services == {"toolspeak", "mine"}
        assert "gen_ai.invoke_agent.duration" in collector.metrics
        assert all(attributes(span)["toolspeak.run.id"] for span in collector.spans)
        assert b"the question" not in collector.bodies
        assert b"forty-two" not in collector.bodies


@pytest.mark.over_a_second
def test_an_exporter_that_is_not_here_is_named(tmp_path):
    wrong = toolspeak(tmp_path, "--telemetry", "sessions", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert wrong.returncode == 2
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: toolspeak exports by http/protobuf" in wrong.stderr


AGENTS = """
from toolspeak import Agent
from toolspeak.journal import open_journal
from toolspeak.providers.scripted_provider import ScriptedProvider

mine = Agent(ScriptedProvider(["Done."]), name="mine", journal=open_journal("runs.db"))
"""


@pytest.mark.over_a_second
def test_a_worker_reports_what_waits_in_its_journal(tmp_path):
    """Also runs of agents that it does not drive: nothing drives those."""
    (tmp_path / "agents.py").write_text(AGENTS)
    now = time.time()

    async def fill():
        journal = SqliteJournal(tmp_path / "runs.db")
        await write(journal, a_run("asks", RunPaused("awaiting_approval", ("call",)), time=now - 500))
        due = [replace(record, agent="another") for record in a_run("due", time=now - 300, due=now - 300)]
        await write(journal, due)
        await write(journal, a_run("ended", RunFinished("answered", "", "answer"), time=now))
        await journal.aclose()

    asyncio.run(fill())
    with collecting() as collector:
        command = [sys.executable, "-m", "toolspeak", "--telemetry", "worker", "agents:mine"]
        environ = {"PATH": "", "HOME": str(tmp_path), **collector.environ}
        with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as worker:
            assert worker.stderr is not None
            assert any("driving runs of mine" in line for line in worker.stderr)
            collector.wait_for(lambda: ("toolspeak.journal.due.age",) in collector.gauges)
            worker.terminate()
            assert "Error" not in worker.stderr.read()
        assert worker.returncode == 0
    gauges = collector.gauges
    assert gauges["toolspeak.journal.runs", "awaiting_approval"] == 1
    assert gauges["toolspeak.journal.runs", "queued"] == 1
    assert gauges["toolspeak.journal.runs", "running"] == 0
    assert ("toolspeak.journal.runs", "answered") not in gauges
    assert gauges["toolspeak.journal.due",] == 1
    assert 299 < gauges["toolspeak.journal.due.age",] < 86_400
    assert 498 < gauges["toolspeak.journal.waiting.age", "awaiting_approval"] < 86_400
    assert gauges["toolspeak.journal.waiting.age", "suspended"] == 0
