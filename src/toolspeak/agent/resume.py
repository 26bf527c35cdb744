"""Going on with a run: where it stands, and what is recorded first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolspeak.agent.cassettes.recording import Recording
from toolspeak.agent.child_runs import decided_by_parent
from toolspeak.agent.state.state import RunState
from toolspeak.agent.storage.load import LoadedRun, load_whole
from toolspeak.data.events import PAUSED, UNFINISHED, Event, RunResumed, RunStarted
from toolspeak.data.values import changed, quick
from toolspeak.errors import RunError
from toolspeak.execute import Decision, Secrets, StandingRules
from toolspeak.execute.approval.approvers import decision_facts
from toolspeak.journal.base import Journal


@quick()
class Resumption:
    """A run to be resumed from the journal alone, with what was decided about its calls."""

    journal: Journal
    run_id: str
    decisions: Mapping[str, Decision]
    secrets: Secrets
    rules: StandingRules
    recording: Recording | None = None

    async def load(self) -> LoadedRun:
        """Where it stands.

        Called while the run is held, so nobody else goes on with it.

        Raises RunError for a run that is not known or has ended, and for a decision about a call that does not wait.
        """
        loaded = await load_whole(self.journal, self.run_id)
        state, memory = loaded.known, cast("dict[str, Any]", self.secrets.reveal(loaded.memory))
        if state.status not in UNFINISHED:
            raise RunError(f"run {self.run_id} is {state.status}: it has ended, and there is nothing to resume")
        opening = opening_of(state, self.decisions, self.secrets, self.rules, self.recording)
        return changed(loaded, memory=memory, opening=opening)


@quick()
class SubRunStart:
    """A run that a call's function starts: found as it is by now if the function was entered before, else new.

    `started` is how it begins. What was decided about it was decided in its parent.
    """

    resumption: Resumption
    started: RunStarted

    async def load(self) -> LoadedRun:
        """As `Resumption.load`; of a run that has ended nothing is recorded."""
        resumption = self.resumption
        if await resumption.journal.run(resumption.run_id) is None:
            return LoadedRun(None, (), (), {}, [self.started])
        loaded = await load_whole(resumption.journal, resumption.run_id)
        state = loaded.known
        loaded = changed(loaded, memory=cast("dict[str, Any]", resumption.secrets.reveal(loaded.memory)))
        if state.status not in UNFINISHED:
            return loaded
        opening = opening_of(
            state, decided_by_parent(state), resumption.secrets, resumption.rules, resumption.recording
        )
        return changed(loaded, opening=opening)


def opening_of(
    state: RunState,
    decisions: Mapping[str, Decision],
    secrets: Secrets,
    rules: StandingRules,
    recording: Recording | None = None,
) -> Sequence[Event]:
    """What is recorded first when a run goes on; rules that come with decisions are kept, and a cassette is told.
    Raises RunError for a decision about a call that does not wait, or waits as another."""
    waiting = state.approvals.undecided if state.status in PAUSED else {}
    facts = decision_facts(decisions, waiting, secrets)
    own = {call.id for call in state.pending.calls}  # questions of runs that tools started are those runs' matter
    for fact in facts:
        if fact.call_id in own and fact.always is not None:
            rules.add(fact.always, fact.by)
    if recording is not None:
        recording.resumed(state, [fact for fact in facts if fact.call_id in own])
    return [*facts, RunResumed()]
