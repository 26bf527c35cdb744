"""docs/reference/conformance.md names a test for each statement of InstructorPHP's page, and each exists."""

import re

import pytest
from instructor_page import STATEMENTS, TESTS


@pytest.mark.parametrize(("statement", "here", "file", "name"), STATEMENTS)
def test_the_test_that_shows_a_statement_is_there(statement, here, file, name):
    text = (TESTS / file).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def test_{name}\(" if name else "^def test_", text, re.MULTILINE), statement
    assert here.split(":")[0].split(" (")[0] in ("works", "as good")
