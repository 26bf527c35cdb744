"""Runs `python -m toolspeak` in forks of itself, for forked_commands.py: a process a command, and one import for all.

It reads requests from the socket whose descriptor it is given: JSON (arguments, folder, environment, whether a session
of its own is wanted) with descriptors: the three streams, a pipe for the process's number and its exit code, and maybe
the terminal that is to control the session. It ends when nobody is left who could ask.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import termios
import threading
from typing import Any

from toolspeak.cli.command_table import COMMANDS, load_command

for name in COMMANDS:  # what no fork of this process has to do again
    load_command(name)
for module in (
    "acp.agent_server",
    "gateway.config_check",
    "mcp.serving.mcp_app",
    "tools.argument_reader",
    "tools.docstring",
    "tools.parameter_schema",
    "tools.problems",
):  # imported by commands while they run
    importlib.import_module(f"toolspeak.{module}")


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Returns in the fork that is to be the command, with its request; with None when the requests end."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 5)
        if not data:
            return None
        if os.fork() == 0:
            return fork_watcher(json.loads(data), descriptors)
        for each in descriptors:
            os.close(each)
        reap()


def reap() -> None:
    """Collects the exit codes of the watchers that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def fork_watcher(request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    """Forks once more: somebody has to wait for the command, and the server must hear the next request meanwhile."""
    streams, reports, terminal = descriptors[:3], descriptors[3], descriptors[4:]
    pid = os.fork()
    if pid:
        for each in (*streams, *terminal):
            os.close(each)
        os.write(reports, f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.write(reports, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.close(reports)
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for each in terminal:
        fcntl.ioctl(each, termios.TIOCSCTTY, 0)  # and stays open: a terminal that nobody has open hangs up
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    return request


def stream(number: int, mode: str, like: Any) -> Any:
    """A standard stream on the descriptor that stands there now: whether it is a terminal was asked for another one."""
    return open(number, mode, encoding=like.encoding, errors=like.errors, closefd=False)


def main() -> None:
    # Ctrl-C at the terminal is for the tests; when they end, so do the requests.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # a collection would touch, and so copy, what the forks share
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        request = serve(requests)
    if request is None:
        return
    signal.signal(signal.SIGINT, interrupt)
    sys.stdin = sys.__stdin__ = stream(0, "r", sys.stdin)
    sys.stdout = sys.__stdout__ = stream(1, "w", sys.stdout)
    sys.stderr = sys.__stderr__ = stream(2, "w", sys.stderr)
    sys.path[0] = os.getcwd()
    folders = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[1:1] = [folder for folder in folders if folder not in sys.path]
    sys.argv[1:] = request["arguments"]
    try:
        runpy.run_module("toolspeak", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        # Python's own end takes all modules apart, which copies each page of memory that this fork shares.
        os._exit(error.code or 0)


if __name__ == "__main__":
    main()
