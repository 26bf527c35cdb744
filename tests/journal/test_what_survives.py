"""The page of what survives what: each of its rows names a test that is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "what-survives.md"
PROMISES = PAGE.read_text(encoding="utf-8").partition("## What does not survive")[0]
ROWS = [line for line in PROMISES.splitlines() if line.startswith("| ")][1:]
TESTS = {
    name
    for folder in ("tests", "src/toolspeak/testing")
    for path in (ROOT / folder).rglob("*.py")
    for name in re.findall(r"^(?:async )?def ((?:test|check)_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_row_names_a_test_that_is_there(row):
    _, promise, named = row.rstrip("| ").rsplit(" | ", 2) if row.count(" | ") > 1 else ("", row, "")
    names = [name.replace("…", "test_") for name in re.findall(r"`(…\w+|check_\w+)`", named)]
    files = re.findall(r"\]\(([^)#]+)\)", named)
    assert names or files, promise
    assert not set(names) - TESTS
    assert all((PAGE.parent / file).is_file() for file in files)
