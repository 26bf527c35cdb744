"""The engines' own test cases, each read as its engine reads it or listed with the reason, at every cut."""

from __future__ import annotations

import pytest
from conformance_page import PAGE, page
from disagreements import CLASSES, DISAGREEMENTS, ELSEWHERE, ELSEWHERE_SOFT, SOFT
from vectors import CUTS, agrees, rows, see

DIALECTS = sorted({row["dialect"] for row in rows()})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_case_reads_as_in_its_engine_or_is_listed_however_it_is_cut(dialect: str):
    for row in rows():
        if row["dialect"] == dialect:
            whole, table = see(row, "uncut"), SOFT if row.get("soft") else DISAGREEMENTS
            assert agrees(whole, row) != (row["id"] in table), f"{row['id']}: {whole.turn}"
            for cut in CUTS[1:]:
                assert see(row, cut) == whole, f"{row['id']}: {cut}"


def test_every_listed_case_has_a_class_and_is_a_case():
    soft = {row["id"] for row in rows() if row.get("soft")}
    firm = {row["id"] for row in rows()} - soft
    assert firm >= set(DISAGREEMENTS)
    assert soft >= set(SOFT)
    assert not (firm | soft) & {*ELSEWHERE, *ELSEWHERE_SOFT}
    tables = [DISAGREEMENTS, SOFT, ELSEWHERE, ELSEWHERE_SOFT]
    assert {kind for each in tables for kind, _ in each.values()} == set(CLASSES)


def test_a_mock_token_is_in_every_case_that_is_listed_for_one():
    for row in rows():
        if DISAGREEMENTS.get(row["id"], ("", ""))[0] == "mock":
            assert "<eos>" in row["input"] or "\u0120" in row["input"], row["id"]


def test_the_page_is_current():
    assert PAGE.read_text("utf-8") == page()
