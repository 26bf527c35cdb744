"""Runs a command as a group of processes that never outlives its call (POSIX)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL, so that a process can clean up."""

DRAIN = 1.0
"""Seconds to continue reading after the group has ended. Only a process that left the group can keep the pipe open."""


class ProcessOutput(asyncio.Protocol):
    """Passes the bytes of a pipe on; sets `closed` at its end."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


class Group:
    """A running command, with all processes that it starts.

    Processes that start a new session (`setsid`) leave the group, and do not end with it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
        output: int,
        errors: int = subprocess.STDOUT,
        input: int = subprocess.DEVNULL,  # noqa: A002 - as `subprocess` has it
        pass_fds: Sequence[int] = (),
        leader_info: int | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Starts the command. `output`, `errors` and `input` are descriptors, or `subprocess.PIPE`: then the attributes
        of these names are the pipe's other ends.

        `pass_fds`: descriptors that the command inherits besides. `loop`: the running loop, for a call from a thread.
        `leader_info`: a pipe on which the command writes `{"child-pid": …}`, the leader of the processes inside, which
        SIGTERM is meant for (as bubblewrap does). It belongs to the group.
        """
        self._process = subprocess.Popen(
            arguments,
            bufsize=0,
            stdin=input,
            stdout=output,
            stderr=errors,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            pass_fds=pass_fds,
        )
        self._leader_info = leader_info
        self.input, self.output, self.errors = self._process.stdin, self._process.stdout, self._process.stderr
        self._reap = threading.Event()
        self.exited = asyncio.Event()
        self.reaped = asyncio.Event()
        loop = loop or asyncio.get_running_loop()
        # A separate thread: the default executor has few threads, and commands may take long.
        threading.Thread(target=self._wait, args=(loop,), daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell reports it: 128 + the number of the signal that ended the process; None until it is
        reaped."""
        code = self._process.returncode
        return code if code is None or code >= 0 else 128 - code

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(AttributeError, OSError):
            # Until it is reaped, the process keeps its pid, so killing the group cannot hit another process.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            _tell(loop, self.exited)
            self._reap.wait()
        self._process.wait()
        _tell(loop, self.exited)
        _tell(loop, self.reaped)

    async def end(self, closed: asyncio.Event, *, grace: float = GRACE, drain: float = DRAIN) -> None:
        """Ends all processes: SIGTERM, after `grace` seconds SIGKILL. Reaps the command and reads the output to its
        end, which sets `closed`.

        Call it only once: afterwards another group may have this group's number.
        """
        leader = self._inner_leader()
        if leader is None:
            self._signal(signal.SIGTERM)
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGTERM)
        await within(grace, self.exited.wait(), closed.wait())
        self._signal(signal.SIGKILL)
        self._reap.set()
        await self.reaped.wait()
        await within(drain, closed.wait())

    def kill(self) -> None:
        """Kills a command that must not begin."""
        self._signal(signal.SIGKILL)
        self._reap.set()

    def _inner_leader(self) -> int | None:
        """The leader of the processes inside a boundary, which has a group of its own; None without one."""
        if self._leader_info is None:
            return None
        descriptor, self._leader_info = self._leader_info, None
        try:
            os.set_blocking(descriptor, False)
            return int(json.loads(os.read(descriptor, 4096))["child-pid"])
        except (OSError, ValueError, KeyError):
            return None  # it is not up yet: then all of it gets the signal
        finally:
            os.close(descriptor)

    def _signal(self, number: signal.Signals) -> None:
        # macOS reports a group of zombies as not permitted.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


async def finished(work: Coroutine[Any, Any, None]) -> None:
    """Awaits work that must finish even if the task is cancelled. Raises the cancellation afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


async def within(seconds: float, *events: Awaitable[object]) -> None:
    """Awaits all `events` for at most `seconds`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*events)


def _tell(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop may be closed by now: then nothing waits
        loop.call_soon_threadsafe(event.set)
