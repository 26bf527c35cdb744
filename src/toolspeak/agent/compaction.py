"""Makes the history of a run that has ended shorter, for the run that follows it."""

from __future__ import annotations

from typing import Literal

from toolspeak.agent.interceptors import InterceptorRunner
from toolspeak.agent.recording.recorder import BatchContextFactory, Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.history import full_window, plan_compaction, plan_summary
from toolspeak.agent.state.state import FINAL
from toolspeak.agent.storage.runs import LeaseKeeper, load_whole
from toolspeak.agent.turns import Turns
from toolspeak.data.events import HistoryCompacted
from toolspeak.data.messages import tokens_of
from toolspeak.data.values import evolve
from toolspeak.errors import RunError
from toolspeak.journal import Journal


async def compact_run(
    settings: RunSettings, journal: Journal, run_id: str, trigger: Literal["auto", "manual"], *, thorough: bool
) -> HistoryCompacted | None:
    """Adds the compaction to the run's records. None if an interceptor refuses.

    - `settings`: those of the agent whose model writes the summary.
    - `journal`: the one that holds the run.
    - `trigger`: "manual" has all but the newest messages summarised. "auto" shortens the history as if its model's
      window were full: old results first.
    - `thorough`: "auto" has all but the newest messages summarised too.

    Raises RunError for a run that has not ended and if there is nothing to make shorter, RunBusy while a process drives
    it, and ProviderError if the model writes no summary.
    """
    settings = evolve(settings, journal=journal)
    async with LeaseKeeper(settings.journal, run_id, lambda: None) as lease:
        loaded_run = await load_whole(settings.journal, run_id)
        state = loaded_run.existing_state
        if state.status not in FINAL:
            raise RunError(
                f"run {run_id} is {state.status.replace('_', ' ')}: let it end before its history is changed"
            )
        estimate = sum(map(tokens_of, state.history))  # as the next run counts it at its start
        if trigger == "manual" or thorough:
            context = max(estimate, state.context.tokens)
            window = full_window(context, settings.window)
            plan = plan_summary(state.history, context, window)
        else:
            window = full_window(estimate, settings.window)
            plan = plan_compaction(state.history, estimate, state.context.task, window)
        if plan is None:
            raise RunError("there is nothing to summarise: the conversation is as short as it can be")
        settings = evolve(settings, window=window)
        recorder = Recorder(settings, run_id, state, loaded_run.before)
        recorder.lease = lease
        contexts = BatchContextFactory(settings, run_id, recorder, loaded_run.memory)
        interceptors = InterceptorRunner(settings.interceptors, settings.secrets, contexts.hook)
        turns = Turns(settings, interceptors, recorder, contexts)
        try:
            return await turns.compact(plan, trigger)
        finally:
            await turns.close()
