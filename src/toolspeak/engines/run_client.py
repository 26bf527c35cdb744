"""The client of runs that other processes drive: submits them, decides calls, delivers events, follows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeAlias, Unpack, cast

from toolspeak.agent import Agent, RunResult
from toolspeak.agent.options import CommonOptions, RunOptions
from toolspeak.agent.recording.publisher import is_boundary, published_pieces
from toolspeak.agent.run_inputs import already_decided, decision_key
from toolspeak.agent.state.state import RunState
from toolspeak.agent.storage.runs import load_state, load_whole, suspend_run
from toolspeak.agent.storage.sessions import place_for
from toolspeak.agent.submission import stored_result, submit_by_name
from toolspeak.data.approvals import ApprovalDecided
from toolspeak.data.codec import dump, load
from toolspeak.data.deltas import Delta, ToolProgress, TurnRestarted
from toolspeak.data.events import Record, RunFinished
from toolspeak.data.messages import Message
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.data.values import JSON, evolve
from toolspeak.engines.base import Engine
from toolspeak.errors import ConfigurationError, RunConflict, RunError
from toolspeak.execute import Decision
from toolspeak.execute.calls.prepare import new_id
from toolspeak.journal import Journal
from toolspeak.journal.base import InputKind, RunInfo, RunInput
from toolspeak.tools.context import check_event
from toolspeak.tools.returned_values import Unserialisable, jsonable

FollowedItem: TypeAlias = Delta | TurnRestarted | Record
"""What `RunClient.events` yields."""


class RunClient:
    """Works on runs without their agent: from a web server, a script or another host.

        client = RunClient(SqliteJournal("runs.db"))
        await client.submit("support", "Refund order 4711", run_id="order-4711")
        await client.decide("order-4711", "call_1_0", True)
        print((await client.result("order-4711")).answer)

    - `journal`: the journal of the workers.
    - `engine`: the engine that the workers run on, which must hear of each run. None is enough for the embedded one,
      which looks into the journal.

    Every method raises JournalError if the journal cannot be read or written.
    """

    def __init__(self, journal: Journal, engine: Engine | None = None) -> None:
        self.journal = journal
        self._engine = engine

    async def submit(
        self,
        agent: str | Agent[Any, Any],
        task: str | Message,
        *,
        at: float | None = None,
        session_id: str | None = None,
        **options: Unpack[CommonOptions],
    ) -> RunResult[Any]:
        """Records a run for a worker, as `Agent.submit`. An agent's name is enough: the worker's agent of this name
        gives what the options leave open. Secrets in the task become placeholders when the run begins, not before.

        `session_id`: the session that the run goes on with; an unknown one begins. Raises RunError if its last run must
        be decided first, RunBusy while that goes on.
        """
        place = None
        if session_id is not None:
            place = await place_for(self.journal, session_id, options.get("run_id"), options.get("principal"))
        if isinstance(agent, str):
            result = await submit_by_name(self.journal, agent, task, cast("RunOptions", options), at, place)
        elif agent.journal is not self.journal:
            raise ConfigurationError(f"the agent {agent.name} has another journal than this client: share one")
        else:
            result = await agent.submit_after(place, task, at, cast("RunOptions", options))
        await self._enqueue(result.run_id)
        return result

    async def decide(
        self,
        run_id: str,
        call_id: str,
        decision: bool | Decision,
        *,
        principal: str | None = None,
        digest: str | None = None,
    ) -> bool:
        """Decides about a call that waits for approval. The decision holds for the question as it is asked now, and a
        worker goes on with the run.

        - `principal`: who decides (`Decision.by`).
        - `digest`: that of the question that the person has seen (`ApprovalRequested.digest`). Without it the decision
          holds for the question as it is now.

        The first decision counts. Returns False if the same was decided before, which changes nothing. Raises
        RunConflict after another decision, and for another digest; RunError for a run or a question that is not there.
        """
        answer = decision if isinstance(decision, Decision) else Decision(decision)
        state = await load_state(self.journal, run_id)
        question = state.approvals.open_requests.get(call_id)
        if question is None:
            earlier = await self._decision(state, call_id)
            if earlier is not None and _same(earlier, answer):
                return False
            if earlier is not None:
                raise RunConflict(already_decided(run_id, earlier))
            waiting = ", ".join(state.approvals.open_requests) or "no call"
            raise RunError(f"run {run_id} has no open question about {call_id}; {waiting} waits for a decision")
        if digest is not None and digest != question.digest:
            raise RunConflict(f"run {run_id} asks something else about {call_id} by now: look at the question again")
        answer = evolve(answer, digest=question.digest, by=answer.by or principal or "")
        key = decision_key(call_id, question.digest)
        entry, is_first = await self._add(run_id, "decision", call_id, key, dump(answer), principal)
        first_decision = cast("Decision", load(entry.data))
        if not _same(first_decision, answer):
            raise RunConflict(already_decided(run_id, first_decision))
        return is_first

    async def decision(self, run_id: str, call_id: str) -> Decision | ApprovalDecided | None:
        """The last decision about a call, whether a process has continued the run since or not; None without one.
        Raises RunError for a run that is not there."""
        return await self._decision(await load_state(self.journal, run_id), call_id)

    async def _decision(self, state: RunState, call_id: str) -> Decision | ApprovalDecided | None:
        entries = [each for each in await self.journal.inputs(state.run_id) if each.kind == "decision"]
        sent_decisions = [cast("Decision", load(each.data)) for each in entries if each.name == call_id]
        own_decisions = [each for each in state.approvals.decisions if each.call_id == call_id]
        return next(reversed([*sent_decisions, *own_decisions]), None)

    async def say(
        self, run_id: str, message: str | Message, *, key: str | None = None, principal: str | None = None
    ) -> bool:
        """Sends a message to a run: the model reads it at its next step. The process that drives the run learns of it
        within 3 seconds. A run that waits reads it when it goes on.

        - `key`: names this message. Of the same key only the first one counts; None is a key of its own.

        Returns False if a message with this key was sent before. Raises RunError for a run that is not there or has
        ended. A message that comes while the run ends may stay unread.
        """
        user_message, info = Message.user(message) if isinstance(message, str) else message, await self._info(run_id)
        if info.status not in UNFINISHED_STATUSES:
            raise RunError(
                f"run {run_id} is {info.status.replace('_', ' ')}: it has ended, and reads no message. Start a run that"
                " continues it"
            )
        return (
            await self._add(run_id, "message", "", new_id() if key is None else key, dump(user_message), principal)
        )[1]

    async def deliver(
        self,
        run_id: str,
        event: str,
        payload: JSON = None,
        *,
        key: str | None = None,
        principal: str | None = None,
    ) -> bool:
        """Brings an event to a run: one of its calls waits for it (`RunContext.wait_for`) or will. A worker goes on
        with the run.

        - `payload`: JSON, which the waiting function gets.
        - `key`: names this delivery. Of the same key only the first one counts; None is a key of its own.

        Returns False if an event with this key was delivered before. Raises RunError for a run that is not there or has
        ended, ConfigurationError for a payload that is no JSON.
        """
        check_event(event)
        try:
            payload = jsonable(payload)
        except Unserialisable as error:
            raise ConfigurationError(f"the payload of {event} must be JSON: {error}") from None
        info, stored_key = await self._info(run_id), new_id() if key is None else f"{event} {key}"
        if info.status not in UNFINISHED_STATUSES:
            if any((each.kind, each.key) == ("event", stored_key) for each in await self.journal.inputs(run_id)):
                return False
            raise RunError(f"run {run_id} is {info.status.replace('_', ' ')}: it has ended, and takes no event")
        return (await self._add(run_id, "event", event, stored_key, payload, principal))[1]

    async def suspend(self, run_id: str) -> bool:
        """Suspends a run, whoever drives it; see `Agent.suspend`."""
        return await suspend_run(self.journal, run_id)

    async def resume(self, run_id: str, *, principal: str | None = None) -> None:
        """Lets a worker go on with a suspended run. Raises RunError for a run of another status."""
        info = await self._info(run_id)
        if info.status != "suspended":
            raise RunError(f"run {run_id} is {info.status.replace('_', ' ')}: only a suspended run can be resumed so")
        await self._add(run_id, "resume", "", new_id(), None, principal)

    async def status(self, run_id: str) -> RunResult[Any]:
        """How a run stands. Its `requests` are the questions without a decision: one that was decided is open no
        longer, although the run is `awaiting_approval` until a worker continues it. Raises RunError for a run that is
        not there."""
        return await stored_result(self.journal, await load_whole(self.journal, run_id))

    async def result(self, run_id: str, timeout: float | None = None, *, or_suspended: bool = False) -> RunResult[Any]:
        """Waits until a run has ended, for so many seconds (None: without a limit), and returns its result.

        `or_suspended`: returns also how a suspended run stands, which goes on only if somebody resumes it. A worker
        suspends a run that gets no further.

        Raises TimeoutError if it has not ended by then, RunError for a run that is not there.
        """

        async def goes_on() -> bool:
            info = await self._info(run_id)
            is_resumed = info.due is not None  # and no worker has continued it since
            return info.status in UNFINISHED_STATUSES and (info.status != "suspended" or is_resumed or not or_suspended)

        async with asyncio.timeout(timeout):
            async with aclosing(self.journal.follow(run_id)) as news:
                if await goes_on():
                    async for _ in news:
                        if not await goes_on():
                            break
        return await self.status(run_id)

    async def events(self, run_id: str, *, start: int = 0) -> AsyncGenerator[FollowedItem]:
        """Follows a run that any process drives: yields its records from number `start` on, all of them and in order,
        and between them the deltas of the turn under way as they come. Ends with the run.

        Deltas are not stored, and a slow reader loses some. Those at the end of a turn may be missing: the record has
        the whole turn. They begin with the next turn after the process that drives the run knows of the reader, which
        is within 3 seconds. Raises RunError for a run that is not there.
        """
        info, text, last = await self._info(run_id), "", -1
        async with aclosing(self.journal.follow(run_id)) as texts:
            while True:
                for record in await self.journal.read(run_id, start):
                    start, last = record.seq + 1, record.seq if is_boundary(record) else last
                    yield record
                    if isinstance(record.event, RunFinished):
                        return
                if info.status not in UNFINISHED_STATUSES:
                    return  # it had ended before `start`
                if text:
                    before, pieces = published_pieces(text)
                    for piece in pieces:
                        # The record after the pieces of a turn may have been read already; it has them too.
                        if before >= last or isinstance(piece, ToolProgress):
                            yield piece
                text = await anext(texts)

    async def aclose(self) -> None:
        """Closes the engine's connections. The journal stays open."""
        if self._engine is not None:
            await self._engine.aclose()

    async def _info(self, run_id: str) -> RunInfo:
        info = await self.journal.run(run_id)
        if info is None:
            raise RunError(f"the journal has no run {run_id}; `toolspeak sessions` lists what it has")
        return info

    async def _add(
        self, run_id: str, kind: InputKind, name: str, key: str, data: JSON, principal: str | None
    ) -> tuple[RunInput, bool]:
        """What is stored under the key, and whether it is this."""
        entry = RunInput(run_id, kind, name, key, data, principal, time.time())
        stored_entry = await self.journal.add_input(entry)
        await self._enqueue(run_id)
        return stored_entry, (stored_entry.time, stored_entry.principal) == (entry.time, entry.principal)

    async def _enqueue(self, run_id: str) -> None:
        """Tells the engine of the run. An engine that cannot be told now finds the run later, in the journal."""
        if self._engine is None:
            return
        info = await self._info(run_id)
        while info.parent_run_id is not None:  # a worker drives a sub-run through the run above it
            parent = await self.journal.run(info.parent_run_id)
            if parent is None:
                break
            info = parent
        if info.status in UNFINISHED_STATUSES:
            await self._engine.enqueue(info.run_id, agent=info.agent, principal=info.principal, at=info.due)


def _same(one: Decision | ApprovalDecided, other: Decision) -> bool:
    return (one.approved, one.arguments, one.ends_run) == (other.approved, other.arguments, other.ends_run)
