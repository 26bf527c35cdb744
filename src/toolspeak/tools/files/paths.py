"""Turns a path as a model writes it into the components of a real place inside one folder."""

from __future__ import annotations

import os
import posixpath
import re
from contextlib import suppress
from pathlib import PurePath

from toolspeak.errors import CertainFailure, ToolError

Parts = tuple[str, ...]
"""The components below the workspace's root, with no `.`, `..`, separator or symbolic link left in them."""

MAX_LINKS = 40
"""The most symbolic links that one path may follow; the limit of Linux."""

_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)", re.IGNORECASE)


def relative_path(path: str, roots: tuple[str, str]) -> str:
    """An absolute path in the workspace as one relative to it, "" for the workspace itself. Any other path stays as it
    is.

    `roots`: the path of the workspace as the caller wrote it, and its real one. A path that reaches it through other
    links counts, too.
    """
    if not path.startswith("/") or "\0" in path:
        return path
    plain = "/" + path.lstrip("/")
    for root in roots:
        top = PurePath(root).as_posix().rstrip("/")
        if plain == top or plain.startswith(f"{top}/"):
            return plain[len(top) :].lstrip("/")
    names = plain.split("/")
    with suppress(UnicodeEncodeError):
        for count in range(2, len(names) + 1 if ".." not in names else 0):
            above = "/".join(names[:count])
            if not os.path.isdir(above):
                break
            if os.path.realpath(above) == roots[1]:
                return "/".join(names[count:]).lstrip("/")
    return path


def components(path: str, roots: tuple[str, ...]) -> Parts:
    """The components of a relative path, from its text alone, without access to the disk.

    `roots`: the paths of the workspace folder, for the remedy for an absolute path.

    The empty path and `.` are the root, `()`. Raises CertainFailure for a path that is not relative to the workspace.
    """
    label = repr(path)
    if "\0" in path:
        raise CertainFailure(f"{label} contains a NUL character: leave it out.")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise CertainFailure(f"{label} contains a lone surrogate, which no file name can hold: leave it out.") from None
    if _DRIVE.match(path):
        raise CertainFailure(
            f"{label} starts with a drive letter: give a path relative to the workspace, like 'src/a.py'."
        )
    if "\\" in path:
        raise CertainFailure(
            f"{label} contains a backslash: separate folders with '/', {path.replace(chr(92), '/')!r}."
        )
    if path.startswith("/"):
        raise CertainFailure(f"{label} is an absolute path: {_absolute_remedy(path, roots)}")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise CertainFailure(f"{label} contains '..': {_parent_remedy(path)}")
    if parts and parts[0] == "~":
        raise CertainFailure(f"{label} starts with '~', which is not expanded: give a path relative to the workspace.")
    if os.name == "nt":
        _check_windows(label, parts)
    return parts


def follow(root: str, other_name: str, parts: Parts, label: str) -> Parts:
    """The same place, with every symbolic link replaced by its target.

    `root`: the real path of the workspace.
    `other_name`: the workspace's path as the caller wrote it.

    Resolves only links below the root. Names that do not exist (yet) do not change. Raises ToolError if a link leads
    outside the workspace.

    This uses names alone, so it returns where a path *should* lead. The walk that opens the path follows no link.
    """
    base = list(PurePath(root).parts)
    real_parts = list(base)
    todo = list(reversed(parts))
    links = 0
    while todo:
        name = todo.pop()
        if name == "..":
            if len(real_parts) > 1:
                real_parts.pop()
            continue
        real_parts.append(name)
        depth = min(len(real_parts), len(base))
        if not _same(real_parts[:depth], base[:depth]):
            raise ToolError(f"{label} is a symbolic link, or lies behind one, that leads outside the workspace.")
        if len(real_parts) <= len(base):
            continue  # the root, or a folder above it: the root's path is real, so these have no links
        target = _link_target(os.path.join(*real_parts))
        if target is None:
            continue
        links += 1
        if links > MAX_LINKS:
            raise ToolError(f"{label} goes through a loop of symbolic links.")
        real_parts.pop()
        way = PurePath(target)
        if way.is_absolute():
            if way.is_relative_to(other_name):
                way = PurePath(root, way.relative_to(other_name))
            real_parts = [way.parts[0]]
            way = way.relative_to(way.parts[0])
        todo.extend(reversed(way.parts))
    if len(real_parts) < len(base):
        raise ToolError(f"{label} is a symbolic link, or lies behind one, that leads outside the workspace.")
    return tuple(real_parts[len(base) :])


def _same(one: list[str], other: list[str]) -> bool:
    return [os.path.normcase(part) for part in one] == [os.path.normcase(part) for part in other]


def _link_target(path: str) -> str | None:
    try:
        target = os.readlink(path)
    except (OSError, ValueError):
        return None  # no link, or nothing there: opening it shows which
    return target.removeprefix("\\\\?\\") if os.name == "nt" else target


def _absolute_remedy(path: str, roots: tuple[str, ...]) -> str:
    plain = "/" + posixpath.normpath(path).lstrip("/")
    for root in roots:
        top = PurePath(root).as_posix()
        if plain == top:
            return "write '.' for the workspace folder itself."
        if plain.startswith(top.rstrip("/") + "/"):
            return f"write it relative to the workspace, {plain[len(top.rstrip('/')) + 1 :]!r}."
    return "only files inside the workspace can be used; write their paths relative to it ('.' is the workspace)."


def _parent_remedy(path: str) -> str:
    plain = posixpath.normpath(path)
    if plain == ".." or plain.startswith("../"):
        return "only files inside the workspace can be used; write their paths relative to it."
    return f"write {plain!r}."


def _check_windows(label: str, parts: Parts) -> None:
    for part in parts:
        # `a.txt:x` is a hidden stream of a.txt, `nul.txt` a device, and `a.` another name of `a`.
        if ":" in part or _DEVICE.match(part) or part != part.rstrip(". "):
            raise CertainFailure(f"{label}: {part!r} is not a file name on Windows: choose another one.")
