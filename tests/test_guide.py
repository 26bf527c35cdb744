"""The guide to a new dialect works as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
DIALECTS = Path(__file__).parents[1] / "src" / "toolspeak" / "dialects"


def test_its_program_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "adding-a-dialect.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)


def test_the_files_it_names_are_there():
    table = re.findall(r"^\|.*\|$", (DOCS / "adding-a-dialect.md").read_text("utf-8"), re.MULTILINE)
    named = [name for row in table for name in re.findall(r"`(\w+\.py)`", row)]
    assert named
    assert [name for name in named if not (DIALECTS / name).exists()] == []
