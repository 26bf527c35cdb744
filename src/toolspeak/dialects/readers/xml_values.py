"""Arguments of XML-like calls, `<argument>value</argument>`, written out and in a grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable

from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.grammar.ir import Node, Rules, series
from toolspeak.dialects.grammar.text_frames import Argument, argument, in_order
from toolspeak.dialects.prompts.rendering import dump_json
from toolspeak.dialects.readers.raw_values import CDATA, CDATA_END
from toolspeak.dialects.readers.xml_tags import NAMED_ARGUMENT, open_tag
from toolspeak.dialects.text.typed_text import argument_types


def write_argument(name: str, value: JSON, spec: ToolSpec | None, live: re.Pattern[str]) -> str:
    """`live` finds the dialect's markers: a text that holds one, or its own end tag, goes into CDATA."""
    admits_text = True
    if spec is not None:
        admits_text = "string" in argument_types(spec, name)
    # Where text is admitted, only the attribute tells the number 5 from the text "5".
    is_text = isinstance(value, str)
    start, element = open_tag(name, NAMED_ARGUMENT, "json" if admits_text and not is_text else "")
    return f"{start}{_text(value, element, live) if is_text else _plain_json(value)}</{element}>"


def _text(value: str, element: str, live: re.Pattern[str]) -> str:
    own_end = re.search(rf"</{re.escape(element)}\s*>", value)
    if own_end or live.search(value) or value.lstrip().startswith(CDATA):
        return CDATA + value.replace(CDATA_END, f"]]{CDATA_END}{CDATA}>") + CDATA_END
    return value


def _plain_json(value: JSON) -> str:
    return dump_json(value, re.compile("<"))


def argument_nodes(
    spec: ToolSpec, rules: Rules, live: re.Pattern[str], avoid: tuple[str, ...], behind: str = ""
) -> Iterable[Node]:
    """What `write_argument` may write for each argument of a tool, for grammars: none of `avoid` in a value, and
    `behind` it the text that stands between arguments."""

    def tagged(name: str, schema: JSON) -> Node:
        start, element = open_tag(name, NAMED_ARGUMENT)
        how = Argument(
            text=start,
            json=start,
            marked=open_tag(name, NAMED_ARGUMENT, "json")[0],
            marks_beside_listed=True,
            end=f"</{element}>",
            avoid=(*(f"</{element}{space}" for space in " \t\r\n"), *avoid),
            fixed=lambda value: write_argument(name, value, spec, live),
        )
        made = argument(spec, name, schema, rules, how)
        return series(made, behind) if behind else made

    return in_order(spec, tagged)


def markers_of(names: Iterable[str]) -> tuple[str, ...]:
    """How the start and end tags of these elements begin."""
    return tuple(f"<{slash}{name}" for name in names for slash in ("", "/"))
