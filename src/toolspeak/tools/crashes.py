"""Logs exceptions from the user's code (a tool, its preview, an interceptor) with the traceback."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

ErrorT = TypeVar("ErrorT", bound=BaseException)
_OURS = ("toolspeak.execute.", "toolspeak.tools.decorator", "toolspeak.tools.declaration")


def without_our_frames(error: ErrorT) -> ErrorT:
    """Returns the exception with a traceback that begins in its author's code, so that it holds no object of a run."""
    error.__traceback__ = _theirs(error.__traceback__)
    return error


def log_crash(
    logger: logging.Logger,
    message: str,
    error: BaseException,
    hide: Callable[[str], str] | None = None,
    level: int = logging.WARNING,
) -> None:
    """Logs the message with the exception's traceback. `hide` replaces secrets by placeholders.

    Without `hide` the log has the lines of code and the exception's type, but not its message, which may quote a
    secret.
    """
    if not logger.isEnabledFor(level):
        return
    if hide is None:
        lines = traceback.format_tb(_theirs(error.__traceback__))
        logger.log(level, "%s\n%s%s", message, "".join(lines), type(error).__qualname__)
        return
    try:
        whole = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - a broken __str__ of the exception
        log_crash(logger, hide(message), error, level=level)
        return
    # A log is a file of UTF-8, which has no half of a surrogate pair.
    safe = hide(whole).encode("utf-8", "backslashreplace").decode("utf-8")
    if safe == whole:
        logger.log(level, "%s", hide(message), exc_info=error)
    else:
        logger.log(level, "%s\n%s", hide(message), safe)


def _theirs(whole: TracebackType | None) -> TracebackType | None:
    frame = whole
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.tb_next
    return frame or whole
