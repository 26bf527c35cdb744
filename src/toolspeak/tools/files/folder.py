"""An open folder, the tools' only access to the disk. It opens names relative to itself and never follows links."""

from __future__ import annotations

import errno
import importlib
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import ModuleType, TracebackType
from typing import Self

_fcntl: ModuleType | None = importlib.import_module("fcntl") if os.name == "posix" else None

DESCRIPTORS = {
    os.open,
    os.stat,
    os.mkdir,
    os.rename,
    os.unlink,
    os.access,
} <= os.supports_dir_fd and os.scandir in os.supports_fd
"""Whether this platform can open names relative to an open folder (POSIX can, Windows cannot)."""

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | _NO_LINK | os.O_RDONLY
# Without O_NONBLOCK, opening a FIFO without a writer would wait for ever; O_BINARY keeps CRLF on Windows.
_FILE = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Folder:
    """An open folder.

    With a descriptor, every operation is relative to the opened folder, even if its path leads elsewhere by now.
    Without a descriptor (the portable way), it opens a name by its path and compares the opened file with the path. It
    detects a swap unless the swap is undone in time.

    All methods take one name, not a path, and raise OSError.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def top(cls, path: str, *, descriptors: bool = DESCRIPTORS) -> Folder:
        """Opens the folder at a real path."""
        if descriptors:
            return cls(path, os.open(path, _FOLDER))
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "a link or no folder", path)
        return cls(path, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def enter(self, name: str, *, create: bool = False) -> Folder:
        """The folder `name` in this one. `create`: make it if it is missing."""
        if create:
            with suppress(FileExistsError):
                os.mkdir(self._at(name), dir_fd=self._descriptor)
        if self._descriptor is not None:
            return Folder(self._at(name), os.open(name, _FOLDER, dir_fd=self._descriptor))
        path = self._at(name)
        # realpath as well as lstat, because lstat reports a junction on Windows as a folder.
        real = os.path.normcase(os.path.realpath(path)) == os.path.normcase(path)
        if not real or not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "a link or no folder", path)
        return Folder(path, None)

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of the file `name`. Refuses a symbolic link, and does not wait for a FIFO."""
        descriptor = os.open(self._at(name), flags | _FILE, mode, dir_fd=self._descriptor)
        if self._descriptor is None:
            try:
                if not os.path.samestat(os.fstat(descriptor), os.lstat(self._at(name))):
                    raise OSError(errno.ELOOP, "replaced while it was opened", name)
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor

    def stat(self, name: str) -> os.stat_result:
        """The status of `name`; for a link, the status of the link itself."""
        return os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)

    def writable(self, name: str) -> bool:
        """Whether the file's permissions allow writing. False for root too if no user may write: replacing a file needs
        rights on the folder alone, so the file's mode is its only protection."""
        writable = self.stat(name).st_mode & 0o222
        return bool(writable) and os.access(self._at(name), os.W_OK, dir_fd=self._descriptor)

    def rename(self, old: str, new: str) -> None:
        """Renames the file `old` to `new`. Replaces an existing file `new`."""
        os.replace(self._at(old), self._at(new), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def add(self, old: str, new: str) -> None:
        """Renames the file `old` to `new`. Raises FileExistsError if `new` exists."""
        try:
            os.link(self._at(old), self._at(new), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except OSError as error:
            if error.errno not in _NO_LINKS:  # FAT, some network file systems and Android have no hard links
                raise
            with suppress(FileNotFoundError):
                self.stat(new)
                raise FileExistsError(errno.EEXIST, "made in between", new) from None
            self.rename(old, new)
        else:
            self.unlink(old)

    @contextmanager
    def alone(self, seconds: float) -> Generator[None, None, None]:
        """Holds the folder's lock during the context. One thread of one process at a time can hold it (flock(2)).

        Raises TimeoutError if the lock is not free within `seconds`. Does not lock on systems where a folder cannot be
        locked: Windows and some network file systems.
        """
        if _fcntl is None:
            yield
            return
        name = self._path if self._descriptor is None else "."
        # A new descriptor: a lock belongs to its descriptor, so the lock also excludes other threads.
        descriptor = os.open(name, _FOLDER, dir_fd=self._descriptor)
        try:
            _lock(partial(_fcntl.flock, descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB), seconds)
            yield
        finally:
            with suppress(OSError):
                _fcntl.flock(descriptor, _fcntl.LOCK_UN)  # closing is not enough once someone has forked
            os.close(descriptor)

    def hold(self, descriptor: int) -> None:
        """Marks the file as in use for other processes, as long as the descriptor is open."""
        if _fcntl is not None:
            with suppress(OSError):
                _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)

    def take_away(self, name: str) -> bool:
        """Removes the file unless it is in use (`hold`). Returns whether it did; False if that is unknown."""
        if _fcntl is None:
            return False
        try:
            descriptor = self.open(name, os.O_RDONLY)
        except OSError:
            return False
        try:
            _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
            self.unlink(name)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def unlink(self, name: str) -> None:
        os.unlink(self._at(name), dir_fd=self._descriptor)

    def read_link(self, name: str) -> str:
        """The target of the symbolic link `name`."""
        return os.readlink(self._at(name), dir_fd=self._descriptor)

    def make_link(self, target: str, name: str) -> None:
        """Makes the symbolic link `name`."""
        os.symlink(target, self._at(name), dir_fd=self._descriptor)

    def make_folder(self, name: str) -> None:
        os.mkdir(self._at(name), dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Removes the empty folder `name`."""
        os.rmdir(self._at(name), dir_fd=self._descriptor)

    def set_mode(self, name: str, mode: int) -> None:
        """Sets the permissions of the folder or regular file `name`; never those of a link's target."""
        if self._descriptor is None:
            if not stat.S_ISLNK(self.stat(name).st_mode):
                os.chmod(self._at(name), mode)
            return
        if not (self.stat(name).st_mode & 0o400):
            # It cannot be opened, so its mode is set by its name. `stat` has just seen that it is no link.
            if not stat.S_ISLNK(self.stat(name).st_mode):
                os.chmod(name, mode, dir_fd=self._descriptor)
            return
        descriptor = os.open(name, os.O_RDONLY | _FILE, dir_fd=self._descriptor)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def sync(self) -> None:
        """Makes renames durable if the file system supports that."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.fsync(self._descriptor)

    @contextmanager
    def entries(self) -> Generator[Iterator[os.DirEntry[str]], None, None]:
        """The entries, in no particular order; valid inside the `with` block."""
        with os.scandir(self._path if self._descriptor is None else self._descriptor) as iterator:
            yield iterator

    def _at(self, name: str) -> str:
        return name if self._descriptor is not None else os.path.join(self._path, name)


def _lock(lock: Callable[[], object], seconds: float) -> None:
    end, wait = time.monotonic() + seconds, 0.001
    while True:
        try:
            lock()
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                raise TimeoutError(errno.ETIMEDOUT, "locked by another process") from None
        except OSError:
            return
        time.sleep(wait)
        wait = min(2 * wait, 0.02)
