"""Finds the settings that runs were recorded with."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.data.events import RunStarted
from toolspeak.data.messages import JSON
from toolspeak.journal import Journal, SessionInfo


async def setup_of(journal: Journal, session: SessionInfo) -> Mapping[str, JSON]:
    """The settings of a session's last run; for a fork without runs, those of the run that it continues."""
    run_id = last_run_of(session)
    return {} if run_id is None else await setup_of_run(journal, run_id)


def last_run_of(session: SessionInfo) -> str | None:
    """The session's last run; for a fork without runs, the run that it continues. None for a session without either."""
    return session.last_run or (session.forked_from[0] if session.forked_from else None)


async def setup_of_run(journal: Journal, run_id: str) -> Mapping[str, JSON]:
    """The settings of a run; empty for a run of another program."""
    records = await journal.read(run_id, 0, 1)
    return records[0].event.setup if records and isinstance(records[0].event, RunStarted) else {}


def folder_of(setup: Mapping[str, JSON]) -> str:
    """The folder in a run's settings; "" if they have none."""
    folder = setup.get("workspace")
    return folder if isinstance(folder, str) else ""
