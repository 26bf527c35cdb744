"""Frames of calls in the function notations of Python and Gemma, whose values are JSON in another spelling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.grammar.avoid import Item, Pattern, items_of, texts
from toolspeak.dialects.grammar.ir import (
    EMPTY,
    Chars,
    JsonText,
    Node,
    Repeat,
    Rules,
    Text,
    Token,
    choice,
    literals,
    series,
)
from toolspeak.dialects.grammar.schema_rules import Notation, SchemaNodes

Write = Callable[[JSON], str]

_HEX = Chars("0-9a-fA-F")
_PYTHON_ESCAPE = series(
    "\\",
    choice(Chars("nrtbf'\"\\\\"), series("x", Repeat(_HEX, 2, 2)), series("u", Repeat(_HEX, 4, 4))),
)


def _python_string(quote: str) -> Node:
    return series(quote, Repeat(choice(Chars(f"{quote}\\\\\\x00-\\x1f\\x7f", True), _PYTHON_ESCAPE)), quote)


_PYTHON_STRING = Token(choice(_python_string("'"), _python_string('"')))


def python_notation(write: Sequence[Write]) -> Notation:
    """Python's literals. `write`: the ways to write a fixed value."""

    def dump(value: JSON) -> list[str]:
        return list(dict.fromkeys(each(value) for each in write))

    return Notation(
        string=_PYTHON_STRING,
        text=lambda value: literals(dump(value)),
        key=lambda name: literals(dump(name)),
        any_key=lambda _: _PYTHON_STRING,
        words=("True", "False", "None"),
        dump=dump,
    )


def python_arguments(spec: ToolSpec, rules: Rules, notation: Notation) -> Node:
    """`(name=value, …)`: the arguments in the schema's order. Names that Python does not allow cannot be written."""
    name_notation = Notation(
        string=notation.string,
        text=notation.text,
        key=lambda name: series(name),
        any_key=notation.any_key,
        colon="=",
        space=notation.space,
        words=notation.words,
        dump=notation.dump,
    )
    return _arguments(spec, rules, name_notation, notation, ("(", ")"))


def _arguments(
    spec: ToolSpec, rules: Rules, name_notation: Notation, inner: Notation, brackets: tuple[str, str]
) -> Node:
    values = SchemaNodes(inner, spec.parameters, rules, spec.name)
    closed_schema = {**spec.parameters, "additionalProperties": False}
    return SchemaNodes(name_notation, spec.parameters, rules, spec.name, values).object(closed_schema, brackets)


def before_call(name: str, opening: str, bracket: str) -> Pattern:
    """`[name(`, with white space: the beginning of a call without a marker."""
    space = Item(frozenset(" \t\r\n"), loop=True)
    return Pattern((*items_of(opening), space, *items_of(name), space, *items_of(bracket)))


def gemma_notation(quote: str, avoid: Sequence[str], write: Write, key: Callable[[str], str]) -> Notation:
    """Gemma's values: strings between `quote`, without the texts of `avoid`, and plain keys."""
    string = choice(series(quote, Text(texts(*avoid), quote)), JsonText())

    def dump_value(value: JSON) -> list[str]:
        return [write(value)]

    return Notation(
        string=string,
        text=lambda value: series(write(value)),
        key=lambda name: series(key(name)),
        any_key=lambda _: choice(Token(series(Chars("A-Za-z_"), Repeat(Chars("A-Za-z0-9_"), 0, 60))), string),
        space=EMPTY,
        dump=dump_value,
    )
