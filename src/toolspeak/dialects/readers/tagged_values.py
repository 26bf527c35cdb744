"""Converts argument values between tags: text to JSON by the tool's schema, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.loose_values import read_other
from toolspeak.dialects.text.scan import Caps, Problem, decode_json
from toolspeak.dialects.text.typed_text import Types, argument_types, json_type, read_typed, schema_types

CDATA, CDATA_END = "<![CDATA[", "]]>"
TEXT = Types({"string"})
NO_SCHEMA_TYPES = schema_types({}, {})
ANY = Types(NO_SCHEMA_TYPES | {"any"})

Explicit = Literal["", "string", "json"]
"""The type that the model gave a value: none, text or JSON."""
Reading = Literal["lenient", "exact", "strict"]
"""How to read a value that may have another type than text.

- `strict`: only JSON counts.
- `lenient`: if text is not allowed, values in other notations count too (`read_other`).
- `exact`: as `lenient`, but if text is allowed, a value with white space around it is text.
"""

_STARTS: Mapping[str, frozenset[str]] = {
    first: frozenset(kinds)
    for firsts, kinds in {
        "-0123456789": ("integer", "number"),
        "{": ("object",),
        "[": ("array",),
        "tf": ("boolean",),
        "n": ("null",),
    }.items()
    for first in firsts
}
_UNSAFE = re.compile("[<>\"'=\x00-\x1f\x7f\ud800-\udfff]|&(?=#)|^\\s|\\s$")
_CHARACTER = re.compile(r"&#(\d{1,7});")
_SURROGATE = re.compile("[\ud800-\udfff]")


def value_types(spec: ToolSpec | None, name: str, guesses: bool = False) -> Types:
    """The JSON Schema types of an argument; without a schema `NO_SCHEMA_TYPES`, or `ANY` if the dialect guesses."""
    types = argument_types(spec, name)
    return ANY if guesses and types == NO_SCHEMA_TYPES else types


def is_text(types: frozenset[str]) -> bool:
    """Whether a value is text unless its tag has a type: the schema has only strings, or no type."""
    return types in (TEXT, NO_SCHEMA_TYPES)


def begins_json(first: str, types: frozenset[str]) -> bool:
    """Whether a value that begins with this character may be JSON of another of these types than text."""
    return not types.isdisjoint(_STARTS.get(first, ()))


def read_value(text: str, types: Types, explicit: Explicit, caps: Caps, reading: Reading = "lenient") -> JSON | Problem:
    """The value of a text, or a problem. If the schema allows text and another type, the other type is tried first."""
    if reading == "strict":
        return read_typed(text, types, explicit == "json", caps)
    if explicit == "string" and "string" in types:
        return text
    if explicit == "json":
        return _read_json(text, types, caps)
    if "string" not in types:
        return read_other(text, types, caps)
    if is_text(types) or text.strip() in types.literals:
        return text
    bare = text.strip()
    if not begins_json(bare[:1], types) or (reading == "exact" and bare != text):
        return text
    value = read_typed(text, types - TEXT, False, caps)
    return text if isinstance(value, Problem) else value


def _read_json(text: str, types: Types, caps: Caps) -> JSON | Problem:
    read = decode_json(text.strip(), caps)
    if (
        isinstance(read, Problem)
        and "string" not in types
        and not isinstance(other := read_other(text, types, caps), str)
    ):
        return other
    if types == TEXT and not isinstance(read, str | Problem):
        return text  # the schema decides: `null` for a text is the text "null"
    if (
        isinstance(read, Problem)
        and read.code == "invalid_json"
        and "string" in types
        and types not in (NO_SCHEMA_TYPES, ANY)
    ):
        return text
    return read


def write_text(value: str, ends: re.Pattern[str], types: Types, reading: Reading = "lenient") -> str:
    """A string as the text of a value: verbatim, or as CDATA if it would be read as another value.

    `ends`: finds a live marker, or a text that may end a value.
    """
    plain = not ends.search(value) and not value.lstrip().startswith(CDATA)
    return value if plain and read_value(value, types, "", Caps(), reading) == value else as_cdata(value)


def as_cdata(value: str) -> str:
    return CDATA + value.replace(CDATA_END, f"]]{CDATA_END}{CDATA}>") + CDATA_END


def write_json(value: JSON) -> str:
    r"""JSON with `<` escaped (`\u003c`), so that it holds no marker."""
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def needs_mark(value: JSON, types: Types) -> bool:
    """Whether the JSON of a value, which is not a string, would be read as another value."""
    read = read_value(write_json(value), types, "", Caps())
    return isinstance(read, str | Problem) or json_type(read) != json_type(value)


def escape_name(name: str) -> str:
    return _UNSAFE.sub(lambda match: f"&#{ord(match[0])};", name)


def unescape_name(text: str) -> str:
    if "&#" not in text:
        return text
    return _CHARACTER.sub(lambda match: chr(int(match[1])) if int(match[1]) < 0x110000 else match[0], text)
