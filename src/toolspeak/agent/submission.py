"""Starts a run under an id that the caller chooses: once, however often it is called."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, cast

from toolspeak.agent.child_runs import decided_by_parent, parent_call, web_of_parent, within_parent
from toolspeak.agent.options import RunOptions
from toolspeak.agent.result import Resumption, RunResult, result_from, resume_events
from toolspeak.agent.run_inputs import decision_key
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.history import pair_results, without_secrets
from toolspeak.agent.state.steps import RunRecords
from toolspeak.agent.storage.runs import LoadedRun, load_whole
from toolspeak.agent.storage.sessions import SessionTip
from toolspeak.agent.validation import check_messages, check_options, check_priced, checked_choice
from toolspeak.data.events import Record, RunStarted
from toolspeak.data.messages import Message, ToolChoice
from toolspeak.data.run_values import UNFINISHED_STATUSES, Limits
from toolspeak.data.values import evolve, quick
from toolspeak.errors import ConfigurationError, RunConflict
from toolspeak.execute.calls.prepare import new_id
from toolspeak.journal.base import Journal

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
MOST_RUN_ID = 128
"""The longest id of a run, in characters."""


def check_run_id(run_id: object) -> None:
    """Raises ConfigurationError for what cannot be the id of a run."""
    if not isinstance(run_id, str) or len(run_id) > MOST_RUN_ID or not _RUN_ID.fullmatch(run_id):
        raise ConfigurationError(
            f"run_id must be 1 to {MOST_RUN_ID} letters, digits and . _ : -, beginning with a letter or digit, not"
            f" {run_id!r:.200}"
        )


@quick()
class IdempotentStart:
    """Starts a run, or goes on with it if it is there: one that a call's function starts and that the function, entered
    again, finds; or one under an id of the caller's.

    - `run_start`: the first event of a new one.
    - `is_sub_run`: the decisions about its calls are those of its parent.
    """

    resumption: Resumption
    run_start: RunStarted
    is_sub_run: bool = False

    async def load(self) -> LoadedRun:
        """As `Resumption.load`. For a run that has ended, nothing is recorded. Raises RunConflict if the id belongs to
        another task."""
        settings, run_id = self.resumption.settings, self.resumption.run_id
        if await settings.journal.run(run_id) is None:
            return LoadedRun(None, (), (), {}, [self.run_start])
        loaded_run = await load_whole(settings.journal, run_id)
        if not self.is_sub_run:
            check_same(loaded_run.records, self.run_start, settings.agent, settings.principal)
        state = loaded_run.existing_state
        loaded_run = evolve(loaded_run, memory=cast("dict[str, Any]", settings.secrets.reveal(loaded_run.memory)))
        if state.status not in UNFINISHED_STATUSES:
            return loaded_run
        decisions = decided_by_parent(state) if self.is_sub_run else {}
        return evolve(loaded_run, first_events=resume_events(state, decisions, settings))


def check_same(records: Sequence[Record], run_start: RunStarted, agent: str, principal: str | None) -> None:
    """Raises RunConflict unless the records are those of a run with this task, agent, session and principal."""
    first, earlier = records[0], cast("RunStarted", records[0].event)
    differences = {
        "another task": earlier.messages != run_start.messages,
        "another agent": first.agent != agent,
        "another session": earlier.session_id != run_start.session_id,
        "another principal": first.principal != principal,
    }
    different = [name for name, differs in differences.items() if differs]
    if different:
        raise RunConflict(
            f"run {first.run_id} is there already, with {' and '.join(different)}: use another run_id, or ask for the"
            " same again"
        )


def prepared_start(
    settings: RunSettings, task: str | Message, options: RunOptions, place: SessionTip | None
) -> tuple[RunSettings, RunStarted]:
    """The settings of one run, and its first record. Raises as `Agent.start`."""
    check_options(options, RunOptions.__annotations__)
    history, parent = options.get("history", ()), options.get("parent_run_id")
    check_messages(task, history)
    if (run_id := options.get("run_id")) is not None:
        check_run_id(run_id)
        if parent_call(parent) is not None:
            raise ConfigurationError("a run that a tool starts has an id that follows from its call: leave out run_id")
    message = Message.user(task) if isinstance(task, str) else task
    limits, agents = options.get("limits") or settings.limits, (settings, *settings.family.values())
    for each in agents:
        check_priced(limits, each.driver.name, each.price)
    if parent is not None:
        is_priced = all(each.price is not None for each in agents)
        limits = within_parent(limits, parent, priced=is_priced)
    run_start = RunStarted(
        tuple(without_secrets(each, settings.secrets) for each in (*pair_results(history), message)),
        settings.driver.name,
        limits,
        setup=options.get("setup", {}),
        choice=checked_choice(options.get("tool_choice", settings.choice), settings.all_tools),
        extra=web_of_parent(parent, [message]),
    )
    if place is not None:
        run_start = with_place(run_start, place)
    settings = evolve(
        settings,
        deps=options.get("deps"),
        principal=options.get("principal"),
        traceparent=options.get("traceparent"),
        parent_run_id=parent,
    )
    return settings, run_start


def with_place(run_start: RunStarted, place: SessionTip) -> RunStarted:
    """The first record of a run that goes on with a session."""
    return evolve(
        run_start,
        session_id=place.session_id,
        session_version=place.version,
        follows=place.follows,
        follows_seq=place.follows_seq,
        found_tools=place.found_tools,
    )


async def submit_by_name(
    journal: Journal,
    agent: str,
    task: str | Message,
    options: RunOptions,
    at: float | None,
    place: SessionTip | None = None,
) -> RunResult[Any]:
    """As `submit_run`, for an agent of which only the name is known here. `place`: where a session goes on."""
    check_options(options, RunOptions.__annotations__)
    history = options.get("history", ())
    check_messages(task, history)
    choice = options.get("tool_choice", ToolChoice())
    if not isinstance(choice, ToolChoice):
        raise ConfigurationError("a run that is submitted by its agent's name takes a ToolChoice, not a string")
    message = Message.user(task) if isinstance(task, str) else task
    run_start = RunStarted(
        (*pair_results(history), message),
        "",
        options.get("limits") or Limits(),
        setup=options.get("setup", {}),
        choice=choice,
    )
    if place is not None:
        run_start = with_place(run_start, place)
    return await submit_run(journal, agent, run_start, options, at)


async def submit_run(
    journal: Journal, agent: str, run_start: RunStarted, options: RunOptions, at: float | None
) -> RunResult[Any]:
    """Records a run that a worker drives later, unless it is there. Returns how it stands. Raises RunConflict if the id
    belongs to another task."""
    run_id = options.get("run_id")
    if run_id is not None:
        check_run_id(run_id)
    if options.get("deps") is not None or options.get("parent_run_id") is not None:
        raise ConfigurationError("a submitted run takes no deps (its worker has them) and no parent_run_id")
    run_id, principal = run_id or new_id(), options.get("principal")
    if await journal.run(run_id) is None:
        now = time.time()
        record = Record(
            evolve(run_start, due=now if at is None else float(at)),
            run_id,
            0,
            0,
            now,
            agent,
            principal=principal,
            traceparent=options.get("traceparent"),
        )
        try:
            await journal.append(record)
        except RunConflict:
            if await journal.run(run_id) is None:  # the session went on elsewhere
                raise
    loaded_run = await load_whole(journal, run_id)
    check_same(loaded_run.records, run_start, agent, principal)
    return await stored_result(journal, loaded_run)


async def stored_result(journal: Journal, loaded_run: LoadedRun) -> RunResult[Any]:
    """The state of a run in its journal, as a result. A question with a stored decision is not open, even if no process
    has continued the run since."""
    state = loaded_run.existing_state
    result: RunResult[Any] = result_from(
        state.run_id, state, loaded_run.memory, journal, RunRecords(loaded_run.records, loaded_run.before)
    )
    if result.requests:
        stored_keys = {entry.key for entry in await journal.inputs(state.run_id) if entry.kind == "decision"}
        requests = [each for each in result.requests if decision_key(each.call_id, each.digest) not in stored_keys]
        result = evolve(result, requests=tuple(requests), waiting=tuple(each.call_id for each in requests))
    return result
