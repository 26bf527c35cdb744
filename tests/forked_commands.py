"""The command in a process of its own, forked from one that has made its imports: they are most of what it costs.

Arguments, streams, folder, environment, session, terminal, signals and the exit code are those of a process that was
started. tests/cli/test_cli_fresh_process.py and the tests of `serve` and of the README start it from nothing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

SERVER = Path(__file__).with_name("fork_server.py")


@functools.cache
def _server() -> socket.socket:
    """Where to ask. The process ends with this one, which holds the only other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, SERVER, str(theirs.fileno())]
        nothing = subprocess.DEVNULL
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=nothing, stdout=nothing)
    server.returncode = 0  # nobody waits for it, and Popen need not say so
    return ours


class Command:
    """`python -m toolspeak ARGUMENTS`, running; the streams are descriptors."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        streams: Sequence[int],
        session: bool = False,
        terminal: int | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._reports, theirs = os.pipe()
        request = {"arguments": arguments, "cwd": str(cwd), "env": dict(os.environ if env is None else env)}
        request["session"] = session or terminal is not None
        descriptors = [*streams, theirs, *([] if terminal is None else [terminal])]
        try:
            socket.send_fds(_server(), [json.dumps(request).encode()], descriptors)
        finally:
            os.close(theirs)
        self.pid = int(self._line())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._reports], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float = 120) -> int:
        """Its exit code, which is that of `subprocess`: minus the number of the signal that ended it."""
        if self.returncode is None:
            if not select.select([self._reports], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("toolspeak", timeout)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            # The server may have waited for it, and not yet written the report.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = int(self._line())
        os.close(self._reports)

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self._reports, 1)
            assert byte, "the server of forks has ended: see its messages in the output of the tests"
            line += byte
        return line


class PipedCommand(Command):
    """A `Command` at pipes, with the attributes of `subprocess.Popen`. Without `has_input` it reads nothing.

    `text`: its streams carry text, and no bytes.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        session: bool = False,
        has_input: bool = False,
        text: bool = True,
    ) -> None:
        def ours(descriptor: int, mode: str) -> IO[Any]:
            return open(descriptor, mode, encoding="utf-8") if text else open(descriptor, f"{mode}b")

        input_end, input_start = os.pipe()
        output_end, output_start = os.pipe()
        error_end, error_start = os.pipe()
        try:
            streams = (input_end, output_start, error_start)
            super().__init__(arguments, cwd=cwd, env=env, streams=streams, session=session)
        finally:
            for each in streams:
                os.close(each)
        self._rest: tuple[Any, Any] | None = None
        self.stdin, self.stdout, self.stderr = ours(input_start, "w"), ours(output_end, "r"), ours(error_end, "r")
        if not has_input:
            self.stdin.close()

    def communicate(self, timeout: float = 120) -> tuple[Any, Any]:
        """The rest of what it writes, once it has ended."""
        if self._rest is None:
            self.stdin.close()
            with self.stdout, self.stderr, ThreadPoolExecutor(1) as threads:
                errors = threads.submit(self.stderr.read)
                self._rest = (self.stdout.read(), errors.result())
        self.wait(timeout)
        return self._rest


def completed_process(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    session: bool = False,
    seconds: float = 120,
) -> subprocess.CompletedProcess[bytes]:
    """What `subprocess.run` returns. `session`: in one of its own, in which there is no terminal to ask at."""
    with tempfile.TemporaryFile() as input_file, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        input_file.write(stdin)
        input_file.seek(0)
        streams = (input_file.fileno(), out.fileno(), err.fileno())
        command = Command(arguments, cwd=cwd, env=env, streams=streams, session=session)
        try:
            command.wait(seconds)
        finally:
            command.kill()
        return subprocess.CompletedProcess(arguments, command.returncode, _whole(out), _whole(err))


def completed_text(arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """As `completed_process`, with the output decoded and its lines ending in line feeds."""
    process = completed_process(arguments, **options)
    out, err = (part.decode("utf-8").replace("\r\n", "\n") for part in (process.stdout, process.stderr))
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
