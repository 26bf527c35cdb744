"""What the histories of all dialects share: messages, the calls of a turn, and results.

A live marker is text that the model's parser or the server would read as a marker. Results, and JSON and text in them,
are written without live markers: no result can open or close a block. Only the first character of a marker is escaped:
in JSON as `\\u003c`, in plain text as a character reference (`&lt;`, or its number for another character). An `&` that
already begins such a reference gets one more `amp;`, so that unescaping restores every text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from toolspeak.data.messages import (
    FAILURE_PREFIX,
    JSON,
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
    as_mapping,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve
from toolspeak.dialects.base import History
from toolspeak.dialects.grammar.schema_rules import merge_all_of
from toolspeak.dialects.prompt import character_reference
from toolspeak.dialects.text.block_delimiters import Signature
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.typed_text import resolve, schema_types

IN_TEXT = ("no_start", "quoted_call")
"""The codes of malformed calls that are reported to the model and stay in the turn's text."""

_DEEPEST = 64
"""The levels of an argument at which objects are put in order."""
_MAX_REFERENCES = 8
"""The most `$ref`s in a row that are followed."""
_SIMPLE = (str, int, float, type(None))
_SURROGATE = re.compile("[\ud800-\udfff]")
_END_ELEMENT = re.compile(r"</([A-Za-z_][\w:.-]*)>")


# --- messages --------------------------------------------------------------------------------------------------------


def render_all(history: History, messages: Sequence[Message]) -> list[TextMessage]:
    """All messages of a history after these have been added."""
    for message in messages:
        history.add(message)
    return history.messages


def join_block(text: str, block: str) -> str:
    """A block after text, on its own line."""
    return f"{text}\n{block}" if text and not text.endswith("\n") else text + block


def malformed_text(call: MalformedCall, start: str, end: str) -> str:
    """A malformed call as the model wrote it, between its markers. Outside a section its text holds the markers."""
    return call.raw if call.raw.lstrip().startswith("<") else f"{start}{call.raw}{end}"


# --- the calls of a turn ---------------------------------------------------------------------------------------------


def calls_to_write(
    calls: Sequence[ToolCall | MalformedCall], tools: Mapping[str, ToolSpec]
) -> list[ToolCall | MalformedCall]:
    """The calls of a turn that its text does not hold already, each with its arguments in the schema's order.

    That is the only order that a grammar accepts. In each object the properties that its schema does not name follow
    the others, in the order of the call. A call of an unknown tool stays as it is.
    """
    result: list[ToolCall | MalformedCall] = []
    for call in calls:
        if isinstance(call, MalformedCall):
            if call.raw or call.code not in IN_TEXT:
                result.append(call)
            continue
        spec = tools.get(call.name)
        if spec is not None:
            arguments = _in_schema_order(call.arguments, spec.parameters, spec.parameters, 0)
            call = call if arguments is call.arguments else evolve(call, arguments=arguments)
        result.append(call)
    return result


def _in_schema_order(value: JSON, schema: JSON, root: Mapping[str, JSON], depth: int) -> JSON:
    """The value with the properties of its objects in order; the same object if nothing moves."""
    if isinstance(value, _SIMPLE) or depth > _DEEPEST:
        return value
    if isinstance(value, Mapping):
        entries = as_mapping(value)
        described_schema = _object_schema(entries, schema, root)
        properties = as_mapping(described_schema.get("properties"))
        declared_names = [
            *properties,
            *(name for name in described_schema.get("required", ()) if name not in properties),
        ]
        order = [
            *(name for name in declared_names if name in entries),
            *(name for name in entries if name not in declared_names),
        ]
        others: JSON = described_schema.get("additionalProperties", True)
        in_order = {
            name: _in_schema_order(entries[name], properties.get(name, others), root, depth + 1) for name in order
        }
        same = order == list(entries) and all(in_order[name] is entries[name] for name in order)
        return entries if same else in_order
    described_schema = _without_references(schema, root)
    prefix_items: Sequence[JSON] = described_schema.get("prefixItems", ())
    items: JSON = described_schema.get("items", True)
    values = cast("Sequence[JSON]", value)
    each = [
        _in_schema_order(item, prefix_items[i] if i < len(prefix_items) else items, root, depth + 1)
        for i, item in enumerate(values)
    ]
    return value if all(one is other for one, other in zip(each, values, strict=True)) else each


def _object_schema(value: Mapping[str, JSON], schema: JSON, root: Mapping[str, JSON]) -> Mapping[str, Any]:
    """The schema of this object. Of several branches, the first that names all its properties and requires no
    others."""
    mapping = _without_references(schema, root)
    for key in ("anyOf", "oneOf"):
        for branch in mapping.get(key) or ():
            candidate = _without_references(branch, root)
            whole = "object" in schema_types(candidate, root) and set(candidate.get("required", ())) <= set(value)
            has_all_names = set(value) <= set(as_mapping(candidate.get("properties"))) or candidate.get(
                "additionalProperties"
            )
            if whole and has_all_names:
                return candidate
    return mapping


def _without_references(schema: JSON, root: Mapping[str, JSON]) -> Mapping[str, Any]:
    """The schema without `$ref` and `allOf` at its top."""
    mapping = as_mapping(schema)
    if "allOf" not in mapping and "$ref" not in mapping:
        return mapping
    mapping = merge_all_of(mapping, root)
    for _ in range(_MAX_REFERENCES):
        if not isinstance(mapping.get("$ref"), str):
            break
        mapping = merge_all_of(as_mapping(resolve(mapping["$ref"], root)), root)
    return mapping


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
    """`result_value`; for a failure, its text after `ERROR: `."""
    value = result_value(result)
    if result.status != "failure":
        return value
    return FAILURE_PREFIX + (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def result_text(result: ToolResult, live: re.Pattern[str]) -> str:
    """A result as plain text without live markers: text as it is, other values as JSON, a failure after `ERROR: `."""
    value = result_value(result)
    text = escape_text(value, live) if isinstance(value, str) else dump_json(value, live)
    return FAILURE_PREFIX + text if result.status == "failure" else text


# --- markers that all begin with one character -----------------------------------------------------------------------


def marker_prefix(names: Iterable[str]) -> re.Pattern[str]:
    """The '<' of every live marker, start or end, in any case; the markers are elements of these names."""
    # Possessive, with one place for each run of white space: otherwise a long run would be tried in every division.
    return re.compile(rf"<(?=\s*+(?:/\s*+)?(?ai:{'|'.join(map(re.escape, names))}))")


def dump_json(value: JSON, live: re.Pattern[str]) -> str:
    """JSON text without live markers and lone surrogates. No request body can carry the latter."""
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

    # Compiled on first use: a program that reads turns writes no results, or those of one dialect.

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
        """Like `dump_json`, with this table's markers."""
        return _SURROGATE.sub(_json_escape, self._json.sub(_in_json, json.dumps(value, ensure_ascii=False)))

    def result_text(self, result: ToolResult) -> str:
        """As the function `result_text`, with this table's markers."""
        value = result_value(result)
        text = self.escape(value) if isinstance(value, str) else self.escape(self.dump(value))
        return FAILURE_PREFIX + text if result.status == "failure" else text

    def result_string(self, result: ToolResult) -> str:
        """The text of a result as one JSON string. A failure's begins with `ERROR: `."""
        value = result_or_error(result)
        return self.dump(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


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
    # Possessive, with one place for each run of white space: otherwise a long run would be tried in every division.
    return "<", rf"\s*+(?:/\s*+)?(?ai:{re.escape(name)})"


def _literal(text: str) -> tuple[str, str]:
    """The text up to its first line break: two joined results could form the marker from their halves."""
    return text[0], re.escape(text[1:].partition("\n")[0])


def _json_escape(char: re.Match[str]) -> str:
    return f"\\u{ord(char[0]):04x}"


def _in_json(match: re.Match[str]) -> str:
    if match[1] is None:
        return _json_escape(match)
    return "\\u000c" if match[1] == "\\f" else match[1]  # its 'f' could begin a marker
