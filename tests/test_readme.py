"""The README's examples run, and print what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from page_examples import check_console
from toolspeak.dialects.catalogue import DIALECTS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def test_there_are_examples():
    assert PYTHON
    assert CONSOLE


def test_the_python_example_runs_with_a_scripted_model_in_place_of_the_local_one(tmp_path):
    call = '<execute>[{"name": "stock", "args": {"item": "apple"}}]</execute>'
    turns = [call, 'We have {{find:"content": (\\d+)}} apples.']
    (tmp_path / "model.json").write_text(json.dumps({"turns": turns}), "utf-8")
    (source,) = PYTHON
    assert "ollama:qwen3:8b" in source
    command = [sys.executable, "-W", "error", "-c", source.replace("ollama:qwen3:8b", "scripted:model.json")]
    assert subprocess.check_output(command, cwd=tmp_path, text=True, timeout=60) == "We have 3 apples.\n"


def test_it_counts_the_dialects():
    assert f"**{len(DIALECTS)} dialects**" in README


def test_the_picture_of_the_terminal_shows_what_is_printed_now():
    command = [sys.executable, ROOT / "docs" / "terminal_picture.py", "--check"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr


def test_the_picture_of_a_timeline_is_what_is_drawn_now():
    command = [sys.executable, ROOT / "docs" / "timeline_picture.py", "--check"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr


def test_the_page_on_effects_runs_as_one_program(tmp_path):
    page = (ROOT / "docs" / "guides" / "declaring-effects.md").read_text("utf-8")
    source = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    (line,) = re.findall(r"# (mystery .*) …\n", source)
    assert process.stdout.startswith(line)


@pytest.mark.parametrize("block", CONSOLE)
def test_console_examples_print_what_they_show(block, tmp_path):
    check_console(block, tmp_path)
