"""What the guides show works as it is written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
DIALECTS = Path(__file__).parents[1] / "src" / "toolspeak" / "dialects"


@pytest.mark.over_a_second
def test_its_program_runs_and_its_file_in_the_catalogue(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "guides" / "adding-a-dialect.md").read_text("utf-8"), re.DOTALL)
    declaration = next(block for block in blocks if "NEBULA = " in block)
    package = tmp_path / "toolspeak"
    shutil.copytree(DIALECTS.parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "dialects" / "models" / "nebula.py").write_text(declaration, "utf-8")
    table = package / "dialects" / "registry.py"
    hermes, nebula = '"hermes": "hermes:HERMES",', '"nebula": "nebula:NEBULA",'
    table.write_text(table.read_text("utf-8").replace(hermes, f"{hermes} {nebula}", 1), "utf-8")
    check = 'from toolspeak.dialects import known_dialect\nassert known_dialect("Nebula-2.1-7B").name == "nebula"'
    command = [sys.executable, "-W", "error", "-c", "\n".join([*blocks, check])]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True, timeout=60)


def test_the_files_it_names_are_there():
    table = re.findall(r"^\|.*\|$", (DOCS / "guides" / "adding-a-dialect.md").read_text("utf-8"), re.MULTILINE)
    names = [name for row in table for name in re.findall(r"`([\w/]+\.py)`", row)]
    assert names
    assert [name for name in names if not (DIALECTS / name).exists()] == []


def test_a_driver_of_ones_own_works_as_it_is_shown(capsys):
    _, example = re.findall(r"```python\n(.*?)```", (DOCS / "reference" / "models.md").read_text("utf-8"), re.DOTALL)
    exec(compile(example, "models.md", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == "HELLO!\n"
