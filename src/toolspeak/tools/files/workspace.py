"""The folder that confines the built-in tools, and their only access to its files."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import time
import unicodedata
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Literal

from toolspeak.data.protected_files import protected_as, protected_at
from toolspeak.data.tools import NO_VERSION
from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.tools.files.folder import DESCRIPTORS, Folder
from toolspeak.tools.files.paths import Parts, components, follow, relative_path

MAX_EDIT = 64 * 1024 * 1024
"""The size in bytes of the largest file that is read into memory as a whole (to edit, compare or append)."""

_TICK = 20_000_000
"""Nanoseconds within which two changes may get the same time: kernels count in steps of 1 to 10 ms."""

# A fixed number of locks, so that memory does not grow with the folders of a long run. Two folders may share a lock.
_LOCKS = tuple(Lock() for _ in range(64))

_REASONS = {
    errno.ENOENT: "does not exist: `list` shows what does.",
    errno.ENOTDIR: "lies in something that is not a folder: `list` shows what is there.",
    errno.EISDIR: "is a folder, not a file: use `list`.",
    errno.ELOOP: "was replaced by a symbolic link while it was opened: nothing was done.",
    errno.EACCES: "may not be accessed: permission denied.",
    errno.EPERM: "may not be changed: operation not permitted.",
    errno.ETIMEDOUT: "was not changed: another process is changing files in its folder; try again.",
    errno.EROFS: "is on a read-only file system.",
    errno.ENAMETOOLONG: "has a name that is too long: choose a shorter one.",
    errno.ENOSPC: "could not be written: the disk is full.",
}
_NOT_WRITABLE = {
    errno.EACCES: "was not written: permission denied for its folder, or one above; choose another folder.",
    errno.ENOTDIR: "was not written: something above it is a file, not a folder; choose another path.",
}
_KINDS = {
    stat.S_IFDIR: "is a folder, not a file: use `list`.",
    stat.S_IFLNK: "was replaced by a symbolic link while it was opened: nothing was done.",
    stat.S_IFIFO: "is a FIFO, not a file: only regular files can be used.",
    stat.S_IFSOCK: "is a socket, not a file: only regular files can be used.",
    stat.S_IFCHR: "is a device, not a file: only regular files can be used.",
    stat.S_IFBLK: "is a device, not a file: only regular files can be used.",
}

CHANGE_FILE = ".toolspeak-change.tmp"
"""The name of the file with new content before it replaces the old file. Each folder has one such name, so that the
next process finds the file of a killed process."""

_CHANGED_MEANWHILE = "{!r} was changed by another program meanwhile: nothing was written; read it again."
_MADE_MEANWHILE = "{!r} was made by another program meanwhile: nothing was written; read it first."


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link in a folder. For a symbolic link `folder` and `file` describe its target."""

    name: str
    folder: bool
    file: bool
    link: bool


class Workspace:
    """One folder. Paths are relative to it, or absolute below it, with `/`. Nothing outside it is read or changed.

    A path is checked twice. First its name is resolved, with symbolic links, and must stay inside the folder. Then it
    is opened component by component from the root's descriptor, without following links, so a link that was created in
    between is refused. Every method raises ToolError, with the path and a remedy in the message. A hard link is read
    like any other file. Writing it separates it from its other names.
    """

    def __init__(self, root: str | Path, *, descriptors: bool = DESCRIPTORS, lock_seconds: float = 10.0) -> None:
        """Raises ConfigurationError if `root` is not a folder.

        `descriptors`: False for platforms that cannot open names relative to a folder.
        `lock_seconds`: how long `alone` waits for another process."""
        absolute = os.path.abspath(root)
        real = os.path.realpath(absolute)
        if not os.path.isdir(real):
            raise ConfigurationError(f"The workspace {str(root)!r} is not a folder: make it, or name another.")
        self.root = Path(real)
        self.names = (absolute, real)  # the folder's path as the caller wrote it, and the real one
        self._descriptors = descriptors
        self._lock_seconds = lock_seconds
        self._ignores_case = sys.platform in ("win32", "darwin")

    def resolve(self, path: str) -> Parts:
        """The place of a path, from names alone: the components below the root, without links; `()` is the root."""
        parts = components(relative_path(path, self.names), self.names)
        return follow(str(self.root), self.names[0], parts, repr(path))

    def real(self, path: str) -> str:
        """The absolute real path, written with `/`."""
        return self.root.joinpath(*self.resolve(path)).as_posix()

    def key(self, path: str) -> str:
        """The effect resource of a path: `file:` and its absolute real path.

        All paths to one file have the same key, even if the file system ignores case and Unicode form (macOS, Windows).
        """
        real = self.real(path)
        return "file:" + (unicodedata.normalize("NFC", real).casefold() if self._ignores_case else real)

    def scope(self, path: str) -> str:
        """As `key`, but the root's key for an invalid path: a declaration of effects must not raise."""
        try:
            return self.key(path)
        except ToolError:
            return self.key("")

    def version(self, path: str) -> str:
        """A token that changes when a program changes a file's content or the names in a folder; NO_VERSION if there
        is no such token."""
        try:
            status = os.stat(self.root.joinpath(*self.resolve(path)))
        except (ToolError, OSError):
            return NO_VERSION
        if abs(time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns)) < _TICK:
            return NO_VERSION
        return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"

    # Reading

    @contextmanager
    def open(self, path: str) -> Generator[BinaryIO, None, None]:
        """Opens a regular file for reading bytes."""
        parts = self.resolve(path)
        with _explain_errors(path):
            descriptor = self.open_parts(parts, path)
        with os.fdopen(descriptor, "rb") as file, _explain_errors(path):
            yield file

    def read(self, path: str) -> bytes:
        """The bytes of the whole file. Raises ToolError for more than MAX_EDIT bytes."""
        with self.open(path) as file:
            data = file.read(MAX_EDIT + 1)
        if len(data) > MAX_EDIT:
            raise ToolError(f"{path!r} is larger than {MAX_EDIT:,} bytes: use `read` by pages, or `shell`.")
        return data

    def read_if_exists(self, path: str) -> bytes | None:
        """As `read`, but None if the file does not exist."""
        try:
            return self.read(path)
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def entries(self, path: str) -> list[Entry]:
        """The entries directly in a folder, in no particular order."""
        parts = self.resolve(path)
        with _explain_errors(path), self.folder(parts) as folder, folder.entries() as listing:
            return [self._entry(parts, entry) for entry in listing]

    def is_folder(self, path: str) -> bool:
        """Whether the path is an existing folder. False for a path that is refused."""
        with suppress(ToolError, OSError), self.folder(self.resolve(path)):
            return True
        return False

    # Writing

    @contextmanager
    def alone(self, path: str, *, create: bool = False) -> Generator[None, None, None]:
        """Locks a file's folder while a call reads, changes and replaces the file, so that concurrent calls, in this
        process or others, do not undo each other's changes. `create`: make the folder if it is missing.

        Raises ToolError if another process holds the lock for longer than `lock_seconds`.
        """
        parts = self.resolve(path)
        # Threads wait here without polling.
        with _LOCKS[hash(parts[:-1]) % len(_LOCKS)], ExitStack() as stack:
            with _explain_errors(path, writing=create):
                folder = stack.enter_context(self.folder(parts[:-1], create=create))
                stack.enter_context(folder.alone(self._lock_seconds))
            yield

    def replace(self, path: str, data: bytes, before: bytes | Literal["any"] | None = "any") -> None:
        """Replaces the content of the file atomically: a reader sees the old content or the new, never a part.

        `before`: the content that the file must still have; None if there must be no file. Otherwise this raises
        ToolError and changes nothing.

        Makes missing folders. An existing file keeps its mode and attributes, and its owner and group if the system
        permits. Replaces a link's target, not the link. The content is on the disk when this returns.
        """
        parts = self._writable(path)
        with _explain_errors(path, writing=True), self.folder(parts[:-1], create=True) as folder:
            _replace(folder, parts[-1], data, path, before)

    def append(self, path: str, data: bytes) -> int:
        """Adds `data` at the end of the file, or makes the file. Returns the new size in bytes."""
        parts = self._writable(path)
        with _explain_errors(path, writing=True), self.folder(parts[:-1], create=True) as folder:
            before = _existing(folder, parts[-1], path)
            if before is not None and before.st_nlink > 1:
                # The file's other names may lie outside the workspace (in a package cache, for example), so this name
                # gets its own copy.
                old = self.read(path)
                _replace(folder, parts[-1], old + data, path, old)
                return len(old) + len(data)
            # Creating and opening are separate steps, so that a file that appears in between is checked before writing.
            flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT | os.O_EXCL if before is None else 0)
            with os.fdopen(folder.open(parts[-1], flags), "ab", buffering=0) as file:
                _refuse_special(os.fstat(file.fileno()), path)
                try:
                    _add(file, data)
                except OSError:
                    if before is None:
                        folder.unlink(parts[-1])
                    raise
                status = os.fstat(file.fileno())
            with suppress(FileNotFoundError):
                if os.path.samestat(status, folder.stat(parts[-1])):
                    if before is None:
                        folder.sync()
                    return status.st_size
            raise ToolError(f"{path!r} was replaced by another program meanwhile: read it, and see what it lacks.")

    def _writable(self, path: str) -> Parts:
        parts = self.resolve(path)
        if not parts:
            raise ToolError(f"{path!r} is the workspace folder, not a file: add a file name.")
        if protection := protected_at(os.path.join(self.root, *parts)):
            raise ToolError(f"{path!r} is {protection.what}, which this program depends on: no tool may change it.")
        if parts[-1] == CHANGE_FILE:
            raise ToolError(f"{path!r} is a name that the tools use for temporary files: choose another.")
        return parts

    # The walk

    @contextmanager
    def folder(self, parts: Parts, *, create: bool = False) -> Generator[Folder, None, None]:
        """The open folder at resolved components. `create`: make missing ones. Raises OSError."""
        folder = Folder.top(str(self.root), descriptors=self._descriptors)
        try:
            for name in parts:
                inner = folder.enter(name, create=create)
                folder.close()
                folder = inner
            yield folder
        finally:
            folder.close()

    def open_parts(self, parts: Parts, label: str) -> int:
        """A descriptor for reading the regular file at resolved components; no link is followed. Raises OSError."""
        if not parts:
            raise ToolError(f"{label!r} is the workspace folder, not a file: use `list`.")
        with self.folder(parts[:-1]) as folder:
            status = folder.stat(parts[-1])
            protection = protected_at(os.path.join(self.root, *parts)) or protected_as(status)
            if protection and protection.secret:
                raise ToolError(
                    f"{label!r} is {protection.what}, which this program depends on: no tool may read or change it."
                )
            _refuse_special(status, label)  # before opening, since opening a device can have an effect
            descriptor = folder.open(parts[-1], os.O_RDONLY)
        try:
            _refuse_special(os.fstat(descriptor), label)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _entry(self, parts: Parts, entry: os.DirEntry[str]) -> Entry:
        name = entry.name
        if not entry.is_symlink():
            return Entry(name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False), link=False)
        try:
            target = follow(str(self.root), self.names[0], (*parts, name), name)
            if not target:
                return Entry(name, folder=True, file=False, link=True)
            with self.folder(target[:-1]) as folder:
                mode = folder.stat(target[-1]).st_mode
        except (ToolError, OSError):  # a link that leads outside or nowhere is listed, and refused when it is used
            return Entry(name, folder=False, file=False, link=True)
        return Entry(name, stat.S_ISDIR(mode), stat.S_ISREG(mode), link=True)


@contextmanager
def _explain_errors(path: str, *, writing: bool = False) -> Generator[None, None, None]:
    """Turns an OSError into a ToolError that names the path as the model wrote it."""
    try:
        yield
    except OSError as error:
        reasons = _REASONS | _NOT_WRITABLE if writing else _REASONS
        reason = reasons.get(error.errno or 0) or f"failed: {error.strerror or error}."
        raise ToolError(f"{path!r} {reason}") from error


def _refuse_special(status: os.stat_result, label: str) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise ToolError(f"{label!r} {_KINDS.get(kind, 'is not a regular file.')}")


def _existing(folder: Folder, name: str, label: str) -> os.stat_result | None:
    """The file's status; None if there is no file. Raises ToolError for a read-only file."""
    try:
        status = folder.stat(name)
    except FileNotFoundError:
        return None
    _refuse_special(status, label)
    if not folder.writable(name):
        raise ToolError(
            f"{label!r} is read-only (mode {stat.S_IMODE(status.st_mode):o}): its permissions forbid writing."
        )
    return status


def _add(file: FileIO, data: bytes) -> None:
    """Adds all of the data at the file's end and syncs it, or adds nothing: a failed call may be repeated."""
    start, rest = os.fstat(file.fileno()).st_size, memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        if os.fstat(file.fileno()).st_size == start + len(data) - len(rest):  # else another program has added more
            os.ftruncate(file.fileno(), start)
        raise


def _temporary_file(folder: Folder, mode: int) -> tuple[str, int]:
    """Makes a new file in the folder, and returns its name and a descriptor. Removes what a killed process left
    there."""
    # Not derived from a file's name: that may already be as long as a name can be.
    other = f".toolspeak-{secrets.token_hex(8)}.tmp"  # if another process uses the file, or that is unknown
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    for _ in range(2):
        with suppress(FileExistsError):
            return CHANGE_FILE, folder.open(CHANGE_FILE, flags, mode)
        if not folder.take_away(CHANGE_FILE):
            break
    return other, folder.open(other, flags, mode)


def _replace(folder: Folder, name: str, data: bytes, label: str, before: bytes | Literal["any"] | None) -> None:
    status = _existing(folder, name, label)
    # The system applies the umask to a new file. The new content of an existing file is hidden until its mode is set.
    temporary, descriptor = _temporary_file(folder, 0o666 if status is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            folder.hold(descriptor)
            if status is not None and hasattr(os, "fchmod"):
                keep_owner_and_mode(file.fileno(), status)
                keep_attributes(folder, name, file.fileno())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if before is None:
            folder.add(temporary, name)
        else:
            if before != "any" and not _holds(folder, name, before):
                raise ToolError(_CHANGED_MEANWHILE.format(label))
            folder.rename(temporary, name)
    except FileExistsError:
        with suppress(OSError):
            folder.unlink(temporary)
        raise ToolError(_MADE_MEANWHILE.format(label)) from None
    except BaseException:
        with suppress(OSError):
            folder.unlink(temporary)
        raise
    folder.sync()


def _holds(folder: Folder, name: str, data: bytes) -> bool:
    try:
        with os.fdopen(folder.open(name, os.O_RDONLY), "rb") as file:
            return file.read(len(data) + 1) == data
    except FileNotFoundError:
        return False


def keep_owner_and_mode(descriptor: int, before: os.stat_result) -> None:
    """Gives a new file the owner, group and mode of the one that it replaces, as far as the system permits."""
    mode = stat.S_IMODE(before.st_mode)
    mine = os.fstat(descriptor)
    if (before.st_uid, before.st_gid) != (mine.st_uid, mine.st_gid):
        try:
            os.fchown(descriptor, before.st_uid, before.st_gid)
        except OSError:
            mode &= 0o777  # set-user-id would now mean another user
            try:
                os.fchown(descriptor, -1, before.st_gid)  # permitted for a group of this user
            except OSError:
                mode = mode & 0o707 | (mode & 0o007) << 3  # the new group must not get the old group's rights
    os.fchmod(descriptor, mode)


def keep_attributes(folder: Folder, name: str, descriptor: int) -> None:
    """Copies access control lists and other extended attributes (Linux)."""
    if not hasattr(os, "listxattr"):
        return
    with suppress(OSError):
        before = folder.open(name, os.O_RDONLY)
        try:
            for each in os.listxattr(before):
                if each.startswith(("user.", "system.posix_acl_")):
                    with suppress(OSError):
                        os.setxattr(descriptor, each, os.getxattr(before, each))
        finally:
            os.close(before)
