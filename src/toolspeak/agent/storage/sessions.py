"""Sessions in a journal: the end of one, its messages, and forks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal, get_args

from toolspeak.agent.state.state import RunState
from toolspeak.agent.storage.runs import close_run, closed_history, load_state, set_metadata
from toolspeak.data.events import RunStarted
from toolspeak.data.messages import Message
from toolspeak.data.run_values import PAUSED_STATUSES, UNFINISHED_STATUSES
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, RunBusy, RunError
from toolspeak.execute.calls.prepare import new_id
from toolspeak.journal import Journal, SessionInfo
from toolspeak.journal.leases import holder_of, is_held

WhenOpen = Literal["refuse", "close"]
"""What happens to a new task of a session whose last run waits for approval or is suspended: the task is refused, or
that run is closed."""


_TAKEN_BACK = "taken_back"
"""The key of the metadata of a run that was taken back."""


@quick()
class SessionTip:
    """The end of a session. The next run follows the first `follows_seq` records of the run `follows`; `before` are
    the messages until there, and `found_tools` the deferred tools that were found until there."""

    session_id: str
    version: int = 0
    follows: str | None = None
    follows_seq: int = 0
    before: Sequence[Message] = ()
    found_tools: tuple[str, ...] = ()


def new_session_id() -> str:
    return new_id()


async def known_session(journal: Journal, session_id: str) -> SessionInfo:
    """The session. Raises RunError if it does not exist."""
    info = await journal.session(session_id)
    if info is None:
        raise RunError(f"there is no session {session_id}; `toolspeak sessions` lists them")
    return info


async def place_of(
    journal: Journal,
    session_id: str,
    principal: str | None = None,
    when_open: WhenOpen = "refuse",
) -> SessionTip:
    """Where the session's next run begins. An unknown session is a new one.

    A session continues only after a run that has ended: otherwise calls of that run could run later, and no message of
    the session would have their results. A last run that was interrupted is closed. `when_open` is for one that waits
    for approval or is suspended.

    Raises ConfigurationError for an unknown `when_open`, RunError for another principal's session and for a last run
    that must be decided first, RunBusy while a process drives that run.
    """
    if when_open not in get_args(WhenOpen):
        raise ConfigurationError(f"when_open must be 'refuse' or 'close', not {when_open!r}")
    info = await journal.session(session_id)
    if info is None:
        return SessionTip(session_id)
    if info.principal != principal:
        raise RunError(f"session {session_id} belongs to another user; start one of your own")
    if info.last_run is None:
        return SessionTip(session_id, info.version, before=info.history)
    last = await journal.run(info.last_run)
    if last is not None and last.status == "running" and is_held(last):
        began = time.strftime("%H:%M", time.localtime(last.created))
        raise RunBusy(
            f"the last run of session {session_id} is still going on in {holder_of(last)}, since {began}: wait for it, "
            "or end that process"
        )
    state = await load_state(journal, info.last_run)
    if state.status in UNFINISHED_STATUSES:
        if when_open == "refuse" and state.status in PAUSED_STATUSES:
            raise RunError(_decide_first(state))
        await close_run(journal, info.last_run)
    state = await end_of_session(journal, info)
    if state is None:
        return SessionTip(session_id, info.version, before=info.history)
    return SessionTip(session_id, info.version, state.run_id, state.seq, closed_history(state), state.found_tools)


async def place_for(
    journal: Journal, session_id: str, run_id: str | None, principal: str | None = None, when_open: WhenOpen = "refuse"
) -> SessionTip:
    """As `place_of`, for a run whose id may have been chosen (`run_id`): a run that is there has its place already."""
    run = None if run_id is None else await journal.run(run_id)
    if run is not None and run.session_id == session_id:
        return SessionTip(session_id)
    return await place_of(journal, session_id, principal, when_open)


def _decide_first(state: RunState) -> str:
    calls = ", ".join(each.call.name if each.call else each.call_id for each in state.approvals.open_requests.values())
    places = {"suspended": "is suspended", "queued": "waits for a worker", "waiting": "waits for a time or an event"}
    condition = places.get(state.status, f"waits for a decision about {calls}")
    return (
        f"the session's last run, {state.run_id}, {condition}. Decide it first (Agent.resume, or `toolspeak resume "
        f"{state.run_id[:8]}`), or close it for good, so that none of its calls runs any more (when_open='close', or "
        "`toolspeak run -c --close TASK`)"
    )


async def take_back(journal: Journal, run_id: str) -> None:
    """Removes a run that has ended from the history of its session. Its records stay."""
    await set_metadata(journal, run_id, {_TAKEN_BACK: True})


async def end_of_session(journal: Journal, info: SessionInfo) -> RunState | None:
    """The state of the last run of a session that was not taken back; None if there is none."""
    run_id = info.last_run
    while run_id is not None:
        state = await load_state(journal, run_id)
        if not state.metadata.get(_TAKEN_BACK):
            return state
        first = (await journal.read(run_id, 0, 1))[0].event
        run_id = first.follows if isinstance(first, RunStarted) else None
    return None


async def session_messages(journal: Journal, session_id: str) -> Sequence[Message]:
    """All messages of a session, without the compactions for the model. Raises RunError if there is no such session."""
    info = await known_session(journal, session_id)
    end = await end_of_session(journal, info)
    return info.history if end is None else closed_history(await load_state(journal, end.run_id, whole=True))


async def fork_session(
    journal: Journal, session_id: str, run_id: str | None = None, count: int | None = None
) -> SessionInfo:
    """Adds a session that begins with a copy of this one's messages: until the first `count` records of the run
    `run_id` (None: all), or all messages without a `run_id`. Raises RunError if there is no such session, run or
    record.
    """
    info = await known_session(journal, session_id)
    end = None if run_id else await end_of_session(journal, info)
    origin_id = end.run_id if end is not None else run_id
    history: Sequence[Message] = info.history
    if origin_id is not None:
        run = await journal.run(origin_id)
        if run is None or run.session_id != session_id:
            raise RunError(f"session {session_id} has no run {origin_id}")
        if count is not None and not 0 < count <= run.records:
            raise RunError(f"run {origin_id} has {run.records} records; fork after 1 to {run.records} of them")
        state = await load_state(journal, origin_id, count)
        history, count = closed_history(state), state.seq
    now = time.time()
    fork = SessionInfo(
        new_session_id(),
        f"{info.title} (fork)",
        now,
        now,
        principal=info.principal,
        forked_from=None if origin_id is None else (origin_id, count or 0),
        history=tuple(history),
    )
    await journal.add_session(fork)
    return fork
