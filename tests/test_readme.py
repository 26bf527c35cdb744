"""The README's examples run, and print what it says; so do those of the pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
COMMANDS = Path(sys.executable).parent


def session(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what it prints."""
    steps: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append(([line[2:]], []))
        elif line.startswith("> "):
            steps[-1][0].append(line[2:])
        else:
            steps[-1][1].append(line)
    return [("\n".join(command), "\n".join(printed)) for command, printed in steps]


def test_there_are_examples():
    assert PYTHON
    assert CONSOLE


@pytest.mark.parametrize("source", PYTHON)
def test_python_examples_run(source, tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", source], cwd=tmp_path, check=True, timeout=60)


def test_the_page_on_effects_runs_as_one_program(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "guides" / "declaring-effects.md").read_text("utf-8")
    source = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    (shown,) = re.findall(r"# (mystery .*) …\n", source)
    assert done.stdout.startswith(shown)


@pytest.mark.parametrize("name", ["approvals.md", "interceptors.md"])
def test_a_page_runs_as_one_program(name, tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "guides" / name).read_text("utf-8")
    source = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    assert "assert" in source
    subprocess.run([sys.executable, "-W", "error", "-c", source], cwd=tmp_path, check=True, timeout=60)


@pytest.mark.parametrize("block", CONSOLE)
def test_console_examples_print_what_they_show(block, tmp_path):
    for command, printed in session(block):
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            env={"PATH": f"{COMMANDS}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.rstrip("\n") == printed
