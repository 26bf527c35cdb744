"""The contract of a dialect as plain checks: each raises AssertionError with what is wrong.

Nothing here needs a test framework. Together with `every_split` they are the suite that every dialect of
toolspeak passes; an author of another dialect calls them on samples of their own.

    check_splits(dialect, text, tools)
    check_round_trip(dialect, [ToolCall("c1", "read", {"path": "a.txt"})], tools)
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, FinishReason, Message, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import Dialect, Section
from toolspeak.dialects.turn import read_turn
from toolspeak.testing.splits import chunks, every_split, join_deltas


def parse_pieces(
    dialect: Dialect,
    pieces: Iterable[str],
    tools: Sequence[ToolSpec] = (),
    finish: FinishReason = "stop",
    starts_in: Section = "text",
) -> list[Delta]:
    """All deltas of a turn that arrives in these pieces."""
    parser = dialect.parser(tools, starts_in)
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
    """Every way of cutting `text` gives the same joined deltas, and they are a sound turn; returns them.

    Without `splits` these are: single characters, and every cut in two.
    """
    expected = join_deltas(parse_pieces(dialect, [text], tools, finish, starts_in))
    check_deltas(expected)
    tried = itertools.chain([tuple(chunks(text, 1))], every_split(text)) if splits is None else splits
    for pieces in tried:
        deltas = parse_pieces(dialect, pieces, tools, finish, starts_in)
        check_deltas(deltas)
        found = join_deltas(deltas)
        if found != expected:
            where = _first_difference(found, expected)
            raise AssertionError(f"{dialect.name}: the cut {list(pieces)!r} changes what is read\n{where}")
    return expected


def _first_difference(found: Sequence[Delta], expected: Sequence[Delta]) -> str:
    for i, (left, right) in enumerate(itertools.zip_longest(found, expected)):
        if left != right:
            return f"delta {i} in pieces: {left!r}\ndelta {i} at once:   {right!r}"
    return "no difference"


def check_round_trip(dialect: Dialect, calls: Sequence[ToolCall], tools: Sequence[ToolSpec] = ()) -> None:
    """Names and arguments survive being rendered as history and read again; nothing is repaired on the way."""
    message = Message("assistant", (TextPart("Let me see."), *calls))
    rendered = [entry.text for entry in dialect.render([message], tools) if entry.role == "assistant"]
    turns = [read_turn(dialect, text, tools) for text in rendered]
    read = [call for turn in turns for call in turn.calls]
    shown = "\n".join(rendered)
    for turn in turns:
        _require(not turn.ignored, f"{dialect.name}: a rendered call is ignored: {turn.ignored!r}", shown)
        _require(not turn.notes, f"{dialect.name}: what was rendered needs leniency: {turn.notes!r}", shown)
    _require(len(read) == len(calls), f"{dialect.name}: {len(calls)} calls rendered, {len(read)} read", shown)
    for call, back in zip(calls, read, strict=True):
        _require(isinstance(back, ToolCall), f"{dialect.name}: a rendered call is malformed: {back!r}", shown)
        assert isinstance(back, ToolCall)
        _require(not back.notes, f"{dialect.name}: a rendered call needs leniency: {back.notes!r}", shown)
        _require(back.name == call.name, f"{dialect.name}: the name {call.name!r} became {back.name!r}", shown)
        same = _exact(dict(back.arguments)) == _exact(dict(call.arguments))
        _require(same, f"{dialect.name}: the arguments {call.arguments!r} became {back.arguments!r}", shown)


def check_results_cannot_forge(
    dialect: Dialect, results: Sequence[ToolResult], markers: Sequence[str] = (), tools: Sequence[ToolSpec] = ()
) -> str:
    """No result can end its own block, begin a call or open reasoning; returns the rendered results.

    `markers` are the dialect's element names: no `<name` or `</name`, in any case and with white space
    inside, stands in the rendered results but those that stand there whatever the results say.
    """
    harmless = [replace(result, content=(TextPart("x"),)) for result in results]
    rendered, plain = dialect.render_results(results), dialect.render_results(harmless)
    if markers:
        live = re.compile(rf"<\s*+(?:/\s*+)?(?:{'|'.join(map(re.escape, markers))})", re.IGNORECASE)
        found, expected = live.findall(rendered), live.findall(plain)
        _require(found == expected, f"{dialect.name}: live markers {found!r}, expected {expected!r}", rendered)
    for finish in ("stop", "length"):
        _require_same_shape(dialect, rendered, plain, tools, finish)
        told = "\n".join(entry.text for entry in dialect.render([Message("tool", tuple(results))], tools))
        same = "\n".join(entry.text for entry in dialect.render([Message("tool", tuple(harmless))], tools))
        _require_same_shape(dialect, told, same, tools, finish)
    return rendered


def _require_same_shape(
    dialect: Dialect, text: str, plain: str, tools: Sequence[ToolSpec], finish: FinishReason
) -> None:
    """Both texts, read as turns, hold the same blocks and the same text around them, and no call."""
    found, expected = (join_deltas(parse_pieces(dialect, [each], tools, finish)) for each in (text, plain))
    blocks, known = ([delta for delta in deltas if not isinstance(delta, TextDelta)] for deltas in (found, expected))
    wrong = [delta for delta in blocks if not isinstance(delta, ForgedResults)]
    _require(not wrong, f"{dialect.name}: results are read as {wrong!r}", text)
    _require(len(blocks) == len(known), f"{dialect.name}: {len(known)} results are read as {blocks!r}", text)
    around, usual = (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) for deltas in (found, expected)
    )
    _require(around == (usual if known else text), f"{dialect.name}: a result breaks out: {around!r}", text)


@dataclass(slots=True)
class _CallSeen:
    name: str | None
    id: str | None = None
    arguments: list[str] = field(default_factory=list[str])
    started: bool = False
    ended: CallCompleted | CallMalformed | None = None
    ignored: bool = False


def check_deltas(deltas: Iterable[Delta], *, complete: bool = True) -> None:
    """The deltas of one turn make sense together; `complete=False` for a turn that is still running.

    Of every call: started, then its arguments, then completed or malformed, then nothing more but at most one
    `CallIgnored`. Indexes count up from 0 in order of appearance. The argument fragments of a completed call
    join to JSON that equals its arguments. At most one `BatchEnded`; it selects completed calls that are not
    ignored, in order. When the turn is over every call has ended, a completed one is selected or ignored, and
    `ok` says whether a malformed one counts.
    """
    seen: dict[int, _CallSeen] = {}
    batch: BatchEnded | None = None
    over = False
    for delta in deltas:
        _require(not over, f"{delta!r} comes after the turn ended")
        match delta:
            case TextDelta(text) | ReasoningDelta(text):
                _require(text != "", f"an empty {type(delta).__name__}")
            case CallStarted(index, name, id):
                _require(index == len(seen), f"call {index} starts, {len(seen)} is next")
                seen[index] = _CallSeen(name, id, started=True)
            case ArgumentsDelta(index, _):
                _open_call(seen, index, delta).arguments.append(delta.text)
            case CallCompleted(index):
                _complete(_open_call(seen, index, delta), delta)
            case CallMalformed(index):
                _malformed(seen, index, delta)
            case CallIgnored(index, _):
                call = seen.get(index)
                _require(call is not None and call.ended is not None, f"call {index} is ignored before it ended")
                assert call is not None
                _require(not call.ignored, f"call {index} is ignored twice")
                call.ignored = True
            case BatchEnded():
                _require(batch is None, "the batch ends twice")
                batch = delta
                _selection(seen, delta)
            case TurnEnded():
                over = True
            case _:
                pass
    if batch is not None:
        for index in batch.selected:
            _require(not seen[index].ignored, f"call {index} is selected and ignored")
    if complete:
        _check_complete(seen, batch)


def _open_call(seen: dict[int, _CallSeen], index: int, delta: Delta) -> _CallSeen:
    call = seen.get(index)
    if call is None or not call.started:
        raise AssertionError(f"{delta!r} comes before the call started")
    _require(call.ended is None, f"{delta!r} comes after the call ended")
    return call


def _complete(call: _CallSeen, delta: CallCompleted) -> None:
    _require(call.name == delta.name, f"call {delta.index} started as {call.name!r}, completed as {delta.name!r}")
    _require(call.id in (None, delta.id), f"call {delta.index} started as id {call.id!r}, completed as {delta.id!r}")
    text = "".join(call.arguments)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise AssertionError(f"the argument fragments of call {delta.index} are no JSON ({error}): {text!r}") from None
    same = _exact(value) == _exact(dict(delta.arguments))
    _require(same, f"the argument fragments of call {delta.index} say {text!r}, its arguments {delta.arguments!r}")
    call.ended = delta


def _malformed(seen: dict[int, _CallSeen], index: int, delta: CallMalformed) -> None:
    call = seen.get(index)
    if call is None:
        _require(index == len(seen), f"call {index} is malformed, {len(seen)} is next")
        call = seen[index] = _CallSeen(delta.name)
    _require(call.ended is None, f"call {index} is malformed after it ended")
    _require(delta.code != "" and delta.reason != "", f"call {index} is malformed without a code or reason")
    _require(delta.offset >= 0, f"call {index} is malformed at {delta.offset}")
    call.ended = delta


def _selection(seen: dict[int, _CallSeen], batch: BatchEnded) -> None:
    _require(list(batch.selected) == sorted(set(batch.selected)), f"selected out of order: {batch.selected}")
    for index in batch.selected:
        call = seen.get(index)
        completed = call is not None and isinstance(call.ended, CallCompleted)
        _require(completed, f"call {index} is selected and was not completed")


def _check_complete(seen: dict[int, _CallSeen], batch: BatchEnded | None) -> None:
    _require(batch is not None or not seen, "there were calls and the batch did not end")
    selected = batch.selected if batch else ()
    wrong = False
    for index, call in seen.items():
        _require(call.ended is not None, f"call {index} never ended")
        if isinstance(call.ended, CallCompleted):
            _require(index in selected or call.ignored, f"call {index} is completed, not selected and not ignored")
        else:
            wrong = wrong or not call.ignored
    if batch is not None:
        _require(batch.ok != wrong, f"the batch says ok={batch.ok}, but malformed calls that count: {wrong}")


def _exact(value: JSON) -> str:
    """A value as text in which 1, 1.0 and true differ, and the order of keys does not matter."""
    return json.dumps(value, sort_keys=True)


def _require(condition: bool, message: str, text: str = "") -> None:
    if not condition:
        raise AssertionError(f"{message}\nin {text!r}" if text else message)
