"""What helps to write a message: long pastes in short, completion of commands and paths, and the history in a file."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from toolspeak.chat.terminal.command_list import COMMANDS
from toolspeak.tools.files.gitignore import IgnoredPaths

_MOST_LINES = 10
_MOST_CHARACTERS = 1_500
"""A longer paste is shown as one line."""

_LONGEST_IN_HISTORY = 10_000
"""Characters of a message that the history holds whole."""

_MOST_CANDIDATES = 50
_MOST_ENTRIES = 2_000
"""Entries of a folder that completion reads: it must not take long in a folder of any size."""

_SIGN = re.compile(r"\[pasted [\d,]+ (?:lines|characters)(?: #(\d+))\]")
_ATTACHMENT = re.compile(r'(?:^|(?<=\s))@(?:"([^"]*)|(\S*))$')
_PLAIN_PATH = re.compile(r"[^\s\"]+")


class Pastes:
    """The long pastes of a message. Each is a sign in the line, and whole in the message that is sent."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """The text to insert for a paste: the paste itself if it is short, else a sign for it."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= _MOST_LINES and len(text) <= _MOST_CHARACTERS:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        sign = f"[pasted {size} #{len(self._texts) + 1}]"
        self._texts[sign] = text
        return sign

    def unfold(self, line: str) -> str:
        """The message with the pastes in place of their signs. Raises ValueError for the sign of a paste of an earlier
        conversation."""
        for match in _SIGN.finditer(line):
            if match[0] not in self._texts:
                raise ValueError(f"{match[0]} is from an earlier conversation: paste the text again")
        return _SIGN.sub(lambda match: self._texts[match[0]], line)


def history_of(file: Path) -> tuple[History, str]:
    """The history in a file that only its user can read, and why there is none in the file ("" if there is)."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError as error:
        return InMemoryHistory(), f"the history of messages is not saved: {file}: {error.strerror or error}"
    return _FileHistory(str(file)), ""


class _FileHistory(FileHistory):
    """A history that goes on in memory if the file cannot be read or written."""

    def load_history_strings(self) -> Iterable[str]:
        with suppress(OSError):
            return list(super().load_history_strings())
        return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def history_text(line: str, message: str) -> str:
    """What the history holds of a message: the whole of it, unless it is very long."""
    return message if len(message) <= _LONGEST_IN_HISTORY else line


class MessageCompleter(Completer):
    """Completes `/` commands at the start of a message, their arguments, and the paths of `@`.

    - `folder`: what paths are relative to.
    - `arguments_of`: returns what may follow a command.
    """

    def __init__(self, folder: Path, arguments_of: Callable[[str], Iterable[str]]) -> None:
        self._folder = folder
        self._arguments_of = arguments_of

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yields what may stand at the cursor."""
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            yield from self._commands(text)
            return
        attachment = _ATTACHMENT.search(text)
        if attachment is not None:
            yield from self._paths(attachment[1] if attachment[1] is not None else attachment[2], attachment)

    def _commands(self, text: str) -> Iterator[Completion]:
        name, space, argument = text[1:].partition(" ")
        if not space:
            for each, (arguments, summary) in COMMANDS.items():
                if each.startswith(name):
                    command = f"/{each} " if arguments else f"/{each}"  # the argument may follow at once
                    yield Completion(command, -len(text), display=f"/{each}", display_meta=summary)
        else:
            for each in self._arguments_of(name):
                if each.startswith(argument):
                    yield Completion(each, -len(argument))

    def _paths(self, path: str, attachment: re.Match[str]) -> Iterator[Completion]:
        folder_text, slash, beginning = path.rpartition("/")
        folder = self._folder / Path(folder_text + slash).expanduser()
        entries: list[tuple[str, bool]] = []
        real = os.path.realpath(folder)
        ignored_paths = IgnoredPaths.to_leave_out(real, os.path.realpath(self._folder))
        with suppress(OSError, RuntimeError), os.scandir(folder) as scan:
            for number, entry in enumerate(scan):
                if number >= _MOST_ENTRIES:
                    break
                fits = entry.name.casefold().startswith(beginning.casefold())
                if not fits or (entry.name[0] == "." and not beginning.startswith(".")):
                    continue
                if ignored_paths is None or not ignored_paths.names(os.path.join(real, entry.name), entry.is_dir()):
                    entries.append((entry.name, entry.is_dir()))
        entries.sort()
        if beginning and not slash:
            entries += self._below(beginning.casefold(), {name for name, _ in entries}, ignored_paths)
        for name, is_folder in entries[:_MOST_CANDIDATES]:
            whole = f"{folder_text}{slash}{name}{'/' if is_folder else ''}"
            if not name.isprintable():
                continue
            needs_quotes = attachment[1] is not None or not _PLAIN_PATH.fullmatch(whole)
            completion = f'@"{whole}{"" if is_folder else chr(34)}' if needs_quotes else f"@{whole}"
            yield Completion(completion, -len(attachment[0]), display=f"{name}{'/' if is_folder else ''}")

    def _below(self, part: str, others: set[str], ignored_paths: IgnoredPaths | None) -> list[tuple[str, bool]]:
        """The paths anywhere in the folder whose name contains `part`, and whether each is a folder: the nearest first.
        Without `others`, what is hidden and what .gitignore names, among the first entries of a large folder."""
        top = os.path.realpath(self._folder)
        paths: list[tuple[str, bool]] = []
        rest, folders = _MOST_ENTRIES, deque([""])
        while folders and rest > 0 and len(paths) < _MOST_CANDIDATES:
            above = folders.popleft()
            with suppress(OSError), os.scandir(os.path.join(top, above)) as scan:
                for entry in sorted(islice(scan, rest), key=lambda each: each.name):
                    rest -= 1
                    path, is_folder = os.path.join(above, entry.name), entry.is_dir(follow_symlinks=False)
                    matches = part in entry.name.casefold() and path not in others
                    if entry.name[0] == "." or not (matches or is_folder):
                        continue
                    if ignored_paths is not None and ignored_paths.names(os.path.join(top, path), is_folder):
                        continue
                    if matches:
                        paths.append((path, is_folder))
                    if is_folder:
                        folders.append(path)
        return paths
