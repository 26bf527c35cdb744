"""Control groups (cgroups), which count the processes and the memory of a command together. Linux only."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from contextlib import suppress
from pathlib import Path

from toolspeak.data.values import quick
from toolspeak.sandbox.base import ProcessLimits

_ROOT = Path("/sys/fs/cgroup")
_numbers = itertools.count()


@quick(eq=False)
class ControlGroup:
    """The control group of one command: a folder in each hierarchy."""

    folders: tuple[Path, ...]
    takes_threads: bool

    def add(self, pid: int) -> None:
        """Moves a process into it; what the process starts is in it too. Raises OSError."""
        for folder in self.folders:
            _write(folder / "cgroup.procs", pid)

    def enter(self) -> None:
        """Moves the calling thread into it, where `takes_threads`: what it starts is in it. Unlike to move a process,
        that makes the kernel wait for nothing, which takes 10 milliseconds and more. Raises OSError."""
        for folder in self.folders:
            _write(folder / "tasks", 0)

    async def remove(self) -> None:
        """Kills what is still in it, and removes it. A killed process needs a moment until it is gone; after a second
        its group stays."""
        for folder in self.folders:
            for _ in range(200):
                _kill_all(folder)
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    await asyncio.sleep(0.005)


class ControlGroups:
    """Where this process may make control groups."""

    def __init__(self, folders: dict[str, Path]) -> None:
        """`folders`: by controller ("pids", "memory") the folder in which a group can be made."""
        self._folders = folders

    @staticmethod
    async def find() -> ControlGroups | None:
        """The place for control groups that limit processes and memory; None if there is none. Makes a group to see
        it."""
        for folders in _candidates():
            groups = ControlGroups(folders)
            with suppress(OSError):
                probe = await groups.make(ProcessLimits())
                await probe.remove()
                groups.remove_stale()
                return groups
        return None

    def remove_stale(self) -> None:
        """Removes the groups of processes that were killed."""
        for folder in set(self._folders.values()):
            for group in folder.glob("toolspeak-*-*"):
                if not os.path.exists(f"/proc/{group.name.split('-')[1]}"):
                    _kill_all(group)
                    with suppress(OSError):
                        group.rmdir()

    async def make(self, limits: ProcessLimits) -> ControlGroup:
        """A new group with these limits. Raises OSError."""
        name = f"toolspeak-{os.getpid()}-{next(_numbers)}"
        folders = tuple(dict.fromkeys(folder / name for folder in self._folders.values()))
        group = ControlGroup(folders, takes_threads=len(folders) > 1)  # those of the first version
        try:
            for folder in group.folders:
                folder.mkdir()
            pids, memory = self._folders["pids"] / name, self._folders["memory"] / name
            if limits.processes is not None:
                _write(pids / "pids.max", limits.processes)
            if limits.memory is not None:
                is_second = (memory / "cgroup.controllers").exists()
                _write(memory / ("memory.max" if is_second else "memory.limit_in_bytes"), limits.memory)
                with suppress(OSError):  # not every kernel counts swap
                    _write(
                        memory / ("memory.swap.max" if is_second else "memory.memsw.limit_in_bytes"),
                        0 if is_second else limits.memory,
                    )
        except OSError:
            await group.remove()
            raise
        return group


def _candidates() -> list[dict[str, Path]]:
    """Where this process might make groups, by controller."""
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    candidates: list[dict[str, Path]] = []
    if "" in own and (_ROOT / "cgroup.controllers").exists():
        own_folder = _ROOT / own[""].lstrip("/")
        # A group with processes of its own may not have groups with controllers below it: then beside it.
        bases = [own_folder] if own_folder == _ROOT else [own_folder, own_folder.parent]
        candidates += [{"pids": base, "memory": base} for base in bases]
    if "pids" in own and "memory" in own:  # the first version of control groups
        candidates.append({kind: _ROOT / kind / own[kind].lstrip("/") for kind in ("pids", "memory")})
    return candidates


def _write(file: Path, number: int) -> None:
    """Writes to a file of a group. In a folder that is none, there is no such file, and none is made."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, str(number).encode())
    finally:
        os.close(descriptor)


def _kill_all(folder: Path) -> None:
    with suppress(OSError):
        for pid in map(int, (folder / "cgroup.procs").read_text().split()):
            if pid != os.getpid():  # a thread that entered the group may need a moment to end
                os.kill(pid, signal.SIGKILL)
