"""The process that searches: it ends whatever becomes of the one that started it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys

import pytest
from process_helpers import gone, until

from patience import in_time
from toolspeak.errors import ToolError
from toolspeak.tools.files import search_worker
from toolspeak.tools.files.search import Searcher

SLOW = {"pattern": "(a+)+$", "max_line": 10_000}
TEXT = b"a" * 5_000 + b"b\n"

# A program that uses the library: it cancels a search in the middle and then ends as it is told to.
PROGRAM = """
import asyncio, os, subprocess, sys
from toolspeak.data.messages import ToolCall
from toolspeak.execute import BatchContext, Executor, approve_all
from toolspeak.tools import Toolset
from toolspeak.tools.builtin import Workspace, find_tool

how, root = sys.argv[1:]

async def emit(event): ...

def worker():
    '''The searching process of this one.'''
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return next((pid for pid, parent, line in rows if parent == str(os.getpid()) and "search_worker" in line), None)

def is_busy(pid):
    '''Whether it took more processor time than its start takes; ps on Linux knows whole seconds only.'''
    if os.path.exists("/proc/self/stat"):
        try:
            with open(f"/proc/{pid}/stat") as file:
                return int(file.read().rpartition(")")[2].split()[11]) > 20
        except OSError:  # it has ended meanwhile
            return False
    time = subprocess.run(["ps", "-o", "time=", "-p", pid], capture_output=True, text=True).stdout
    return any(digit in time for digit in "123456789")

async def main():
    executor = Executor(Toolset([find_tool(Workspace(root), seconds_per_file=7)]))
    calls = [ToolCall("c", "find", {"content": "(a+)+$"})]
    pid = None
    while not pid:  # until it is in the middle of `re`; a machine may stand still for those seconds
        search = asyncio.create_task(
            executor.run(calls, emit=emit, context=BatchContext("r"), approver=approve_all)
        )
        while not search.done() and not ((pid := worker()) and is_busy(pid)):
            await asyncio.sleep(0.05)
        if search.done():
            pid = None
            assert "took more than" in str(search.result()), search
    print(pid, flush=True)
    if how == "killed":
        os._exit(0)
    search.cancel()
    await asyncio.wait([search])
    while how == "stays" and worker():
        await asyncio.sleep(0.05)

asyncio.run(main())
"""


def start(ends: str, root) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, ends, str(root)], stdout=subprocess.PIPE, text=True)


@pytest.mark.over_a_second
def test_no_search_outlives_the_program_that_started_it(root):
    (root / "a.txt").write_bytes(TEXT)
    programs = [start(ends, root) for ends in ("stays", "returns", "killed")]
    try:
        for program in programs:
            output, _ = program.communicate(timeout=120)
            assert program.returncode == 0
            pid = int(output)
            asyncio.run(until(lambda pid=pid: gone(pid), f"{program.args[3]}: the search goes on"))
    finally:
        for program in programs:
            program.kill()
            program.communicate()


def ignore_the_alarm() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})


@pytest.mark.parametrize("before", [None, ignore_the_alarm])
def test_the_process_ends_inside_the_expression_though_nobody_watches_it(before):
    def attempt(seconds: float) -> None:
        worker = subprocess.Popen(
            [sys.executable, "-I", "-S", search_worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=before,
        )
        try:
            assert worker.stdin
            assert worker.stdout
            worker.stdin.write(json.dumps({**SLOW, "seconds": seconds}).encode() + b"\n")
            worker.stdin.flush()
            assert json.loads(worker.stdout.readline()) == {"error": None}
            worker.stdin.write(json.dumps({"bytes": len(TEXT), "wanted": 1}).encode() + b"\n" + TEXT)
            worker.stdin.flush()
            assert worker.wait(timeout=120) == -signal.SIGALRM
        finally:
            worker.kill()
            worker.communicate()

    in_time(attempt, 0.3, 5, 60)


@pytest.mark.over_a_second
def test_time_between_two_texts_does_not_count():
    def attempt(seconds: float) -> None:
        with Searcher("b", seconds=seconds, is_cancelled=lambda: False) as searcher:
            assert searcher.search(TEXT, 1).count == 1
            asyncio.run(asyncio.sleep(1.2 * seconds))  # the time itself is what is tested
            assert searcher.search(TEXT, 1).count == 1

    in_time(attempt, 1.5, 10, 30)


def test_any_time_may_be_given():
    with Searcher("b", seconds=float("inf"), is_cancelled=lambda: False) as searcher:
        assert searcher.search(TEXT, 1).count == 1


def test_the_reason_is_told_whoever_stopped_the_search():
    with Searcher(SLOW["pattern"], seconds=0.8, is_cancelled=lambda: False) as searcher:
        with pytest.raises(ToolError, match=r"more than 0\.8 seconds"):
            searcher.search(TEXT, 1)
        with pytest.raises(ToolError, match=r"more than 0\.8 seconds"):
            searcher.search(TEXT, 1)
