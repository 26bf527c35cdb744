"""The contract of a sandbox: it starts a command, which may touch only what a confinement says."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Literal, Protocol, TypeAlias

from toolspeak.data.values import quick
from toolspeak.sandbox.host_rules import HostRule
from toolspeak.sandbox.processes import Group

SandboxMode: TypeAlias = Literal["required", "auto", "off"]
"""Whether commands need a sandbox. required: none starts without one; auto: use the best that there is; off: use
none."""

GIBIBYTE = 1 << 30


@quick()
class ProcessLimits:
    """What a command and everything that it starts may use. None: as much as the system lets it.

    - `processes`: how many there may be at the same time, with their threads.
    - `memory`: bytes. Together where the system has control groups for it, else each process on its own.
    - `file_size`: the bytes of the largest file that it may write.
    - `cpu_seconds`: the time of each process.

    The time on the clock is the caller's: it ends the command.
    """

    processes: int | None = 1024
    memory: int | None = 8 * GIBIBYTE
    file_size: int | None = 8 * GIBIBYTE
    cpu_seconds: int | None = 3600


@quick()
class Confinement:
    """What a command may touch. All paths are absolute and real.

    - `writable`: the files and folders that it may change. It has a folder for temporary files of its own besides.
    - `read_only`: what it may not change although it lies in a writable folder. A path that does not exist stays so.
    - `hidden_paths`: the files and folders that it may not read.
    - `readable`: what it may read although it lies in a folder that a sandbox leaves out, such as /tmp.
    - `hosts`: the hosts that it may reach through the proxy; () is no network, None is the network as it is.
    - `limits`: what it may use.
    """

    writable: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    hidden_paths: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hosts: tuple[HostRule, ...] | None = ()
    limits: ProcessLimits = ProcessLimits()


@quick()
class ProcessCommand:
    """A command to start: its arguments, folder and environment, and its standard streams, which are descriptors or
    `subprocess.PIPE`."""

    arguments: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    output: int
    errors: int = subprocess.STDOUT
    input: int = subprocess.DEVNULL


@quick(frozen=False, eq=False)
class ConfinedProcess:
    """A command that runs. `notes` are sentences for the result, complete when the context has ended: a host that was
    refused, a protected file that was put back."""

    group: Group
    notes: list[str] = field(default_factory=list[str])


class Sandbox(Protocol):
    """Starts commands inside a boundary. It belongs to one agent, and is closed with it."""

    @property
    def level(self) -> str:
        """The name of the boundary, such as "bubblewrap". "none": there is none. Every record of a call that starts
        processes holds it."""
        ...

    @property
    def gaps(self) -> tuple[str, ...]:
        """What this boundary does not stop here, each a phrase for the person."""
        ...

    @property
    def filters_hosts(self) -> bool:
        """Whether commands can have a list of hosts. Without that they have no network if there is a list."""
        ...

    def start(self, command: ProcessCommand, confinement: Confinement) -> AbstractAsyncContextManager[ConfinedProcess]:
        """Starts the command. The caller ends its group (`Group.end`) before it leaves the context.

        Raises SandboxError if the confinement cannot be kept, and OSError if the command cannot be started.
        """
        ...

    async def aclose(self) -> None:
        """Removes the folder for temporary files."""
        ...
