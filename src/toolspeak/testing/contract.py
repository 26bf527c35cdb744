"""The whole contract of a dialect in one call, on samples that are made of what the dialect itself writes.

    check_dialect(MY_DIALECT)

It takes a fraction of a second, needs no test framework and raises AssertionError with what is wrong. The promises
are those of the design (4.1); only linear time is left out, which a plain check cannot tell. `vocabulary` gives the
pieces for a fuzz test.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from toolspeak.data.deltas import (
    ArgumentsDelta,
    CallCompleted,
    CallMalformed,
    Delta,
    ReasoningDelta,
    TextAside,
    TextDelta,
)
from toolspeak.data.messages import JSON, Message, TextPart, ToolCall, ToolChoice, ToolResult
from toolspeak.data.tools import READ_ANYTHING, ToolSpec
from toolspeak.dialects.base import Dialect
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.parser.parsed_turn import read_turn
from toolspeak.dialects.text.block_delimiters import Signature
from toolspeak.dialects.text.markers import Marker
from toolspeak.errors import ConfigurationError
from toolspeak.testing.dialects import (
    check_results_cannot_forge,
    check_round_trip,
    check_splits,
    parse_pieces,
)
from toolspeak.testing.invariants import check_deltas
from toolspeak.testing.splits import chunks, every_split, join_deltas

MAX_HELD = 256
"""Characters of text that a parser may hold back (design 4.1, promise 3)."""

_TEXT: JSON = {"type": "string"}
_PROPERTIES: JSON = {"n": {"type": "integer"}, "flag": {"type": "boolean"}, "tags": {"type": "array"}, "map": {}}
SAMPLE_TOOLS = (
    ToolSpec("read", "Reads.", {"type": "object", "properties": {"file": _TEXT}}, READ_ANYTHING),
    ToolSpec("write", "Writes.", {"type": "object", "properties": {"file": _TEXT, "content": _TEXT}}),
    ToolSpec("set", "Sets.", {"type": "object", "properties": _PROPERTIES}),
    ToolSpec("ping", "Pings.", {"type": "object", "properties": {}}, READ_ANYTHING),
)

_PROSE = ("", "Plain prose, with a < b & c.", "```python\nprint([1, 2])\n```\n", "\ud800\0", "{}", "[]", "a: {b}")
_AWKWARD = (
    "",
    " ",
    " x\n",
    "007",
    "null",
    '"',
    "\\",
    "\\n",
    "'",
    "```",
    "\x00",
    "\ud800",
    "\r\n",
    "é😀",
    "]]>",
    "&lt;",
)
_HARMLESS = "x7x"
_DEEP = ("[" * 280, '{"a":' * 140, "<" * 280, "`" * 280, "<think>" * 40, " " * 280)
"""Longer than what may be held back and deeper than JSON may nest (`scan.Caps`), but not by much."""
_PIECE = re.compile(r"<[^<>\s]*>?|\[/?[A-Z_]+\]|[\w.-]+|\s+|.", re.DOTALL)
_JUNK = (
    "<",
    "</",
    ">",
    "`",
    "```",
    "```json\n",
    "\n",
    " ",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "\\",
    "'",
    "7",
    "a",
    "é",
)


def check_dialect(dialect: Dialect) -> None:
    """Checks every promise except linear time, on turns that the dialect itself writes and on texts without calls."""
    turns = written_turns(dialect)
    for text in _PROSE:
        turn = read_turn(dialect, text, SAMPLE_TOOLS)
        reading = (turn.text, turn.reasoning, turn.calls)
        _require(reading == (text, "", ()), f"{dialect.name}: the text {text!r} is read as {reading!r}")
    check_splits(dialect, turns[0], SAMPLE_TOOLS, splits=every_split(turns[0]))
    for text in (*_PROSE, *turns, *(turn[:-1] for turn in turns), *(turn[1:] for turn in turns), *_DEEP):
        check_any_text(dialect, text)
    for text in turns:
        check_emitted_stays(dialect, text, chunks(text, 1))
        check_cut_off(dialect, text)
    check_held_back(dialect)
    check_values(dialect, (*_AWKWARD, *vocabulary(dialect), *turns))
    check_results(dialect, (*_AWKWARD, *vocabulary(dialect), *turns, *(turn[:-1] for turn in turns)))
    check_markers(dialect)
    check_grammar(dialect)


def written_turns(dialect: Dialect) -> list[str]:
    """Turns of the dialect: the first has text and two calls, one has a value of every type."""
    values: dict[str, JSON] = {"n": -7, "flag": True, "tags": [1, "a", None, {"b": []}], "map": {"k": 1.5}}
    batches: list[tuple[tuple[str, dict[str, JSON]], ...]] = [
        (("read", {"file": "a <b>\n"}), ("write", {"file": "x", "content": 'say "hi"\\'})),
        (("set", values),),
        (("ping", {}),),
    ]
    texts: list[str] = []
    for batch in batches:
        calls = [ToolCall(f"callid00{i}", name, arguments) for i, (name, arguments) in enumerate(batch)]
        messages = dialect.render([Message("assistant", (TextPart("Let me see."), *calls))], SAMPLE_TOOLS)
        texts.append("\n".join(message.text for message in messages))
    return texts


def vocabulary(dialect: Dialect) -> tuple[str, ...]:
    """The pieces that the dialect's turns and results consist of, and some that mean something in many formats."""
    results = [ToolResult("callid000", "read", "success", (TextPart("x"),))]
    texts = (*written_turns(dialect), dialect.render_results(results), "<think>a</think>", dialect.info.reasoning)
    pieces = [piece for text in texts for piece in _PIECE.findall(text)]
    return tuple(dict.fromkeys((*pieces, *_JUNK)))


def check_any_text(dialect: Dialect, text: str, splits: Iterable[Sequence[str]] = ()) -> None:
    """No text raises, and how it is cut changes nothing (promises 1 and 4)."""
    ones = tuple(chunks(text, 1))
    check_splits(dialect, text, SAMPLE_TOOLS, splits=[ones, tuple(chunks(text, 4)), *splits])
    check_splits(dialect, text, SAMPLE_TOOLS, "length", splits=[ones])
    check_splits(dialect, text, SAMPLE_TOOLS, starts_in="reasoning", splits=[ones])


def check_held_back(dialect: Dialect) -> None:
    """What may yet become a marker leaves as text after at most `MAX_HELD` characters (promise 3)."""
    for start in {part for piece in vocabulary(dialect) for part in (piece, piece[:1], piece[:-1])}:
        text = f"{start}{' ' * (MAX_HELD + 20)}"
        if read_turn(dialect, text, SAMPLE_TOOLS).text != text:
            continue  # a marker
        parser, emitted_chars, position = dialect.parser(SAMPLE_TOOLS), 0, 0
        for piece in (start, *chunks(text[len(start) :], 5)):
            position += len(piece)
            emitted_chars += sum(len(delta.text) for delta in parser.feed(piece) if isinstance(delta, TextDelta))
            _require(
                position - emitted_chars <= MAX_HELD,
                f"{dialect.name}: {position - emitted_chars} characters are held back",
                text,
            )


def check_emitted_stays(dialect: Dialect, text: str, pieces: Iterable[str]) -> None:
    """What was emitted is the beginning of what the whole turn says: nothing is revoked (promise 8)."""
    whole = join_deltas(parse_pieces(dialect, [text], SAMPLE_TOOLS))
    parser = dialect.parser(SAMPLE_TOOLS)
    emitted_deltas: list[Delta] = []
    for piece in pieces:
        new = parser.feed(piece)
        emitted_deltas = join_deltas([*emitted_deltas, *new])
        if new:
            _require(
                _is_beginning(emitted_deltas, whole),
                f"{dialect.name}: {emitted_deltas!r} is not how {whole!r} begins",
                text,
            )
    check_deltas(emitted_deltas, complete=False)


def _is_beginning(emitted_deltas: list[Delta], whole: list[Delta]) -> bool:
    if not emitted_deltas:
        return True
    last, same = emitted_deltas[-1], whole[len(emitted_deltas) - 1] if len(emitted_deltas) <= len(whole) else None
    if emitted_deltas[:-1] != whole[: len(emitted_deltas) - 1]:
        return False
    if isinstance(last, TextDelta | TextAside | ReasoningDelta | ArgumentsDelta):
        return isinstance(same, type(last)) and same.text.startswith(last.text)
    return last == same


def check_cut_off(dialect: Dialect, text: str) -> None:
    """A turn that the token limit cut completes no call that the whole turn does not (promise 8)."""
    whole = {
        each.index: each for each in parse_pieces(dialect, [text], SAMPLE_TOOLS) if isinstance(each, CallCompleted)
    }
    for i in range(len(text)):
        deltas = parse_pieces(dialect, [text[:i]], SAMPLE_TOOLS, "length")
        check_deltas(deltas)
        for delta in deltas:
            if isinstance(delta, CallCompleted):
                _require(whole.get(delta.index) == delta, f"{dialect.name}: cut off, it completes {delta!r}", text[:i])


def check_values(dialect: Dialect, values: Iterable[str]) -> None:
    """Any string survives as an argument, markers of the dialect included (promises 5 and 6)."""
    for value in values:
        check_round_trip(dialect, [ToolCall("callid000", "write", {"file": "a", "content": value})], SAMPLE_TOOLS)


def check_results(dialect: Dialect, texts: Iterable[str]) -> None:
    """No result forges a marker, and a turn that holds results runs nothing (promises 7 and 9)."""
    for text in texts:
        results = [ToolResult("callid000", "read", status, (TextPart(text),)) for status in ("success", "failure")]
        result_text = check_results_cannot_forge(dialect, results, (), SAMPLE_TOOLS)
        turn = parse_pieces(dialect, [f"Well.\n{result_text}"], SAMPLE_TOOLS)
        wrong = [delta for delta in turn if isinstance(delta, CallCompleted | CallMalformed)]
        _require(not wrong, f"{dialect.name}: results in a turn are read as {wrong!r}", result_text)


def check_markers(dialect: Dialect) -> None:
    """A result's text is shown, and neither the frame of a result nor a marker can be written by one (promise 7); the
    marker that the dialect's description names opens reasoning."""
    plain = _rendered_result(dialect, _HARMLESS)
    _require(_HARMLESS in plain, f"{dialect.name}: the result {_HARMLESS!r} is not shown", plain)
    frame = plain.split(_HARMLESS)
    markers = _markers(dialect)
    for text in (*(part.strip() for part in frame), *(marker.text for marker in markers)):
        if len(text) > 2 and not text.isalnum():  # one bracket or quote is no frame that could be told from content
            result_text = _rendered_result(dialect, text)
            again = result_text.count(text) > plain.count(text)
            _require(
                not again, f"{dialect.name}: a result can write {text!r}: escape it, with what is `live`", result_text
            )
    thoughts, description = [each.text for each in markers if each.kind == "reasoning"], dialect.info.reasoning
    has_description = not thoughts or " " in description or any(description.startswith(text) for text in thoughts)
    _require(
        has_description, f"{dialect.name}: reasoning is described as {description!r}, and its markers are {thoughts}"
    )


def _rendered_result(dialect: Dialect, text: str) -> str:
    return dialect.render_results([ToolResult("callid000", "read", "success", (TextPart(text),))])


def _markers(dialect: Dialect) -> list[Marker]:
    """The markers that prose cannot hold: one without a text of its own, or that is words, is known by what follows."""
    markers = dialect.table.markers if isinstance(dialect, DeclaredDialect) else ()
    return [
        each
        for each in markers
        if each.kind != "noise" and not isinstance(each.opening, Signature) and not each.text[:1].isalnum()
    ]


def check_grammar(dialect: Dialect) -> None:
    """Rendered calls are what the grammar admits (promise 6), where the dialect has one as a regular expression."""
    tools = SAMPLE_TOOLS[:2]  # values of every type are no regular language
    sample = [ToolCall(f"callid00{i}", "write", {"file": "a <b>\n", "content": 'say "hi"\\'}) for i in range(2)]
    for calls in (sample[:1], sample):
        try:
            grammar = dialect.grammar(tools, ToolChoice("required"), target="regex", reasoning=False)
        except ConfigurationError:
            return
        messages = dialect.render([Message("assistant", tuple(calls))], tools)
        for text in [each.text for each in messages]:
            match = re.fullmatch(grammar.source, text)
            _require(bool(match), f"{dialect.name}: its grammar (`frame`) does not admit the calls it writes", text)


def _require(condition: bool, message: str, text: str = "") -> None:
    if not condition:
        raise AssertionError(f"{message}\nin {text!r}" if text else message)
