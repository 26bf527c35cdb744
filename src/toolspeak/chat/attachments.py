"""The files that a message names with `@`: text goes along as text, images as images."""

from __future__ import annotations

import mimetypes
import os
import re
from pathlib import Path

from toolspeak.data.messages import ImagePart, Message, Part, TextPart
from toolspeak.errors import ConfigurationError
from toolspeak.tools.files.gitignore import IgnoredPaths
from toolspeak.ui.format import count

MOST_TEXT = 64 * 1024
"""Bytes of text that a file may bring."""

MOST_FILE = 16 * 1024 * 1024
"""Bytes of a file that is read for some of its lines."""

MOST_IMAGE = 8 * 1024 * 1024
"""Bytes of an image."""

MOST_ENTRIES = 500
"""Names that are listed of a folder."""

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_NAME = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"(?::(\d+)(?:-(\d+))?)?|([^\s"]+))')
_LINES = re.compile(r"^(.+):(\d+)(?:-(\d+))?$")
_ENDING = ".,;:!?)]}'"


def message_with_files(text: str, folder: Path) -> Message:
    """The message, with the content of each file that it names: `@a.py`, `@a.py:10-20` (lines), `@"a file.txt"`; of a
    folder its names.

    A word that names no file stays a word, unless it looks like a path. Raises ConfigurationError, with the file and
    what to do, for a file that is not there, is too long, or is neither text nor an image.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"the folder {folder} is gone: make it again, or start toolspeak in another one")
    parts: list[Part] = [TextPart(text)]
    names: set[str] = set()
    for match in _NAME.finditer(text):
        if match[0] in names:
            continue
        names.add(match[0])
        part = _part_of(match, folder)
        if part is not None:
            parts.append(part)
    return Message("user", tuple(parts))


def attachment_lines(message: Message) -> list[str]:
    """What goes along with the message, each on one line."""
    lines: list[str] = []
    for part in message.parts[1:]:
        if isinstance(part, ImagePart):
            lines.append(f"an image of {len(part.data or b''):,} bytes ({part.media_type})")
        elif isinstance(part, TextPart):
            title, _, content = part.text.strip("\n").partition("\n")
            lines.append(f"{title.strip('[]').removeprefix('The ')} ({count(content.count(chr(10)) + 1, 'line')})")
    return lines


def _part_of(match: re.Match[str], folder: Path) -> Part | None:
    name, first, last = match[1], match[2], match[3]
    if name is None:
        name = match[4]
        path = folder / Path(name).expanduser()
        if not path.exists():
            name = name.rstrip(_ENDING)
            lines = _LINES.match(name)
            if lines is not None:
                name, first, last = lines[1], lines[2], lines[3]
    try:
        path = folder / Path(name).expanduser()
        there = path.exists()
    except (OSError, RuntimeError) as error:
        raise ConfigurationError(f"@{name}: {error}") from None
    if not there:
        if match[1] is None and "/" not in name and "." not in name:
            return None  # a word such as @someone
        remedy = f"correct the path, or write `@{name}` in backquotes if it is no file"
        raise ConfigurationError(f"@{name}: there is no such file in {folder.resolve()}; {remedy}")
    return _content(path, folder, name, None if first is None else int(first), None if last is None else int(last))


def _content(path: Path, folder: Path, name: str, first: int | None, last: int | None) -> Part:
    try:
        if path.is_dir():
            real = os.path.realpath(path)
            ignored_paths = IgnoredPaths.to_leave_out(real, os.path.realpath(folder))
            entries = sorted(
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in path.iterdir()
                if ignored_paths is None or not ignored_paths.names(os.path.join(real, entry.name), entry.is_dir())
            )
            more = [f"… {len(entries) - MOST_ENTRIES:,} more"] if len(entries) > MOST_ENTRIES else []
            return TextPart("\n".join([f"\n\n[The folder {name}]", *entries[:MOST_ENTRIES], *more, ""]))
        if not path.is_file():
            raise ConfigurationError(f"@{name}: this is no file with content, such as a device")
        kind = mimetypes.guess_type(path.name)[0] or ""
        most = MOST_IMAGE if kind in IMAGE_TYPES else MOST_FILE
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ConfigurationError(f"@{name}: {error.strerror or error}") from None
    if len(data) > most:
        raise ConfigurationError(f"@{name}: it has more than {most // 2**20} MB; attach a smaller file")
    if kind in IMAGE_TYPES:
        return ImagePart(kind, data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"@{name}: neither UTF-8 text (byte {error.start}) nor an image of type PNG, JPEG, GIF or WebP"
        ) from None
    where = name
    if first is not None:
        lines = text.splitlines(keepends=True)
        last = first if last is None else last
        if not 1 <= first <= last or first > len(lines):
            raise ConfigurationError(f"@{name}:{first}-{last}: it has the lines 1 to {len(lines)}")
        text = "".join(lines[first - 1 : last])
        where = f"{name}, lines {first} to {min(last, len(lines))}"
    if len(text.encode()) > MOST_TEXT:
        raise ConfigurationError(
            f"@{name}: more than {MOST_TEXT // 1024} KB of text; attach some of its lines, such as @{name}:1-500"
        )
    return TextPart(f"\n\n[The file {where}]\n{text}")
