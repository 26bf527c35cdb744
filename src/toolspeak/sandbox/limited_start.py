"""Starts a command behind a gate, so that its limits hold before its first instruction."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from toolspeak.sandbox.base import ProcessCommand, ProcessLimits
from toolspeak.sandbox.control_groups import ControlGroup, ControlGroups
from toolspeak.sandbox.processes import Group

_GATE = "read -r toolspeak_gate || exit 125; unset toolspeak_gate; "
"""Waits for a line. `read` takes no more than the line from a pipe, so the command's own input follows it."""

ResultT = TypeVar("ResultT")


async def start_limited(
    arguments: Sequence[str],
    command: ProcessCommand,
    limits: ProcessLimits,
    groups: ControlGroups | None,
    *,
    pass_fds: Sequence[int] = (),
    leader_info: int | None = None,
    confine: Callable[[], None] | None = None,
) -> tuple[Group, ControlGroup | None]:
    """Starts `arguments` in place of the command's own.

    `confine`: takes rights from the thread that starts the process, which is then one of its own. `leader_info`: see
    `Group`. Returns the processes, and the control group that the caller removes once they have ended. Raises OSError.
    """
    is_piped = command.input == subprocess.PIPE
    gate_end, our_end = (-1, -1) if is_piped else os.pipe()
    loop = asyncio.get_running_loop()
    if not is_piped and len(arguments) == 3 and tuple(arguments[:2]) == ("/bin/sh", "-c") and _is_dash():
        # The shell of the command waits itself: to start another one takes half a millisecond. It is dash, which shows
        # no line of a command with its errors.
        gated_arguments = [*arguments[:2], f"{_GATE}exec </dev/null; {arguments[2]}"]
    else:
        gated_arguments = ["/bin/sh", "-c", f'{_GATE}exec "$@"' + ("" if is_piped else " </dev/null"), "sh", *arguments]
    control_group = None if groups is None else await groups.make(limits)
    try:
        takes_threads = control_group is not None and control_group.takes_threads

        def open_group() -> Group:
            if control_group is not None and takes_threads:
                control_group.enter()
            if confine is not None:
                confine()
            return Group(
                gated_arguments,
                cwd=command.cwd,
                env=command.env,
                output=command.output,
                errors=command.errors,
                input=command.input if is_piped else gate_end,
                pass_fds=pass_fds,
                leader_info=leader_info,
                loop=loop,
            )

        if takes_threads or confine is not None:
            group = in_thread(open_group, is_awaited=leader_info is not None)
        else:
            group = open_group()
        try:
            if control_group is not None and not takes_threads:
                control_group.add(group.pid)
            _set_limits(group.pid, limits, has_control_group=control_group is not None)
        except BaseException:
            group.kill()
            raise
        if is_piped:
            assert group.input is not None
            group.input.write(b"\n")
        else:
            os.write(our_end, b"\n")
        return group, control_group
    except BaseException:
        if control_group is not None:
            await control_group.remove()
        raise
    finally:
        for end in (gate_end, our_end):
            if end >= 0:
                os.close(end)


@cache
def _is_dash() -> bool:
    return os.path.basename(os.path.realpath("/bin/sh")) == "dash"


def in_thread(work: Callable[[], ResultT], *, is_awaited: bool = False) -> ResultT:
    """Calls a function in a thread of its own, which may change what it may do, and ends. Raises what it raises.

    `is_awaited`: returns once the system's thread has ended, too. `Thread.join` returns a moment before that. A process
    that the thread has started and that dies with its parent, as bubblewrap does, would die with it: the kernel gives
    it to another thread once this one has ended.
    """
    outcomes: list[ResultT] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcomes.append(work())
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    while is_awaited and os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(0)
    if errors:
        raise errors[0]
    return outcomes[0]


def _set_limits(pid: int, limits: ProcessLimits, *, has_control_group: bool) -> None:
    resource: Any = importlib.import_module("resource")  # not at the top: Windows has none
    limit_by_kind: dict[int, int | None] = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits.file_size,
        resource.RLIMIT_CPU: limits.cpu_seconds,
    }
    if not has_control_group:
        # Data, not address space: programs such as Node reserve far more addresses than they use.
        limit_by_kind[resource.RLIMIT_DATA] = limits.memory
        if limits.processes is not None and os.getuid() != 0:  # root has no such limit
            limit_by_kind[resource.RLIMIT_NPROC] = limits.processes + _tasks_of_user()  # it counts all of the user's
    lower_limits(pid, limit_by_kind)


def lower_limits(pid: int, limit_by_kind: Mapping[int, int | None]) -> None:
    """Lowers limits of a process, by their kind (`resource.RLIMIT_…`); None leaves one. Linux only. Raises OSError."""
    resource: Any = importlib.import_module("resource")
    for kind, most in limit_by_kind.items():
        if most is not None:
            _, hard = resource.prlimit(pid, kind)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.prlimit(pid, kind, (most, most))


_tasks_seen: tuple[float, int] = (-math.inf, 0)
_SEEN_SECONDS = 10.0


def _tasks_of_user() -> int:
    """How many processes and threads this user has, or had a few seconds ago: to count them takes milliseconds."""
    global _tasks_seen
    when, count = _tasks_seen
    if time.monotonic() - when < _SEEN_SECONDS:
        return count
    count, me = 0, os.getuid()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    if entry.stat(follow_symlinks=False).st_uid == me:
                        count += os.stat(f"/proc/{entry.name}/task").st_nlink - 2
                except OSError:
                    continue  # it has ended
    _tasks_seen = (time.monotonic(), count)
    return count
