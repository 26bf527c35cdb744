"""No boundary: commands have all rights of the user."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from toolspeak.errors import SandboxError
from toolspeak.sandbox.base import ConfinedProcess, Confinement, ProcessCommand
from toolspeak.sandbox.processes import Group


class Unconfined:
    """Starts commands with all rights of the user. `refusal`: why none may start, "" if they may."""

    level = "none"
    gaps = ("anything that you may do",)
    filters_hosts = False

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal

    @asynccontextmanager
    async def start(self, command: ProcessCommand, confinement: Confinement) -> AsyncGenerator[ConfinedProcess]:
        if self._refusal:
            raise SandboxError(self._refusal)
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
