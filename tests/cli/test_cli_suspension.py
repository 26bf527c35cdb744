"""Ctrl-Z while a command of a tool runs, in a shell with job control: the command stops and goes on with toolspeak."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest
from terminal_harness import DEADLINE, environment

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the test reads /proc")

SCRIPT = "set -m; {python} -m toolspeak {arguments}; echo STOP''PED; read line; fg; echo EN''DED"


class JobShell:
    """A shell at a pseudo-terminal that runs toolspeak as its job, waits for a line once that has stopped, and then
    continues it."""

    def __init__(self, folder: Path, arguments: str) -> None:
        script = SCRIPT.format(python=sys.executable, arguments=arguments)
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve("/bin/sh", ["/bin/sh", "-c", script], environment())
        self.screen = ""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def read_until(self, text: str) -> None:
        end = time.monotonic() + DEADLINE
        while text not in self.screen:
            assert select.select([self._master], [], [], max(0.0, end - time.monotonic()))[0], self.screen
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the last process has closed the terminal
                data = b""
            assert data, f"{text!r} did not appear in {self.screen!r}"
            self.screen += data.decode("utf-8", "replace")

    def close(self) -> None:
        os.close(self._master)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def states_of(command: str) -> list[str]:
    """The states of the processes that run a command line, as the kernel names them: T is stopped."""
    states: list[str] = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and (place / "cmdline").read_bytes() == f"/bin/sh\0-c\0{command}\0".encode():
                states.append((place / "stat").read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue  # it has ended
    return states


@pytest.mark.over_a_second
@pytest.mark.parametrize(
    ("start", "sandbox"),
    [("run Go.", "off"), ("run Go.", "auto"), ("chat", "off")],
    ids=["run", "in a sandbox", "chat"],
)
def test_a_command_stops_and_goes_on_with_the_program(tmp_path: Path, start: str, sandbox: str):
    folder = tmp_path / "work"
    folder.mkdir()
    command = f"touch begun; while [ ! -e go ]; do sleep 0.05; done; echo {tmp_path.name} is done > end"
    turns = [{"text": "", "calls": [{"name": "shell", "arguments": {"command": command}}]}, "All of it is done."]
    (tmp_path / "book.json").write_text(json.dumps({"turns": turns, "follow": True}))
    model = f"scripted:{tmp_path / 'book.json'}"
    shell = JobShell(
        folder, f"{start} --model {model} --approve all --sandbox {sandbox} --journal {tmp_path / 'runs.db'}"
    )
    try:
        if start == "chat":
            shell.read_until("your turn")
            shell.type("Go.\r")
        end = time.monotonic() + DEADLINE
        while not (folder / "begun").exists():
            assert time.monotonic() < end, shell.screen
            time.sleep(0.01)
        shell.type("\x1a")
        shell.read_until("STOPPED")
        # A shell that has just forked (vfork) is D: it waits for its child, which is stopped.
        while "T" not in (states := states_of(command)) or not {"T", "D"}.issuperset(states):
            assert time.monotonic() < end, (states, shell.screen)
            time.sleep(0.01)  # the kernel tells nobody
        shell.type("\n")
        (folder / "go").touch()
        shell.read_until("All of it is done.")
        assert (folder / "end").exists()
        if start == "chat":
            shell.type("\x04")
        shell.read_until("ENDED")
    finally:
        shell.close()
