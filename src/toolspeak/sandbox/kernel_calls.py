"""System calls that Python has no function for: Landlock, seccomp and capabilities, through ctypes. Linux only."""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # Landlock's, the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _SECCOMP_FILTER, _DROP_CAPABILITY = 38, 22, 2, 24
_LAST_CAPABILITY = 63

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
READ = EXECUTE | READ_FILE | READ_DIR

_FIRST_WITH_SCOPES = 6
_RIGHTS_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_TCP = 0b11  # to bind and to connect
_SCOPES = 0b11  # abstract Unix sockets, and signals

_FOR_FILES = WRITE_FILE | READ_FILE | EXECUTE | TRUNCATE | IOCTL_DEV

# Loaded at the first use: a program without a sandbox does not need it.
_library: ctypes.CDLL | None = None


def _load_library() -> ctypes.CDLL:
    global _library
    if _library is None:
        _library = ctypes.CDLL(None, use_errno=True)
        _library.syscall.restype = ctypes.c_long
        _library.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return _library


def _call(number: int, *arguments: int | bytes | None) -> int:
    """A system call. Raises OSError."""
    c_arguments = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _check_outcome(_load_library().syscall(ctypes.c_long(number), *c_arguments))


def _control(option: int, first: int, second: int = 0) -> None:
    """prctl. Raises OSError."""
    _check_outcome(_load_library().prctl(option, first, second, 0, 0))


def _check_outcome(outcome: int) -> int:
    if outcome < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return outcome


def landlock_version() -> int:
    """The version of Landlock's interface here, 0 without Landlock."""
    try:
        return _call(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def handled_rights(version: int) -> int:
    """All rights on files that this version of Landlock checks."""
    return _RIGHTS_BY_VERSION.get(version, (1 << 16) - 1)


class Ruleset:
    """What a thread and its children may do with files. Its descriptor is closed with the last reference to it, or by
    `close`."""

    def __init__(self, version: int, *, network: bool) -> None:
        """`network`: leave TCP as it is. Raises OSError."""
        self._rights = handled_rights(version)
        attributes = struct.pack("Q", self._rights)
        if version >= 4:
            attributes += struct.pack("Q", 0 if network else _TCP)
        if version >= _FIRST_WITH_SCOPES:
            attributes += struct.pack("Q", _SCOPES)
        self.descriptor = _call(_CREATE_RULESET, attributes, len(attributes), 0)
        self.close = weakref.finalize(self, os.close, self.descriptor)

    def allow(self, paths: Iterable[str], rights: int) -> None:
        """Allows these rights for files and everything in folders. A path that is gone is left out."""
        for path in paths:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                is_folder = os.stat(place).st_mode & 0o170000 == 0o040000
                allowed_rights = rights & self._rights & (-1 if is_folder else _FOR_FILES)
                _call(_ADD_RULE, self.descriptor, _PATH_BENEATH, struct.pack("=Qi", allowed_rights, place), 0)
            finally:
                os.close(place)


def confine_thread(ruleset: Ruleset, program: bytes) -> None:
    """Restricts the calling thread, and every process that it starts, for good: no more privileges than now, none of
    root's capabilities in a new program, the rules, and the seccomp filter. Raises OSError."""
    _control(_SET_NO_NEW_PRIVILEGES, 1)
    control = _load_library().prctl
    for capability in range(_LAST_CAPABILITY + 1):
        if control(_DROP_CAPABILITY, capability, 0, 0, 0) < 0:
            break  # not root: it has none to drop; or the kernel knows no more
    _call(_RESTRICT_SELF, ruleset.descriptor, 0)
    instructions = ctypes.create_string_buffer(program, len(program))
    block = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions)))
    _control(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.addressof(block))
