"""Promises 1, 2 and 4 of docs/design.md 4.1 for texts of any nesting depth: no exception, at any cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
from dialect_strategies import TOOLS

from sweeps import parts
from toolspeak.data.deltas import CallMalformed, Delta, TextDelta, TurnEnded
from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, get_dialect
from toolspeak.dialects.catalogue import DIALECTS
from toolspeak.dialects.detection.auto_dialect import AutoDialect
from toolspeak.dialects.detection.repairing_dialect import with_repair
from toolspeak.dialects.detection.strict_dialect import StrictDialect
from toolspeak.dialects.detection.unparsed_calls import LeakedCalls
from toolspeak.dialects.grammar.build import WithGrammar
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.testing import join_deltas, parse_pieces

DEPTH = 1000
FREE = ToolSpec(
    "free", "", {"type": "object", "properties": {"a": {}, "o": {"type": "object"}, "l": {"type": "array"}}}
)
EVERY_TOOL = (*TOOLS, FREE)
NESTING_UNITS = ("[", '{"a":', "{a:", '[{"a":', "f(a=[", "<a>", "<think>", "```\n")


def call_beginning(dialect: Dialect) -> str:
    """A call up to its first argument's value."""
    call = ToolCall("c", "free", {"a": "QQ"})
    text = "".join(entry.text for entry in dialect.render([Message("assistant", (call,))], ()))
    return text.partition("QQ")[0]


def openers(dialect: Dialect) -> Iterator[tuple[str, str]]:
    """What a text may begin with, and what then comes a thousand times."""
    assert isinstance(dialect, WithGrammar)
    markers = dialect.grammar_parts()[1]
    first = {marker.kind: marker.text for marker in reversed(markers)}
    call = call_beginning(dialect)
    prefix = "]<]minimax[>[" if dialect.name == "minimax-m3" else ""
    for head in dict.fromkeys(("", first["calls"], call)):
        for unit in (*NESTING_UNITS, f"{prefix}<o>", call):
            yield head, unit


def reading(dialect: Dialect, pieces: Sequence[str]) -> list[Delta]:
    return join_deltas(parse_pieces(dialect, pieces, EVERY_TOOL))


def check(read: Callable[[Sequence[str]], list[Delta]], head: str, unit: str) -> None:
    pieces = [piece for piece in (head, *[unit] * DEPTH) if piece]
    assert read(pieces) == read(["".join(pieces)])


def variants(dialect: Dialect) -> Iterator[Dialect]:
    yield dialect
    if type(dialect.parser()) is BlockParser:
        yield StrictDialect(dialect)
    if dialect.info.arguments.startswith(("JSON", "fenced JSON")):
        yield with_repair(dialect)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@parts(6)
def test_nothing_raises_however_deep_a_text_nests_and_however_it_is_cut(dialect: Dialect, part: int) -> None:
    cases = [(each, head, unit) for head, unit in openers(dialect) for each in variants(dialect)]
    for each, head, unit in cases[part::6]:
        check(partial(reading, each), head, unit)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@parts(4)
def test_auto_and_native_turns_take_them_too(dialect: Dialect, part: int) -> None:
    head = call_beginning(dialect)
    leaks = StrictDialect(AutoDialect(), broken=True)

    def read_leaks(pieces: Sequence[str]) -> list[Delta]:
        calls = LeakedCalls(lambda: leaks.parser(EVERY_TOOL))
        deltas = [delta for piece in pieces for delta in calls.feed(TextDelta(piece))]
        return join_deltas([*deltas, *calls.feed(TurnEnded("stop"))])

    units = ("[", '{"a":', "<a>", head)
    for unit in units[(DIALECTS.index(dialect) + part) % 4 :: 4]:
        check(partial(reading, AutoDialect()), head, unit)
        check(read_leaks, head, unit)


@pytest.mark.parametrize("depth", [1, 100, 125, 126, 127, 128, DEPTH])
def test_elements_past_the_cap_are_malformed_tag_by_tag_too(depth: int) -> None:
    prefix, dialect = "]<]minimax[>[", get_dialect("minimax-m3")
    text = f'{prefix}<tool_call>{prefix}<invoke name="free">{f"{prefix}<o>" * depth}x{f"{prefix}</o>" * depth}'
    text += f"{prefix}</invoke>{prefix}</tool_call>"
    deltas = reading(dialect, [piece for piece in re.split(r"(?<=[a-z]>)", text) if piece])
    assert deltas == reading(dialect, [text])
    codes = [delta.code for delta in deltas if isinstance(delta, CallMalformed)]
    assert codes == (["too_deep"] if depth > 126 else [])
