"""Editing a call's arguments: in the person's editor, as TOML where a text has several lines, else as JSON; or as JSON
on one line."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import signal
import sys
import threading
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import cast

import click

from toolspeak.data.messages import JSON
from toolspeak.errors import ConfigurationError
from toolspeak.execute.concurrency.limits import in_thread
from toolspeak.ui.question import Line, visible_lines

_EDITORS = ("sensible-editor", "vim", "vi", "nano", "notepad")
"""The editors of a person who has chosen none: the first one that the machine has."""

HOW_TO_LEAVE = "Save and leave it: you are asked about your version. Leave it without saving: the call stays as it is."
"""What the person reads before the editor opens, and in a file that can hold it."""

_DIFFERS = "    your version; it differs from the model's in:"


def editor_command() -> str:
    """The command of the person's editor: `$VISUAL`, `$EDITOR`, or one that the machine has; "" if there is none."""
    chosen_editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    return chosen_editor or next((name for name in _EDITORS if shutil.which(name)), "")


def editor() -> str:
    """As `editor_command`, but "" if the standard streams are not a terminal."""
    return editor_command() if sys.stdin.isatty() and sys.stdout.isatty() else ""


async def edit(text: str, command: str, extension: str = ".json") -> str | None:
    """Opens the editor with `text`, and returns the saved text; None if nothing was saved. `command`: "" is the one of
    the environment, or one that the machine has. Raises ConfigurationError if the editor cannot be started."""
    with _ctrl_c_ignored():
        outcome = await in_thread(lambda: click.edit(text, editor=command or None, extension=extension))
    if isinstance(outcome.error, click.ClickException):
        raise ConfigurationError(outcome.error.message)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def arguments_to_json(arguments: Mapping[str, JSON], *, indent: int | None = None) -> str:
    """The arguments as JSON for editing."""
    return json.dumps(arguments, ensure_ascii=False, indent=indent)


def arguments_to_text(arguments: Mapping[str, JSON]) -> tuple[str, str]:
    """The arguments as a file for editing, and its extension. A text of several lines is in TOML as it is."""
    if any(isinstance(value, str) and "\n" in value for value in arguments.values()):
        with suppress(ValueError):
            lines = [f"{_toml_name(name)} = {_toml_value(value, whole=True)}\n" for name, value in arguments.items()]
            text = f"# {HOW_TO_LEAVE}\n{''.join(lines)}"
            if tomllib.loads(text) == arguments:
                return text, ".toml"
    return arguments_to_json(arguments, indent=2), ".json"


def _toml_name(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else json.dumps(name, ensure_ascii=False)


def _toml_value(value: JSON, *, whole: bool = False) -> str:
    """The value in TOML's notation. `whole`: with the lines of a text as they are. Raises ValueError for null."""
    if isinstance(value, str) and whole and "\n" in value:
        shows_itself = all(character.isprintable() or character in "\n\t" for character in value)
        if shows_itself and "'''" not in value and not value.endswith("'"):
            return f"'''\n{value}'''"
        lines = [json.dumps(line, ensure_ascii=False)[1:-1] for line in value.split("\n")]
        return '"""\n' + "\n".join(lines) + '"""'
    if value is None:
        raise ValueError("TOML has no null")
    if isinstance(value, dict):
        fields = cast("dict[str, JSON]", value)
        return f"{{ {', '.join(f'{_toml_name(name)} = {_toml_value(each)}' for name, each in fields.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(each) for each in cast('list[JSON]', value))}]"
    return json.dumps(value, ensure_ascii=False)


def arguments_from_text(text: str, extension: str) -> Mapping[str, JSON]:
    """Reads edited arguments in the notation of a file. Raises ConfigurationError, with the place, if they are none."""
    if extension != ".toml":
        return arguments_from_json(text)
    try:
        # Through JSON: a date, which TOML has too, is no argument.
        return arguments_from_json(json.dumps(tomllib.loads(text), ensure_ascii=False))
    except (tomllib.TOMLDecodeError, TypeError, RecursionError) as error:
        raise ConfigurationError(f"this is not TOML with arguments: {error}") from error


def argument_changes(before: Mapping[str, JSON], after: Mapping[str, JSON]) -> list[Line]:
    """What a person changed in a call's arguments, as lines for the question about it."""
    (old, old_extension), (new, new_extension) = arguments_to_text(before), arguments_to_text(after)
    if old_extension != new_extension:
        old, new = arguments_to_json(before, indent=2), arguments_to_json(after, indent=2)
    difference = list(difflib.unified_diff(visible_lines(old), visible_lines(new), lineterm="", n=0))[2:]
    styles = {"+": "green", "-": "red"}
    lines = [(f"      {line}", styles[line[0]]) for line in difference if line[0] in styles]
    return [(_DIFFERS, "bold"), *lines]


def arguments_from_json(text: str) -> Mapping[str, JSON]:
    """Reads edited arguments. Raises ConfigurationError, with line and column, if they are not a JSON object."""
    try:
        arguments = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigurationError(f"this is not JSON: {error.msg} ({place})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"this JSON cannot be read: {error}") from error
    if not isinstance(arguments, dict):
        kind = type(arguments).__name__
        raise ConfigurationError(f'the arguments must be one JSON object ({{"name": value}}), not {kind}')
    return cast("dict[str, JSON]", arguments)


def _ignore(_number: int, _frame: object) -> None:
    return None


@contextmanager
def _ctrl_c_ignored() -> Generator[None]:
    """Ignores Ctrl-C while the editor is open: a terminal sends it to both processes, and it is for the editor."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _ignore)  # not SIG_IGN, which the editor would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
