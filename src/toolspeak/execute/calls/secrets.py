"""Secrets as placeholders: a model and a journal see `{{secret:TOKEN}}`, a tool's function sees the value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import cast

from toolspeak.data.interceptor_events import MOST_ERROR_CHARACTERS, RetryScheduled
from toolspeak.data.messages import JSON
from toolspeak.data.tools import Effects
from toolspeak.data.values import evolve
from toolspeak.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MIN_VALUE = 4
_MIN_LINE = 8  # shorter lines of a longer value are common words and brackets


class Secrets:
    """Named secret values.

    `hide` also finds a value in other spellings: as JSON text has it (escaped quotes and newlines; JSON within JSON
    too), as Python has it, and as a number. Each longer line of a value with several lines has a placeholder of its own
    (`{{secret:KEY:2}}`), so a diff or a numbered listing shows no line. `hide` finds no other encoding and no part of a
    value. A placeholder of a known name is revealed wherever it comes from, a tool result included: what leaves the
    machine still needs approval.

    Raises ConfigurationError for a name other than letters, digits, `_`, `.` and `-`, and for a value of fewer than 4
    characters.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._given_values = dict(values or {})
        self.has_values = bool(values)  # read for every call, where a method call would cost more
        self._values: dict[str, str] = {}
        for name, value in (values or {}).items():
            _check(name, value)
            self._values[f"{{{{secret:{name}}}}}"] = value
        for name, value in (values or {}).items():
            self._values.update((f"{{{{secret:{name}:{number}}}}}", line) for number, line in _lines(value))
        # The first one wins: a value before a line of another, both before a spelling of another in JSON.
        self._placeholders: dict[str, str] = {}
        for spell in _SPELLINGS:
            for placeholder, value in self._values.items():
                self._placeholders.setdefault(spell(value), placeholder)
        self._value_pattern = _any_of(self._placeholders, keep=self._values)
        # The texts that may begin a match. Placeholders are among them, so nothing inside one is hidden.
        self._spellings_by_start: dict[str, list[str]] = {}
        for spelling in (*self._placeholders, *self._values):
            self._spellings_by_start.setdefault(spelling[0], []).append(spelling)
        self._longest = max(map(len, (*self._placeholders, *self._values)), default=0)
        self._placeholder_pattern = _any_of(self._values)
        self._numbers = {
            int(v): name for name, v in self._values.items() if v.isascii() and v.isdigit() and v[0] != "0"
        }

    @property
    def longest(self) -> int:
        """The length of the longest spelling of a value, in characters: a spelling at the end of an unfinished text is
        no longer."""
        return max(map(len, self._placeholders), default=0)

    def __bool__(self) -> bool:
        return self.has_values

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self._given_values)})"

    def and_keys(self, keys: Iterable[str]) -> Secrets:
        """Returns the secrets with these API keys added, as `API_KEY` and so on."""
        values = dict(self._given_values)
        for key in keys:
            if key not in values.values():
                name = next(each for each in _key_names() if each not in values)
                values[name] = key
        return Secrets(values) if len(values) > len(self._given_values) else self

    def hide(self, value: JSON) -> JSON:
        """Returns the text or JSON value with a placeholder for each secret value."""
        if self._numbers:
            value = _with_numbers(value, self._numbers)
        return _in_strings(value, self.hide_text) if self._values else value

    def hide_bytes(self, data: bytes) -> bytes:
        """Returns the file with placeholders, if it is UTF-8 text. Other bytes are not searched."""
        if not self._values:
            return data
        try:
            return self.hide_text(data.decode()).encode()
        except UnicodeError:
            return data

    def hide_text(self, text: str) -> str:
        """Like `hide`, for one text."""
        if not self._values:
            return text
        return self._value_pattern.sub(lambda match: self._placeholders.get(match[0], match[0]), text)

    def hide_name(self, name: str) -> str:
        """Like `hide_text`, for a tool's name or a call's id. The result is a name that every model API and dialect
        takes."""
        safe_name = self.hide_text(name)
        return name if safe_name == name else _NO_NAME.sub("_", safe_name).strip("_")

    def certain(self, text: str) -> int:
        """How many characters of an unfinished text can be hidden now. What follows them may be the beginning of a
        secret."""
        cut = len(text)
        for start in range(max(0, cut - self._longest + 1), cut):
            end, spellings = text[start:], self._spellings_by_start.get(text[start], ())
            if any(len(spelling) > len(end) and spelling.startswith(end) for spelling in spellings):
                cut = start
                break
        for match in self._value_pattern.finditer(text) if 0 < cut < len(text) else ():
            if match.start() < cut < match.end():
                return match.start()
        return cut

    def reveal(self, value: JSON) -> JSON:
        """Returns the text or JSON value with the secret value for each placeholder of a known name."""
        return _in_strings(value, self._reveal_text) if self._values else value

    def _reveal_text(self, text: str) -> str:
        return self._placeholder_pattern.sub(lambda match: self._values[match[0]], text)


def _key_names() -> Iterator[str]:
    yield "API_KEY"
    yield from (f"API_KEY_{number}" for number in count(2))


def hide_effects(effects: Effects, secrets: Secrets) -> Effects:
    """Returns the effects with placeholders in their resources."""
    if not secrets.has_values:
        return effects
    return replace(effects, reads=secrets.hide(sorted(effects.reads)), writes=secrets.hide(sorted(effects.writes)))


def hide_retry(event: RetryScheduled, secrets: Secrets) -> RetryScheduled:
    """Returns the event with placeholders in its error, which is not longer than a record holds."""
    return evolve(event, error=secrets.hide_text(event.error)[:MOST_ERROR_CHARACTERS])


def _check(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"a secret's name consists of letters, digits, '_', '.' and '-', not {name!r}")
    if not isinstance(cast("object", value), str):
        raise ConfigurationError(f"the secret {name!r} must be a string, not {type(value).__name__}")
    if not value:
        raise ConfigurationError(f"the secret {name!r} is empty: it would match everywhere; leave it out")
    if len(value) < _MIN_VALUE:
        raise ConfigurationError(
            f"the secret {name!r} has {len(value)} characters: less than {_MIN_VALUE} would match everywhere; leave it "
            "out and let the tool read it, or choose a longer one"
        )


def _lines(value: str) -> Iterator[tuple[int, str]]:
    """The longer lines of a value with several lines, each with its number."""
    lines = value.splitlines()
    for number, line in enumerate(map(str.strip, lines), 1):
        if len(lines) > 1 and len(line) >= _MIN_LINE:
            yield number, line


def _in_ascii_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _in_json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _spell_twice(outer: Callable[[str], str], inner: Callable[[str], str], value: str) -> str:
    return outer(inner(value))


def _in_python(value: str) -> str:
    return repr(value)[1:-1]


def _in_quoting_python(value: str) -> str:
    """The spelling of a value in a text that holds both kinds of quotes: Python escapes the single ones."""
    return repr(f"\"'{value}")[4:-1]


_JSON = (_in_json, _in_ascii_json)
_OUTER = (*_JSON, _in_python, _in_quoting_python)
_INNER = tuple(partial(_spell_twice, outer, inner) for outer in _OUTER for inner in _OUTER)
_SPELLINGS = (str, *_OUTER, *_INNER, *(partial(_spell_twice, outer, inner) for outer in _OUTER for inner in _INNER))
"""The forms of a value in a text. A call's arguments hold JSON, a text in them may hold JSON, and so on."""


def _any_of(texts: Mapping[str, str], *, keep: Mapping[str, str] | None = None) -> re.Pattern[str]:
    """A pattern for the texts, the longest first. The texts of `keep` match before them, so nothing inside those
    does."""
    alternatives = [*(keep or {}), *sorted(texts, key=len, reverse=True)]
    return re.compile("|".join(map(re.escape, alternatives)))


def _with_numbers(value: JSON, names: Mapping[int, str]) -> JSON:
    if isinstance(value, Mapping):
        return {name: _with_numbers(inner, names) for name, inner in cast("Mapping[str, JSON]", value).items()}
    if isinstance(value, list | tuple):
        return [_with_numbers(inner, names) for inner in cast("list[JSON]", value)]
    return names.get(value, value) if type(value) is int else value


def _in_strings(value: JSON, change: Callable[[str], str]) -> JSON:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, JSON]", value)
        return {change(name): _in_strings(inner, change) for name, inner in entries.items()}
    if isinstance(value, list | tuple):
        return [_in_strings(inner, change) for inner in cast("list[JSON]", value)]
    return value
