"""Reads the arguments of a Python call, `(a='x', n=2)`, as literals, and writes them as JSON as they arrive.

No code is evaluated: an expression is a problem. Models quote carelessly, so a quote ends a string only if text follows
that may follow a string: `'sed -n '1,5p' x'` is one string. If such a quote begins the value of an argument, as in
`'hello')search(query='tea'`, the quotes are ambiguous, and no call runs. Two adjacent literals are one string, as in
Python.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from toolspeak.data.deltas import Delta
from toolspeak.dialects.readers.body import skip_space
from toolspeak.dialects.readers.function_calls import Flow, FunctionCalls, json_content
from toolspeak.dialects.readers.python_literals import (
    ESCAPE,
    ESCAPE_START,
    FLOWS,
    NUMBER,
    RAW_FLOWS,
    RAW_RUNS,
    RUNS,
    WORDS,
    quoted_content,
    read_number,
    unescape,
)
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Caps, Problem, shorten

_KEY_RUN = re.compile(r"[\w-]*")
_ATOM_RUN = re.compile(r"[^\s,:()\[\]{}'\"=<]*")
_NAMED_ARGUMENT = re.compile(r"(?:[(,]\s*|['\"])[^\W\d]\w*\s*=\s*")
_NEXT = re.compile(r"['\"]\s+[^\W\d]\w*\s*=\s*")  # an argument without the comma before it
_LEADING_ZERO = re.compile(r"[+-]?0[0-9_]+")
_MAX_NAMED = 80  # the number of characters that these patterns read
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


_VALUE_FOLLOWERS = " \t\r\n,)]}"


def _no_literal(word: str, following: str) -> Problem:
    """The problem of a word that is not a Python literal."""
    if _LEADING_ZERO.fullmatch(word):
        number, quoted_word = word.replace("_", "").lstrip("0") or "0", f"'{shorten(word)}'"
        return Problem(
            "invalid_call", f"a number cannot begin with 0: write {shorten(number)}, or {quoted_word} for text"
        )
    if NUMBER.fullmatch(word):
        return Problem("too_large", f"the number {shorten(word)} is too large")
    excerpt = shorten(word + following)
    return Problem("invalid_call", f"{excerpt!r} is not a literal; write strings in quotes, and no expressions")


@dataclass(slots=True)
class _OpenBracket:
    """An open bracket.

    `group` is a parenthesis that may become a tuple, `braces` may become a dict or a set. `spread` is the dict of
    `**{…}`, whose entries are arguments of the call.
    """

    kind: Literal["call", "list", "group", "tuple", "braces", "dict", "set", "spread"]
    closer: str
    count: int = 0
    in_key: bool = False

    @property
    def follows(self) -> str:
        """The characters that may follow a value here."""
        if self.kind == "braces":
            return ",:}"
        return ":" if self.in_key else "," + self.closer


class PythonArguments(FunctionCalls):
    """Reads a call from its opening parenthesis to its closing one. `brackets`: the calls are in a list."""

    def __init__(self, brackets: bool, first_index: int, caps: Caps) -> None:
        super().__init__(first_index, caps)
        self._brackets = brackets
        self._levels: list[_OpenBracket] = []
        self._holds: list[list[str]] = []  # the JSON of the first value of each `group` and `braces`
        self._quote = ""
        self._triple = self._raw_string = False
        self._inner = 0  # how many quotes in the string did not end it
        self._tail = ""  # the end of the string

    @abstractmethod
    def _after_call(self, text: str, position: int, out: list[Delta]) -> int: ...

    def _begin_arguments(self, out: list[Delta]) -> None:
        """Begins the arguments, after the opening parenthesis."""
        self._begin_call(out)
        self._levels, self._holds, self._state = [_OpenBracket("call", ")")], [], self._key

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
        if char in "'\"" or char.isdigit():
            self._fault = self._fault or Problem("invalid_call", "every argument needs its name: write name=value")
            self._state = self._value
            return position
        return self._fail_expected("name=value: every argument needs its name", text, position)

    def _key_name(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._take_word(_KEY_RUN, text, position, "the name of an argument")
        if stop < len(text):
            self._state = self._equals
        return stop

    def _equals(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text[position] != "=":
            word = shorten(self._word)
            if text[position] in ",)":
                reason = f"expected '=' after {word}: every argument is written name=value"
                self._fault, self._state = self._fault or Problem("invalid_call", reason), self._after
                return position
            return self._fail_expected(f"'=' after {word}: every argument is written name=value", text, position)
        self._item()
        self._append(f"{json.dumps(self._word)}: ")
        self._state = self._value
        return position + 1

    def _spread(self, text: str, position: int, out: list[Delta]) -> int:
        if len(text) - position < 2:
            self._wait = True
            return position
        if not text.startswith("**", position):
            return self._fail_expected("name=value or **{…}", text, position)
        self._state = self._spread_open
        return position + 2

    def _spread_open(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text[position] != "{":
            return self._fail_expected("'{' after **", text, position)
        self._levels.append(_OpenBracket("spread", "}", in_key=True))
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
            self._item()
            self._open_level(char)
        elif char in "'\"":
            self._item()
            self._append('"')
            self._inner, self._raw_string = 0, False
            self._state = self._string_open
            return position
        else:
            self._word, self._state = "", self._atom
            return position
        return position + 1

    def _open_level(self, char: str) -> None:
        if char == "[":
            self._append("[")
            self._levels.append(_OpenBracket("list", "]"))
        else:
            self._holds.append([])
            self._levels.append(_OpenBracket("group" if char == "(" else "braces", _CLOSERS[char]))

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
                self._resolve(level)
            level.in_key = level.kind in ("dict", "spread")
            self._state = self._key if level.kind == "call" else self._value
        elif char == ":" and level.kind == "braces":
            key = "".join(self._holds.pop())
            if key[0] in "[{":
                return self._fail("invalid_call", "a key of a dict must be a string", position)
            level.kind = "dict"
            self._append("{" + (key if key[0] == '"' else json.dumps(key)) + ": ")
            self._state = self._value
        elif char == ":" and level.in_key:
            level.in_key = False
            self._append(": ")
            self._state = self._value
        else:
            expected = " or ".join(f"'{each}'" for each in level.follows)
            return self._fail_expected(f"{expected} after a value (literals only)", text, position)
        return position + 1

    def _resolve(self, level: _OpenBracket) -> None:
        """Makes a parenthesis a tuple, and braces a set."""
        first_value = "".join(self._holds.pop())
        level.kind = "tuple" if level.kind == "group" else "set"
        self._append("[")
        self._append(first_value)

    def _close(self, text: str, position: int, out: list[Delta]) -> int:
        level = self._levels[-1]
        if level.kind == "group" and level.count == 1:
            first_value = "".join(self._holds.pop())
            self._append(first_value)
        elif level.kind == "braces" and level.count == 0:
            self._holds.pop()
            self._append("{}")
        elif level.kind != "spread":
            if level.kind in ("group", "braces"):
                self._resolve(level)
            if level.kind == "call":
                self._append("}" if level.count else "{}")
            else:
                self._append("}" if level.kind == "dict" else "]")
        self._levels.pop()
        self._state = self._after
        if not self._levels and self.problem is None:
            self._end_call(text, position + 1, out)
            self._state = self._after_call
        return position + 1

    def _item(self) -> None:
        """Begins a value or a key: writes the separator before it."""
        level = self._levels[-1]
        if level.kind in ("dict", "spread") and not level.in_key:
            return
        if level.kind == "call" and self._state != self._equals:
            return  # the value of a named argument
        counting = self._levels[0] if level.kind == "spread" else level
        if counting.count:
            self._append(", ")
        elif counting.kind == "call":
            self._append("{")
        counting.count += 1

    def _append(self, fragment: str) -> None:
        if self._holds:
            self._holds[-1].append(fragment)
        else:
            self._add_fragment(fragment)

    # Literals

    def _atom(self, text: str, position: int, out: list[Delta]) -> int:
        match = _ATOM_RUN.match(text, position)
        stop = match.end() if match else position
        stop = min(stop, position + self.caps.digits + 1 - len(self._word))
        self._word += text[position:stop]
        if len(self._word) > self.caps.digits:
            return self._fail("too_large", f"a number or word is over {self.caps.digits} characters", stop)
        if stop == len(text):
            return stop
        word = self._word
        if text[stop] in "'\"" and word.lower() in ("r", "u"):
            self._item()
            self._append('"')
            self._inner, self._raw_string, self._state = 0, word.lower() == "r", self._string_open
            return stop
        value = WORDS.get(word) or read_number(word)
        if value is None:
            problem = _no_literal(word, text[stop])
            if text[stop] not in _VALUE_FOLLOWERS or not word:
                return self._fail(problem.code, problem.reason, stop)
            self._fault, value = self._fault or problem, "null"
        self._item()
        self._append(json.dumps(value) if self._levels[-1].in_key else value)
        self._state = self._after
        return stop

    def _string_open(self, text: str, position: int, out: list[Delta]) -> int:
        quote = text[position]
        rest = text[position : position + 3]
        if len(rest) < 3 and rest == quote * len(rest):
            self._wait = True
            return position
        self._triple = rest == quote * 3
        self._quote, self._state, self._tail = quote, self._string, ""
        return position + (3 if self._triple else 1)

    def flow(self) -> Flow | None:
        if self._state != self._string or self._holds:
            return None
        return RAW_FLOWS[self._quote] if self._raw_string else FLOWS[self._quote]

    def _string(self, text: str, position: int, out: list[Delta]) -> int:
        quote = self._quote
        run = RAW_RUNS[quote] if self._raw_string else RUNS[quote]
        match = run.match(text, position)
        stop = match.end() if match else position
        self._content(text[position:stop])
        if stop == len(text):
            return stop
        if text[stop] == "\\":
            return self._escape(text, stop)
        ends = self._ends(text, stop)
        if ends == "wait":
            self._wait = True
            return stop
        if ends == "content":
            if not self._triple and self._looks_named():
                reason = f"a string holds its own quote before an argument; write it as \\{quote}"
                return self._fail("invalid_call", reason, stop)
            self._inner += not self._triple
            self._tail += quote
            self._append('\\"' if quote == '"' else quote)
            return stop + 1
        if ends == "joined":  # two literals side by side
            self._state, self._raw_string = self._string_open, False
            return skip_space(text, stop + (3 if self._triple else 1))
        self._append('"')
        self._state = self._after
        return stop + (3 if self._triple else 1)

    def _looks_named(self) -> bool:
        """Whether the end of the string looks like the name of an argument and `=`."""
        at = max(self._tail.rfind(each) for each in "(,'\"")
        if at < 0:
            return False
        # An HTML attribute looks the same: there the quote before it would begin another string.
        comma = self._inner % 2 == 1 and _NEXT.fullmatch(self._tail, at)
        return bool(comma or _NAMED_ARGUMENT.fullmatch(self._tail, at))

    def record(self, text: str) -> None:
        super().record(text)
        self._tail = (self._tail + text)[-_MAX_NAMED:]

    def _content(self, piece: str) -> None:
        if piece:
            self._tail = (self._tail + piece)[-_MAX_NAMED:]
            self._append(json_content(piece) if self._raw_string else quoted_content(piece, self._quote))

    def _ends(self, text: str, at: int) -> Literal["end", "content", "joined", "wait"]:
        """What the quote at text[at] is. It is content unless text follows that may follow a string."""
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
        if char in "'\"" and not self._inner:
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

    def _escape(self, text: str, at: int) -> int:
        if self._raw_string:
            if at + 1 == len(text):
                self._wait = True
                return at
            self._append(json_content(text[at : at + 2]))
            return at + 2
        if ESCAPE_START.fullmatch(text, at):
            self._wait = True
            return at
        match = ESCAPE.match(text, at)
        value = unescape(match[0]) if match else None
        if match is None or value is None:
            reason = f"'\\{text[at + 1]}' is not an escape here; write a backslash in a string as '\\\\'"
            return self._fail("invalid_escape", reason, at)
        self._append(json_content(value))
        return match.end()
