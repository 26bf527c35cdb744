"""Replies from public threads: each is read or reported as malformed, and never becomes the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolspeak.data.deltas import BatchEnded, CallCompleted, CallMalformed, TextDelta
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect
from toolspeak.dialects.detection.auto_dialect import AutoDialect
from toolspeak.testing import check_splits, chunks, every_split, parse_pieces

SAMPLES = Path(__file__).parent.parent / "samples"


def rows() -> Iterator[Any]:
    for path in sorted(SAMPLES.glob("threads*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            yield pytest.param(row, id=f"{row['id']}-{row['thread']}")


ROWS = list(rows())


def tools_of(row: Any) -> list[ToolSpec]:
    return [ToolSpec(tool["name"], tool["description"], tool["parameters"]) for tool in row["tools"]]


def read(dialect: Any, row: Any) -> dict[str, Any]:
    """The answer, the calls that run, and the number of calls reported to the model."""
    deltas = parse_pieces(dialect, [row["input"]], tools_of(row))
    selected_indexes = {index for delta in deltas if isinstance(delta, BatchEnded) for index in delta.selected}
    finished_calls = [delta for delta in deltas if isinstance(delta, CallCompleted) and delta.index in selected_indexes]
    return {
        "content": "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)).strip(),
        "calls": [{"name": call.name, "arguments": call.arguments} for call in finished_calls],
        "malformed": sum(isinstance(delta, CallMalformed) for delta in deltas),
    }


@pytest.mark.parametrize("row", ROWS)
def test_a_paste_is_read_or_reported(row: Any) -> None:
    assert read(get_dialect(row["dialect"]), row) == row["expect"]


@pytest.mark.parametrize("row", ROWS)
def test_auto_says_the_same_of_a_call(row: Any) -> None:
    own = get_dialect(row["dialect"])
    assert read(AutoDialect(own), row)["calls"] == row["expect"]["calls"]


@pytest.mark.parametrize("row", ROWS)
def test_the_cut_changes_nothing(row: Any) -> None:
    text = row["input"]
    for dialect in (get_dialect(row["dialect"]), AutoDialect()):
        check_splits(
            dialect, text, tools_of(row), "stop", splits=[list(text), list(chunks(text, 3)), *every_split(text)]
        )
