"""The fuzzer's cases and checks work, and hold for a part of what it starts from; the rest is `make fuzz`."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from cases import AGAIN, FRAGMENT, GROUPS, WORD, Case, decode, encode, seeds
from checks import check_case, check_growth, kept_bytes
from findings import Findings

from toolspeak.data.deltas import TextDelta
from toolspeak.dialects import Section, get_dialect
from toolspeak.testing import chunks


@pytest.mark.parametrize("family", GROUPS)
def test_what_a_fuzzer_starts_from_is_sound(family: str):
    for data in itertools.islice(seeds(GROUPS[family]), 0, None, 40):
        check_case(decode(data, GROUPS[family]))


def test_bytes_say_what_a_case_is():
    dialects = [get_dialect("hermes"), get_dialect("glm45")]
    case_bytes = encode("a\ud800é", 1, tools=0, starts_in="reasoning") + bytes((AGAIN, 2, WORD, FRAGMENT, 0))
    case = decode(case_bytes, dialects)
    assert (case.dialect, case.tools, case.starts_in, case.finish) == (dialects[1], (), "reasoning", "stop")
    assert case.text.startswith("a\ud800é" * 4 + case.words[0] + "<tool_call>")
    assert "".join(case.pieces) == case.text


class BrokenDialect:
    """A dialect whose parser says of every word that it is text, and forgets what stands behind `drop`."""

    def __init__(self, drop: str):
        self.name, self.drop = "broken", drop

    def parser(self, tools=(), starts_in="text"):
        return BrokenParser(self.drop)


class BrokenParser:
    def __init__(self, drop):
        self.drop, self.memory = drop, []

    def feed(self, chunk):
        if self.drop == "leak":
            self.memory += [chunk * 500]
        if "!" in chunk:
            raise ValueError("a bang")
        text = chunk.partition(self.drop)[0]
        return [TextDelta(text)] if text else []

    def close(self, reason):
        return []


@pytest.mark.parametrize(
    ("text", "drop", "fault"),
    [
        ("some Zq0zz words", "Z", "splits matter"),
        ("a Zq0zz", "\0", None),
        ("what!", "\0", "ValueError: a bang"),
    ],
)
def test_a_fault_is_kept_with_the_shortest_text(text, drop, fault, tmp_path):
    case = Case(BrokenDialect(drop), text, words=("Zq0zz",) if "Zq" in text else ())  # type: ignore[arg-type]
    assert Findings(tmp_path).run(case, check_case) == (fault is None)
    findings = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert len(findings) == (fault is not None)
    for each in findings:
        assert fault in each["fault"]
        assert len(each["text"]) <= 3


def test_memory_that_stays_is_a_fault():
    case = replace(Case(BrokenDialect("leak"), "abcd "), stop=0)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="bytes kept"):
        check_growth(case, 1)


@pytest.mark.parametrize(
    ("name", "front", "unit", "starts_in"),
    [
        ("functionary-v32", '`>>>pick\n{"', "|eom_id|>x", "text"),
        ("glm45", "<tool_call>write\n<arg_key>file</arg_key>\n<arg_value>", "a", "reasoning"),
        ("glm45", "<tool_call>write\n<arg_key>file</arg_key>\n<arg_value>", "\U0001f600", "reasoning"),
        ("step3p5", "`<tool_call>\n<function=read>\n<parameter=file>", "\U0001f600", "text"),
        ("hermes", '- <tool_call>{"name": "read", "arguments": {"file": "', "\U0001f600", "text"),
        ("auto", "", "z", "text"),  # whose parsers share the tables of all dialects
    ],
)
@pytest.mark.parametrize("step", [1, 4])
def test_what_is_held_takes_a_small_factor_of_its_text(name: str, front: str, unit: str, starts_in: Section, step: int):
    case = Case(get_dialect(name), "", starts_in=starts_in)
    parser = case.parser()
    text = front + unit * (40_000 // len(unit))
    for piece in chunks(text, step):
        parser.feed(piece)
    assert kept_bytes(parser, case) < 160_000 + 12 * len(text)
