"""A function's documentation, from a docstring of any style."""

from __future__ import annotations

from collections.abc import Mapping

import docstring_parser


def read_docstring(text: str) -> tuple[str, Mapping[str, str]]:
    """The description and the documentation of each parameter."""
    try:
        docstring = docstring_parser.parse(text)
    except docstring_parser.ParseError:  # for example, half a section header: the whole text is the description
        return text.strip(), {}
    documentation = {
        name.strip().lstrip("*"): parameter.description.strip()
        for parameter in docstring.params
        if parameter.description
        for name in parameter.arg_name.split(",")  # numpy style documents `x, y : int` at once
    }
    parts = [part.strip() for part in (docstring.short_description, docstring.long_description) if part]
    separator = "\n\n" if docstring.blank_after_short_description else "\n"
    return separator.join(parts), documentation
