"""Measures what a sandbox adds to the start of a command, beside the plain start in the same run.

    python benchmarks/sandbox.py [--rounds 60]

A round starts `/bin/sh -c :` once in each way, one after the other, and waits for its end: plainly, in Landlock, in
bubblewrap, and in bubblewrap with a list of hosts. Prints milliseconds: the median and the shortest time on the clock,
the median of the processor's time (ours and the command's), and the ratio of the shortest times. The shortest time is
the least disturbed by other programs: exits with 1 if it is more than 25 ms above the plain start's in bubblewrap, or 2
ms in Landlock.

The cost of the confinement is in it: the protected places of a repository with hooks, and control groups where there
are any.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from toolspeak.sandbox.base import Confinement, ProcessCommand, Sandbox
from toolspeak.sandbox.bubblewrap import Bubblewrap
from toolspeak.sandbox.control_groups import ControlGroups
from toolspeak.sandbox.host_rules import HostRule
from toolspeak.sandbox.landlock import Landlock
from toolspeak.sandbox.no_sandbox import NoSandbox
from toolspeak.sandbox.processes import finish_work
from toolspeak.sandbox.protected_places import hidden_places, read_only_places

TARGETS = {"bubblewrap": 25.0, "landlock": 2.0}


async def start(sandbox: Sandbox, folder: Path, confinement: Confinement, nowhere: int) -> tuple[float, float]:
    """The milliseconds from the start of a command to its end, on the clock and of the processor."""
    command = ProcessCommand(("/bin/sh", "-c", ":"), str(folder), {"PATH": os.environ["PATH"]}, nowhere)
    output_end = asyncio.Event()
    output_end.set()  # nobody reads its output
    begin, begin_cpu = time.perf_counter(), cpu_seconds()
    async with sandbox.start(command, confinement) as process:
        await process.group.exit_event.wait()
        await finish_work(process.group.end(output_end))
    return (time.perf_counter() - begin) * 1000, (cpu_seconds() - begin_cpu) * 1000


def cpu_seconds() -> float:
    """The processor's time of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


async def measure(rounds: int, folder: Path) -> int:
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n")
    for name in ("pre-commit", "post-checkout"):
        (hooks / name).write_text("#!/bin/sh\n")
    workspace = (str(folder),)
    plain = Confinement(workspace, read_only_places(workspace), hidden_places(), workspace)
    with_hosts = Confinement(workspace, plain.read_only, plain.hidden_paths, workspace, (HostRule("example.com", 443),))
    groups = await ControlGroups.find()
    ways: dict[str, tuple[Sandbox, Confinement]] = {"plain": (NoSandbox(), plain)}
    if sys.platform == "linux" and not await Landlock.probe():
        ways["landlock"] = (Landlock(groups), plain)
    program = shutil.which("bwrap")
    if program is not None and not await Bubblewrap.probe(program):
        bubblewrap = Bubblewrap(program, sys.executable, groups)
        ways |= {"bubblewrap": (bubblewrap, plain), "bubblewrap + hosts": (bubblewrap, with_hosts)}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in range(rounds + 3):
            for name, (sandbox, confinement) in ways.items():
                took = await start(sandbox, folder, confinement, nowhere)
                if number >= 3:  # the first rounds warm up
                    times[name].append(took)
    finally:
        os.close(nowhere)
        for sandbox, _ in ways.values():
            await sandbox.aclose()
    floor, failures = min(wall for wall, _ in times["plain"]), 0
    print(f"control groups: {'yes' if groups else 'no'}; {rounds} rounds, milliseconds")
    print(f"{'':20} {'median':>8} {'shortest':>8} {'added':>8} {'cpu':>8} {'ratio':>6}")
    for name, each in times.items():
        shortest = min(wall for wall, _ in each)
        median, cpu = (statistics.median(column) for column in zip(*each, strict=True))
        target = TARGETS.get(name)
        is_missed = target is not None and shortest - floor > target
        failures += is_missed
        note = "" if target is None else f"  target {target:g}{', MISSED' if is_missed else ''}"
        overhead = shortest - floor
        print(f"{name:20} {median:8.2f} {shortest:8.2f} {overhead:8.2f} {cpu:8.2f} {shortest / floor:6.1f}{note}")
    return 1 if failures else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    folder = Path(tempfile.mkdtemp(prefix="sandbox-bench-")).resolve()
    try:
        sys.exit(asyncio.run(measure(parser.parse_args().rounds, folder)))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
