"""Turns the inputs of a run into events: messages, decisions about calls, and what its calls wait for."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.agent.interceptors import InterceptorRunner
from toolspeak.agent.recording.recorder import Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.history import without_secrets
from toolspeak.agent.state.state import RunState
from toolspeak.data.approvals import ApprovalDecided, Decision
from toolspeak.data.codec import load
from toolspeak.data.events import Event, RunConfigured, RunStarted, UserMessageQueued, WaitEnded
from toolspeak.data.messages import Message, ToolChoice
from toolspeak.data.run_values import Limits
from toolspeak.data.values import evolve
from toolspeak.errors import RunConflict
from toolspeak.execute.approval.approvers import decision_fact
from toolspeak.journal.base import Journal, RunInput


class Inbox:
    """What was said to a run. Its messages are read between two steps."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """The messages of this process that were not read."""
        self._is_reading = False  # whether the first one is being recorded
        self.has_news = False
        """Whether other processes may have sent messages."""

    def put(self, message: Message) -> None:
        """Adds a message of this process."""
        self.messages.append(message)

    def take_back(self, message: Message) -> bool:
        """Removes a message of this process that no `read` has begun with. Returns whether it was one."""
        for i, each in enumerate(self.messages):
            if each is message and not (i == 0 and self._is_reading):
                del self.messages[i]
                return True
        return False

    def look(self) -> None:
        """Lets the next `read` look for messages of other processes."""
        self.has_news = True

    async def read(self, settings: RunSettings, recorder: Recorder, interceptors: InterceptorRunner) -> None:
        """Records the messages until now, each once, unless an interceptor refuses it."""
        if self.has_news:
            self.has_news = False
            journal, run_id = settings.journal, recorder.state.run_id
            for entry in await journal.inputs(run_id, driver=True):
                if entry.kind != "message" or entry.taken_by is not None:
                    continue
                if entry.key not in recorder.state.message_keys:  # or a process died before it marked the input
                    message = load(entry.data)
                    await _admit(message, settings, recorder, interceptors, entry.key, entry.principal)
                await journal.take_input(entry, run_id)
        while self.messages:
            self._is_reading = True
            try:
                await _admit(self.messages[0], settings, recorder, interceptors)
                del self.messages[0]  # now it is read, or refused
            finally:
                self._is_reading = False


async def _admit(
    user_message: Message,
    settings: RunSettings,
    recorder: Recorder,
    interceptors: InterceptorRunner,
    key: str = "",
    by: str | None = None,
) -> None:
    message: object = without_secrets(user_message, settings.secrets)
    if "message" in interceptors.levels:
        message, facts = await interceptors.admit("message", message, recorder.state.metadata)
        await recorder.record_all(facts)
    if isinstance(message, Message):
        await recorder.record(UserMessageQueued(message, key, by))


async def facts_from_inputs(settings: RunSettings, state: RunState, first_events: Sequence[Event]) -> list[Event]:
    """What is recorded before `first_events` when a run continues.

    Raises RunConflict if `first_events` has another decision about a call than the one that was stored first.
    """
    facts: list[Event] = []
    entries, open_requests = await settings.journal.inputs(state.run_id, driver=True), state.approvals.open_requests
    if entries and open_requests:
        given_decisions = {fact.call_id: fact for fact in first_events if isinstance(fact, ApprovalDecided)}
        stored_decisions = [
            decision_fact(entry.name, load(entry.data), entry.key.rpartition(" ")[2], settings.secrets)
            for entry in entries
            if entry.kind == "decision" and entry.name in open_requests
            if entry.key == decision_key(entry.name, open_requests[entry.name].digest)
        ]
        for fact in stored_decisions:
            other = given_decisions.get(fact.call_id)
            if other is not None and (other.approved, other.arguments) != (fact.approved, fact.arguments):
                raise RunConflict(already_decided(state.run_id, fact))
        facts += [fact for fact in stored_decisions if fact.call_id not in given_decisions]
    if state.pending.call_events:
        facts += await ended_waits(settings.journal, state, settings.clock())
    return facts


async def ended_waits(journal: Journal, state: RunState, now: float) -> list[WaitEnded]:
    """What has come by now (Unix seconds) for the calls of a run that wait: events, or the end of their time.

    An event of the run, or of a run above it whose tool started it, goes to the first call that waits for it, and to no
    other.
    """
    waits = state.pending.waits
    if not waits:
        return []
    events: list[RunInput] = []
    run_id: str | None = state.run_id
    while run_id is not None:
        entries = await journal.inputs(run_id, driver=run_id == state.run_id)
        events += [entry for entry in entries if entry.kind == "event"]
        info = await journal.run(run_id)
        run_id = None if info is None else info.parent_run_id
    facts: list[WaitEnded] = []
    for call_id in [call.id for call in state.pending.calls if call.id in waits]:
        wait = waits[call_id]
        taker = f"{state.run_id} {call_id}"
        used_keys = {wait_end.key for wait_end in state.pending.ended_waits.get(call_id, ())}
        matches = [entry for entry in events if entry.name == wait.event and entry.key not in used_keys]
        for entry in matches:
            if entry.taken_by in (None, taker) and await journal.take_input(entry, taker):
                facts.append(WaitEnded(call_id, entry.name, entry.data, key=entry.key, by=entry.principal))
                events.remove(entry)
                break
        else:
            if wait.until is not None and wait.until <= now:
                facts.append(WaitEnded(call_id, wait.event or "", expired=True))
    return facts


def without_secrets_in(submission: RunStarted, settings: RunSettings) -> RunStarted:
    """A submission without the agent's secrets. Who submits by the agent's name does not know them."""
    messages = tuple(without_secrets(each, settings.secrets) for each in submission.messages)
    return evolve(submission, messages=messages)


def configuration(
    settings: RunSettings, state: RunState, submission: RunStarted, run_start: RunStarted
) -> list[RunConfigured]:
    """What the submission of a run left open, as the process that first drives it sets it: nothing, or one fact.
    `run_start`: as the run begins."""
    event = RunConfigured()
    if run_start.messages != submission.messages:
        event = evolve(event, messages=run_start.messages, replaced=len(submission.messages))
    if not submission.model:
        limits = settings.limits if state.limits == Limits() else None
        choice = settings.choice if submission.choice == ToolChoice() else None
        event = evolve(event, model=settings.driver.name, limits=limits, choice=choice)
    return [] if event == RunConfigured() else [event]


def decision_key(call_id: str, digest: str) -> str:
    """The key under which a decision about a question is stored: the first one counts."""
    return f"{call_id} {digest}"


def already_decided(run_id: str, decision: ApprovalDecided | Decision) -> str:
    """The error text for a second decision that differs from the first."""
    by = f" by {decision.by}" if decision.by else ""
    how = "approved" if decision.approved else "refused"
    if decision.arguments is not None:
        how += " with other arguments"
    return f"this call of run {run_id} was {how}{by} before; the first decision counts"
