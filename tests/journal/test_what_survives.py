"""The page of what survives what: the page of verification names a test for each of its rows, and each is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TESTS = {
    name
    for folder in ("tests", "src/toolspeak/testing")
    for path in (ROOT / folder).rglob("*.py")
    for name in re.findall(r"^(?:async )?def ((?:test|check)_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def rows(page: str, heading: str) -> dict[str, str]:
    """The table of two columns with this heading."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(f"| what happens | {heading} |\n|---|---|\n")[2]
    lines = text.partition("\n\n")[0].splitlines()
    return dict(line.removeprefix("| ").removesuffix(" |").split(" | ", 1) for line in lines)


PROMISES = rows("explanation/what-survives.md", "what is promised")
VERIFICATIONS = rows("reference/verification.md", "test")


def test_both_pages_have_the_same_rows():
    assert len(PROMISES) > 40
    assert list(PROMISES) == list(VERIFICATIONS)


@pytest.mark.parametrize("references", VERIFICATIONS.values(), ids=[happens[:40] for happens in VERIFICATIONS])
def test_every_row_names_a_test_that_is_there(references):
    names = [name.replace("…", "test_") for name in re.findall(r"`(…\w+|check_\w+)`", references)]
    files = re.findall(r"\]\(([^)#]+)\)", references)
    assert names or files
    assert not set(names) - TESTS
    assert all((DOCS / "reference" / file).is_file() for file in files)
