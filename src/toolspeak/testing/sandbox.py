"""The contract of a sandbox, as checks for a sandbox of your own.

Each check takes `open_sandbox`, a function that opens the sandbox, and raises AssertionError. The commands are those of
a POSIX system with a `python3`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from toolspeak.data.values import quick
from toolspeak.sandbox.base import Confinement, ProcessCommand, ProcessLimits, Sandbox
from toolspeak.sandbox.host_rules import HostRule
from toolspeak.sandbox.processes import ProcessOutput, finish_work
from toolspeak.testing.outside_sockets import OutsideSockets

OpenSandbox: TypeAlias = Callable[[], Awaitable[Sandbox]]
SandboxCheck: TypeAlias = Callable[[OpenSandbox], Awaitable[None]]

_SECONDS = 60.0  # a limit for what hangs
_PYTHON = os.path.realpath(sys.executable or "/usr/bin/python3")


@quick()
class CommandReport:
    """What became of a command."""

    exit_code: int | None
    output: str
    notes: tuple[str, ...]


async def run_command(
    sandbox: Sandbox,
    command: str,
    folder: Path,
    confinement: Confinement,
    *,
    timeout: float = _SECONDS,
    env: dict[str, str] | None = None,
) -> CommandReport:
    """Runs a command line to its end, as the tool `shell` does. At the time limit (seconds) it is ended."""
    output: list[bytes] = []
    read_end, write_end = os.pipe()
    reading = os.fdopen(read_end, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_read_pipe(lambda: ProcessOutput(output.append), reading)
    variables = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", "/"), **(env or {})}
    process_command = ProcessCommand(("/bin/sh", "-c", command), str(folder), variables, write_end)
    try:
        try:
            starting = sandbox.start(process_command, confinement)
            process = await starting.__aenter__()
        finally:
            os.close(write_end)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await process.group.exit_event.wait()
        finally:
            await finish_work(process.group.end(protocol.output_end))
            await starting.__aexit__(None, None, None)
        text = b"".join(output).decode("utf-8", "replace")
        return CommandReport(process.group.exit_code, text, tuple(process.notes))
    finally:
        transport.close()


class _SandboxStage:
    """A workspace, and a folder outside of it."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self.workspace, self.outside = folder / "workspace", folder / "outside"
        for each in (self.workspace, self.outside):
            each.mkdir()
        self.confinement = self.confinement_for((str(self.workspace),))

    def confinement_for(self, writable: tuple[str, ...], **fields: Any) -> Confinement:
        readable = (str(self.workspace), str(self.outside), *fields.pop("readable", ()))
        return Confinement(writable, readable=readable, **fields)

    async def run(self, command: str, confinement: Confinement | None = None, **options: Any) -> CommandReport:
        return await run_command(self.sandbox, command, self.workspace, confinement or self.confinement, **options)


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="sandbox-check-")).resolve()


@asynccontextmanager
async def _stage(open_sandbox: OpenSandbox) -> AsyncGenerator[_SandboxStage]:
    folder = _new_folder()
    sandbox = await open_sandbox()
    try:
        yield _SandboxStage(sandbox, folder)
    finally:
        await sandbox.aclose()
        shutil.rmtree(folder, ignore_errors=True)


async def check_a_command_has_its_folder_streams_and_environment(open_sandbox: OpenSandbox) -> None:
    """And its exit code; it has no input."""
    async with _stage(open_sandbox) as stage:
        report = await stage.run('pwd -P; echo "$NAME"; cat; echo error >&2; exit 7', env={"NAME": "a value"})
        assert (report.exit_code, report.notes) == (7, ()), report
        assert report.output == f"{stage.workspace}\na value\nerror\n", report
        assert (await stage.run("kill -9 $$")).exit_code == 137


async def check_a_command_may_clean_up_at_its_time_limit(open_sandbox: OpenSandbox) -> None:
    """It gets SIGTERM before SIGKILL. What ignores it is killed."""
    async with _stage(open_sandbox) as stage:
        report = await _run_to_its_limit(stage, "trap 'echo cleaned; exit 5' TERM")
        assert report.output.startswith("up\n"), report
        assert report.output.endswith("cleaned\n"), report
        assert report.exit_code == 5, report
        assert (await _run_to_its_limit(stage, "trap '' TERM")).exit_code == 137


async def _run_to_its_limit(stage: _SandboxStage, beginning: str) -> CommandReport:
    """What comes of a command that its time limit ends after its beginning. A busy machine may take longer for that."""
    report = CommandReport(None, "", ())
    for seconds in (1.0, 10.0, _SECONDS):
        report = await stage.run(f"{beginning}; echo up; while :; do sleep 0.05; done", timeout=seconds)
        if report.output:
            break
    return report


async def check_what_runs_in_the_background_ends_with_the_command(open_sandbox: OpenSandbox) -> None:
    async with _stage(open_sandbox) as stage:
        fifo = stage.workspace / "fifo"
        os.mkfifo(fifo)
        # It keeps the FIFO open for writing as long as it lives.
        reading = asyncio.create_task(asyncio.to_thread(fifo.read_bytes))
        background = "(exec 9>fifo; echo open >&9; echo > opened; exec sleep 600) >/dev/null 2>&1 &"
        report = await stage.run(f"{background} while [ ! -e opened ]; do sleep 0.01; done; echo done")
        assert report.output == "done\n", report
        async with asyncio.timeout(_SECONDS):
            assert await reading == b"open\n"


async def check_no_descriptor_stays_open(open_sandbox: OpenSandbox) -> None:
    async with _stage(open_sandbox) as stage:
        await stage.run("true")  # what is opened once
        before = set(os.listdir("/dev/fd"))
        reports = await asyncio.gather(*(stage.run(f"echo {number}") for number in range(8)))
        assert [report.output for report in reports] == [f"{number}\n" for number in range(8)]
        assert set(os.listdir("/dev/fd")) <= before, "descriptors stay open"


async def check_a_command_that_only_reads_changes_nothing(open_sandbox: OpenSandbox) -> None:
    """It can read the workspace and the system, and has a folder for temporary files."""
    async with _stage(open_sandbox) as stage:
        (stage.workspace / "file").write_text("content")
        command = (
            "cat file; ls /usr >/dev/null || exit 3; echo new > file; echo new > other; rm -f file; mkdir folder;"
            ' echo note > "$TMPDIR/note" && cat "$TMPDIR/note"'
        )
        report = await stage.run(command, stage.confinement_for(()))
        assert report.output.startswith("content"), report
        assert report.output.endswith("note\n"), report
        assert [each.name for each in stage.workspace.iterdir()] == ["file"], report
        assert (stage.workspace / "file").read_text() == "content"


async def check_writes_land_where_the_confinement_says(open_sandbox: OpenSandbox) -> None:
    """In a folder or a file that it names, and nowhere else, whatever links there are."""
    async with _stage(open_sandbox) as stage:
        inside, victim = stage.workspace / "inside", stage.outside / "victim"
        inside.mkdir()
        for file in (inside / "kept", stage.workspace / "beside", victim):
            file.write_text("old")
        (inside / "link").symlink_to(stage.outside)
        (inside / "file-link").symlink_to(victim)
        confinement = stage.confinement_for((str(inside), str(stage.workspace / "beside")))
        command = (
            "echo new > inside/kept; echo new > inside/made; echo new > beside; echo new > wrong;"
            f" echo new > inside/link/made; echo new > inside/file-link; echo new > {stage.outside}/made;"
            f" ln {victim} inside/hard && echo new > inside/hard; mv inside/made {stage.outside}/moved; true"
        )
        report = await stage.run(command, confinement)
        assert [(inside / "kept").read_text(), (stage.workspace / "beside").read_text()] == ["new\n"] * 2, report
        assert (inside / "made").exists(), report
        assert victim.read_text() == "old", report
        assert [each.name for each in stage.outside.iterdir()] == ["victim"], report
        assert not (stage.workspace / "wrong").exists(), report


async def check_what_is_read_only_stays_as_it_is(open_sandbox: OpenSandbox) -> None:
    """Although it lies in a folder that may be changed: a file, a folder, and a path where nothing is."""
    async with _stage(open_sandbox) as stage:
        hooks, rules = stage.workspace / "repo" / "hooks", stage.workspace / "rules"
        hooks.mkdir(parents=True)
        (hooks / "kept").write_text("old")
        rules.write_text("old")
        absent = stage.workspace / "absent"
        places = tuple(map(str, (hooks, rules, absent)))
        for command in (
            "echo new > repo/hooks/kept; echo new > repo/hooks/made; echo new > rules; echo new > absent",
            "rm -rf repo; mkdir -p repo/hooks; echo new > repo/hooks/made",
            "mv repo moved; mkdir -p repo/hooks; echo new > repo/hooks/made; echo new > moved/hooks/kept",
            "rm -f rules; echo new > rules; mkdir -p absent/deep; echo new > absent/deep/file",
            "rm -rf repo/hooks; ln -s / repo/hooks; ln -sf /etc/passwd rules; ln -s / absent",
            "chmod 777 rules; python3 -c \"import os; os.truncate('rules', 0)\"; echo free > free",
        ):
            report = await stage.run(command, stage.confinement_for((str(stage.workspace),), read_only=places))
            assert (hooks / "kept").read_text() == "old", (command, report)
            assert [each.name for each in hooks.iterdir()] == ["kept"], (command, report)
            assert rules.read_text() == "old", (command, report)
            assert not rules.is_symlink(), (command, report)
            assert "absent" not in os.listdir(stage.workspace), (command, report)
            shutil.rmtree(stage.workspace / "moved", ignore_errors=True)
        assert (stage.workspace / "free").exists()


async def check_what_is_hidden_cannot_be_read(open_sandbox: OpenSandbox) -> None:
    async with _stage(open_sandbox) as stage:
        folder, file = stage.outside / "keys", stage.outside / "journal"
        folder.mkdir()
        (folder / "key").write_text("a secret")
        file.write_text("a secret")
        (stage.workspace / "link").symlink_to(file)
        command = f"cat {folder}/key {file} link /proc/self/root{file}; cp -r {stage.outside} copy; cat copy/*"
        report = await stage.run(
            command, stage.confinement_for((str(stage.workspace),), hidden_paths=(str(folder), str(file)))
        )
        assert "a secret" not in report.output, report


async def check_there_is_no_network(open_sandbox: OpenSandbox) -> None:
    """Not to this machine's TCP and UDP ports, and not to its sockets in files and in the abstract namespace."""
    async with _stage(open_sandbox) as stage:
        with OutsideSockets(stage.outside) as sockets:
            names = {name: getattr(sockets, name) for name in ("tcp", "udp", "stream", "datagram", "abstract")}
            report = await stage.run(f"{_PYTHON} -I -S - <<'EOF'\n{_ALL_SOCKETS.format(**names)}\nEOF")
            assert report.exit_code == 0, report
            assert report.output.split() == [], report
            assert sockets.arrivals() == [], report


async def check_a_list_of_hosts_lets_those_through_and_no_other(open_sandbox: OpenSandbox) -> None:
    """Through a proxy that the environment names. A refused host is in the notes, with how to allow it."""
    async with _stage(open_sandbox) as stage:
        if not stage.sandbox.filters_hosts:
            return
        with OutsideSockets(stage.outside) as sockets:
            rule = HostRule("localhost", sockets.tcp)
            command = f"{_PYTHON} -I -S - <<'EOF'\n{_THROUGH_PROXY.format(port=sockets.tcp)}\nEOF"
            report = await stage.run(command, stage.confinement_for((), hosts=(rule,)))
        assert report.output.split() == ["200", "hello", "403", "403", "direct:refused"], report
        assert len(report.notes) == 2, report
        assert "`--allow-net example.invalid:443`" in report.notes[0], report
        assert "`--allow-net localhost:1`" in report.notes[1], report


async def check_processes_outside_are_out_of_reach(open_sandbox: OpenSandbox) -> None:
    """No signal reaches them, and their environment and memory cannot be read."""
    async with _stage(open_sandbox) as stage:
        victim = await asyncio.create_subprocess_exec("/bin/sleep", "600", env={"SECRET": "a secret"})
        try:
            pid = victim.pid
            command = f"kill -9 {pid}; cat /proc/{pid}/environ; for each in /proc/[0-9]*; do cat $each/environ; done"
            report = await stage.run(command)
            assert "a secret" not in report.output, report
            assert victim.returncode is None, report
        finally:
            with suppress(ProcessLookupError):
                victim.kill()
            await victim.wait()


async def check_limits_hold(open_sandbox: OpenSandbox) -> None:
    """On a file's size and the time of the processor. Those on processes and memory depend on the system."""
    async with _stage(open_sandbox) as stage:
        limits = ProcessLimits(processes=None, memory=None, file_size=100_000, cpu_seconds=1)
        confinement = stage.confinement_for((str(stage.workspace),), limits=limits)
        report = await stage.run("head -c 300000 /dev/zero > large", confinement)
        assert report.exit_code != 0, report
        assert (stage.workspace / "large").stat().st_size <= 100_000, report
        report = await stage.run(f"{_PYTHON} -I -S -c 'while True: pass'", confinement)
        assert report.exit_code not in (0, None), report


async def check_the_calls_of_a_sandbox_do_not_meet(open_sandbox: OpenSandbox) -> None:
    """Commands that run at the same time have the confinement that each was started with."""
    async with _stage(open_sandbox) as stage:
        folders = [stage.workspace / str(number) for number in range(4)]
        for folder in folders:
            folder.mkdir()
        every = " ".join(f"{folder.name}/made" for folder in folders)
        await asyncio.gather(
            *(
                stage.run(f"for each in {every}; do echo > $each; done", stage.confinement_for((str(each),)))
                for each in folders[:2]
            )
        )
        assert [(folder / "made").exists() for folder in folders] == [True, True, False, False]


PROCESS_CHECKS: tuple[SandboxCheck, ...] = (
    check_a_command_has_its_folder_streams_and_environment,
    check_a_command_may_clean_up_at_its_time_limit,
    check_what_runs_in_the_background_ends_with_the_command,
)
"""What holds without a boundary too."""

SANDBOX_CHECKS: tuple[SandboxCheck, ...] = (
    *PROCESS_CHECKS,
    check_no_descriptor_stays_open,
    check_a_command_that_only_reads_changes_nothing,
    check_writes_land_where_the_confinement_says,
    check_what_is_read_only_stays_as_it_is,
    check_what_is_hidden_cannot_be_read,
    check_there_is_no_network,
    check_a_list_of_hosts_lets_those_through_and_no_other,
    check_processes_outside_are_out_of_reach,
    check_limits_hold,
    check_the_calls_of_a_sandbox_do_not_meet,
)
"""All checks of a boundary."""

_ALL_SOCKETS = """
import socket
families = [(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {tcp})),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", {udp})),
            (socket.AF_INET6, socket.SOCK_STREAM, ("::1", {tcp})),
            (socket.AF_INET6, socket.SOCK_DGRAM, ("::1", {udp})),
            (socket.AF_UNIX, socket.SOCK_STREAM, "{stream}"),
            (socket.AF_UNIX, socket.SOCK_DGRAM, "{datagram}"),
            (socket.AF_UNIX, socket.SOCK_STREAM, "\\0{abstract}")]
for family, kind, address in families:
    try:
        with socket.socket(family, kind) as one:
            one.settimeout(5)
            one.connect(address)
            one.sendall(b"escaped")
    except OSError:
        pass
"""

_THROUGH_PROXY = """
import os, socket
def ask(host, port):
    proxy = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
    with socket.create_connection((proxy[0], int(proxy[1])), 20) as one:
        one.sendall(f"CONNECT {{host}}:{{port}} HTTP/1.1\\r\\nHost: {{host}}\\r\\n\\r\\n".encode())
        answer = b""
        while b"\\r\\n\\r\\n" not in answer or (b" 200 " in answer and not answer.endswith(b"hello")):
            answer += one.recv(4096) or exit("the proxy closed the connection")
        print(answer.split()[1].decode())
        if b" 200 " in answer:
            print("hello")
ask("localhost", {port})
ask("example.invalid", 443)
ask("localhost", 1)
try:
    socket.create_connection(("127.0.0.1", {port}), 5)
except OSError:
    print("direct:refused")
"""
