"""The engines' own test cases, each read as its engine reads it or listed with the reason, however it is cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from conformance_page import PAGE, counted, page
from disagreements import CLASSES, ELSEWHERE, LISTED
from vectors import CUTS, agrees, rows, see

DIALECTS = sorted({row["dialect"] for row in rows()})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_case_reads_as_in_its_engine_or_is_listed_however_it_is_cut(dialect: str):
    for row in rows():
        if row["dialect"] == dialect:
            whole = see(row, "uncut")
            assert agrees(whole, row) != (row["id"] in LISTED), f"{row['id']}: {whole.turn}"
            for cut in CUTS[1:]:
                assert see(row, cut) == whole, f"{row['id']}: {cut}"


def test_every_listed_case_has_a_class_and_few_may_be_held_against_us():
    known = {row["id"] for row in rows()}
    assert known >= set(LISTED)
    assert not known & set(ELSEWHERE)
    assert {kind for kind, _ in (*LISTED.values(), *ELSEWHERE.values())} == set(CLASSES)
    assert len(counted()) < 0.02 * len(known)


LATE = [row for row in rows() if LISTED.get(row["id"], ("", ""))[1].startswith("reasoning's end marker")]


@pytest.mark.parametrize("row", LATE, ids=lambda row: row["id"])
def test_reasoning_that_the_prompt_opened_is_read_where_the_caller_says_so(row: Mapping[str, Any]):
    assert agrees(see(row, "1 character", "reasoning"), row)


def test_the_page_is_current():
    assert PAGE.read_text("utf-8") == page()
