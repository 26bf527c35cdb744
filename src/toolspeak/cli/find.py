"""Runs and sessions by the beginnings of their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from toolspeak.agent.resume import UNFINISHED
from toolspeak.errors import UsageError
from toolspeak.journal import Journal, RunInfo, SessionInfo

InfoT = TypeVar("InfoT", RunInfo, SessionInfo)
SHORT = 8
"""Characters of an id that lists show."""


async def find_run(journal: Journal, prefix: str) -> RunInfo:
    """The one run whose id begins so. Raises UsageError if there is none, or more than one."""
    found = await journal.runs(prefix=prefix, limit=10)
    return _one(found, [info.run_id for info in found], f"run {prefix!r}")


async def find_session(journal: Journal, prefix: str | None) -> SessionInfo:
    """The one session whose id begins so; without a beginning, the one used last. Raises UsageError as `find_run`."""
    every = await journal.sessions(limit=1 if prefix is None else None)
    found = [info for info in every if info.session_id.startswith(prefix or "")]
    if not found and prefix is None:
        raise UsageError("there is no session to go on with yet: leave --continue out")
    return _one(found, [info.session_id for info in found], f"session {prefix!r}")


async def unfinished(journal: Journal) -> Sequence[RunInfo]:
    """The runs that can go on, the newest first; those that another run's tools started go on with it."""
    found = [info for status in UNFINISHED for info in await journal.runs(status=status) if not info.parent_run_id]
    return sorted(found, key=lambda info: info.created, reverse=True)


def _one(found: Sequence[InfoT], ids: Sequence[str], wanted: str) -> InfoT:
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"there is no {wanted}; `toolspeak sessions` lists what there is")
    raise UsageError(f"{wanted} is not clear; did you mean {', '.join(ids[:5])}?")
