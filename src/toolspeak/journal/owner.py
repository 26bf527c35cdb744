"""The owner of a lease: a process, by a name from which others on the same machine see whether it is alive; and the
clock of
leases.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache


def new_owner() -> str:
    """Returns a name for one holder of leases in this process: `machine pid start random`."""
    return f"{_myself(os.getpid())} {os.urandom(4).hex()}"


def is_dead(owner: str) -> bool:
    """Whether the owner was a process of this machine that has ended. False if that cannot be known."""
    parts = owner.split(" ")
    if len(parts) != 4 or parts[0] != _machine() or not parts[1].isdigit():
        return False
    pid, start = int(parts[1]), parts[2]
    with suppress(PermissionError, OverflowError, ValueError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
    # Another process may have the number by now; it started later.
    return start not in ("", _start(pid))


def is_alive(owner: str) -> bool:
    """Whether the owner is a process of this machine that has not ended. False if that cannot be known."""
    return owner.partition(" ")[0] == _machine() and not is_dead(owner)


@lru_cache(maxsize=1)  # by pid, for a fork is another process
def _myself(pid: int) -> str:
    return f"{_machine()} {pid} {_start(pid)}"


def since_boot() -> tuple[str, Callable[[], float]]:
    """A clock of this machine that cannot be set, in seconds, and its name. Clocks of the same name show the same time.

    On a system without one: the wall clock, under the name "".
    """
    with suppress(OSError, AttributeError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        namespace = ""
        with suppress(OSError):
            namespace = os.readlink("/proc/self/ns/time")  # time_namespaces(7): each may have an offset of its own
        clock = time.CLOCK_BOOTTIME  # it goes on while the machine sleeps
        return f"{boot} {namespace}", lambda: time.clock_gettime(clock)
    return "", time.time


def _machine() -> str:
    """The machine and its pid namespace: in a container, the same number is another process."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{socket.gethostname()}:{namespace}".replace(" ", "_")


def _start(pid: int) -> str:
    """When a process started, in clock ticks since boot (proc(5), field 22 of stat); "" without /proc.

    "ended" for a process that has ended and was not waited for.
    """
    with suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return "ended" if fields[0] in "ZX" else fields[19]
    return ""
