"""The units of systemd and the compose file in contrib/ are valid, and their commands exist with their options."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from toolspeak.cli.main import cli

CONTRIB = Path(__file__).parents[1] / "contrib"
UNITS = sorted([*CONTRIB.glob("*.service"), *CONTRIB.glob("*.timer")])
INSTALLED_SCRIPT = "/opt/toolspeak/bin/toolspeak"
COMPOSE: dict[str, Any] = yaml.safe_load((CONTRIB / "compose.yaml").read_text("utf-8"))
CONTAINER = (CONTRIB / "Containerfile").read_text("utf-8")


def commands_of(unit: Path) -> list[list[str]]:
    lines = re.findall(r"^ExecStart=(.+)$", unit.read_text("utf-8"), re.MULTILINE)
    return [shlex.split(line) for line in lines]


def is_known(arguments: list[str]) -> None:
    """The command and its options exist: click reads them before it prints the help."""
    result = CliRunner().invoke(cli, [*arguments, "--help"])
    assert result.exit_code == 0, (arguments, result.output, result.exception)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_valid(unit: Path, tmp_path: Path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed (apt-get install systemd)")
    script = Path(sys.executable).with_name("toolspeak")
    for each in UNITS:  # a timer needs its service
        text = each.read_text("utf-8").replace(INSTALLED_SCRIPT, str(script))
        (tmp_path / each.name.replace("@.", "@1.")).write_text(text, "utf-8")
    name = unit.name.replace("@.", "@1.")
    process = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", tmp_path / name],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda unit: unit.name)
def test_the_commands_of_a_unit_exist(unit: Path):
    commands = commands_of(unit)
    assert commands
    for program, *arguments in commands:
        assert program == INSTALLED_SCRIPT
        is_known(arguments)


def test_the_units_that_share_a_journal_are_one_user_with_one_folder():
    def settings(name: str) -> list[str]:
        names = "User", "DynamicUser", "StateDirectory", "StateDirectoryMode", "EnvironmentFile", "Environment"
        lines = (CONTRIB / name).read_text("utf-8").splitlines()
        return sorted(line for line in lines if line.partition("=")[0] in names)

    assert settings("toolspeak-worker@.service") == settings("toolspeak-journal.service")
    assert len(settings("toolspeak-journal.service")) == 7


def test_the_example_of_agents_is_what_a_worker_takes(tmp_path: Path):
    """A worker that has no run to drive drains at once."""
    process = subprocess.Popen(
        [sys.executable, "-m", "toolspeak", "worker", CONTRIB / "agents.py"],
        env={"PATH": "", "HOME": str(tmp_path), "TOOLSPEAK_JOURNAL": str(tmp_path / "runs.db"), "OPENAI_API_KEY": "k"},
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert any("driving runs of support" in line for line in process.stderr)
        process.terminate()
        process.stderr.read()
    assert process.returncode == 0


def test_the_services_of_the_compose_file_are_complete():
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "gateway", "worker", "journal"}
    for name, service in services.items():
        assert "image" in service, name
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source.startswith("./") or source in COMPOSE["volumes"]
    build = services["gateway"]["build"]
    assert (CONTRIB / build["context"] / build["dockerfile"]).resolve() == CONTRIB / "Containerfile"
    for argument, value in build["args"].items():
        assert f"ARG {argument}=" in CONTAINER
        assert (CONTRIB / build["context"] / value).is_file()
    assert services["postgres"]["healthcheck"]
    assert "${POSTGRES_PASSWORD:?" in services["worker"]["environment"]["TOOLSPEAK_JOURNAL"]


def test_the_commands_of_the_compose_file_exist():
    entry_point: list[str] = re.findall(r'"([^"]+)"', CONTAINER.partition("ENTRYPOINT ")[2].partition("]")[0])
    for name in ("gateway", "worker", "journal"):
        service = COMPOSE["services"][name]
        program, *arguments = [*service.get("entrypoint", entry_point), *service["command"]]
        assert program == "toolspeak"
        is_known(arguments)
    assert COMPOSE["services"]["gateway"]["ports"] == ["127.0.0.1:8665:8665"]


def test_what_stops_has_time_to_drain():
    """The managers wait longer than the programs drain."""
    unit = (CONTRIB / "toolspeak-worker@.service").read_text("utf-8")
    (drain,) = re.findall(r"--drain (\d+)", unit)
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(drain) < int(stop)
    worker = COMPOSE["services"]["worker"]
    drain = worker["command"][worker["command"].index("--drain") + 1]
    assert int(drain) < int(worker["stop_grace_period"].removesuffix("s"))
