"""Every way out of `escape_attempts` works where nothing holds a command, and does not inside of a sandbox."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from escape_attempts import ATTEMPTS, SECRET, Attempt, EscapeStage
from sandbox_levels import LEVELS, open_level

from toolspeak.sandbox.base import Confinement
from toolspeak.sandbox.protected_places import read_only_places
from toolspeak.testing.sandbox import run_command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the boundaries are those of Linux")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EscapeStage]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    stage = EscapeStage(tmp_path, home)
    yield stage
    stage.close()


def environment(stage: EscapeStage) -> dict[str, str]:
    return {"HOME": str(stage.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def confinement(stage: EscapeStage) -> Confinement:
    workspace = str(stage.workspace)
    places = (*read_only_places((workspace,)), str(stage.workspace / "rules.json"))
    hidden_paths = (str(stage.journal), str(stage.home / ".ssh"))
    readable = (workspace, str(stage.outside), str(stage.home), str(stage.journal.parent))
    return Confinement((workspace,), places, hidden_paths, readable)


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_it_gets_out_where_nothing_holds_it(attempt: Attempt, stage: EscapeStage):
    if attempt.needs == "root" and os.geteuid() != 0:
        pytest.skip("only root can do this anywhere")
    variables = [f"{name}={each}" for name, each in environment(stage).items()]
    # The shell around the command is what `$PPID` names. It has the secret in its environment.
    result = subprocess.run(
        ["/bin/sh", "-c", 'env -i "$@"; :', "sh", *variables, "/bin/sh", "-c", stage.command(attempt)],
        cwd=stage.workspace,
        env={"CANARY": SECRET, "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        close_fds=False,
        timeout=60,
        check=False,
    )
    output = result.stdout.decode("utf-8", "replace")
    is_out = stage.is_out(output)
    if attempt.needs and not is_out:
        pytest.skip(f"this kernel, or what this process runs in, lets nobody do this: {output[-200:]}")
    assert is_out, output


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_it_stays_inside(attempt: Attempt, level: str, stage: EscapeStage):
    open_sandbox = open_level(level)
    reason = dict(attempt.open_to).get(level)

    async def run():
        sandbox = await open_sandbox()
        try:
            command, env = stage.command(attempt), environment(stage)
            return await run_command(sandbox, command, stage.workspace, confinement(stage), env=env)
        finally:
            await sandbox.aclose()

    report = asyncio.run(run())
    if reason:
        pytest.skip(f"{level} does not hold this: {reason}")
    assert not stage.is_out(report.output), report


def test_there_are_enough_of_them():
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 50
