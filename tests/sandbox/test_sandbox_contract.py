"""Every sandbox keeps the contract of `toolspeak.testing.sandbox`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_levels import LEVELS, open_level

from toolspeak.sandbox.base import Confinement, ProcessLimits
from toolspeak.sandbox.control_groups import ControlGroups
from toolspeak.sandbox.no_sandbox import NoSandbox
from toolspeak.testing.sandbox import PROCESS_CHECKS, SANDBOX_CHECKS, CommandReport, run_command


@pytest.mark.parametrize("level", LEVELS)
def test_processes_and_memory_have_a_limit_where_the_system_counts_them(level: str, tmp_path: Path):
    opens = open_level(level)

    async def main() -> tuple[CommandReport, CommandReport]:
        if os.geteuid() == 0 and await ControlGroups.find() is None:
            pytest.skip("root has no limit of processes without control groups")
        sandbox = await opens()
        limits = ProcessLimits(processes=30, memory=200 << 20)
        confinement = Confinement((str(tmp_path),), readable=(str(tmp_path),), limits=limits)
        many = "for each in $(seq 100); do sleep 5 & done; wait; echo all"
        large = f"{sys.executable} -I -S -c 'print(len(bytearray(500 << 20)))'"
        try:
            return (
                await run_command(sandbox, many, tmp_path, confinement),
                await run_command(sandbox, large, tmp_path, confinement),
            )
        finally:
            await sandbox.aclose()

    forks, memory = asyncio.run(main())
    assert "ork" in forks.output, forks  # "Cannot fork", "fork: Resource temporarily unavailable"
    assert str(500 << 20) not in memory.output, memory


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_a_command_outlives_the_thread_that_started_it(level: str, tmp_path: Path):
    """A command may begin before that thread has ended, where other programs take the processors."""
    opens = open_level(level)

    async def main() -> list[int | None]:
        sandbox = await opens()
        try:
            confinement = Confinement((), readable=(str(tmp_path),))
            return [(await run_command(sandbox, "true", tmp_path, confinement)).exit_code for _ in range(100)]
        finally:
            await sandbox.aclose()

    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * (os.cpu_count() or 1))]
    try:
        assert set(asyncio.run(main())) == {0}
    finally:
        for each in others:
            each.kill()
            each.wait()


COMMANDS = [
    "",
    "exit 3",
    "# nothing",
    "echo $0 $# $- ${toolspeak_gate-no}; set | grep -c toolspeak_gate",
    "cat; read -r line; echo $? $line",
    "no-such-program",
    "echo one\nno-such-program\necho three >&2",
    "if",
    ") echo",
    "; echo",
    "cat <<E\nin a document\nE",
    "{ echo a; exit 4; } | cat; echo $?",
    "f() { return 5; }; f",
    "echo \"a 'b\" 'c \"d' \\\\e",
    "exec 3<&0; cat <&3; trap 'echo end' EXIT; kill -TERM $$",
    "set -eu; false; echo no",
    "line=1; export line; sh -c 'echo $line'",
    "exec sh -c 'echo $0 $1' name value",
    "echo $LINENO\necho $LINENO",
]


@pytest.mark.parametrize("level", LEVELS)
def test_a_shells_command_does_what_it_does_without_a_boundary(level: str, tmp_path: Path):
    """The shell waits at its gate before that. Nothing of the gate is left in it, and no line of it is counted."""
    opens = open_level(level)

    async def main() -> list[tuple[str, CommandReport, CommandReport]]:
        sandbox, confinement = await opens(), Confinement((str(tmp_path),), readable=(str(tmp_path),))
        try:
            return [
                (
                    command,
                    await run_command(sandbox, command, tmp_path, confinement),
                    await run_command(NoSandbox(), command, tmp_path, confinement),
                )
                for command in COMMANDS
            ]
        finally:
            await sandbox.aclose()

    for command, inside, outside in asyncio.run(main()):
        assert inside == outside, command


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("check", SANDBOX_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check, level: str):
    asyncio.run(check(open_level(level)))


@pytest.mark.over_a_second
@pytest.mark.parametrize("check", PROCESS_CHECKS, ids=lambda check: check.__name__)
def test_without_a_boundary_processes_start_and_end_in_the_same_way(check):
    async def open_sandbox() -> NoSandbox:
        return NoSandbox()

    asyncio.run(check(open_sandbox))


@pytest.mark.parametrize("check", SANDBOX_CHECKS[len(PROCESS_CHECKS) + 1 :], ids=lambda check: check.__name__)
def test_each_check_of_the_boundary_finds_that_there_is_none(check):
    async def open_sandbox() -> NoSandbox:
        return NoSandbox()

    if check.__name__ == "check_a_list_of_hosts_lets_those_through_and_no_other":
        pytest.skip("without a boundary there are no lists of hosts, and the check asks for none")
    with pytest.raises(AssertionError):
        asyncio.run(check(open_sandbox))
