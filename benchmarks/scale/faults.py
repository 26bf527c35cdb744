"""What goes wrong while `measure.py soak --faults` runs: workers stand still, the CPU is taken, the database pauses."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

EVERY_SECONDS = 30.0
STANDSTILL_SECONDS = 6.0  # longer than any engine trusts a silent worker of its own
PAUSE_SECONDS = 6.0
STARVING_SECONDS = 20.0
BUSY_PROCESSES = 4


class Faults:
    """One fault every half minute, in turn, until `end`. `counts` says how many of each."""

    def __init__(self, workers: Sequence[int], postmaster: int) -> None:
        self._workers, self._postmaster = workers, postmaster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.counts: Counter[str] = Counter()
        self._thread.start()

    def _run(self) -> None:
        kinds = [self._stop_worker, self._starve, *([self._pause_database] if self._postmaster else [])]
        for act in itertools.cycle(kinds):
            if self._stop.wait(EVERY_SECONDS):
                return
            act()
            self.counts[act.__name__.strip("_").replace("_", " ")] += 1

    def _stop_worker(self) -> None:
        _stop([self._workers[sum(self.counts.values()) % len(self._workers)]], STANDSTILL_SECONDS)

    def _starve(self) -> None:
        """Processes of the same priority that take all of the CPU that they get."""
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_PROCESSES)]
        try:
            self._stop.wait(STARVING_SECONDS)
        finally:
            for process in busy:
                process.kill()
                process.wait()

    def _pause_database(self) -> None:
        processes = [self._postmaster]
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if int(stat.read_text().rpartition(") ")[2].split()[1]) == self._postmaster:
                    processes.append(int(stat.parent.name))
        _stop(processes, PAUSE_SECONDS)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def _stop(processes: Sequence[int], seconds: float) -> None:
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        if number == signal.SIGSTOP:
            time.sleep(seconds)
