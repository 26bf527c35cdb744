"""Secrets as placeholders: a model and a journal see `{{secret:TOKEN}}`, a tool's function sees the value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9_.\-]+")


class Secrets:
    """Named secret values.

    `hide` also finds a value as JSON text spells it (escaped quotes and newlines), but no other encoding of
    it. A placeholder of a known name is revealed wherever it comes from, a tool result included: what leaves
    the machine stays behind an approval.

    Raises UsageError for a name other than letters, digits, `_`, `.` and `-`, and for an empty value.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, str] = {}
        self._placeholders: dict[str, str] = {}
        for name, value in (values or {}).items():
            if not _NAME.fullmatch(name):
                raise UsageError(f"a secret's name is made of letters, digits, '_', '.' and '-', not {name!r}")
            if not value:
                raise UsageError(f"the secret {name!r} is empty: it would be found everywhere")
            placeholder = f"{{{{secret:{name}}}}}"
            self._values[placeholder] = value
            for spelling in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], value):
                self._placeholders[spelling] = placeholder
        self._hidden = _any_of(self._placeholders, keep=self._values)
        self._shown = _any_of(self._values)

    def __bool__(self) -> bool:
        return bool(self._values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self._values)})"

    def hide(self, value: JSON) -> JSON:
        """The same text or JSON value with each secret value replaced by its placeholder."""
        return _in_strings(value, self.hide_text) if self._values else value

    def hide_text(self, text: str) -> str:
        """Like `hide`, for one text."""
        if not self._values:
            return text
        return self._hidden.sub(lambda found: self._placeholders.get(found[0], found[0]), text)

    def reveal(self, value: JSON) -> JSON:
        """The same text or JSON value with each placeholder of a known name replaced by the secret value."""
        return _in_strings(value, self._reveal_text) if self._values else value

    def _reveal_text(self, text: str) -> str:
        return self._shown.sub(lambda found: self._values[found[0]], text)


def _any_of(texts: Mapping[str, str], *, keep: Mapping[str, str] | None = None) -> re.Pattern[str]:
    """Matches the texts, the longest first; `keep` are matched before, so that nothing inside them is."""
    ordered = [*(keep or {}), *sorted(texts, key=len, reverse=True)]
    return re.compile("|".join(map(re.escape, ordered)))


def _in_strings(value: JSON, change: Callable[[str], str]) -> JSON:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, JSON]", value)
        return {change(name): _in_strings(inner, change) for name, inner in entries.items()}
    if isinstance(value, list | tuple):
        return [_in_strings(inner, change) for inner in cast("list[JSON]", value)]
    return value
