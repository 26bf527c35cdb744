"""Programs that a user writes, checked by pyright and mypy in strict mode.

Each line that ends in `# wrong` has an error, and no other line. One that ends in `# wrong for pyright` has an
error that mypy does not find.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")
EXAMPLES = Path(__file__).parents[2] / "examples"
Errors = dict[tuple[str, int], str]


def finished(*command: str) -> str:
    run = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    return run.stdout


def pyright(folder: Path) -> Errors:
    report = json.loads(finished("pyright", "--pythonpath", sys.executable, "--outputjson", str(folder)))
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }


def mypy(folder: Path) -> Errors:
    report = finished("mypy", "--strict", "--follow-imports=silent", "--cache-dir=/dev/null", str(folder))
    lines = re.findall(r"^(\S+):(\d+): error: (.*)$", report, re.MULTILINE)
    return {(Path(file).name, int(line)): message for file, line, message in lines}


def marked(checker: str) -> set[tuple[str, int]]:
    return {
        (path.name, number)
        for path in PROGRAMS.glob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith(("# wrong", f"# wrong for {checker}"))
    }


def test_the_examples_are_typed():
    assert pyright(EXAMPLES) == {}
    assert mypy(EXAMPLES) == {}


@pytest.mark.parametrize("check", [pyright, mypy])
def test_a_checker_finds_what_is_wrong_and_nothing_else(check: Callable[[Path], Errors]):
    errors = check(PROGRAMS)
    wrong = marked(check.__name__)
    assert len(wrong) > 50
    assert {place: message for place, message in errors.items() if place not in wrong} == {}
    assert wrong - errors.keys() == set()
