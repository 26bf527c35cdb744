"""The messages of a conversation that wait for the model, in a file of the user's, for the case that the terminal is
lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from toolspeak.data.protected import protect
from toolspeak.project.string_file import change_strings, read_strings
from toolspeak.project.user_folders import NO_FOLDER, data_folder


def _file() -> Path:
    file = data_folder() / "unsent-messages.json"
    protect(file, "the file of messages that you have not sent")
    return file


def keep_unsent(session_id: str, texts: Sequence[str]) -> None:
    """Stores what waits in a session at this terminal, in place of what was stored. Raises OSError if it cannot."""
    file, key = _file(), f"{session_id} {os.getpid()}"
    if file.parent == NO_FOLDER or not (texts or key in read_strings(file)):
        return

    def store(messages: dict[str, str]) -> None:
        messages.pop(key, None)
        if texts:
            messages[key] = "\n\n".join(texts)

    change_strings(file, store)


def take_unsent(session_id: str) -> str:
    """Removes what waited in a session at terminals that are gone, and returns it; "" if nothing did. Raises OSError if
    the file cannot be changed."""
    file, texts = _file(), list[str]()

    def is_lost(key: str) -> bool:
        session, _, pid = key.partition(" ")
        return session == session_id and not _is_other_process(pid)

    if not any(map(is_lost, read_strings(file))):
        return ""

    def take(messages: dict[str, str]) -> None:
        texts.extend(messages.pop(key) for key in list(messages) if is_lost(key))

    change_strings(file, take)
    return "\n\n".join(texts)


def _is_other_process(pid: str) -> bool:
    """Whether another process with this id lives."""
    if not pid.isdecimal() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
