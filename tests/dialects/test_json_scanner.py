"""The scanner of JSON values: its strides over whole keys, members and strings find what single characters find."""

from __future__ import annotations

import json

import pytest
from dialect_strategies import JSON_VALUES
from hypothesis import given, settings
from hypothesis import strategies as st

from toolspeak.data.messages import JSON
from toolspeak.dialects.scan import Caps, JsonScanner
from toolspeak.testing import chunks

CAPS = Caps(depth=4, digits=25)
Verdict = tuple[int, bool, str, str]


def verdict(text: str, size: int) -> Verdict:
    """How far the value goes, whether it is whole, and what is wrong with it."""
    scanner, position = JsonScanner(CAPS), 0
    for piece in chunks(text, size):
        stop = scanner.feed(piece, 0)
        position += stop
        if scanner.done or scanner.problem is not None or stop < len(piece):
            break
    problem = scanner.problem
    return position - scanner.back, scanner.done, problem.code if problem else "", problem.reason if problem else ""


WRITTEN = [
    '["a" , "b"\n]',
    '{"a" : "b"\n}',
    '{\n  "a": "1\\"2",\n  "b": "é",\n  "c": [ "d"\n ,"e" ],\n  "f": {"g": "h" , "i": {} }\n}',
    '{"a": 1, "b": -0.5e3, "c": true , "d": null, "e": 12345678901234567890123}',
    '{"a": 01}',
    '{"a": 1.}',
    '{"a": truely, "b": 1}',
    '{"a": true"b": 1}',
    '{"a": "b",}',
    '{"a": "b" "c": "d"}',
    '{,"a": "b"}',
    '{"a": "b\n"}',
    '{"a": "\\x"}',
    '{"a": "\\u12"}',
    '{"a\\n": "b", "a\t": "c"}',
    '{"a": 1e5, "b": [1, "2"], "c": "3"}',
    '{"a": 12345678901234567890123456}',
    '{"a": {"b": {"c": {"d": {"e": 1}}}}}',
    '"a" ',
    '  "a"',
    '{"a": "b", "c": }',
    '{"a": "b", "c"}',
    '{"a": "b", "c": "d"] ',
]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_value_reads_the_same_in_one_piece_and_in_any(text: str):
    assert len({verdict(text, size) for size in (len(text), 1, 2, 3, 5, 7)}) == 1


@given(value=JSON_VALUES, indent=st.sampled_from([None, 0, 1]), data=st.data())
@settings(deadline=None, max_examples=300)
def test_any_value_damaged_or_not_reads_the_same_however_it_is_cut(
    value: JSON, indent: int | None, data: st.DataObject
):
    gaps = data.draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", "\t: ")]))
    text = json.dumps({"a": value, "b": "c"}, indent=indent, separators=gaps, ensure_ascii=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        at, damage = (
            data.draw(st.integers(0, len(text))),
            data.draw(st.sampled_from(['"', ",", "}", "\\", "0", "\n", "e"])),
        )
        text = text[:at] + damage + text[at + data.draw(st.integers(0, 1)) :]
    assert verdict(text, len(text)) == verdict(text, 1) == verdict(text, data.draw(st.integers(2, 9)))
