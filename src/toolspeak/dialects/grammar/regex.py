"""A grammar as a regular expression, where it is regular: no free text, no recursive schema, no map of any values.

It has no look-around, so that engines which compile it to an automaton accept it (outlines-core, xgrammar, llguidance).
"""

from __future__ import annotations

import re

from toolspeak.dialects.grammar.ir import (
    Chars,
    Choice,
    Definition,
    Json,
    JsonText,
    Literal,
    Node,
    Ref,
    Repeat,
    Series,
    Special,
    Text,
    Token,
)

_STRING = r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_MOST = 400_000  # in characters; a schema that refers to one part from many places repeats that part


class NotRegularError(Exception):
    """The reason."""


def to_regex(definition: Definition) -> str:
    """The expression, for a whole text. Raises NotRegularError."""
    text = _write(definition.start, definition, ())
    if len(text) > _MOST:
        raise NotRegularError("the tools' schemas are too large")
    return text


def _write(node: Node, definition: Definition, inside: tuple[str, ...]) -> str:
    match node:
        case Literal(text) | Special(text):
            return re.escape(text)
        case Chars(body, is_negated):
            return f"[{'^' if is_negated else ''}{body}]"
        case Series(parts):
            return "".join(_write(part, definition, inside) for part in parts)
        case Choice(options):
            return f"({'|'.join(_write(option, definition, inside) for option in options)})"
        case Repeat(part, low, high):
            return f"({_write(part, definition, inside)}){{{low},{'' if high is None else high}}}"
        case Token(part) | Json(_, part):
            return _write(part, definition, inside)
        case JsonText(()):
            return _STRING
        case Text() | JsonText():
            raise NotRegularError("its values are text between tags")
        case Ref(name):
            if name in inside:
                raise NotRegularError("a tool's schema is recursive, or takes any JSON value")
            return _write(definition.rules[name], definition, (*inside, name))
