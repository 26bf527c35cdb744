"""What the model reads with the person's next message about changes of files that were taken back."""

from __future__ import annotations

import asyncio

from toolspeak.agent.storage.sessions import end_of_session
from toolspeak.changes.git_patch import visible_name
from toolspeak.changes.run_changes import change_sets_of, net_changes, root_runs, store_of
from toolspeak.changes.undo import UNDO
from toolspeak.data.messages import Message, TextPart
from toolspeak.data.values import evolve
from toolspeak.journal import Journal

_MOST_PATHS = 50


async def with_undo_note(journal: Journal, session_id: str, message: Message) -> Message:
    """The message, with what the person has undone since the session's last turn began: here, or with `toolspeak
    undo`. An undo that was undone itself is left out."""
    info, store = await journal.session(session_id), store_of(journal)
    end = None if info is None else await end_of_session(journal, info)
    if store is None or end is None:
        return message
    try:
        roots = await root_runs(journal, store, session_id=session_id)
        undo_sets = await asyncio.to_thread(change_sets_of, store, roots, tool=UNDO, since=end.started_at)
    finally:
        store.close()
    lines = [
        f"- {visible_name(net.path)}: {'gone' if net.after is None else 'has another content now'}"
        for net in net_changes(undo_sets)
    ]
    if not lines:
        return message
    more = [f"- and {len(lines) - _MOST_PATHS:,} more"] if len(lines) > _MOST_PATHS else []
    head = "[The files that the user changed with undo since your last turn. Read them again before you go on.]"
    return evolve(message, parts=(*message.parts, TextPart("\n".join(["\n", head, *lines[:_MOST_PATHS], *more]))))
