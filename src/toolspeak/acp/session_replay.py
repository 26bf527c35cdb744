"""A session's conversation so far as updates, from the journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from toolspeak.acp.call_presentation import FileChange, JsonObject
from toolspeak.acp.recorded_changes import RecordedChanges
from toolspeak.acp.run_updates import RunUpdates
from toolspeak.data.events import RunStarted, ToolFinished
from toolspeak.journal import Journal


async def conversation_updates(
    journal: Journal, session_id: str, folder: str, recorded_changes: RecordedChanges
) -> AsyncGenerator[JsonObject]:
    """Yields the updates of a session's history and of its runs, the oldest first. Compactions hide nothing."""
    info = await journal.session(session_id)
    if info is None:
        return
    chain: list[tuple[str, int | None]] = []
    run_id, count = info.last_run, None
    while run_id is not None:
        chain.append((run_id, count))
        first = (await journal.read(run_id, 0, 1))[0].event
        run_id, count = (first.follows, first.follows_seq) if isinstance(first, RunStarted) else (None, None)
    view = RunUpdates(folder, session_id)
    for number, message in enumerate(info.history):
        if message.role == "assistant":  # the ids of calls are unique in a run, and a history may hold several
            view = RunUpdates(folder, f"{number}-{session_id}")
        for update in view.of_message(message):
            yield update
    for each, records in reversed(chain):
        view = RunUpdates(folder, each, replays=True)
        for record in await journal.read(each, 0, records):
            changes: list[FileChange] = []
            if isinstance(event := record.event, ToolFinished):
                changes = await asyncio.to_thread(recorded_changes.of_result, record.run_id, event.result)
            for update in view.updates(record, changes=changes):
                yield update
