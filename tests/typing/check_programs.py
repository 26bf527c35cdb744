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
DOCS = Path(__file__).parents[2] / "docs"
UNTYPED_PAGES = {
    "adapters": "frameworks that are not installed here",
    "adding-a-dialect": "blocks of several files",
    "custom-provider": "leaves annotations out",
    "executor-alone": "leaves annotations out",
    "gateway": "blocks of several clients",
    "making-tools": "leaves annotations out",
    "mcp": "two programs",
}
"""The guides whose blocks are not one strictly typed program, with the reason."""
Errors = dict[tuple[str, int], str]


def output_of(*command: str) -> str:
    run = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    return run.stdout


def pyright(folder: Path) -> Errors:
    report = json.loads(output_of("pyright", "--pythonpath", sys.executable, "--outputjson", str(folder)))
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }


def mypy(folder: Path) -> Errors:
    report = output_of("mypy", "--strict", "--follow-imports=silent", "--cache-dir=/dev/null", str(folder))
    lines = re.findall(r"^(\S+):(\d+): error: (.*)$", report, re.MULTILINE)
    return {(Path(file).name, int(line)): message for file, line, message in lines}


def marked_lines(checker: str) -> set[tuple[str, int]]:
    return {
        (path.name, number)
        for path in PROGRAMS.glob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith(("# wrong", f"# wrong for {checker}"))
    }


def test_the_examples_are_typed():
    assert pyright(EXAMPLES) == {}
    assert mypy(EXAMPLES) == {}


def test_the_programs_of_the_guides_are_typed(tmp_path: Path):
    assert {path.stem for path in (DOCS / "guides").glob("*.md")} > UNTYPED_PAGES.keys()
    for page in (DOCS / "guides").glob("*.md"):
        blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        if blocks and page.stem not in UNTYPED_PAGES:
            (tmp_path / f"{page.stem.replace('-', '_')}.py").write_text("\n".join(blocks), "utf-8")
    assert len([*tmp_path.glob("*.py")]) > 10
    assert pyright(tmp_path) == {}


def test_the_shop_of_the_tutorial_and_its_tests_are_typed(tmp_path: Path):
    texts = [(DOCS / "tutorial" / f"{page}.md").read_text("utf-8") for page in ("resume", "tests")]
    shop, tests = (re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0] for text in texts)
    assert "from shop import ORDERS, shop\n" in tests
    one_file = shop + tests.replace("from shop import ORDERS, shop\n", "")
    (tmp_path / "shop.py").write_text(one_file, "utf-8")
    assert pyright(tmp_path) == {}


@pytest.mark.parametrize("check", [pyright, mypy])
def test_a_checker_finds_what_is_wrong_and_nothing_else(check: Callable[[Path], Errors]):
    errors = check(PROGRAMS)
    wrong = marked_lines(check.__name__)
    assert len(wrong) > 50
    assert {place: message for place, message in errors.items() if place not in wrong} == {}
    assert wrong - errors.keys() == set()
