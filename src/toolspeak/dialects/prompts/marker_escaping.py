"""What a dialect's markers are in running text, so that no result can hold one.

Only the first character of a live marker is escaped: in JSON as `\\u003c`, in plain text as a character reference
(`&lt;`, or its number for another character). An `&` that already begins such a reference gets one `amp;` more, so
that `unescape` restores every text.
"""

from __future__ import annotations

import json
import re
from functools import cached_property

from toolspeak.data.messages import JSON, ToolResult
from toolspeak.dialects.prompts.rendering import ERROR, result_value
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.openings import Signature

_SURROGATE = re.compile("[\ud800-\udfff]")
_END_ELEMENT = re.compile(r"</([A-Za-z_][\w:.-]*)>")


class Live:
    """The live markers of one table; `pattern` finds the first character of each."""

    # Compiled when asked for: a program that reads turns writes no results, or those of one dialect.

    def __init__(self, table: MarkerTable) -> None:
        tails: dict[str, set[str]] = {}
        for marker in table.markers:
            for first, tail in _tails(marker):
                tails.setdefault(first, set()).add(tail)
        self._found = [(first, "|".join(sorted(tails[first]))) for first in sorted(tails)]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"{re.escape(first)}(?={tail})" for first, tail in self._found))

    @cached_property
    def _json(self) -> re.Pattern[str]:
        # In JSON a brace is structure: a bare call cannot be escaped there, and in a string its quotes are.
        inside = "|".join(f"{re.escape(first)}(?={tail})" for first, tail in self._found if first != "{")
        return re.compile(rf"(\\.)|{inside}")

    @cached_property
    def _references(self) -> re.Pattern[str]:
        return re.compile("|".join(f"&{_reference(first)[1:]}(?={tail})" for first, tail in self._found))

    @cached_property
    def _again(self) -> str:
        return "|".join(f"{_reference(first)[1:]}(?={tail})" for first, tail in self._found)

    @cached_property
    def _ampersand(self) -> re.Pattern[str]:
        return re.compile(f"&(?=(?:amp;)*(?:{self._again}))")

    @cached_property
    def _escaped_ampersand(self) -> re.Pattern[str]:
        return re.compile(f"&amp;(?=(?:amp;)*(?:{self._again}))")

    @cached_property
    def _chars(self) -> dict[str, str]:
        return {_reference(first): first for first, _ in self._found}

    def escape(self, text: str) -> str:
        return self.pattern.sub(lambda found: _reference(found[0]), self._ampersand.sub("&amp;", text))

    def unescape(self, text: str) -> str:
        text = self._references.sub(lambda found: self._chars[found[0]], text)
        return self._escaped_ampersand.sub("&", text)

    def dump(self, value: JSON) -> str:
        """JSON text without a live marker; lone surrogates are escaped too, because no request body can carry them."""
        text = self._json.sub(_in_json, json.dumps(value, ensure_ascii=False))
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

    def result(self, result: ToolResult) -> str:
        """A result as plain text: text as it is, other values as JSON, a failure behind `ERROR: `."""
        value = result_value(result)
        text = self.escape(value if isinstance(value, str) else self.dump(value))
        return ERROR + text if result.status == "failure" else text

    def quoted(self, result: ToolResult) -> str:
        """A result as one JSON string."""
        value = result_value(result)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return self.dump(ERROR + text if result.status == "failure" else text)


def _tails(marker: Marker) -> list[tuple[str, str]]:
    """The first character of what is live of a marker, and the pattern of what follows it there."""
    if isinstance(marker.opening, Signature):
        tails = [marker.opening.live]
    elif marker.element:
        tails = [_element(marker.element)]
    else:
        tails = [_literal(marker.text)]
    ends = [end for end in (marker.end, *marker.also_ends) if end and end[0] in "<["]
    for end in ends:
        element = _END_ELEMENT.fullmatch(end)
        tails.append(_element(element[1]) if element else _literal(end))
    return tails


def _element(name: str) -> tuple[str, str]:
    # Possessive, and one place for each white space: else a long run of it would be tried in every division.
    return "<", rf"\s*+(?:/\s*+)?(?ai:{re.escape(name)})"


def _literal(text: str) -> tuple[str, str]:
    """Up to its first line break: two results that are joined could make the marker out of their halves."""
    return text[0], re.escape(text[1:].partition("\n")[0])


def _reference(char: str) -> str:
    return "&lt;" if char == "<" else f"&#{ord(char)};"


def _in_json(found: re.Match[str]) -> str:
    if found[1] is None:
        return f"\\u{ord(found[0]):04x}"
    return "\\u000c" if found[1] == "\\f" else found[1]  # its 'f' could begin a marker
