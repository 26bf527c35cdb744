"""Text and JSON without live markers, and results written so: no result can open a block or close one.

A live marker is text that the model's parser or the server would read as one. Only its first character is escaped: in
JSON as `\\u003c`, in plain text as a character reference (`&lt;`, or its number for another character). An `&` that
already begins such a reference gets one `amp;` more, so that unescaping restores every text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cached_property

from toolspeak.data.messages import JSON, FilePart, ImagePart, JsonPart, TextPart, ToolResult
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.openings import Signature

ERROR = "ERROR: "
"""Stands in front of the text of a failure."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_END_ELEMENT = re.compile(r"</([A-Za-z_][\w:.-]*)>")


# --- results ---------------------------------------------------------------------------------------------------------


def result_value(result: ToolResult) -> JSON:
    """A result's content as one JSON value: text as a string, JSON as it is, several parts as an array.

    Images and files, which text cannot carry, are described.
    """
    values: list[JSON] = []
    for part in result.content:
        match part:
            case TextPart(text):
                values.append(text)
            case JsonPart(value):
                values.append(value)
            case ImagePart(media_type, data, url):
                size = {"url": url} if url else {"bytes": len(data or b"")}
                values.append({"type": "image", "media_type": media_type, **size})
            case FilePart(name, media_type, data):
                values.append({"type": "file", "name": name, "media_type": media_type, "bytes": len(data)})
    return values[0] if len(values) == 1 else (values or None)


def result_or_error(result: ToolResult) -> JSON:
    """`result_value`; of a failure its text, with `ERROR: ` in front."""
    value = result_value(result)
    if result.status != "failure":
        return value
    return ERROR + (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def result_text(result: ToolResult, live: re.Pattern[str]) -> str:
    """A result as plain text without live markers: text as it is, other values as JSON, a failure behind `ERROR: `."""
    value = result_value(result)
    text = escape_text(value, live) if isinstance(value, str) else dump_json(value, live)
    return ERROR + text if result.status == "failure" else text


# --- markers that all begin with one character -----------------------------------------------------------------------


def marker_prefix(names: Iterable[str]) -> re.Pattern[str]:
    """The '<' of every live marker, start or end, in any case; the markers are elements of these names."""
    # Possessive, and one place for each white space: else a long run of it would be tried in every division.
    return re.compile(rf"<(?=\s*+(?:/\s*+)?(?ai:{'|'.join(map(re.escape, names))}))")


def dump_json(value: JSON, live: re.Pattern[str]) -> str:
    """JSON text without live markers, and without lone surrogates, which no request body can carry."""
    return _SURROGATE.sub(_json_escape, live.sub(_json_escape, json.dumps(value, ensure_ascii=False)))


def escape_text(text: str, live: re.Pattern[str]) -> str:
    """Plain text without live markers; `unescape_text` restores it."""
    _, entity, tail = _parts(live)
    ampersand = re.compile(rf"&(?=(?:amp;)*{entity};{tail})", re.IGNORECASE)
    return live.sub(f"&{entity};", ampersand.sub("&amp;", text))


def unescape_text(text: str, live: re.Pattern[str]) -> str:
    """Reverses `escape_text`."""
    char, entity, tail = _parts(live)
    text = re.sub(rf"&{entity};(?={tail})", char, text, flags=re.IGNORECASE)
    return re.sub(rf"&amp;(?=(?:amp;)*{entity};{tail})", "&", text, flags=re.IGNORECASE)


def _parts(live: re.Pattern[str]) -> tuple[str, str, str]:
    """Of a pattern `X(?=tail)`: the character X, the name of its entity, and the tail."""
    first, _, tail = live.pattern.partition("(?=")
    char = first.removeprefix("\\")
    return char, "lt" if char == "<" else f"#{ord(char)}", tail.removesuffix(")")


# --- markers of any kind ---------------------------------------------------------------------------------------------


class MarkerEscaper:
    """Escapes the live markers of one table, which may begin with different characters.

    `pattern` matches the first character of each.
    """

    # Compiled when asked for: a program that reads turns writes no results, or those of one dialect.

    def __init__(self, table: MarkerTable) -> None:
        tails: dict[str, set[str]] = {}
        for marker in table.markers:
            for first, tail in _tails(marker):
                tails.setdefault(first, set()).add(tail)
        self._starts = [(first, "|".join(sorted(tails[first]))) for first in sorted(tails)]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"{re.escape(first)}(?={tail})" for first, tail in self._starts))

    @cached_property
    def _json(self) -> re.Pattern[str]:
        # In JSON a brace is structure: a bare call cannot be escaped there, and in a string its quotes are.
        inside = "|".join(f"{re.escape(first)}(?={tail})" for first, tail in self._starts if first != "{")
        return re.compile(rf"(\\.)|{inside}")

    @cached_property
    def _references(self) -> re.Pattern[str]:
        return re.compile("|".join(f"&{character_reference(first)[1:]}(?={tail})" for first, tail in self._starts))

    @cached_property
    def _again(self) -> str:
        return "|".join(f"{character_reference(first)[1:]}(?={tail})" for first, tail in self._starts)

    @cached_property
    def _ampersand(self) -> re.Pattern[str]:
        return re.compile(f"&(?=(?:amp;)*(?:{self._again}))")

    @cached_property
    def _escaped_ampersand(self) -> re.Pattern[str]:
        return re.compile(f"&amp;(?=(?:amp;)*(?:{self._again}))")

    @cached_property
    def _chars(self) -> dict[str, str]:
        return {character_reference(first): first for first, _ in self._starts}

    def escape(self, text: str) -> str:
        """Plain text without live markers; `unescape` restores it."""
        return self.pattern.sub(lambda char: character_reference(char[0]), self._ampersand.sub("&amp;", text))

    def unescape(self, text: str) -> str:
        """Reverses `escape`."""
        text = self._references.sub(lambda reference: self._chars[reference[0]], text)
        return self._escaped_ampersand.sub("&", text)

    def dump(self, value: JSON) -> str:
        """As `dump_json`."""
        return _SURROGATE.sub(_json_escape, self._json.sub(_in_json, json.dumps(value, ensure_ascii=False)))

    def result_text(self, result: ToolResult) -> str:
        """As the function `result_text`, with this table's markers."""
        value = result_value(result)
        text = self.escape(value) if isinstance(value, str) else self.escape(self.dump(value))
        return ERROR + text if result.status == "failure" else text

    def result_string(self, result: ToolResult) -> str:
        """The text of a result as one JSON string; a failure's begins with `ERROR: `."""
        value = result_or_error(result)
        return self.dump(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def character_reference(char: str) -> str:
    """`&lt;` for '<', `&#91;` and the like for other characters."""
    return "&lt;" if char == "<" else f"&#{ord(char)};"


def _tails(marker: Marker) -> list[tuple[str, str]]:
    """The first character of each live text of a marker, and the pattern of what follows it."""
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
    """The text up to its first line break: two results that are joined could make the marker out of their halves."""
    return text[0], re.escape(text[1:].partition("\n")[0])


def _json_escape(char: re.Match[str]) -> str:
    return f"\\u{ord(char[0]):04x}"


def _in_json(match: re.Match[str]) -> str:
    if match[1] is None:
        return _json_escape(match)
    return "\\u000c" if match[1] == "\\f" else match[1]  # its 'f' could begin a marker
