"""Skills and sub-agents as files: where they are found, and what their fields must be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.project.folders import FileSource, sources_of
from toolspeak.tools.files.text_format import visible

MOST_ENTRIES = 200
"""How many entries of one folder are looked at."""


class ProjectDefinition(Protocol):
    """What a file defines."""

    @property
    def name(self) -> str: ...


DefinitionT = TypeVar("DefinitionT", bound=ProjectDefinition)


@quick()
class Definitions(Generic[DefinitionT]):
    """What files define, by name; what is wrong with others; and which are hidden by a nearer one."""

    by_name: Mapping[str, DefinitionT]
    problems: tuple[str, ...] = ()
    name_conflicts: tuple[str, ...] = ()


def find_definitions(
    kind: Literal["skills", "agents"],
    workspace: Path,
    fits: Callable[[Path], bool],
    read: Callable[[Path, FileSource], DefinitionT],
) -> Definitions[DefinitionT]:
    """What the files of a project and its user define. Of two with one name the nearest counts.

    - `fits`: whether an entry of a folder is such a definition.
    - `read`: reads it, or raises ConfigurationError.
    """
    by_name: dict[str, DefinitionT] = {}
    places: dict[str, Path] = {}
    problems, name_conflicts = list[str](), list[str]()
    for source in sources_of(kind, workspace):
        for path in _entries(source, problems, fits):
            try:
                definition = read(path, source)
            except ConfigurationError as error:
                problems.append(str(error))
                continue
            if definition.name in by_name:
                other = places[definition.name]
                name_conflicts.append(f"{path}: not used, since {other} has the same name and is nearer")
                continue
            by_name[definition.name], places[definition.name] = definition, path
    return Definitions(by_name, tuple(problems), tuple(name_conflicts))


def _entries(source: FileSource, problems: list[str], fits: Callable[[Path], bool]) -> Iterator[Path]:
    """The entries of a folder that fit, by name; adds to `problems` what cannot be looked at."""
    try:
        entries = sorted(os.listdir(source.path))
    except OSError as error:
        problems.append(f"{source.path}: {error.strerror}")
        return
    if len(entries) > MOST_ENTRIES:
        problems.append(f"{source.path}: only the first {MOST_ENTRIES} of {len(entries)} entries are read")
    for entry in entries[:MOST_ENTRIES]:
        path = source.path / entry
        if fits(path):
            yield path


def text_field(fields: Mapping[str, JSON], name: str, path: Path, most: int, *, optional: bool = False) -> str:
    """A field with a text of 1 to `most` characters; "" if it is `optional` and missing. Raises ConfigurationError."""
    value = fields.get(name)
    if value is None and optional:
        return ""
    if value is None:
        raise ConfigurationError(f"{path}: the field `{name}` is missing; add a line `{name}: …`")
    if not isinstance(value, str):
        raise ConfigurationError(f"{path}: {name} must be a text, not {literal_text(str(value))}; put it in quotes")
    text = value.strip()
    if not 1 <= len(text) <= most:
        raise ConfigurationError(f"{path}: {name} has {len(text):,} characters, and must have 1 to {most:,}")
    return text


def literal_text(text: str) -> str:
    """The beginning of a text in quotes, for a message."""
    return visible(repr(text[:80]))
