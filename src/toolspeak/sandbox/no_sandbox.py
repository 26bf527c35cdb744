"""No boundary: commands have all rights of the user."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from toolspeak.sandbox.base import ConfinedProcess, Confinement, ProcessCommand
from toolspeak.sandbox.processes import Group


class NoSandbox:
    """Starts commands with all rights of the user."""

    level = "none"
    gaps = ("anything that you may do",)
    filters_hosts = False

    @asynccontextmanager
    async def start(self, command: ProcessCommand, confinement: Confinement) -> AsyncGenerator[ConfinedProcess]:
        yield ConfinedProcess(
            Group(
                command.arguments,
                cwd=command.cwd,
                env=command.env,
                output=command.output,
                errors=command.errors,
                input=command.input,
            )
        )

    async def aclose(self) -> None:
        return None
