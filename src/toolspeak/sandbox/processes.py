"""Runs a command as a group of processes that never outlives its call (POSIX)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL, so that a process can clean up."""

DRAIN = 1.0
"""Seconds to continue reading after the group has ended. Only a process that left the group can keep the pipe open."""


_STOP_SECONDS = 0.1
"""How long a thread may go on after a signal that stops its process."""

_SENDERS: set[Callable[[signal.Signals], None]] = set()
"""Send a signal to each command that runs."""


@contextmanager
def stopped_with_program(send: Callable[[signal.Signals], None]) -> Generator[None]:
    """While in it, a command that has a session of its own is stopped and goes on with this program. `send`: sends it a
    signal."""
    _SENDERS.add(send)
    try:
        yield
    finally:
        _SENDERS.discard(send)


def stop_program() -> None:
    """Stops this program with its commands, as Ctrl-Z at a terminal does, until the shell continues it. Call it in the
    main thread (POSIX).

    The terminal does not stop the commands: each has a session of its own. There SIGTSTP has no effect, so they get
    SIGSTOP.
    """
    for send in tuple(_SENDERS):
        send(signal.SIGSTOP)
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.kill(0, signal.SIGTSTP)  # the whole group: whatever feeds this program stops, too
        time.sleep(_STOP_SECONDS)  # another thread may take the signal: then this one stops a moment later
    finally:
        signal.signal(signal.SIGTSTP, before)
        for send in tuple(_SENDERS):
            send(signal.SIGCONT)


class ProcessOutput(asyncio.Protocol):
    """Passes the bytes of a pipe on; sets `output_end` at its end."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self.output_end = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.output_end.set()


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
        self._leader_info, self._leader = leader_info, 0
        self._stopped_at = self._seconds_stopped = 0.0
        _SENDERS.add(self._stop_or_continue)
        self.input, self.output, self.errors = self._process.stdin, self._process.stdout, self._process.stderr
        self._reap = threading.Event()
        self.exit_event = asyncio.Event()
        self.reap_event = asyncio.Event()
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
            _tell(loop, self.exit_event)
            self._reap.wait()
        self._process.wait()
        _tell(loop, self.exit_event)
        _tell(loop, self.reap_event)

    async def exits_within(self, seconds: float) -> bool:
        """Whether the command exits within so many seconds. The time for which it is stopped does not count."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self.exit_event.is_set():
            rest = began + seconds + self._seconds_stopped - loop.time()
            if rest <= 0:
                return False
            await within(rest, self.exit_event.wait())
        return True

    def left_commands(self) -> list[str]:
        """The command lines of the processes that still run once the command has exited, and that `end` ends. Empty
        where the system has no `/proc`, and of processes that a boundary has ended with the command."""
        lines: list[str] = []
        with suppress(OSError):
            # The processes of a command are younger than it: the many older ones need no look.
            for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) > self.pid):
                with suppress(OSError, ValueError):
                    place = Path("/proc", str(pid))
                    name, _, rest = place.joinpath("stat").read_text(errors="replace").rpartition(")")
                    state, _, group, *_ = rest.split()
                    if int(group) == self.pid and state not in ("Z", "X"):
                        words = place.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
                        lines.append(" ".join(words).strip() or name.partition("(")[2])
        return lines

    async def end(self, output_end: asyncio.Event, *, grace: float = GRACE, drain: float = DRAIN) -> None:
        """Ends all processes: SIGTERM, after `grace` seconds SIGKILL. Reaps the command and reads the output to its
        end, which sets `output_end`.

        Call it only once: afterwards another group may have this group's number.
        """
        _SENDERS.discard(self._stop_or_continue)
        self._signal_inside(signal.SIGTERM)
        if self._leader_info is not None:
            os.close(self._leader_info)
            self._leader_info = None
        await within(grace, self.exit_event.wait(), output_end.wait())
        self._signal(signal.SIGKILL)
        self._reap.set()
        await self.reap_event.wait()
        await within(drain, output_end.wait())

    def kill(self) -> None:
        """Kills a command that must not begin."""
        _SENDERS.discard(self._stop_or_continue)
        self._signal(signal.SIGKILL)
        self._reap.set()

    def _stop_or_continue(self, number: signal.Signals) -> None:
        if number == signal.SIGSTOP:
            self._stopped_at = time.monotonic()
        else:
            self._seconds_stopped += time.monotonic() - self._stopped_at
            self._signal(number)  # the boundary may have been stopped before it was up
        self._signal_inside(number)

    def _signal_inside(self, number: signal.Signals) -> None:
        """Sends a signal to the processes inside a boundary, which have a group of their own; without a boundary, and
        before it is up, to all."""
        if not self._leader and self._leader_info is not None:
            with suppress(OSError, ValueError, KeyError):
                os.set_blocking(self._leader_info, False)
                self._leader = int(json.loads(os.read(self._leader_info, 4096))["child-pid"])
        if not self._leader:
            self._signal(number)
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, number)

    def _signal(self, number: signal.Signals) -> None:
        # macOS reports a group of zombies as not permitted.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


async def finish_work(work: Coroutine[Any, Any, None]) -> None:
    """Awaits work that must finish even if the task is cancelled. Raises the cancellation afterwards."""
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation
    task.result()


async def within(seconds: float, *events: Awaitable[object]) -> None:
    """Awaits all `events` for at most `seconds`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*events)


def _tell(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop may be closed by now: then nothing waits
        loop.call_soon_threadsafe(event.set)
