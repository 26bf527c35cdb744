"""The sandbox of a tool that runs commands, and what each of its commands may touch."""

from __future__ import annotations

import os
from collections.abc import Sequence

from toolspeak.data.values import quick
from toolspeak.errors import ToolError
from toolspeak.sandbox.base import Confinement, ProcessLimits, Sandbox
from toolspeak.sandbox.host_rules import HostRule
from toolspeak.sandbox.protected_places import hidden_places, is_below, read_only_places


@quick(eq=False)
class CommandSandbox:
    """A sandbox, and what commands may touch in it besides the workspace.

    - `hosts`: what a command may reach that asks for the network; None is every host.
    - `writable`, `readable`: files and folders, as absolute real paths.
    - `unasked_reads`: a command that only reads, without the network, runs without a question.
    """

    sandbox: Sandbox
    hosts: tuple[HostRule, ...] | None = ()
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    limits: ProcessLimits = ProcessLimits()
    unasked_reads: bool = False

    @property
    def is_enforced(self) -> bool:
        """Whether there is a boundary, so that what a command declares is what it can do."""
        return self.sandbox.level != "none"

    def places(self, workspace: str, writes: Sequence[str] | None) -> tuple[str, ...]:
        """The real paths that a command may change if it names `writes`, relative to the workspace; None: all that
        commands may change. Raises ToolError for a path that does not exist, or lies elsewhere."""
        everything = (workspace, *self.writable)
        if writes is None:
            return everything
        places: list[str] = []
        for path in writes:
            if "\0" in path:
                raise ToolError("'writes' contains a NUL character: leave it out.")
            place = os.path.realpath(os.path.join(workspace, path))
            if not any(is_below(place, each) for each in everything):
                raise ToolError(f"'writes': {path!r} lies outside of the workspace: commands may not change it.")
            if not os.path.exists(place):
                raise ToolError(f"'writes': {path!r} does not exist: name the folder in which the command makes it.")
            places.append(place)
        return tuple(dict.fromkeys(places))

    def confinement(self, workspace: str, writes: Sequence[str] | None, *, network: bool) -> Confinement:
        """What a command may touch. Raises ToolError for `writes` that are not to be had."""
        writable = self.places(workspace, writes)
        return Confinement(
            writable,
            read_only_places(writable),
            hidden_places(self.readable),
            (workspace, *self.writable, *self.readable),
            self.hosts if network else (),
            self.limits,
        )
