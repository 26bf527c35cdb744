"""Incremental scanning of JSON values, and the limits that every parser shares.

Each character is read once, apart from candidates of at most `MAX_CANDIDATE` characters.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick

MAX_CANDIDATE = 256
"""How many characters decide a marker: the marker, attributes, white space, and the first structural character."""

MAX_DIGITS = 4300
"""The limit of CPython's `int(text)`, in digits."""


@quick()
class Caps:
    """Limits of a call. A call beyond one of them is malformed."""

    depth: int = 128
    """Nesting levels of its JSON, including those of the call itself."""
    characters: int = 64 * 1024 * 1024
    """Characters of its arguments."""
    digits: int = MAX_DIGITS
    """Characters of a number."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a text cannot be read."""

    code: str
    """For programs."""
    reason: str
    """For the model."""


BEYOND_CAPS = frozenset({"too_deep", "too_large"})
"""The codes of problems with a limit. The character at which they appear is not at fault."""


class Buffer:
    """Text collected in pieces, at most `limit` characters of it. Characters beyond the limit count only in
    `length`."""

    __slots__ = ("_first", "_limit", "_text", "length")

    def __init__(self, limit: int) -> None:
        self._first = ""  # a single piece, as in most turns that arrive whole, needs no stream
        self._text: io.StringIO | None = None
        self._limit = limit
        self.length = 0

    def add(self, text: str) -> None:
        if not self.length:
            self._first = text[: self._limit]
        elif self.length < self._limit:
            if self._text is None:
                self._text = io.StringIO(newline="")
                self._text.write(self._first)
            self._text.write(text[: self._limit - self.length])
        self.length += len(text)

    @property
    def overflown(self) -> bool:
        return self.length > self._limit

    def value(self) -> str:
        return self._first if self._text is None else self._text.getvalue()

    def since(self, start: int) -> str:
        """The text from this offset on."""
        if self._text is None:
            return self._first[start:]
        self._text.seek(start)
        text = self._text.read()
        self._text.seek(0, io.SEEK_END)
        return text


# The longest run of complete string content. A quote, a bad or cut escape, or a control character stops it.
_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+')
_STRING_CONTENT = re.compile(rf"(?!\Z){_STRING_RUN.pattern}")
_STRING_SPECIAL = re.compile(r'["\\\x00-\x1f]')
# Whole strings, keys and members take one step instead of one per token.
_STRING_WHOLE = re.compile(rf'"{_STRING_RUN.pattern}"')
_WORD_WHOLE = r"-?+(?:0|[1-9][0-9]{0,18}+)(?:\.[0-9]{1,19}+)?+|true|false|null"
_GAP = r"[ \t\n\r]*+"
_KEY_WHOLE = re.compile(rf"{_GAP}{_STRING_WHOLE.pattern}{_GAP}:{_GAP}")
_MEMBER = rf"{_KEY_WHOLE.pattern}(?:{_STRING_WHOLE.pattern}|(?:{_WORD_WHOLE})(?=[ \t\n\r,}}]))"
_MEMBERS = re.compile(rf"{_MEMBER}(?:{_GAP},{_MEMBER})*+")
_SPACE = re.compile(r"[ \t\n\r]*")
_ATOM_RUN = re.compile(r"[^\s,:\[\]{}\"<]*")  # not past a '<': it may begin the block's end marker
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_HEX = frozenset("0123456789abcdefABCDEF")

_VALUE, _FIRST_ITEM, _FIRST_KEY, _KEY, _COLON, _AFTER, _STRING, _ATOM = range(8)
_LAST = {_KEY: "}", _VALUE: "]"}  # the bracket that may wrongly follow a comma
_WORD = re.compile(r"[\w+.-]+")  # without quotes, so that it ends where the scanner stops

_CONTROL = {"\n": "a line break", "\r": "a carriage return", "\t": "a tab"}
_EXPECTED = {
    _VALUE: "a value",
    _FIRST_ITEM: "a value or ']'",
    _FIRST_KEY: "a key in double quotes or '}'",
    _KEY: "a key in double quotes",
    _COLON: "':' after the key",
}


string_content = _STRING_CONTENT.fullmatch
"""Matches a text that is not empty and is content of a JSON string, with every escape complete."""

string_special = _STRING_SPECIAL.search
"""Finds a character that may not be content of a JSON string. Without one, `string_content` matches."""


class JsonScanner:
    """Finds the end of one JSON value while its text arrives, and checks the grammar of RFC 8259.

    `feed` returns the position up to which the text belongs to the value. Afterwards one of these holds:

    - `is_complete`: the value has ended.
    - `problem` is set: the fault lies `back` characters before the returned position.
    - The value took the whole chunk and needs more.
    """

    __slots__ = (
        "_atom",
        "_depth",
        "_digits",
        "_escape",
        "_in_key",
        "_stack",
        "_state",
        "back",
        "is_complete",
        "problem",
    )

    def __init__(self, caps: Caps, depth: int = 0) -> None:
        self._depth, self._digits = caps.depth - depth, caps.digits
        self._stack: list[str] = []
        self._state = _VALUE
        self._in_key = False
        self._escape = -1  # -1 outside of escapes, 0 right after the backslash, else the missing hexadecimal digits
        self._atom = ""
        self.back = 0
        self.is_complete = False
        self.problem: Problem | None = None

    def feed(self, text: str, start: int) -> int:
        position, end = start, len(text)
        while position < end and not self.is_complete and self.problem is None:
            if self._state == _STRING:
                position = self._string(text, position)
            elif self._state == _ATOM:
                position = self._atom_text(text, position)
            else:
                position = self._whole(text, position)
                if position < end and not self.is_complete:
                    position = self._structure(text[position], position)
        return position

    def _whole(self, text: str, position: int) -> int:
        """Skips white space, and keys and values whose whole text is in the chunk."""
        if self._state in (_FIRST_KEY, _KEY):
            match = _MEMBERS.match(text, position)
            if match:
                position, self._state = match.end(), _AFTER
            elif match := _KEY_WHOLE.match(text, position):
                position, self._state = match.end(), _VALUE
        if self._state == _VALUE:
            match = _STRING_WHOLE.match(text, position)
            if match:
                position = match.end()
                self._complete()
                if self.is_complete:
                    return position
        match = _SPACE.match(text, position)
        return match.end() if match else position

    def pass_over(self, char: str) -> int | None:
        """Withdraws a problem after which the value certainly continues.

        Such a problem is a character that a string may not hold, a wrong escape or word, or a comma after the last
        entry. `char` is the character at which `feed` stopped. Returns how many characters to skip there; None if it
        is unclear how the value continues.
        """
        state = self._state
        if self.problem is None or self.problem.code != "invalid_json":
            return None
        if state == _ATOM and _WORD.fullmatch(self._atom):
            self._complete()
        elif state in _LAST and self._stack[-1:] == [char] == [_LAST[state]]:
            self._close()
        elif state == _STRING and self._escape <= 0:
            self._escape = -1
        else:
            return None
        self.problem, self.back = None, 0
        return int(state != _ATOM)

    @property
    def in_string(self) -> bool:
        """Whether text that `string_content` matches continues the open string, a key or a value."""
        return self._state == _STRING and self._escape < 0

    def end(self) -> None:
        """Ends the text: a number or literal at the top level is complete."""
        if self._state == _ATOM and not self._stack:
            self._finish_atom()

    def _structure(self, char: str, position: int) -> int:
        state = self._state
        if state == _AFTER:
            return self._after(char, position)
        if state == _COLON:
            if char != ":":
                return self._fail_expected(char, position)
            self._state = _VALUE
        elif char == '"':
            self._state, self._in_key = _STRING, state in (_FIRST_KEY, _KEY)
        elif (char == "}" and state == _FIRST_KEY) or (char == "]" and state == _FIRST_ITEM):
            self._close()
        elif state in (_FIRST_KEY, _KEY) or char in ",:]}":
            return self._fail_expected(char, position)
        elif char in "{[":
            self._stack.append("}" if char == "{" else "]")
            self._state = _FIRST_KEY if char == "{" else _FIRST_ITEM
            if len(self._stack) > self._depth:
                self.problem = Problem("too_deep", f"the JSON is nested deeper than {self._depth} levels")
        else:
            self._state, self._atom = _ATOM, ""
            return position
        return position + 1

    def _after(self, char: str, position: int) -> int:
        closer = self._stack[-1]
        if char == ",":
            self._state = _KEY if closer == "}" else _VALUE
        elif char == closer:
            self._close()
        else:
            self.problem = Problem("invalid_json", f"expected ',' or '{closer}', found {char!r}")
            return position
        return position + 1

    def _close(self) -> None:
        self._stack.pop()
        self._complete()

    def _complete(self) -> None:
        self._state = _AFTER
        self.is_complete = not self._stack

    def _string(self, text: str, position: int) -> int:
        if self._escape >= 0:
            return self._escape_char(text[position], position)
        match = _STRING_RUN.match(text, position)
        position = match.end() if match else position
        if position == len(text):
            return position
        char = text[position]
        if char == '"':
            if self._in_key:
                self._in_key, self._state = False, _COLON
            else:
                self._complete()
        elif char == "\\":
            self._escape = 0
        else:
            what = _CONTROL.get(char, f"the control character U+{ord(char):04X}")
            escape = json.dumps(char)[1:-1]
            self.problem = Problem("invalid_json", f"{what} inside a JSON string; write it as {escape}")
            return position
        return position + 1

    def _escape_char(self, char: str, position: int) -> int:
        if self._escape == 0:
            if char == "u":
                self._escape = 4
            elif char in '"\\/bfnrt':
                self._escape = -1
            else:
                self.problem = Problem(
                    "invalid_json", f"'\\{char}' is not a JSON escape; write a backslash in a string as '\\\\'"
                )
                return position
        elif char in _HEX:
            self._escape = self._escape - 1 or -1
        else:
            self.problem = Problem("invalid_json", "'\\u' takes four hexadecimal digits")
            return position
        return position + 1

    def _atom_text(self, text: str, position: int) -> int:
        match = _ATOM_RUN.match(text, position)
        stop = match.end() if match else position
        stop = min(stop, position + self._digits + 1 - len(self._atom))
        self._atom += text[position:stop]
        if len(self._atom) > self._digits:
            self._atom_problem("too_large", f"a number or word longer than {self._digits} characters")
        elif stop < len(text):
            self._finish_atom()
        return stop

    def _finish_atom(self) -> None:
        atom = self._atom
        if atom in ("true", "false", "null") or _NUMBER.fullmatch(atom):
            self._complete()
        else:
            self._atom_problem("invalid_json", f"{shorten(atom)!r} is not JSON; strings need double quotes")

    def _atom_problem(self, code: str, reason: str) -> None:
        self.back, self.problem = len(self._atom), Problem(code, reason)

    def _fail_expected(self, char: str, position: int) -> int:
        self.problem = Problem("invalid_json", f"expected {_EXPECTED[self._state]}, found {char!r}")
        return position


def shorten(text: str, limit: int = 40) -> str:
    """The first `limit` characters of a text, for messages."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _RejectedError(ValueError):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys: set[str] = set()
        twice = next(key for key, _ in pairs if key in keys or keys.add(key))
        raise _RejectedError(Problem("duplicate_key", f"the key {shorten(twice)!r} appears twice"))
    return value


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")) or len(text) > MAX_DIGITS:
        raise _RejectedError(Problem("too_large", f"the number {shorten(text)} is too large"))
    return value


def _no_constant(name: str) -> JSON:
    raise _RejectedError(Problem("invalid_json", f"{name} is not JSON"))


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)


def decode_json(text: str, caps: Caps | None = None) -> JSON | Problem:
    """The value of a JSON text, or a problem. Rejects duplicate keys, NaN and infinite numbers.

    `caps`: limits to check first, for text that no scanner has read.
    """
    # The standard decoder, not pydantic's, keeps lone surrogates, which models do write.
    if caps is not None:
        scanner = JsonScanner(caps, depth=2)  # the depth of arguments in a JSON call
        scanner.feed(text, 0)
        scanner.end()
        if scanner.problem is not None:
            return scanner.problem
    try:
        return _DECODER.decode(text)
    except _RejectedError as error:
        return error.problem
    except (ValueError, RecursionError) as error:
        return Problem("invalid_json", str(error))


def whole_object(text: str, position: int, caps: Caps) -> tuple[dict[str, JSON], int] | None:
    """The value and the end of a whole JSON object at text[position].

    It replaces a scanner and a decoder, in a tenth of their time. None for an object that these must read: one that is
    cut short, beyond a limit, or not strict JSON.
    """
    # Without a bracket that may end the object, the decoder would fail, and read all the text again with each piece.
    if text.find("}", position) < 0 or caps.digits < MAX_DIGITS:
        return None
    try:
        value, stop = _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None
    has_brackets = text.find("{", position + 1, stop) >= 0 or text.find("[", position, stop) >= 0
    if stop - position > caps.characters or (
        has_brackets and _deeper(value, caps.depth - 2)
    ):  # like `depth=2` of a scanner
        return None
    return value, stop


def _deeper(value: dict[str, JSON], depth: int) -> bool:
    """Whether arrays and objects are nested deeper than `depth` levels."""
    level: list[Iterable[JSON]] = [value.values()]
    for _ in range(depth):
        inner: list[JSON] = [each for values in level for each in values if isinstance(each, (dict, list))]
        level = [cast("dict[str, JSON]", each).values() if isinstance(each, dict) else each for each in inner]
        if not level:
            return False
    return True
