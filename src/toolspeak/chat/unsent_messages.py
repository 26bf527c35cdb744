"""The messages of a conversation that wait for the model, in a file of the user's, for the case that the terminal is
lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from toolspeak.data.protected_files import protect
from toolspeak.journal.leases import is_dead, new_owner
from toolspeak.project.user_files.string_file import change_strings, read_strings
from toolspeak.project.user_files.user_folders import NO_FOLDER, data_folder


@lru_cache(maxsize=1)  # by pid, since a fork is another process
def _terminal(_pid: int) -> str:
    """This process, by a name that no later one has."""
    return new_owner()


def _file() -> Path:
    file = data_folder() / "unsent-messages.json"
    protect(file, "the file of messages that you have not sent")
    return file


def keep_unsent(session_id: str, texts: Sequence[str]) -> None:
    """Stores what waits in a session at this terminal, in place of what was stored. Raises OSError if it cannot."""
    file, key = _file(), f"{session_id} {_terminal(os.getpid())}"
    if file.parent == NO_FOLDER:
        return

    def store(messages: dict[str, str]) -> None:
        messages.pop(key, None)
        if texts:
            messages[key] = "\n\n".join(texts)

    change_strings(file, store)


def take_unsent(session_id: str) -> str:
    """Removes what waited in a session at terminals that are gone, and returns it; "" if nothing did. Raises OSError if
    the file cannot be changed."""
    file, texts, own = _file(), list[str](), _terminal(os.getpid())

    def is_lost(key: str) -> bool:
        session, _, terminal = key.partition(" ")
        return session == session_id and (terminal == own or is_dead(terminal))

    if not any(map(is_lost, read_strings(file))):
        return ""

    def take(messages: dict[str, str]) -> None:
        texts.extend(messages.pop(key) for key in list(messages) if is_lost(key))

    change_strings(file, take)
    return "\n\n".join(texts)
