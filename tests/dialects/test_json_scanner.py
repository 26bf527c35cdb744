"""The scanner of JSON values: its steps over whole keys, members and strings equal single characters."""

from __future__ import annotations

import json

import pytest
from dialect_strategies import JSON_VALUES
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.data.messages import JSON
from toolspeak.dialects.text.scan import MAX_DIGITS, Caps, JsonScanner, Problem, decode_json, whole_object
from toolspeak.testing import chunks

CAPS = Caps(depth=4, digits=25)
Verdict = tuple[int, bool, str, str]


def verdict(text: str, size: int) -> Verdict:
    """How far the value goes, whether it is whole, and what is wrong with it."""
    scanner, position = JsonScanner(CAPS), 0
    for piece in chunks(text, size):
        stop = scanner.feed(piece, 0)
        position += stop
        if scanner.is_complete or scanner.problem is not None or stop < len(piece):
            break
    problem = scanner.problem
    return (
        position - scanner.back,
        scanner.is_complete,
        problem.code if problem else "",
        problem.reason if problem else "",
    )


TEXTS = [
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


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_reads_the_same_in_one_piece_and_in_any(text: str):
    assert len({verdict(text, size) for size in (len(text), 1, 2, 3, 5, 7)}) == 1


@given(value=JSON_VALUES, indent=st.sampled_from([None, 0, 1]), data=st.data())
@settings(deadline=None, max_examples=fewer(300))
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


# --- whole objects ------------------------------------------------------------------------------

DEEP = Caps(depth=5, characters=10_000)  # two levels are the call's, so an object may hold two more


def scan(text: str, position: int, caps: Caps) -> tuple[JSON, int] | None:
    """What the scanner and the decoder make of an object, one after the other; None where they find a problem."""
    scanner = JsonScanner(caps, depth=2)
    stop = scanner.feed(text, position)
    fits = scanner.is_complete and stop - position <= caps.characters
    value = decode_json(text[position:stop]) if fits else None
    return None if value is None or isinstance(value, Problem) else (value, stop)


@pytest.mark.parametrize(
    ("text", "caps", "whole"),
    [
        ('{"a": [{}]} and more', DEEP, True),
        ('{"a": [{}, [[]]]}', DEEP, False),
        ('{"a": "[[[[[[[[{{{{"}', DEEP, True),
        ('{"a": [], "b": [], "c": [], "d": [], "e": [{}]}', DEEP, True),
        ('{"a": "' + "b" * 9_990 + '"}', DEEP, True),
        ('{"a": "' + "b" * 10_000 + '"}', DEEP, False),
        ('{"a": ' + "1" * MAX_DIGITS + "}", Caps(), True),
        ('{"a": ' + "1" * (MAX_DIGITS + 1) + "}", Caps(), False),
        ('{"a": 0.' + "1" * (MAX_DIGITS - 2) + "}", Caps(), True),
        ('{"a": 0.' + "1" * MAX_DIGITS + "}", Caps(), False),
        ('{"a": 12}', Caps(digits=2), False),  # what it was not made for it leaves to the scanner
        ('{"a": 1e999}', Caps(), False),
        ('{"a": NaN}', Caps(), False),
        ('{"a": 1, "a": 1}', Caps(), False),
        ('{"a": {"b": 1, "b": 2}}', Caps(), False),
        ('{"a": "b\n"}', Caps(), False),
        ('{"a": "\\ud800"}', Caps(), True),
        ('{"a": 1,}', Caps(), False),
        ('{"a": 1', Caps(), False),
        ('{"a": "}', Caps(), False),
        ('{"a": ' + "[" * 100_000 + "]}", Caps(), False),
    ],
)
def test_an_object_that_is_there_to_its_end_is_read_at_once(text: str, caps: Caps, whole: bool):
    result = whole_object(f"  {text}", 2, caps)
    assert (result is not None) == whole
    if caps.digits == MAX_DIGITS:
        assert result == scan(f"  {text}", 2, caps)


@settings(deadline=None)
@given(st.dictionaries(st.text(), JSON_VALUES, max_size=3), st.integers(0, 40), st.text(max_size=2), st.booleans())
def test_an_object_read_at_once_is_what_the_scanner_and_the_decoder_find(
    value: dict[str, JSON], at: int, put: str, ascii_only: bool
):
    text = json.dumps(value, ensure_ascii=ascii_only)
    text = text[:at] + put + text[at:]
    if text.startswith("{"):
        assert whole_object(text, 0, DEEP) == scan(text, 0, DEEP)
