"""Finds runs and sessions by prefixes of their ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from toolspeak.data.run_values import PAUSED_STATUSES, UNFINISHED_STATUSES
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.journal import Journal, RunInfo, SessionInfo
from toolspeak.journal.leases import is_held
from toolspeak.project.recorded_setup import folder_of, setup_of

InfoT = TypeVar("InfoT", RunInfo, SessionInfo)
SHORT = 8
"""How many characters of an id lists show."""
WAITING = ("interrupted", *sorted(PAUSED_STATUSES))
"""What `status_of` says of runs that somebody has to continue."""

_MOST_SESSIONS = 20
_OUR_ID = re.compile(r"[0-9a-f]{32}")


def short_id(run_id: str) -> str:
    """A run's id as lists show it: the beginning of one of ours, the whole of a caller's own."""
    return run_id[:SHORT] if _OUR_ID.fullmatch(run_id) else run_id


async def find_run(journal: Journal, prefix: str) -> RunInfo:
    """The run with this id, or the only one whose id begins with it. Raises ConfigurationError if there is none, or
    more than one."""
    exact = await journal.run(prefix)
    if exact is not None:
        return exact
    infos = await journal.runs(prefix=prefix, limit=10)
    return _one(infos, [info.run_id for info in infos], f"run {prefix!r}")


async def find_session(journal: Journal, prefix: str) -> SessionInfo:
    """The only session whose id begins with `prefix`. Raises ConfigurationError unless there is exactly one."""
    infos = [info for info in await journal.sessions() if info.session_id.startswith(prefix)]
    return _one(infos, [info.session_id for info in infos], f"session {prefix!r}")


@quick()
class SessionUse:
    """A session, and how it was used last.

    - `time`: of the last record of its last run, in Unix seconds.
    - `status`: of its last run, as `status_of`; "" without a run.
    """

    session: SessionInfo
    time: float
    status: str = ""


async def use_of(journal: Journal, session: SessionInfo) -> SessionUse:
    """How a session was used last."""
    run = None if session.last_run is None else await journal.run(session.last_run)
    if run is None:
        return SessionUse(session, session.updated)
    records = await journal.read(run.run_id, max(0, run.records - 1), 1)
    return SessionUse(session, max([session.updated, *(each.time for each in records)]), status_of(run))


async def sessions_of(journal: Journal, folder: str, most: int = _MOST_SESSIONS) -> Sequence[SessionUse]:
    """The sessions whose last run worked in this folder, the one that was used last first; at most `most`, those with
    the newest runs."""
    path, uses = _real_path(folder), list[SessionUse]()
    for session in await journal.sessions():
        if folder_of(await setup_of(journal, session)) == path:
            uses.append(await use_of(journal, session))
            if len(uses) == most:
                break
    return sorted(uses, key=lambda use: use.time, reverse=True)


async def last_session_of(journal: Journal, folder: str) -> SessionInfo:
    """The session that was used last of those whose last run worked in this folder. Raises ConfigurationError without
    one."""
    if uses := await sessions_of(journal, folder):
        return uses[0].session
    every = await journal.sessions(limit=1)
    other = f" (the most recent one, {every[0].session_id[:SHORT]}, is in another folder)" if every else ""
    raise ConfigurationError(
        f"there is no session of {_real_path(folder)} to continue{other}: omit --continue, or name a session with "
        "--session; `toolspeak sessions` lists them with their folders"
    )


def _real_path(folder: str) -> str:
    return str(Path(folder).resolve())


def status_of(info: RunInfo) -> str:
    """A run's status for people and programs. A running run without a process is `interrupted`."""
    return "interrupted" if info.status == "running" and not is_held(info) else info.status


async def unfinished_runs(journal: Journal) -> Sequence[RunInfo]:
    """The runs that can be resumed, the newest first. Sub-runs are left out: they resume with their parent."""
    infos = [
        info for status in UNFINISHED_STATUSES for info in await journal.runs(status=status) if not info.parent_run_id
    ]
    return sorted(infos, key=lambda info: info.created, reverse=True)


def _one(infos: Sequence[InfoT], ids: Sequence[str], prefix: str) -> InfoT:
    if len(infos) == 1:
        return infos[0]
    if not infos:
        raise ConfigurationError(f"there is no {prefix}; `toolspeak sessions` lists all")
    raise ConfigurationError(f"{prefix} is ambiguous; did you mean {', '.join(ids[:5])}?")
