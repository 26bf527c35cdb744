"""What other processes do in the same conversation: they drive its last run, or have said something since."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from toolspeak.agent import RunState
from toolspeak.agent.storage.runs import closed_history, load_state
from toolspeak.agent.storage.sessions import session_messages
from toolspeak.data.messages import Message
from toolspeak.journal import Journal, RunInfo
from toolspeak.journal.leases import holder_of, is_held

_LOOK_SECONDS = 0.5


def busy_note(run: RunInfo) -> str:
    """Which process drives the last run of a conversation, and how to go on, for the person."""
    began = time.strftime("%H:%M", time.localtime(run.created))
    return (
        f"! {holder_of(run)} works on the last turn, which began at {began}: this waits for its end. Esc does not wait"
        " any longer; then /sessions continues another conversation, and /new begins one"
    )


async def until_free(journal: Journal, run_id: str) -> str:
    """Waits until no process drives the run. Returns a line about it."""
    run = await journal.run(run_id)
    while run is not None and is_held(run):
        await asyncio.sleep(_LOOK_SECONDS)  # a journal tells nobody that a lease has ended
        run = await journal.run(run_id)
    return "· the other process has ended its turn"


async def messages_of_others(journal: Journal, session_id: str, state: RunState | None) -> Sequence[Message]:
    """What others have said in a session after the run with this state, the last one of this terminal; None: it has
    none."""
    info = await journal.session(session_id)
    if info is None or info.last_run is None or (state is not None and state.run_id == info.last_run):
        return ()
    own = info.history if state is None else closed_history(await load_state(journal, state.run_id, whole=True))
    return (await session_messages(journal, session_id))[len(own) :]
