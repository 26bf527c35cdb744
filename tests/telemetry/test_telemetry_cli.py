"""`toolspeak --telemetry`, with a collector at the loopback address."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from otlp_receiver import attributes, collecting


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


def test_the_command_line_exports_its_runs(tmp_path):
    (tmp_path / "script.json").write_text(json.dumps({"turns": ["The answer is forty-two."]}))
    run = ("run", "--model", "scripted:script.json", "the question")
    with collecting() as collected:
        assert toolspeak(tmp_path, *run, **collected.environ).returncode == 0
        assert collected.spans == []  # only if it is asked for
        asked = toolspeak(tmp_path, "--telemetry", *run, **collected.environ)
        assert asked.returncode == 0, asked.stderr
        assert [name.split()[0] for name in collected.tree()] == ["invoke_agent", "chat"]
        by_variable = toolspeak(
            tmp_path,
            *run,
            TOOLSPEAK_TELEMETRY="1",
            OTEL_SERVICE_NAME="mine",
            OTEL_METRICS_EXPORTER="none",
            **collected.environ,
        )
        assert by_variable.returncode == 0, by_variable.stderr
        assert len(collected.spans) == 4
        assert collected.services == {"toolspeak", "mine"}
        assert "gen_ai.invoke_agent.duration" in collected.metrics
        assert all(attributes(span)["toolspeak.run.id"] for span in collected.spans)
        assert b"the question" not in collected.bodies
        assert b"forty-two" not in collected.bodies


def test_an_exporter_that_is_not_here_is_named(tmp_path):
    wrong = toolspeak(tmp_path, "--telemetry", "sessions", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert wrong.returncode == 2
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: toolspeak exports by http/protobuf" in wrong.stderr
