"""The boundary of Landlock and seccomp: the kernel's own, without another program (Linux 6.2 or later)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from functools import partial

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
        guarded = [path for path in confinement.read_only if path not in confinement.hidden]
        for path in confinement.hidden:
            if any(is_below(path, folder) for folder in confinement.writable):
                raise SandboxError(
                    f"{path} lies in a folder that commands may change, and Landlock cannot keep it from them: move it"
                    " elsewhere, or install bubblewrap"
                )
        try:
            copies = ProtectedCopies(guarded)
        except OSError as error:
            raise SandboxError(f"{error}: Landlock cannot protect it; install bubblewrap") from None
        families = (AF_INET, AF_INET6, AF_NETLINK) if confinement.hosts is None else ()
        program = seccomp_filter(families, shared_memory=False)
        ruleset = self._rules(confinement)
        try:
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
                confine=partial(confine_thread, ruleset, program),
            )
        finally:
            ruleset.close()
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
        ruleset = Ruleset(self._version, network=confinement.hosts is None)
        try:
            ruleset.allow(_without(confinement.hidden), READ)
            ruleset.allow(_DEVICES, READ_FILE | WRITE_FILE | TRUNCATE)
            changes = handled_rights(self._version) & ~(MAKE_CHAR | MAKE_BLOCK)
            ruleset.allow([*confinement.writable, self._temporary], changes)
        except BaseException:
            ruleset.close()
            raise
        return ruleset

    async def aclose(self) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)


def _without(hidden: Iterable[str]) -> list[str]:
    """Paths that together hold everything but the hidden ones: rules allow, and forbid nothing."""
    hidden = list(hidden)
    allowed, rest = list[str](), ["/"]
    while rest:
        folder = rest.pop()
        inside = [path for path in hidden if is_below(path, folder)]
        if not inside:
            allowed.append(folder)
        elif folder not in inside:
            try:
                rest += [entry.path for entry in os.scandir(folder) if not entry.is_symlink()]
            except OSError:
                continue  # what this user may not list, the command may not read
    return allowed
