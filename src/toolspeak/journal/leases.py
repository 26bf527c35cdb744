"""Leases: one process's right to drive a run, for a limited time.

A lease's owner is a process. Its name lets other processes on the same machine check whether it is alive. The
statements use the notation of `journal.sql`.
"""

from __future__ import annotations

import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import lru_cache
from typing import Any, Protocol

from toolspeak.errors import LeaseLost, RunBusy
from toolspeak.journal.base import Lease, Requests, RunInfo


def new_owner(engine: str | None = None) -> str:
    """Returns a new name for a lease holder in this process: `machine pid start random`, and the engine that it drives
    runs for."""
    name = f"{_myself(os.getpid())} {os.urandom(4).hex()}"
    return name if engine is None else f"{name} {engine}"


def engine_of(owner: str) -> str | None:
    """The engine that an owner drives runs for, None for a process of its own."""
    parts = owner.split(" ")
    return parts[4] if len(parts) == 5 else None


def is_dead(owner: str) -> bool:
    """Whether the owner is a process of this machine that has ended. False if that is unknown."""
    parts = owner.split(" ")
    if len(parts) not in (4, 5) or parts[0] != _machine() or not parts[1].isdigit():
        return False
    pid, start = int(parts[1]), parts[2]
    with suppress(PermissionError, OverflowError, ValueError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
    # Another process may have the same pid by now, with a later start.
    return start not in ("", _start(pid))


def is_alive(owner: str) -> bool:
    """Whether the owner is a process of this machine that has not ended. False if that is unknown."""
    return owner.partition(" ")[0] == _machine() and not is_dead(owner)


@lru_cache(maxsize=1)  # by pid, since a fork is another process
def _myself(pid: int) -> str:
    return f"{_machine()} {pid} {_start(pid)}"


def since_boot() -> tuple[str, Callable[[], float]]:
    """The name of a clock of this machine that cannot be set, and the clock, in seconds. Clocks of the same name show
    the same time.

    On a system without such a clock: "" and the wall clock.
    """
    with suppress(OSError, AttributeError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        namespace = ""
        with suppress(OSError):
            namespace = os.readlink("/proc/self/ns/time")  # time_namespaces(7): each may have its own offset
        clock = time.CLOCK_BOOTTIME  # it runs while the machine sleeps
        return f"{boot} {namespace}", lambda: time.clock_gettime(clock)
    return "", time.time


def _machine() -> str:
    """The machine and its pid namespace: in a container the same pid is another process."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{socket.gethostname()}:{namespace}".replace(" ", "_")


def _start(pid: int) -> str:
    """A process's start, in clock ticks since boot (proc(5), field 22 of stat); "" without /proc.

    "ended" for a process that has ended and whose parent has not waited for it.
    """
    with suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return "ended" if fields[0] in "ZX" else fields[19]
    return ""


def check_lease(run_id: str, lease: Lease | None, owner: str | None, epoch: int) -> None:
    """Raises LeaseLost unless the lease is the run's newest, or the run has no lease and none is passed."""
    if lease is None and owner is not None:
        raise LeaseLost(f"run {run_id} is held by another process, and this one has no lease on it: acquire it first")
    if lease is not None and (owner is None or lease.epoch != epoch):
        raise LeaseLost(f"run {run_id} was taken over by another process, so this one cannot continue it")


def may_take(holder: str, takes_over: str | None) -> bool:
    """Whether a lease that has not run out may be taken from its holder: a dead process, or one that drives runs for
    the engine `takes_over`."""
    return (takes_over is not None and engine_of(holder) == takes_over) or is_dead(holder)


def is_held(info: RunInfo) -> bool:
    """Whether a process drives the run."""
    return info.owner is not None and (info.held_until or 0) > time.time() and not is_dead(info.owner)


def holder_of(info: RunInfo) -> str:
    """Which process drives a run, for people: `process 1234 of this machine`."""
    return _process_of(info.owner or "")


def _process_of(owner: str) -> str:
    parts = owner.split(" ")
    if len(parts) not in (4, 5):
        return "another process"
    return f"process {parts[1]} {'of this machine' if is_alive(owner) else 'on ' + parts[0].partition(':')[0]}"


def busy(run_id: str, owner: str, seconds: float) -> RunBusy:
    """The error for a run that this owner holds, for so many seconds if it does not renew its lease."""
    free = f"If that process is dead, the run is free in {max(0.0, seconds):.0f} seconds"
    if owner.startswith(f"{_myself(os.getpid())} "):
        return RunBusy(
            f"run {run_id} is held by this process, which drives it in another task or thread: wait until the run "
            "pauses or ends there"
        )
    if is_alive(owner):
        return RunBusy(f"run {run_id} is held by {_process_of(owner)}: wait for it, or end it")
    return RunBusy(f"run {run_id} is held by {_process_of(owner)}: wait for it, or end it. {free}")


class Connection(Protocol):
    """A database within one transaction. `change` returns the number of changed rows."""

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Sequence[Any]]: ...

    async def change(self, sql: str, *arguments: Any) -> int: ...


class SqlLeases(ABC):
    """The lease methods of `Journal`. Each run has one row, whose epoch counts the run's holders."""

    @abstractmethod
    def _writing(self, *, synced: bool = False) -> AbstractAsyncContextManager[Connection]:
        """A transaction. It is durable at its end, and undone if it ends with an exception. `synced`: a power cut does
        not undo it either."""

    async def acquire(self, run_id: str, owner: str, seconds: float, *, takes_over: str | None = None) -> Lease:
        async with self._writing() as db:
            # Created first, so that two processes that want the same new run lock one row.
            await db.change("INSERT INTO runs (run_id, epoch) VALUES ($1, 0) ON CONFLICT DO NOTHING", run_id)
            rows = await db.rows(
                "SELECT owner, held_until, {now} FROM runs WHERE run_id = $1 {update}",
                run_id,
            )
            holder, until, now = rows[0]
            if holder not in (None, owner) and until > now and not may_take(holder, takes_over):
                raise busy(run_id, holder, until - now)
            rows = await db.rows(
                "UPDATE runs SET owner = $2, epoch = epoch + 1, held_until = {now} + $3,"
                # What an engine has begun it goes on with, whatever becomes of the worker.
                f" due = {'due' if engine_of(owner) is None else 'coalesce(due, 0)'} WHERE run_id = $1"
                " RETURNING epoch, coalesce(followed, 0) > {now}",
                run_id,
                owner,
                float(seconds),
            )
            return Lease(run_id, owner, rows[0][0], bool(rows[0][1]), took_over=holder not in (None, owner))

    async def renew(self, lease: Lease, seconds: float) -> Requests:
        async with self._writing() as db:
            rows = await db.rows(
                "UPDATE runs SET held_until = {now} + $3 WHERE run_id = $1 AND epoch = $2 AND owner IS NOT NULL"
                " RETURNING suspend, coalesce(followed, 0) > {now}, EXISTS (SELECT 1 FROM inputs"
                " WHERE inputs.run_id = runs.run_id AND kind = 'message' AND taken_by IS NULL)",
                lease.run_id,
                lease.epoch,
                float(seconds),
            )
        if not rows:
            check_lease(lease.run_id, lease, None, 0)
        return Requests(rows[0][0] == lease.epoch, bool(rows[0][1]), bool(rows[0][2]))

    async def ask_to_suspend(self, run_id: str) -> bool:
        async with self._writing() as db:
            rows = await db.rows("SELECT owner, held_until, {now} FROM runs WHERE run_id = $1 {update}", run_id)
            if not rows or rows[0][0] is None or rows[0][1] <= rows[0][2] or is_dead(rows[0][0]):
                return False
            await db.change("UPDATE runs SET suspend = epoch WHERE run_id = $1", run_id)
            return True

    async def release(self, lease: Lease) -> None:
        async with self._writing() as db:
            await db.change(
                "UPDATE runs SET owner = NULL, held_until = NULL WHERE run_id = $1 AND epoch = $2",
                lease.run_id,
                lease.epoch,
            )
