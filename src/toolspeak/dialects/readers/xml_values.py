"""Writes the arguments of XML-like calls, `<argument>value</argument>`, as text and as a grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.grammar.ir import Node, Rules, series
from toolspeak.dialects.grammar.text_frames import Argument, argument, in_order
from toolspeak.dialects.readers.tagged_values import TEXT, write_json, write_text
from toolspeak.dialects.readers.xml_tags import NAMED_ARGUMENT, open_tag
from toolspeak.dialects.text.typed_text import argument_types


def write_argument(name: str, value: JSON, spec: ToolSpec | None, live: re.Pattern[str]) -> str:
    """An argument as an element. Text with a marker (`live`) or with its own end tag becomes CDATA."""
    admits_text = True
    if spec is not None:
        admits_text = "string" in argument_types(spec, name)
    # If text is allowed, only the attribute separates the number 5 from the text "5".
    start, element = open_tag(name, NAMED_ARGUMENT, "json" if admits_text and not isinstance(value, str) else "")
    ends = re.compile(rf"</{re.escape(element)}\s*>|{live.pattern}")
    text = write_text(value, ends, TEXT) if isinstance(value, str) else write_json(value)
    return f"{start}{text}</{element}>"


def argument_nodes(
    spec: ToolSpec, rules: Rules, live: re.Pattern[str], avoid: tuple[str, ...], after: str = ""
) -> Iterable[Node]:
    """The grammar of each argument of a tool, as `write_argument` writes it.

    `avoid`: texts that no value may hold.
    `after`: the text between arguments.
    """

    def argument_node(name: str, schema: JSON) -> Node:
        start, element = open_tag(name, NAMED_ARGUMENT)
        how = Argument(
            text=start,
            json=start,
            explicit_json=open_tag(name, NAMED_ARGUMENT, "json")[0],
            marks_beside_values=True,
            end=f"</{element}>",
            avoid=(*(f"</{element}{space}" for space in " \t\r\n"), *avoid),
            write_fixed=lambda value: write_argument(name, value, spec, live),
        )
        node = argument(spec, name, schema, rules, how)
        return series(node, after) if after else node

    return in_order(spec, argument_node)


def markers_of(names: Iterable[str]) -> tuple[str, ...]:
    """The beginnings of the start and end tags of these elements."""
    return tuple(f"<{slash}{name}" for name in names for slash in ("", "/"))
