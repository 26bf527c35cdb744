"""A run that was written as text, where it stands: in the journal that has it, or by itself."""

from __future__ import annotations

from toolspeak.agent.result import RunResult, result_from
from toolspeak.agent.state.fold import fold
from toolspeak.agent.state.steps import Trail
from toolspeak.agent.storage.load import load_whole
from toolspeak.agent.storage.paused import load_run
from toolspeak.data.events import RunStarted
from toolspeak.errors import RunConflict, RunError
from toolspeak.journal.base import Journal
from toolspeak.journal.memory_journal import MemoryJournal


async def stored_run(text: str, journal: Journal | None) -> RunResult:
    """The run of the text, which goes on in the journal if that has it: so nobody goes on with it twice, nor behind the
    back of its session. Raises RunConflict, RunError and FormatError as `Agent.loads` says."""
    records, memory = load_run(text)
    run_id = records[0].run_id
    own = [record for record in records if record.run_id == run_id]
    if journal is not None and await journal.run(run_id) is not None:
        loaded = await load_whole(journal, run_id)
        if len(loaded.records) != len(own):
            raise RunConflict(
                f"run {run_id} has gone on since it was stored: it has {len(loaded.records)} records by now, and had "
                f"{len(own)} then. What it waits for now: agent.resume({run_id!r})"
            )
        return result_from(run_id, loaded.known, memory, journal, Trail(loaded.records, loaded.before))
    started = own[0].event
    if isinstance(started, RunStarted) and started.session_id is not None:
        raise RunError(
            f"run {run_id} belongs to session {started.session_id}, and goes on where that is kept: give the agent its "
            "journal, Agent(journal=…)"
        )
    alone = MemoryJournal()
    for record in records:
        await alone.append(record)
    state = fold(own)
    return result_from(run_id, state, memory, alone, Trail(own))
