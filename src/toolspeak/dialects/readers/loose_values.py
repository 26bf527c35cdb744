"""Values that are not JSON, but have only one meaning under the schema."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolspeak.data.deltas import CallCompleted
from toolspeak.data.messages import JSON
from toolspeak.dialects.readers.python_calls import PythonCalls
from toolspeak.dialects.text.scan import Caps, Problem, decode_json
from toolspeak.dialects.text.typed_text import json_type, read_typed

_WORDS: Mapping[str, tuple[str, JSON]] = {
    "true": ("boolean", True),
    "false": ("boolean", False),
    "1": ("boolean", True),
    "0": ("boolean", False),
    "null": ("null", None),
    "none": ("null", None),
    "nil": ("null", None),
}
_NUMBER = re.compile(r"\+?(-?)0*([0-9][0-9.eE+-]*)", re.ASCII)


def read_other(text: str, types: frozenset[str], caps: Caps) -> JSON | Problem:
    """The value of a text that must be one of `types`, without strings; the text itself if it is not such a value.

    Accepted besides JSON are Python's literals (`True`, `{'a': None}`), values in quotes (`"5"`), escaped quotes
    (`[\\"a\\"]`), a leading plus sign or zeros (`007`), and `null` where the schema has no null. vLLM and SGLang
    accept all of these.
    """
    value = read_typed(text, types, False, caps)
    if not isinstance(value, str):
        return value
    bare = text.strip()
    kind, word = _WORDS.get(bare.lower(), ("", None))
    if kind in types or bare == "null":  # the word has no other meaning among these types
        return word
    for other in (_unquote(bare, types, caps), _python(bare, caps), _number(bare, caps)):
        if other is not None and json_type(other) in types:
            return other
    return text


def _unquote(text: str, types: frozenset[str], caps: Caps) -> JSON:
    """The value inside one layer of quotes or escapes, or None."""
    json_source = text if text[:1] == '"' else f'"{text}"' if '\\"' in text else ""
    inner = decode_json(json_source, caps) if json_source else None
    if not isinstance(inner, str):
        return None
    inner = inner if json_source is text else inner.strip('"')
    value = read_typed(inner, types, False, caps)
    return _python(inner, caps) if isinstance(value, str | Problem) else value


def _number(text: str, caps: Caps) -> JSON:
    """The number after a plus sign or zeros, which JSON does not allow, or None."""
    match = _NUMBER.fullmatch(text)
    value = decode_json(f"{match[1]}{match[2]}", caps) if match else None
    return None if isinstance(value, Problem) else value


def _python(text: str, caps: Caps) -> JSON:
    """The value of a Python list or dict, or None."""
    if text[:1] not in ("{", "["):
        return None
    body = PythonCalls(True, 0, caps)
    body.feed(f"[f(v={text})]", 0, [])
    call = body.calls[0] if body.is_complete and len(body.calls) == 1 else None
    arguments: Mapping[str, JSON] = call.arguments if isinstance(call, CallCompleted) else {}
    return arguments["v"] if list(arguments) == ["v"] else None
