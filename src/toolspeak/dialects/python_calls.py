"""The body of a block whose calls are Python calls with literal arguments: `[f(a='x', n=2), g()]`, or one a line.

Nothing is evaluated: a state machine reads the literals and writes them as JSON as they come. What is no literal is a
problem. Models quote carelessly, so a quote ends a string only if something that may follow a string follows it:
`'sed -n '1,5p' x'` is one string. Two literals side by side are one string, as in Python.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from toolspeak.data.deltas import Delta
from toolspeak.dialects.function_calls import FunctionCalls, json_content, skip_space
from toolspeak.dialects.scan import MAX_CANDIDATE, Caps, shorten

NAME = r"[^\W\d][\w.:/-]*"
KEY = r"[^\W\d][\w-]*"
VALUE_START = r"['\"\w+.\-\[{(]"

_WORD_RUN = re.compile(r"[\w.:/-]*")
_KEY_RUN = re.compile(r"[\w-]*")
_ATOM_RUN = re.compile(r"[^\s,:()\[\]{}'\"=<]*")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+"
    r"|(?=\.?\d)(?:\d+(?:_\d+)*)?(?:\.(?:\d+(?:_\d+)*)?)?(?:[eE][+-]?\d+(?:_\d+)*)?)",
    re.ASCII,
)
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
# Content up to a quote or to an escape that JSON writes otherwise.
_RUNS = {quote: re.compile(rf'[^{quote}\\]*+(?:\\(?:[nrtbf"\\]|u[0-9a-fA-F]{{4}})[^{quote}\\]*+)*+') for quote in "'\""}
_RAW_RUNS = {quote: re.compile(rf"[^{quote}\\]*") for quote in "'\""}
_NOT_JSON = re.compile(r'\\.|["\x00-\x1f]', re.DOTALL)
_NEEDS_CARE = {"'": re.compile(r'["\x00-\x1f]'), '"': re.compile(r"[\x00-\x1f]")}
_ESCAPE = re.compile(
    r"\\(?:[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^{}]{1,64}\}|\r\n|[^xuUN])", re.DOTALL
)
_ESCAPE_START = re.compile(
    r"\\(?:[0-7]{1,2}|x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|N(?:\{[^{}]{0,64})?|\r)?"
)
_SIMPLE = {
    "v": "\v",
    "\n": "",
    "\r": "",
    "\r\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}

_CLOSERS = {"(": ")", "[": "]", "{": "}"}


@dataclass(slots=True)
class _Level:
    """An open bracket. `group` is a parenthesis not yet known to be a tuple, `braces` not yet known as dict or set;
    `spread` is the dict of `**{…}`, whose entries are the call's own."""

    kind: Literal["call", "list", "group", "tuple", "braces", "dict", "set", "spread"]
    closer: str
    count: int = 0
    in_key: bool = False

    @property
    def follows(self) -> str:
        """What may follow a value here."""
        if self.kind == "braces":
            return ",:}"
        return ":" if self.in_key else "," + self.closer


class PythonCalls(FunctionCalls):
    """Implements `Body`. `brackets`: the calls stand in a list (else one a line); the other way is read leniently."""

    def __init__(self, brackets: bool, first_index: int, caps: Caps) -> None:
        super().__init__(first_index, caps)
        self._expected = brackets
        self._brackets = brackets
        self._levels: list[_Level] = []
        self._holds: list[list[str]] = []  # of each `group` and `braces`: its first value's JSON
        self._quote = ""
        self._triple = self._raw_string = self._loose = False

    def end(self, out: list[Delta]) -> None:
        between = self._state in (self._between, self._after_call)
        self.done = between and not self._brackets and bool(self.calls)

    # Around calls

    def _start(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        self._brackets = text[position] == "["
        if self._brackets != self._expected:
            self.notes = ("array" if self._brackets else "single_object",)
        self._state = self._between
        return position + 1 if self._brackets else position

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        """Before a call."""
        position = skip_space(text, position)
        if position == len(text):
            return position
        char = text[position]
        if char == "<" and not self._brackets and self.calls:
            self.done = True
        elif char == "]" and self._brackets and self.calls:
            self.done = True
            return position + 1
        elif char == "_" or char.isalpha():
            self._begin_raw(position)
            self._state = self._call_name
        elif char in "<]" and not self.calls:
            return self._fail("empty_batch", "there is no call here; write name(argument=value)", position)
        else:
            return self._unexpected("a call such as name(argument=value)", text, position)
        return position

    def _call_name(self, text: str, position: int, out: list[Delta]) -> int:
        found = _WORD_RUN.match(text, position)
        stop = found.end() if found else position
        self._take_word(text[position:stop], position, "the name of a tool")
        if stop < len(text):
            self._state = self._call_open
        return stop

    def _call_open(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text[position] != "(":
            return self._unexpected(f"'(' after the name {shorten(self._word)}", text, position)
        self._begin_call(out)
        self._levels, self._holds, self._state = [_Level("call", ")")], [], self._key
        return position + 1

    def _after_call(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text[position] in ",;":
            self._state = self._between
            return position + 1
        if self._brackets and text[position] != "]":
            return self._unexpected("',' or ']' after a call", text, position)
        self._state = self._between
        return position

    # Inside a call

    def _key(self, text: str, position: int, out: list[Delta]) -> int:
        """The name of an argument, or the call's end."""
        position = skip_space(text, position)
        if position == len(text):
            return position
        char = text[position]
        if char == ")":
            return self._close(text, position, out)
        if char == "*":
            self._state = self._spread
            return position
        if char == "_" or char.isalpha():
            self._word, self._state = "", self._key_name
            return position
        return self._unexpected("name=value: every argument needs its name", text, position)

    def _key_name(self, text: str, position: int, out: list[Delta]) -> int:
        found = _KEY_RUN.match(text, position)
        stop = found.end() if found else position
        self._take_word(text[position:stop], position, "the name of an argument")
        if stop < len(text):
            self._state = self._equals
        return stop

    def _equals(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text[position] != "=":
            word = shorten(self._word)
            return self._unexpected(f"'=' after {word}: every argument is written name=value", text, position)
        self._item(out)
        self._put(f"{json.dumps(self._word)}: ", out)
        self._state = self._value
        return position + 1

    def _spread(self, text: str, position: int, out: list[Delta]) -> int:
        if len(text) - position < 2:
            self._wait = True
            return position
        if not text.startswith("**", position):
            return self._unexpected("name=value or **{…}", text, position)
        self._state = self._spread_open
        return position + 2

    def _spread_open(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text[position] != "{":
            return self._unexpected("'{' after **", text, position)
        self._levels.append(_Level("spread", "}", in_key=True))
        self._state = self._value
        return position + 1

    def _value(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        level, char = self._levels[-1], text[position]
        if char == level.closer and level.kind != "call" and (level.in_key or level.kind not in ("dict", "spread")):
            return self._close(text, position, out)
        if char in "[{(":
            if level.in_key:
                return self._fail("invalid_call", "a key of a dict must be a string", position)
            if len(self._levels) >= self.caps.depth:
                return self._too_deep(position)
            self._item(out)
            self._open_level(char, out)
        elif char in "'\"":
            self._item(out)
            self._put('"', out)
            self._loose = self._raw_string = False
            self._state = self._string_open
            return position
        else:
            self._word, self._state = "", self._atom
            return position
        return position + 1

    def _open_level(self, char: str, out: list[Delta]) -> None:
        if char == "[":
            self._put("[", out)
            self._levels.append(_Level("list", "]"))
        else:
            self._holds.append([])
            self._levels.append(_Level("group" if char == "(" else "braces", _CLOSERS[char]))

    def _after(self, text: str, position: int, out: list[Delta]) -> int:
        """After a value."""
        position = skip_space(text, position)
        if position == len(text):
            return position
        level, char = self._levels[-1], text[position]
        if char == level.closer and not level.in_key:
            return self._close(text, position, out)
        if char == "," and not level.in_key:
            if level.kind in ("group", "braces"):
                self._resolve(level, out)
            level.in_key = level.kind in ("dict", "spread")
            self._state = self._key if level.kind == "call" else self._value
        elif char == ":" and level.kind == "braces":
            key = "".join(self._holds.pop())
            if key[0] in "[{":
                return self._fail("invalid_call", "a key of a dict must be a string", position)
            level.kind = "dict"
            self._put("{" + (key if key[0] == '"' else json.dumps(key)) + ": ", out)
            self._state = self._value
        elif char == ":" and level.in_key:
            level.in_key = False
            self._put(": ", out)
            self._state = self._value
        else:
            wanted = " or ".join(f"'{each}'" for each in level.follows)
            return self._unexpected(f"{wanted} after a value (literals only)", text, position)
        return position + 1

    def _resolve(self, level: _Level, out: list[Delta]) -> None:
        """A parenthesis is a tuple, braces are a set."""
        held = "".join(self._holds.pop())
        level.kind = "tuple" if level.kind == "group" else "set"
        self._put("[", out)
        self._put(held, out)

    def _close(self, text: str, position: int, out: list[Delta]) -> int:
        level = self._levels[-1]
        if level.kind == "group" and level.count == 1:
            held = "".join(self._holds.pop())
            self._put(held, out)
        elif level.kind == "braces" and level.count == 0:
            self._holds.pop()
            self._put("{}", out)
        elif level.kind != "spread":
            if level.kind in ("group", "braces"):
                self._resolve(level, out)
            if level.kind == "call":
                self._put("}" if level.count else "{}", out)
            else:
                self._put("}" if level.kind == "dict" else "]", out)
        self._levels.pop()
        self._state = self._after
        if not self._levels and self.problem is None:
            self._end_call(text, position + 1, out)
            self._state = self._after_call
        return position + 1

    def _item(self, out: list[Delta]) -> None:
        """A value or a key starts: writes what separates it from the one before."""
        level = self._levels[-1]
        if level.kind in ("dict", "spread") and not level.in_key:
            return
        if level.kind == "call" and self._state != self._equals:
            return  # the value of a named argument
        counting = self._levels[0] if level.kind == "spread" else level
        if counting.count:
            self._put(", ", out)
        elif counting.kind == "call":
            self._put("{", out)
        counting.count += 1

    def _put(self, fragment: str, out: list[Delta]) -> None:
        if self._holds:
            self._holds[-1].append(fragment)
        else:
            self._say(fragment, out)

    # Literals

    def _atom(self, text: str, position: int, out: list[Delta]) -> int:
        found = _ATOM_RUN.match(text, position)
        stop = found.end() if found else position
        stop = min(stop, position + self.caps.digits + 1 - len(self._word))
        self._word += text[position:stop]
        if len(self._word) > self.caps.digits:
            return self._fail("too_large", f"a number or word is over {self.caps.digits} characters", stop)
        if stop == len(text):
            return stop
        word = self._word
        if text[stop] in "'\"" and word.lower() in ("r", "u"):
            self._item(out)
            self._put('"', out)
            self._loose, self._raw_string, self._state = False, word.lower() == "r", self._string_open
            return stop
        value = _WORDS.get(word) or _number(word)
        if value is None:
            shown = shorten(word + text[stop : stop + 1])
            reason = f"{shown!r} is no literal; write strings in quotes, and no expressions"
            if value is None and _NUMBER.fullmatch(word):
                return self._fail("too_large", f"the number {shorten(word)} is too large or no number", stop)
            return self._fail("invalid_call", reason, stop)
        self._item(out)
        self._put(json.dumps(value) if self._levels[-1].in_key else value, out)
        self._state = self._after
        return stop

    def _string_open(self, text: str, position: int, out: list[Delta]) -> int:
        quote = text[position]
        rest = text[position : position + 3]
        if len(rest) < 3 and rest == quote * len(rest):
            self._wait = True
            return position
        self._triple = rest == quote * 3
        self._quote, self._state = quote, self._string
        return position + (3 if self._triple else 1)

    def _string(self, text: str, position: int, out: list[Delta]) -> int:
        quote = self._quote
        run = _RAW_RUNS[quote] if self._raw_string else _RUNS[quote]
        found = run.match(text, position)
        stop = found.end() if found else position
        self._content(text[position:stop], out)
        if stop == len(text):
            return stop
        if text[stop] == "\\":
            return self._escape(text, stop, out)
        ends = self._ends(text, stop)
        if ends == "wait":
            self._wait = True
            return stop
        if ends == "content":
            self._loose = self._loose or not self._triple
            self._put('\\"' if quote == '"' else quote, out)
            return stop + 1
        if ends == "joined":  # two literals side by side
            self._state, self._raw_string = self._string_open, False
            return skip_space(text, stop + (3 if self._triple else 1))
        self._put('"', out)
        self._state = self._after
        return stop + (3 if self._triple else 1)

    def _content(self, piece: str, out: list[Delta]) -> None:
        if not piece:
            return
        if self._raw_string:
            piece = json_content(piece)
        elif _NEEDS_CARE[self._quote].search(piece):
            piece = _NOT_JSON.sub(_care, piece)
        self._put(piece, out)

    def _ends(self, text: str, at: int) -> Literal["end", "content", "joined", "wait"]:
        """What the quote at text[at] is: followed by nothing that may follow a string, it is content."""
        width = 1
        if self._triple:
            rest = text[at : at + 3]
            if rest != self._quote * 3:
                return "wait" if rest == self._quote * len(rest) and at + len(rest) == len(text) else "content"
            width = 3
        level = self._levels[-1]
        after = skip_space(text, at + width)
        if after - at >= MAX_CANDIDATE:
            return "end"
        if after == len(text):
            return "wait"
        char = text[after]
        if char in "'\"" and not self._loose:
            return "joined"
        if self._triple:
            return "end"
        if char not in level.follows:
            return "content"
        if level.kind == "call" and char == ")" and self._brackets:
            beyond = skip_space(text, after + 1)
            if beyond - at >= MAX_CANDIDATE:
                return "end"
            if beyond == len(text):
                return "wait"
            return "end" if text[beyond] in ",]" else "content"
        return "end"

    def _escape(self, text: str, at: int, out: list[Delta]) -> int:
        if self._raw_string:
            if at + 1 == len(text):
                self._wait = True
                return at
            self._put(json_content(text[at : at + 2]), out)
            return at + 2
        if _ESCAPE_START.fullmatch(text, at):
            self._wait = True
            return at
        found = _ESCAPE.match(text, at)
        value = _unescape(found[0]) if found else None
        if found is None or value is None:
            reason = f"'\\{text[at + 1]}' begins no escape here; write a backslash in a string as '\\\\'"
            return self._fail("invalid_escape", reason, at)
        self._put(json_content(value), out)
        return found.end()


def _care(found: re.Match[str]) -> str:
    text = found[0]
    return text if text[0] == "\\" else json.dumps(text)[1:-1]


def _unescape(escape: str) -> str | None:
    char, rest = escape[1], escape[2:]
    if char in _SIMPLE:
        return _SIMPLE[char]
    if char in "01234567":
        return chr(int(escape[1:], 8))
    try:
        if char in "xuU" and rest:
            return chr(int(rest, 16))
        if char == "N" and rest:
            return unicodedata.lookup(rest[1:-1])
    except (ValueError, KeyError):
        return None
    return escape  # Python keeps a backslash that begins no escape


def _number(word: str) -> str | None:
    """A Python number as JSON; None for what is no number, or none that JSON can carry."""
    if not word or not _NUMBER.fullmatch(word):
        return None
    if _DECIMAL.fullmatch(word):
        return word
    digits = word.replace("_", "")
    try:
        if digits.lstrip("+-")[:2].lower() in ("0x", "0o", "0b") or not re.search("[.eE]", digits):
            return str(int(digits, 0))
        value = float(digits)
    except ValueError:
        return None
    return None if value in (float("inf"), float("-inf")) else repr(value)
