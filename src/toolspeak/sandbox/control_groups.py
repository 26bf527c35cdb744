"""Control groups (cgroups), which count the processes and the memory of a command together. Linux only."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from contextlib import nullcontext, suppress
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
                try:
                    os.rmdir(folder)
                    break
                except FileNotFoundError:
                    break
                except OSError:  # something is in it
                    _kill_all(folder)
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
        for folders in places_for_groups(_own_groups(), _ROOT):
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
            is_second = (self._folders["memory"] / name / "cgroup.controllers").exists()
            for limit in limit_files(limits, is_second=is_second):
                with suppress(OSError) if limit.is_optional else nullcontext():
                    _write(self._folders[limit.controller] / name / limit.file, limit.number)
        except OSError:
            await group.remove()
            raise
        return group


@quick()
class LimitFile:
    """A limit as a file of a group. `is_optional`: not every kernel has it."""

    controller: str
    file: str
    number: int
    is_optional: bool = False


def limit_files(limits: ProcessLimits, *, is_second: bool) -> list[LimitFile]:
    """The limits in the files of a group of the first or of the second version of control groups."""
    files: list[LimitFile] = []
    if limits.processes is not None:
        files.append(LimitFile("pids", "pids.max", limits.processes))
    if limits.memory is not None and is_second:
        files.append(LimitFile("memory", "memory.max", limits.memory))
        files.append(LimitFile("memory", "memory.swap.max", 0, is_optional=True))
    elif limits.memory is not None:
        files.append(LimitFile("memory", "memory.limit_in_bytes", limits.memory))
        files.append(LimitFile("memory", "memory.memsw.limit_in_bytes", limits.memory, is_optional=True))
    return files


def places_for_groups(own_groups: str, root: Path) -> list[dict[str, Path]]:
    """Where a process might make groups, by controller.

    `own_groups`: the groups that it is in, as `/proc/self/cgroup` names them. `root`: where the hierarchies are.
    """
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in own_groups.splitlines())}
    places: list[dict[str, Path]] = []
    if "" in own and (root / "cgroup.controllers").exists():
        own_folder = root / own[""].lstrip("/")
        # A group with processes of its own may not have groups with controllers below it: then beside it.
        bases = [own_folder] if own_folder == root else [own_folder, own_folder.parent]
        places += [{"pids": base, "memory": base} for base in bases]
    if "pids" in own and "memory" in own:  # the first version of control groups
        places.append({kind: root / kind / own[kind].lstrip("/") for kind in ("pids", "memory")})
    return places


def _own_groups() -> str:
    try:
        return Path("/proc/self/cgroup").read_text("utf-8")
    except OSError:
        return ""


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
            # 0 is a process of another namespace, and `kill` takes it for all of our own process group. Ours is in the
            # group where a thread that entered it needs a moment to end.
            if pid not in (0, os.getpid()):
                os.kill(pid, signal.SIGKILL)
