"""What the API does with runs: decisions, messages, suspending, resuming, forks, new runs."""

from __future__ import annotations

import hashlib
from typing import Any

from toolspeak.agent.options import CommonOptions
from toolspeak.agent.storage.runs import closed_history, load_state
from toolspeak.agent.submission import check_run_id
from toolspeak.data.approvals import Decision, Rule
from toolspeak.data.events import RunStarted
from toolspeak.data.messages import Message
from toolspeak.errors import RunConflict, RunError
from toolspeak.execute.approval.always_rules import always_rule
from toolspeak.web_ui.api_errors import ApiFailure
from toolspeak.web_ui.api_values import (
    Acceptance,
    DecisionBody,
    DecisionMade,
    ForkBody,
    MessageBody,
    MessageSent,
    SubmitBody,
    Suspension,
)
from toolspeak.web_ui.run_views import ApiCall, fold_of, info_of


async def decide(call: ApiCall) -> DecisionMade:
    """Decides about a call. Of two decisions the first one counts: the other gets a 409 that names who made it."""
    body: DecisionBody = call.body
    info, _, state = await fold_of(call)
    client, by = call.services.client, call.caller.name
    question = state.approvals.open_requests.get(body.call_id)
    always: Rule | None = None
    if body.action == "always" and question is not None and question.digest == body.digest:
        always = always_rule(question, body.scope)
    if body.action == "edit" and body.arguments is None:
        raise ApiFailure(400, "bad_request", "`edit` needs the new `arguments`")
    decision = Decision(
        body.action != "refuse",
        body.reason,
        by,
        arguments=body.arguments if body.action == "edit" else None,
        ends_run=body.ends_run and body.action == "refuse",
        always=always,
    )
    if body.action == "always" and always is None and question is not None:
        raise ApiFailure(409, "changed", f"run {info.run_id} asks something else by now: look at the question again")
    try:
        is_first = await client.decide(info.run_id, body.call_id, decision, principal=by, digest=body.digest)
    except RunConflict as error:
        earlier = await client.decision(info.run_id, body.call_id)
        is_decided = earlier is not None and (question is None or earlier.digest == question.digest)
        who = (earlier.by or "someone") if earlier is not None and is_decided else ""
        raise ApiFailure(409, "decided" if is_decided else "changed", str(error), by=who) from None
    if not is_first:
        earlier = await client.decision(info.run_id, body.call_id)
        who = (earlier.by if earlier is not None else "") or "someone"
        how = "approved" if decision.approved else "refused"
        raise ApiFailure(409, "decided", f"this call was {how} by {who} before; the first decision counts", by=who)
    return DecisionMade(body.call_id, decision.approved, by)


async def say(call: ApiCall) -> MessageSent:
    body: MessageBody = call.body
    info = await info_of(call)
    client = call.services.client
    return MessageSent(await client.say(info.run_id, body.text, key=body.key, principal=call.caller.name))


async def suspend(call: ApiCall) -> Suspension:
    info = await info_of(call)
    return Suspension("requested" if await call.services.client.suspend(info.run_id) else "suspended")


async def resume(call: ApiCall) -> Acceptance:
    info = await info_of(call)
    await call.services.client.resume(info.run_id, principal=call.caller.name)
    return await _standing(call, info.run_id)


async def fork(call: ApiCall) -> Acceptance:
    """Starts a run with the conversation as it was before a record, on behalf of the same principal."""
    body: ForkBody = call.body
    info, journal = await info_of(call), call.services.journal
    if not 0 < body.seq <= info.records:
        raise ApiFailure(400, "bad_request", f"`seq` is 1 to {info.records}: the run has so many records")
    history = [*closed_history(await load_state(journal, info.run_id, body.seq))]
    task: str | Message | None = body.task
    if task is None:
        last = max((at for at, each in enumerate(history) if each.role == "user"), default=None)
        if last is None:
            raise ApiFailure(400, "bad_request", "the conversation has no task there: write a `task`")
        task, history = history[last], history[:last]
    (first,) = await journal.read(info.run_id, 0, 1)
    setup: dict[str, Any] = dict(first.event.setup) if isinstance(first.event, RunStarted) else {}
    changes = {name: value for name in ("model", "dialect") if (value := getattr(body, name)) is not None}
    if changes and not {"model", "dialect"} <= setup.keys():
        raise ApiFailure(
            400, "bad_request", "this run's agent chooses its model: fork it with another `agent` that a worker has"
        )
    options: CommonOptions = {"history": history, "principal": info.principal}
    if setup:
        # A fork is no part of the run's recording.
        options["setup"] = {**setup, **changes, **{name: "" for name in ("record", "recording") if name in setup}}
    submission = await call.services.client.submit(body.agent or info.agent, task, **options)
    return await _standing(call, submission.run_id)


async def submit(call: ApiCall) -> Acceptance:
    body: SubmitBody = call.body
    sees, run_id = call.caller.sees, body.run_id
    if sees is not None and run_id is not None:
        # Else an id that another principal's run has would be a conflict, which says that there is such a run.
        check_run_id(run_id)
        run_id = f"{hashlib.sha256(sees.encode()).hexdigest()[:16]}-{run_id}"
    options: CommonOptions = {"principal": call.caller.name if sees is None else sees, "run_id": run_id}
    submission = await call.services.client.submit(body.agent, body.task, **options)
    return await _standing(call, submission.run_id)


async def _standing(call: ApiCall, run_id: str) -> Acceptance:
    info = await call.services.journal.run(run_id)
    if info is None:
        raise RunError(f"run {run_id} was deleted meanwhile")
    return Acceptance(run_id, info.status)
