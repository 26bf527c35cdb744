"""Makes the history of a run that has ended shorter, for the run that follows it."""

from __future__ import annotations

from toolspeak.agent.interceptors import InterceptorRunner
from toolspeak.agent.recorder import Recorder, RunContexts
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.history import full_window, plan_compaction
from toolspeak.agent.state.state import FINAL
from toolspeak.agent.storage.runs import LeaseKeeper, load_whole
from toolspeak.agent.turns import Turns
from toolspeak.data.events import HistoryCompacted
from toolspeak.data.messages import tokens_of
from toolspeak.data.values import changed
from toolspeak.errors import RunError


async def compact_run(settings: RunSettings, run_id: str) -> HistoryCompacted | None:
    """Adds the compaction to the run's records, as if its model's window were full. None if nothing can be made
    shorter, or an interceptor refuses.

    `settings`: those of the agent whose model writes the summary; with the journal of the run. Raises RunError for a
    run that has not ended, RunBusy while a process drives it.
    """
    async with LeaseKeeper(settings.journal, run_id, lambda: None) as lease:
        loaded = await load_whole(settings.journal, run_id)
        state = loaded.existing_state
        if state.status not in FINAL:
            raise RunError(
                f"run {run_id} is {state.status.replace('_', ' ')}: let it end before its history is changed"
            )
        context = sum(map(tokens_of, state.history))  # as the next run counts it at its start
        window = full_window(context, settings.window)
        plan = plan_compaction(state.history, context, state.context.task, window)
        if plan is None:
            return None
        settings = changed(settings, window=window)
        recorder = Recorder(settings, run_id, state, loaded.before)
        recorder.lease = lease
        contexts = RunContexts(settings, run_id, recorder, loaded.memory)
        interceptors = InterceptorRunner(settings.interceptors, settings.secrets, contexts.hook)
        turns = Turns(settings, interceptors, recorder, contexts)
        try:
            return await turns.compact(plan, "manual")
        finally:
            await turns.close()
