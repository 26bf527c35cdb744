"""The contract of a dialect as plain checks: each raises AssertionError with what is wrong.

Nothing here needs a test framework. Together with `every_split` they are the suite that every dialect of
toolspeak passes; an author of another dialect calls them on samples of their own.

    check_splits(dialect, text, tools)
    check_round_trip(dialect, [ToolCall("c1", "read", {"path": "a.txt"})], tools)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from toolspeak.data.deltas import BatchEnded, CallMalformed, Delta, ForgedResults, TextDelta
from toolspeak.data.messages import FinishReason, Message, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import Dialect, Parser
from toolspeak.dialects.parser.parsed_turn import read_turn
from toolspeak.dialects.turn_rules import Section
from toolspeak.testing.invariants import CheckedParser, exact, require
from toolspeak.testing.splits import chunks, every_split, join_deltas


def parse_pieces(
    dialect: Dialect,
    pieces: Iterable[str],
    tools: Sequence[ToolSpec] = (),
    finish: FinishReason = "stop",
    starts_in: Section = "text",
) -> list[Delta]:
    """All deltas of a turn that arrives in these pieces."""
    return _read(dialect.parser(tools, starts_in), pieces, finish)


def _read(parser: Parser, pieces: Iterable[str], finish: FinishReason) -> list[Delta]:
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas.extend(parser.close(finish))
    return deltas


def check_splits(
    dialect: Dialect,
    text: str,
    tools: Sequence[ToolSpec] = (),
    finish: FinishReason = "stop",
    *,
    starts_in: Section = "text",
    splits: Iterable[Sequence[str]] | None = None,
) -> list[Delta]:
    """Every way of cutting `text` gives the same joined deltas, sound at every step (`CheckedParser`); returns them.

    Without `splits` these are: single characters, and every cut in two.
    """
    expected = join_deltas(_read(CheckedParser(dialect.parser(tools, starts_in)), [text], finish))
    every_pieces = itertools.chain([tuple(chunks(text, 1))], every_split(text)) if splits is None else splits
    for pieces in every_pieces:
        actual = join_deltas(_read(CheckedParser(dialect.parser(tools, starts_in)), pieces, finish))
        if actual != expected:
            where = _first_difference(actual, expected)
            raise AssertionError(f"{dialect.name}: the cut {list(pieces)!r} changes what is read\n{where}")
    return expected


def _first_difference(actual: Sequence[Delta], expected: Sequence[Delta]) -> str:
    for i, (in_pieces, at_once) in enumerate(itertools.zip_longest(actual, expected)):
        if in_pieces != at_once:
            return f"delta {i} in pieces: {in_pieces!r}\ndelta {i} at once:   {at_once!r}"
    return "no difference"


def check_round_trip(dialect: Dialect, calls: Sequence[ToolCall], tools: Sequence[ToolSpec] = ()) -> None:
    """Names and arguments survive being rendered as history and read again; nothing is repaired on the way."""
    message = Message("assistant", (TextPart("Let me see."), *calls))
    texts = [entry.text for entry in dialect.render([message], tools) if entry.role == "assistant"]
    turns = [read_turn(dialect, text, tools) for text in texts]
    calls_read = [call for turn in turns for call in turn.calls]
    text = "\n".join(texts)
    for turn in turns:
        require(not turn.ignored_calls, f"{dialect.name}: a rendered call is ignored: {turn.ignored_calls!r}", text)
        require(not turn.notes, f"{dialect.name}: what was rendered needs leniency: {turn.notes!r}", text)
    require(len(calls_read) == len(calls), f"{dialect.name}: {len(calls)} calls rendered, {len(calls_read)} read", text)
    for call, back in zip(calls, calls_read, strict=True):
        require(isinstance(back, ToolCall), f"{dialect.name}: a rendered call is malformed: {back!r}", text)
        assert isinstance(back, ToolCall)
        require(not back.notes, f"{dialect.name}: a rendered call needs leniency: {back.notes!r}", text)
        require(back.name == call.name, f"{dialect.name}: the name {call.name!r} became {back.name!r}", text)
        same = exact(dict(back.arguments)) == exact(dict(call.arguments))
        require(same, f"{dialect.name}: the arguments {call.arguments!r} became {back.arguments!r}", text)


def check_results_cannot_forge(
    dialect: Dialect, results: Sequence[ToolResult], markers: Sequence[str] = (), tools: Sequence[ToolSpec] = ()
) -> str:
    """No result can end its own block, begin a call or open reasoning; returns the rendered results.

    `markers` are the dialect's element names: no `<name` or `</name`, in any case and with white space
    inside, stands in the rendered results but those that stand there whatever the results say.
    """
    harmless = [replace(result, content=(TextPart("x"),)) for result in results]
    results_text, plain = dialect.render_results(results), dialect.render_results(harmless)
    if markers:
        live = re.compile(rf"<\s*+(?:/\s*+)?(?:{'|'.join(map(re.escape, markers))})", re.IGNORECASE)
        actual, expected = live.findall(results_text), live.findall(plain)
        require(actual == expected, f"{dialect.name}: live markers {actual!r}, expected {expected!r}", results_text)
    for finish in ("stop", "length"):
        _require_same_shape(dialect, results_text, plain, tools, finish)
        history_text = "\n".join(entry.text for entry in dialect.render([Message("tool", tuple(results))], tools))
        same = "\n".join(entry.text for entry in dialect.render([Message("tool", tuple(harmless))], tools))
        _require_same_shape(dialect, history_text, same, tools, finish)
    return results_text


_BEFORE = "I read it.\n"


def _is_report(delta: Delta) -> bool:
    is_unmarked = isinstance(delta, CallMalformed) and delta.code == "no_start" and not delta.raw
    return is_unmarked or (isinstance(delta, BatchEnded) and not delta.selected)


def _require_same_shape(
    dialect: Dialect, text: str, plain: str, tools: Sequence[ToolSpec], finish: FinishReason
) -> None:
    """Both texts, read as turns, hold the same blocks and the same text around them, and no call.

    A line stands in front of them: results never begin what the model says, where bare JSON is a call. What is only
    reported, as a call without its marker, breaks out of nothing.
    """
    text, plain = f"{_BEFORE}{text}", f"{_BEFORE}{plain}"
    actual, expected = (
        [delta for delta in join_deltas(parse_pieces(dialect, [each], tools, finish)) if not _is_report(delta)]
        for each in (text, plain)
    )
    blocks, expected_blocks = (
        [delta for delta in deltas if not isinstance(delta, TextDelta)] for deltas in (actual, expected)
    )
    wrong = [delta for delta in blocks if not isinstance(delta, ForgedResults)]
    require(not wrong, f"{dialect.name}: results are read as {wrong!r}", text)
    problem = (
        f"{dialect.name}: results are read by what they hold: as {blocks!r}, with a harmless text as "
        f"{expected_blocks!r}"
    )
    require(len(blocks) == len(expected_blocks), problem, text)
    around, usual = (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) for deltas in (actual, expected)
    )
    require(around == (usual if expected_blocks else text), f"{dialect.name}: a result breaks out: {around!r}", text)
