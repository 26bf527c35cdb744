"""Markdown files that begin with YAML between two lines of `---`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.project.folders import read_text

MOST_BYTES = 1024 * 1024
"""The largest file that is read."""

_MOST_FIELDS = 64 * 1024  # characters of YAML
_MOST_NODES = 2_000
_DEEPEST = 16
_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


@quick()
class MarkdownFile:
    """A file's fields, which its YAML holds, and the text after them."""

    fields: Mapping[str, JSON]
    body: str


def read_markdown(path: Path, top: Path | None) -> MarkdownFile:
    """Reads a Markdown file with its fields. `top` as in `read_text`.

    Raises ConfigurationError, with the place and the remedy, for a file without fields, and for fields that are not
    plain YAML of a bounded size: no aliases, no tags, nothing nested deeper than 16 levels.
    """
    text, size = read_text(path, top, MOST_BYTES)
    if size > MOST_BYTES:
        raise ConfigurationError(
            f"{path}: the file has {size:,} bytes, and at most {MOST_BYTES:,} are read; move details into other files"
        )
    match = _FRONT_MATTER.match(text)
    if match is None:
        raise ConfigurationError(f"{path}: the file must begin with its fields between two lines `---`")
    if len(match[1]) > _MOST_FIELDS:
        raise ConfigurationError(
            f"{path}: the fields have {len(match[1]):,} characters, and at most {_MOST_FIELDS:,} are read; "
            "move what is long below them"
        )
    return MarkdownFile(_fields(match[1], path), text[match.end() :].strip("\r\n"))


def _fields(text: str, path: Path) -> Mapping[str, JSON]:
    yaml: Any = importlib.import_module("yaml")  # only where a project has such files
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C, where libyaml is there
    try:
        _check_events(yaml.parse(text, Loader=loader), yaml, path)
        value = cast("object", yaml.load(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" (line {mark.line + 2})"
        problem = getattr(error, "problem", None) or type(error).__name__
        raise ConfigurationError(f"{path}{line}: the fields are not YAML: {problem}; put a text in quotes") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: the fields cannot be read: {error}; put a text in quotes") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path}: the fields must be lines `name: value`")
    return {str(name): plain_value(each) for name, each in cast("dict[object, object]", value).items()}


def _check_events(events: Any, yaml: Any, path: Path) -> None:
    """Looks at the YAML before anything is made of it: an alias multiplies what it names."""
    depth = 0
    for number, event in enumerate(events):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ConfigurationError(
                f"{path} (line {event.start_mark.line + 2}): anchors and aliases (`&`, `*`) are not allowed; "
                "put a text that begins so in quotes"
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if number > _MOST_NODES or depth > _DEEPEST:
            raise ConfigurationError(
                f"{path} (line {event.start_mark.line + 2}): the fields hold more than {_MOST_NODES:,} values or "
                f"{_DEEPEST} levels; leave some out"
            )


def plain_value(value: object) -> JSON:
    """The value as JSON. A date, and what else YAML knows and JSON does not, becomes text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [plain_value(each) for each in cast("list[object]", value)]
        case dict():
            return {str(name): plain_value(each) for name, each in cast("dict[object, object]", value).items()}
        case _:
            return str(value)
