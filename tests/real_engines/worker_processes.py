"""Workers in processes of their own, and what they say."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
WAIT_SECONDS = 90.0  # a limit for what hangs; nothing is measured by it


@dataclass(frozen=True)
class Report:
    """One line of a worker."""

    event: str
    run: str
    attempt: int
    time: float
    pid: int


class Workers:
    """Processes of one program. `wait_for` reads what they say, in the order in which it comes."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.prefix: list[str] = []
        self.arguments = [sys.executable, str(HERE / program), *arguments]
        self._lines: queue.Queue[Report] = queue.Queue()
        self.reports: list[Report] = []
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def start(self) -> int:
        """Starts a worker. Returns its process id once it works."""
        process = subprocess.Popen([*self.prefix, *self.arguments], stdout=subprocess.PIPE, text=True)
        self.processes[process.pid] = process
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        self.wait_for(lambda report: report.event == "started" and report.pid == process.pid)
        return process.pid

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._lines.put(Report(**json.loads(line)))

    def wait_for(self, condition: Callable[[Report], bool]) -> Report:
        """The next report that is wanted. It and the reports before it go to `reports`."""
        while True:
            try:
                report = self._lines.get(timeout=WAIT_SECONDS)
            except queue.Empty:
                raise AssertionError("the workers are silent; they said " + str(self.reports[-10:])) from None
            self.reports.append(report)
            if condition(report):
                return report

    def read_all(self) -> None:
        """Adds what the workers have reported until now to `reports`."""
        while not self._lines.empty():
            self.reports.append(self._lines.get())

    def event(self, event: str, run: str) -> Report:
        return self.wait_for(lambda report: (report.event, report.run) == (event, run))

    def kill(self, pid: int) -> None:
        process = self.processes.pop(pid)
        process.kill()
        process.wait()

    def drain(self, pid: int) -> None:
        """Waits until a worker that was told to end has ended."""
        self.wait_for(lambda report: (report.event, report.pid) == ("ended", pid))
        assert self.processes.pop(pid).wait(timeout=WAIT_SECONDS) == 0

    def send(self, pid: int, number: signal.Signals) -> None:
        self.processes[pid].send_signal(number)

    def end(self) -> None:
        """Ends all, and waits for them."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=WAIT_SECONDS)
            finally:
                process.kill()
        codes = [process.returncode for process in self.processes.values()]
        self.processes.clear()
        assert codes == [0] * len(codes), f"a worker ended with an error: {codes}"
