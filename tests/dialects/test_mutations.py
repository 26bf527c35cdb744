"""Damaged replies (damaged_replies.py): never worse than docs/reference/conformance.md says."""

from __future__ import annotations

import json

import pytest
from conformance_page import MUTATIONS
from damaged_replies import cases
from mutations import count_ours

from toolspeak.dialects import DIALECTS, Dialect

PAGE_FIGURES = {row["dialect"]: row["toolspeak"] for row in json.loads(MUTATIONS.read_text("utf-8"))}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_damaged_replies_are_read_no_worse_than_the_page_says(dialect: Dialect):
    figures = count_ours(dialect, list(cases(dialect))).figures
    assert sum(figures) <= sum(PAGE_FIGURES[dialect.name]), "python tests/dialects/mutations.py --show --dialects NAME"
