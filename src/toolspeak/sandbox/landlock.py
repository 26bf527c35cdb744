"""The boundary of Landlock and seccomp: the kernel's own, without another program (Linux 6.2 or later)."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

from toolspeak.data.values import quick
from toolspeak.errors import SandboxError
from toolspeak.sandbox.base import ConfinedProcess, Confinement, ProcessCommand
from toolspeak.sandbox.control_groups import ControlGroups
from toolspeak.sandbox.kernel_calls import (
    MAKE_BLOCK,
    MAKE_CHAR,
    READ,
    READ_FILE,
    TRUNCATE,
    WRITE_FILE,
    Ruleset,
    confine_thread,
    handled_rights,
    landlock_version,
)
from toolspeak.sandbox.limited_start import in_thread, start_limited
from toolspeak.sandbox.protected_copies import ProtectedCopies
from toolspeak.sandbox.protected_places import is_below
from toolspeak.sandbox.seccomp_filter import AF_INET, AF_INET6, AF_NETLINK, is_known_machine, seccomp_filter

_LEAST_VERSION = 3
"""Before it, a command could empty every file (Linux 6.2)."""

_SIGNALS_VERSION = 6

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_MOST_RULES = 8
"""The most rules that are held for further commands: calls declare what they change, and differ."""

_COARSE = 2_000_000_000
"""Nanoseconds within which two changes of a folder may have the same time (on FAT)."""


class Landlock:
    """Starts commands with rights on files by Landlock, and without the system calls that seccomp denies.

    A thread takes the rights from itself and starts the command, so the command has none of them from its first
    instruction on. Landlock has no exceptions within a folder that may be changed. So what is protected there is put
    back when the command has ended.
    """

    level = "landlock"
    filters_hosts = False

    def __init__(self, groups: ControlGroups | None) -> None:
        self._version, self._groups = landlock_version(), groups
        self._temporary = os.path.realpath(tempfile.mkdtemp(prefix="toolspeak-"))
        self._rules_by_key: dict[object, _Rules] = {}

    @staticmethod
    async def probe() -> str:
        """Why this boundary is not to be had here; "" if it is. Tries it in a thread."""
        if not is_known_machine():
            return "there is no seccomp filter for this processor"
        version = landlock_version()
        if version < _LEAST_VERSION:
            return "the kernel has no Landlock, or one before Linux 6.2" if version else "the kernel has no Landlock"
        try:
            ruleset = Ruleset(version, network=False)
            try:
                in_thread(partial(confine_thread, ruleset, seccomp_filter(())))
            finally:
                ruleset.close()
        except OSError as error:
            return f"the kernel refuses Landlock or seccomp: {error.strerror}"
        return ""

    @property
    def gaps(self) -> tuple[str, ...]:
        gaps = ["processes that start a session of their own go on after the command", "no list of hosts"]
        if self._groups is not None:
            gaps = gaps[1:]
        if self._version < _SIGNALS_VERSION:
            gaps.append("signals to your other processes")
        return tuple(gaps)

    @asynccontextmanager
    async def start(self, command: ProcessCommand, confinement: Confinement) -> AsyncGenerator[ConfinedProcess]:
        guarded_paths = [path for path in confinement.read_only if path not in confinement.hidden_paths]
        for path in confinement.hidden_paths:
            if any(is_below(path, folder) for folder in confinement.writable):
                raise SandboxError(
                    f"{path} lies in a folder that commands may change, and Landlock cannot keep it from them: move it"
                    " elsewhere, or install bubblewrap"
                )
        try:
            copies = ProtectedCopies(guarded_paths)
        except OSError as error:
            raise SandboxError(f"{error}: Landlock cannot protect it; install bubblewrap") from None
        families = (AF_INET, AF_INET6, AF_NETLINK) if confinement.hosts is None else ()
        program = seccomp_filter(families, shared_memory=False)
        in_place = ProcessCommand(
            command.arguments,
            command.cwd,
            {**command.env, "TMPDIR": self._temporary},
            command.output,
            command.errors,
            command.input,
        )
        group, control_group = await start_limited(
            command.arguments,
            in_place,
            confinement.limits,
            self._groups,
            confine=partial(confine_thread, self._rules(confinement), program),
        )
        process = ConfinedProcess(group)
        try:
            yield process
        finally:
            try:
                if control_group is not None:
                    await control_group.remove()
            finally:
                process.notes += copies.put_back()

    def _rules(self, confinement: Confinement) -> Ruleset:
        """The rules of a confinement: those of an earlier command, while what they name is as it was."""
        key = (confinement.writable, confinement.hidden_paths, confinement.hosts is None)
        rules = self._rules_by_key.get(key)
        if rules is not None and rules.are_current():
            return rules.ruleset
        listings, paths = _without(confinement.hidden_paths)
        changeable = [*confinement.writable, self._temporary]
        inodes = {path: _inode(path) for path in (*paths, *_DEVICES, *changeable)}
        ruleset = Ruleset(self._version, network=confinement.hosts is None)
        try:
            ruleset.allow(paths, READ)
            ruleset.allow(_DEVICES, READ_FILE | WRITE_FILE | TRUNCATE)
            ruleset.allow(changeable, handled_rights(self._version) & ~(MAKE_CHAR | MAKE_BLOCK))
        except BaseException:
            ruleset.close()
            raise
        rules = _Rules(ruleset, inodes, listings)
        if rules.are_settled():
            while len(self._rules_by_key) >= _MOST_RULES:
                del self._rules_by_key[next(iter(self._rules_by_key))]
            self._rules_by_key[key] = rules
        return ruleset

    async def aclose(self) -> None:
        self._rules_by_key.clear()
        shutil.rmtree(self._temporary, ignore_errors=True)


_Stamp: TypeAlias = tuple[int, ...] | None


@quick(eq=False)
class _Rules:
    """Rules that commands can share.

    - `inodes`: of each path that a rule names, the file that it was.
    - `listings`: of each folder that holds something hidden, whose entries have a rule each, its state before it was
      listed. A file cannot come to a hidden path without a change of one of them.
    """

    ruleset: Ruleset
    inodes: Mapping[str, _Stamp]
    listings: Mapping[str, _Stamp]

    def are_current(self) -> bool:
        """Whether rules that are made now would be the same."""
        return all(_inode(path) == inode for path, inode in self.inodes.items()) and all(
            _listing(folder) == listing for folder, listing in self.listings.items()
        )

    def are_settled(self) -> bool:
        """Whether each later change of a folder will be seen: the clock of files is coarse."""
        newest = time.time_ns() - _COARSE
        return all(listing is not None and max(listing[-2:]) < newest for listing in self.listings.values())


def _inode(path: str) -> _Stamp:
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return (state.st_dev, state.st_ino)


def _listing(folder: str) -> _Stamp:
    try:
        state = os.lstat(folder)
    except OSError:
        return None
    return (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)


def _without(hidden_paths: Iterable[str]) -> tuple[dict[str, _Stamp], list[str]]:
    """Paths that together hold everything but the hidden ones: rules allow, and forbid nothing. The folders that were
    listed for that come first, as they were before."""
    hidden_paths = list(hidden_paths)
    listings, allowed_paths, rest = dict[str, _Stamp](), list[str](), ["/"]
    while rest:
        folder = rest.pop()
        inside = [path for path in hidden_paths if is_below(path, folder)]
        if not inside:
            allowed_paths.append(folder)
        elif folder not in inside:
            listings[folder] = _listing(folder)
            try:
                rest += [entry.path for entry in os.scandir(folder) if not entry.is_symlink()]
            except OSError:
                continue  # what this user may not list, the command may not read
    return listings, allowed_paths
