"""Going on with a run: where it stands, and what is recorded first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from toolspeak.agent.load import load_run
from toolspeak.agent.state import RunState
from toolspeak.data.events import ApprovalDecided, ApprovalRequested, Event, RunResumed, RunStatus
from toolspeak.data.messages import Message
from toolspeak.errors import RunError, UsageError
from toolspeak.execute import Decision, Secrets
from toolspeak.journal.base import Journal

UNFINISHED: tuple[RunStatus, ...] = ("running", "awaiting_approval")
"""The statuses of runs that can go on."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session stands: the next run follows the first `follows_seq` records of run `follows`; `before` are
    the messages until there."""

    session_id: str
    version: int = 0
    follows: str | None = None
    follows_seq: int = 0
    before: Sequence[Message] = ()


@dataclass(frozen=True, slots=True)
class Resumption:
    """A run to be resumed from the journal alone, with what was decided about its calls."""

    journal: Journal
    run_id: str
    decisions: Mapping[str, Decision]
    secrets: Secrets

    async def load(self) -> tuple[RunState, Sequence[Event], dict[str, Any]]:
        """Where it stands, what is recorded first, and its tools' memory.

        Called while the run is held, so nobody else goes on with it.

        Raises RunError for a run that is not known or has ended, and for a decision about a call that does not wait.
        """
        state, memory = await load_run(self.journal, self.run_id)
        if state.status not in UNFINISHED:
            raise RunError(f"run {self.run_id} is {state.status}: it has ended, and there is nothing to resume")
        return state, opening_of(state, self.decisions, self.secrets), memory


def opening_of(state: RunState, decisions: Mapping[str, Decision], secrets: Secrets) -> Sequence[Event]:
    """What is recorded first when a run goes on. Raises RunError for a decision about a call that does not wait."""
    waiting = open_of(state)
    unknown = sorted(decisions.keys() - waiting.keys())
    if unknown:
        known = ", ".join(waiting) or "none"
        raise RunError(f"no call {', '.join(unknown)} waits for approval; these do: {known}")
    decided = [
        ApprovalDecided(call_id, decision.approved, secrets.hide_text(decision.reason), decision.by)
        for call_id, decision in decisions.items()
    ]
    return [*decided, RunResumed()]


def open_of(state: RunState) -> dict[str, ApprovalRequested]:
    """The requests that wait for a decision, by call id; empty unless the run waits."""
    if state.status != "awaiting_approval":
        return {}
    decided = {decision.call_id for decision in state.decisions}
    return {request.call_id: request for request in state.waiting if request.call_id not in decided}


def decisions_of(given: Mapping[str, bool | Decision]) -> dict[str, Decision]:
    """Decisions as a caller may write them: `{"call_1_0": True}`. Raises UsageError for anything but a bool or a
    Decision: the text "no" is a true value."""
    decisions: dict[str, Decision] = {}
    for waiting, said in given.items():
        decision = Decision(said, by="caller") if isinstance(said, bool) else said
        if not isinstance(cast("object", decision), Decision) or not isinstance(
            cast("object", decision.approved), bool
        ):
            raise UsageError(f"{waiting} is decided by True, False or a Decision, not {said!r}")
        decisions[waiting] = decision
    return decisions
