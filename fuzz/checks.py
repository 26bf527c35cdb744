"""What must hold of every case: the promises of docs/design.md 4.1 that can be checked on any input."""

from __future__ import annotations

import gc
import random
import re
import sys
import time
import types
from collections.abc import Iterable, Sequence

from cases import Case

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    Delta,
    ForgedResults,
    ReasoningDelta,
    TextAside,
    TextDelta,
)
from toolspeak.dialects import Parser, StrictDialect
from toolspeak.dialects.text.scan import MAX_CANDIDATE
from toolspeak.testing import CheckedParser, check_nothing_lost, chunks, join_deltas

SECONDS, SECONDS_PER_CHARACTER = 2.0, 0.002
"""CPU time that a case may take: a hundred times what it takes with coverage counted."""

GROWTH = 9.0
"""How much longer four times the text may take: 4 is linear, 16 quadratic."""

FIXED_BYTES, BYTES_PER_CHARACTER = 160 * 1024, 16
"""Bytes a parser may keep: always, and of the block it reads (raw text and values, four bytes a character at most)."""

HELD_PER_CHARACTER = 128
"""Likewise where whole calls are held back, which is done in the pieces they came in: single characters at worst."""

_READ_OVER = re.compile(
    r"<[^<>\s]+\s[^<>]*>"  # an element's attributes, noted on a call or batch if there is one
    r"|\w+<\|content_invoke_tool_json\|>"  # Inkling's header, which repeats the name
    r"|<\|(?:start|channel|constrain)\|>(?:[^<]|<(?!\|(?:start|channel|constrain|message|end|call|return)\|>))*"
    r"|to=[^\s<]*(?=<\|message\|>)"  # the headers of Harmony's messages, and of Muse's
    r"|```[\w+.-]*"  # the language of a fence around calls
)
"""Framing: it may name things that nobody asks for, and is not text."""

LENIENT = ("extra_key:", "attributes", "marker_attributes")
"""Notes that tell of something that was read and left out."""


def check_case(case: Case) -> None:
    """Raises AssertionError with what is wrong, or whatever a parser raises."""
    before = time.process_time()
    whole = join_deltas(_read(case, [case.text]))
    for pieces in (case.pieces, list(chunks(case.text, 4)), list(chunks(case.text, 1))):
        deltas = join_deltas(_read(case, pieces))
        if deltas != whole:
            raise AssertionError(f"splits matter: {_difference(deltas, whole)}")
    _check_broken_off(case, whole)
    if not _left_out(whole):
        text = _READ_OVER.sub("", case.text)
        check_nothing_lost([word for word in case.words if word in text], whole)
    seconds = time.process_time() - before
    if seconds > SECONDS + SECONDS_PER_CHARACTER * len(case.text):
        raise AssertionError(f"slow: {seconds:.1f} s for {len(case.text)} characters")


def _checked_parser(case: Case) -> CheckedParser:
    return CheckedParser(case.parser(), None if isinstance(case.dialect, StrictDialect) else MAX_CANDIDATE)


def _read(case: Case, pieces: Iterable[str]) -> list[Delta]:
    parser = _checked_parser(case)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    return deltas + parser.close(case.finish)


def _check_broken_off(case: Case, whole: Sequence[Delta]) -> None:
    """Where the turn breaks off, nothing was told that the rest revokes, and no call is made up."""
    parser = _checked_parser(case)
    beginning = join_deltas(parser.feed(case.text[: case.stop]))
    if beginning and not _is_beginning(beginning, whole):
        raise AssertionError(f"revoked: {_difference(beginning, whole)}")
    whole_calls = {delta.index: delta for delta in whole if isinstance(delta, CallCompleted)}
    closing = parser.close("length")
    ignored_indexes = {delta.index for delta in closing if isinstance(delta, CallIgnored)}
    for delta in closing:
        if (
            isinstance(delta, CallCompleted)
            and delta.index not in ignored_indexes
            and whole_calls.get(delta.index) != delta
        ):
            raise AssertionError(f"made up at the token limit: {delta!r}, not {whole_calls.get(delta.index)!r}")


def _is_beginning(beginning: Sequence[Delta], whole: Sequence[Delta]) -> bool:
    if len(beginning) > len(whole) or beginning[:-1] != list(whole[: len(beginning) - 1]):
        return False
    last, full = beginning[-1], whole[len(beginning) - 1]
    match last, full:
        case (
            (TextDelta(text), TextDelta(longer))
            | (TextAside(text), TextAside(longer))
            | (ReasoningDelta(text), ReasoningDelta(longer))
        ):
            return longer.startswith(text)
        case ArgumentsDelta(index, text), ArgumentsDelta(same, longer):
            return index == same and longer.startswith(text)
        case _:
            return last == full


def _left_out(deltas: Iterable[Delta]) -> bool:
    notes = [note for delta in deltas if isinstance(delta, CallCompleted | BatchEnded) for note in delta.notes]
    return any(note.startswith(LENIENT) for note in notes)


def _difference(actual: Sequence[Delta], expected: Sequence[Delta]) -> str:
    for i in range(max(len(actual), len(expected))):
        actual_delta, expected_delta = (deltas[i] if i < len(deltas) else None for deltas in (actual, expected))
        if actual_delta != expected_delta:
            return f"delta {i} is {actual_delta!r}, of the whole text {expected_delta!r}"
    return "none"


# --- long texts ---------------------------------------------------------------------------------


def check_growth(case: Case, seed: int, size: int = 8_000) -> None:
    """A part of the text, repeated: four times as much of it takes about four times as long, and no memory stays."""
    chance = random.Random(seed)
    start = chance.randrange(len(case.text)) if case.text else 0
    unit = case.text[start : start + chance.choice((1, 2, 5, 30, 300))]
    if not unit:
        return
    step = chance.choice((1, 4, 64, 1 << 20))
    for length in (size, 2 * size, 8 * size):  # again, longer: noise goes away, a square does not
        short, long = (case.text[:start] + unit * (total // len(unit)) for total in (length, 4 * length))
        once, _ = _time(case, short, step)
        longer, memory = _time(case, long, step)
        _check_kept(case, long, memory)
        if longer < max(once, 0.01) * GROWTH:
            return
    raise AssertionError(f"growth: {once:.2f} s, then {longer:.2f} s for 4 times {unit!r} behind {case.text[:start]!r}")


def _time(case: Case, text: str, step: int) -> tuple[float, int]:
    """CPU seconds that `text` takes in chunks of `step`, and the bytes kept at its end."""
    parser = case.parser()
    pieces = list(chunks(text, step))
    before = time.process_time()
    for piece in pieces:
        parser.feed(piece)
        if time.process_time() - before > SECONDS + SECONDS_PER_CHARACTER / 10 * len(text):
            raise AssertionError(
                f"slow: {len(text)} characters in chunks of {step} take more than {time.process_time() - before:.0f} s"
            )
    seconds = time.process_time() - before
    return seconds, kept_bytes(parser, case)


def _check_kept(case: Case, text: str, memory: int) -> None:
    parser = case.parser()
    calls = sum(isinstance(delta, CallCompleted | CallMalformed) for delta in parser.feed(text))
    open_block = any(isinstance(each, CallMalformed | CallCompleted | ForgedResults) for each in parser.close("length"))
    most = FIXED_BYTES + 64 * calls + (BYTES_PER_CHARACTER * len(text) if open_block else 0)
    if isinstance(case.dialect, StrictDialect):
        most += HELD_PER_CHARACTER * len(text)
    if memory > most:
        raise AssertionError(f"memory: {memory} bytes kept of {len(text)} characters, {calls} calls, {open_block=}")


_SHARED_TYPES = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, re.Pattern)


def kept_bytes(parser: Parser, case: Case) -> int:
    """What a parser holds in memory, apart from what belongs to its dialect, and from what all its parsers share: those
    of `auto` share the tables of all dialects, which `auto` itself does not hold."""
    base_ids = {id(each) for each in _reach([case.dialect, case.parser()], set())}
    return sum(sys.getsizeof(each) for each in _reach(parser, base_ids))


def _reach(root: object, ids: set[int]) -> list[object]:
    objects: list[object] = []
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if id(each) in ids or isinstance(each, _SHARED_TYPES):
            continue
        ids.add(id(each))
        objects.append(each)
        waiting += gc.get_referents(each)
    return objects
