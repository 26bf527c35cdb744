"""Arguments as a person edits them: JSON in their editor, or on one line."""

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
from toolspeak.execute.concurrency.threads import in_thread


def editor() -> str:
    """The person's editor, "" if none is set or the standard streams are no terminal it could draw on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return ""
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""


async def edited(text: str, command: str) -> str | None:
    """What was saved, None if nothing was. Raises ConfigurationError when the editor cannot be run."""
    with _left_to_the_editor():
        outcome = await in_thread(lambda: click.edit(text, editor=command, extension=".json"))
    if isinstance(outcome.error, click.ClickException):
        raise ConfigurationError(outcome.error.message)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def written(arguments: Mapping[str, JSON], *, indent: int | None = None) -> str:
    """The arguments as they are edited."""
    return json.dumps(arguments, ensure_ascii=False, indent=indent)


def read(text: str) -> Mapping[str, JSON]:
    """The arguments as they were edited. Raises ConfigurationError for anything but a JSON object, naming line and
    column."""
    try:
        arguments = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"this is no JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"this JSON cannot be read: {error}") from error
    if not isinstance(arguments, dict):
        kind = type(arguments).__name__
        raise ConfigurationError(f'the arguments are one JSON object ({{"name": value}}), not {kind}')
    return cast("dict[str, JSON]", arguments)


def _pass_over(_number: int, _frame: object) -> None:
    return None


@contextmanager
def _left_to_the_editor() -> Generator[None]:
    """Ctrl-C is for the editor while it is open: a terminal sends it to both."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _pass_over)  # not SIG_IGN, which the editor would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
