"""The README's examples run, and print what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from page_examples import check_console

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


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


@pytest.mark.parametrize("block", CONSOLE)
def test_console_examples_print_what_they_show(block, tmp_path):
    check_console(block, tmp_path)
