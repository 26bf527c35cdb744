"""One file of configuration: read within bounds, as TOML, with the line of each key."""

from __future__ import annotations

import importlib
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, cast

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.tools.files.text_format import visible

MOST_BYTES = 64 * 1024
"""The largest file of configuration. A person reads the whole file before they trust it."""

KeyPath: TypeAlias = tuple[str, ...]
"""The keys of a value, from the outermost table on."""

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'|#[^\n]*|[\[{]|[\]}]|\n",
    re.DOTALL,
)
_DECODE_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@quick()
class ConfigFile:
    """The content of a file of configuration.

    `folder`: what relative paths in it start from. `of_project`: it came with a project, and not from the user.
    """

    path: str
    folder: str
    text: str
    table: Mapping[str, Any]
    of_project: bool = False

    def place(self, key: KeyPath) -> str:
        """`path:line` of a key; without the line for a key that is not in the file."""
        lines = key_lines(self.text)
        while key and key not in lines:
            key = key[:-1]
        return f"{visible(self.path)}:{lines[key]}" if key else visible(self.path)

    def error(self, key: KeyPath, problem: str) -> ConfigurationError:
        """An error that names the file, the line and the key."""
        return ConfigurationError(f"{self.place(key)}: {visible('.'.join(key))}: {visible(problem)}")


def read_config_file(path: str, folder: str, *, of_project: bool = False) -> ConfigFile | None:
    """The file of configuration at `path`; None if there is none.

    A project's file must be a regular file at this very path: a link could lead anywhere. Raises ConfigurationError
    with the place and the remedy for a file that cannot be used.
    """
    own_place = os.path.join(folder, ".toolspeak", "config.toml")
    if of_project and os.path.lexists(path) and os.path.realpath(path) != own_place:
        raise ConfigurationError(
            f"{visible(path)} is a link, or is in a linked folder: a project's configuration must be a file of its own"
        )
    text = read_bounded(path)
    if text is None:
        return None
    file = ConfigFile(path, folder, text, _parse(text, path), of_project)
    _check_values(file, file.table, ())
    return file


def read_bounded(path: str, most_bytes: int = MOST_BYTES) -> str | None:
    """The UTF-8 text of a file; None if there is none. Does not wait for a FIFO. Raises ConfigurationError."""
    place = visible(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{place}: {error.strerror or error}; make it readable, or remove it") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISDIR(mode):
        os.close(descriptor)
        raise ConfigurationError(f"{place} is no file; remove it, or put a file there")
    with open(descriptor, "rb") as stream:
        data = stream.read(most_bytes + 1) or b""  # None: a terminal on which nothing was typed
    if len(data) > most_bytes:
        raise ConfigurationError(f"{place} is larger than {most_bytes // 1024} KB; make it smaller")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigurationError(f"{place}:{line}: not UTF-8 (byte {data[error.start]:#04x}); convert it") from None


def toml_table(text: str) -> Mapping[str, Any]:
    """The content of a TOML text. Raises ValueError and RecursionError."""
    # Not at the top: most runs have no file of configuration, and the reader takes longer to import than to read.
    return importlib.import_module("tomllib").loads(text)


def _parse(text: str, path: str) -> Mapping[str, Any]:
    try:
        return toml_table(text)
    except RecursionError:
        raise ConfigurationError(f"{visible(path)}: its tables or arrays are nested too deep") from None
    except ValueError as error:
        match = _DECODE_PLACE.search(str(error))
        problem = str(error)[: match.start()] if match else str(error)
        line = match[1] if match and match[1] else str(text.count("\n") + (not text.endswith("\n")))
        raise ConfigurationError(f"{visible(path)}:{line}: not TOML: {visible(problem)}") from None


def _check_values(file: ConfigFile, value: Any, key: KeyPath) -> None:
    """Raises ConfigurationError for a value that JSON cannot hold, and for text that could control a terminal."""
    match value:
        case dict():
            for name, each in cast("dict[str, Any]", value).items():
                if _CONTROL.search(name) or not name.isprintable():
                    raise file.error((*key, name), "a key holds a control character")
                _check_values(file, each, (*key, name))
        case list():
            for each in cast("list[Any]", value):
                _check_values(file, each, key)
        case str():
            if match := _CONTROL.search(value):
                raise file.error(key, f"the text holds the control character {match[0]!a}; remove it")
        case bool() | int():
            pass
        case float() if math.isfinite(value):
            pass
        case _:
            raise file.error(key, f"{value} is neither text, a finite number, true, false, a list nor a table")


@lru_cache(maxsize=8)
def key_lines(text: str) -> Mapping[KeyPath, int]:
    """The line on which each key of a valid TOML text is set first."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, statement in _statements(text):
        content = toml_table(statement)
        if statement.lstrip().startswith("["):
            table = _header(content)
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], number)
        else:
            for key in _paths(content, table):
                lines.setdefault(key, number)
    return lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The line number and the text of each key with its value, and of each table's header."""
    start = depth = 0
    line = first_line = 1
    for token in _TOKEN.finditer(text + "\n"):
        mark = token[0]
        if mark in ("[", "{"):
            depth += 1
        elif mark in ("]", "}"):
            depth -= 1
        elif mark == "\n" and depth == 0:
            statement = text[start : token.start()]
            if statement.strip() and not statement.lstrip().startswith("#"):
                yield first_line, statement
            start, first_line = token.end(), line + 1
        line += mark.count("\n")


def _header(content: Mapping[str, Any]) -> KeyPath:
    """The keys of `[a.b]` or `[[a.b]]`."""
    key: KeyPath = ()
    level: Any = content
    while isinstance(level, dict) and level:
        table = cast("dict[str, Any]", level)
        name = next(iter(table))
        key, level = (*key, name), table[name]
    return key


def _paths(content: Mapping[str, Any], table: KeyPath) -> Iterator[KeyPath]:
    for name, value in content.items():
        yield (*table, name)
        if isinstance(value, dict):
            yield from _paths(cast("dict[str, Any]", value), (*table, name))


def user_path(path: str, folder: str) -> str:
    """A path in the user's own file: `~` is the home folder, and a relative path starts from `folder`."""
    return os.path.abspath(os.path.join(folder, os.path.expanduser(path)))


def inner_path(path: str, folder: str) -> str | None:
    """A path in a project's file, which starts from the project's folder; None if it leads out of the folder."""
    real = os.path.realpath(os.path.join(folder, path))
    return real if Path(real).is_relative_to(os.path.realpath(folder)) else None
