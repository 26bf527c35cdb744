"""Frames of calls whose values are text between tags, typed by the tool's schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.grammar.avoid import SPACE, Pattern, exactly, items_of
from toolspeak.dialects.grammar.ir import NOTHING, Node, Repeat, Rules, Text, Token, choice, optional, series
from toolspeak.dialects.grammar.schema_rules import SchemaNodes, json_notation, split

CDATA, CDATA_END = "<![CDATA[", "]]>"
STARTS_CDATA = (Pattern((SPACE, *items_of(CDATA)), anchored=True),)


@quick(kw_only=True)
class Argument:
    """How one argument is written."""

    text: str
    """The tag that opens text."""
    json: str
    """The tag that opens JSON."""
    explicit_json: str | None
    """The tag that opens JSON if the schema allows text too; None: JSON is not written then."""
    marks_beside_values: bool = False
    """Use `explicit_json` also if the schema's only texts are those of an enumeration."""
    edge: str = ""
    """The text on both sides of the value."""
    end: str
    """Ends the value."""
    avoid: tuple[str, ...] = ()
    """Texts that a value must not hold, besides `end`."""
    write_fixed: Callable[[JSON], str]
    """Writes a whole argument with a value of an enumeration, as the renderer does."""


def argument(spec: ToolSpec, name: str, schema: JSON, rules: Rules, how: Argument) -> Node:
    """The argument with any value of its schema; NOTHING if the schema has no values."""
    if schema is False:
        return NOTHING
    values_by_kind = split(schema, spec.parameters)
    options: list[Node] = [series(how.write_fixed(value)) for value in values_by_kind.values]
    ending, avoid = how.edge + how.end, tuple(exactly(text) for text in (how.end, *how.avoid))
    if values_by_kind.text:
        plain = Text((*avoid, *STARTS_CDATA), ending)
        options.append(series(how.text, how.edge, Token(choice(plain, series(cdata(), ending)))))
    if values_by_kind.others:
        nodes = SchemaNodes(json_notation(avoid), spec.parameters, rules, f"{spec.name}-{name}")
        value = choice(*(nodes.value(other) for other in values_by_kind.others))
        has_text_values = any(isinstance(value, str) for value in values_by_kind.values)
        json_tag = (
            how.explicit_json if values_by_kind.text or (has_text_values and how.marks_beside_values) else how.json
        )
        if json_tag is not None:
            options.append(series(json_tag, how.edge, value, ending))
    return choice(*options)


def cdata() -> Node:
    """CDATA sections that hold any text; each `]]>` of it is divided between two."""
    section = series(CDATA, Text((), CDATA_END))
    return series(section, Repeat(section))


def in_order(spec: ToolSpec, write: Callable[[str, JSON], Node]) -> Iterable[Node]:
    """A tool's arguments in the schema's order. Those that are not required are optional."""
    required_names = set(cast("Sequence[str]", spec.parameters.get("required", ())))
    for name, schema in spec.properties.items():
        node = write(name, schema)
        yield node if name in required_names else optional(node)
