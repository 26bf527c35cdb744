"""Editing a call's arguments as JSON, in the person's editor or on one line."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import cast

import click

from toolspeak.data.messages import JSON
from toolspeak.errors import ConfigurationError
from toolspeak.execute.concurrency.limits import in_thread


def editor() -> str:
    """The command of the person's editor; "" if it is not set, or the standard streams are not a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return ""
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""


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
