"""What the API says of runs and sessions. Every read of the journal is bounded."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from toolspeak.agent.charts.run_chart import RunChart
from toolspeak.agent.result import why_unanswered
from toolspeak.agent.run_inputs import decision_key
from toolspeak.agent.state.state import RunState
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.approvals import Decision
from toolspeak.data.codec import load
from toolspeak.data.events import ModelAsked, Record
from toolspeak.data.messages import Message
from toolspeak.data.run_values import UNFINISHED_STATUSES
from toolspeak.data.values import evolve, quick
from toolspeak.engines import RunClient
from toolspeak.execute.approval.offered_rules import rules_offered
from toolspeak.journal.base import Journal, RunInfo, SessionInfo
from toolspeak.journal.leases import is_held
from toolspeak.project.recorded_setup import setup_of_run
from toolspeak.project.run_lookup import status_of
from toolspeak.web_ui.access import Caller
from toolspeak.web_ui.api_errors import ApiFailure
from toolspeak.web_ui.api_values import (
    AlwaysOffer,
    MessagesPage,
    OpenQuestion,
    PageQuery,
    RecordItem,
    RecordsPage,
    RunDetail,
    RunItem,
    RunsPage,
    RunsQuery,
    RunTotals,
    SearchMatch,
    SearchMatches,
    SearchQuery,
    SessionItem,
    SessionsPage,
    SessionsQuery,
    TextPiece,
    TextQuery,
)
from toolspeak.web_ui.gateway_values import GatewayWatch
from toolspeak.web_ui.live_runs import LiveRuns
from toolspeak.web_ui.record_json import json_of, message_item, record_item, text_at, value_at
from toolspeak.web_ui.run_folds import RunFold, RunFolds

PAGE_BYTES = 1_000_000
"""A page of records ends after so many bytes of JSON."""

_FIRST_READ = 16  # records that are read at once; any of them may have megabytes
_MOST_READ = 500
_MOST_SUB_RUNS = 100
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


@quick(frozen=False, eq=False)
class UiServices:
    """What all requests use.

    - `has_runs`: whether a journal is shown; without one, `journal` has nothing.
    - `gateway`: None: no gateway is shown.
    """

    journal: Journal
    client: RunClient
    folds: RunFolds
    live: LiveRuns
    has_runs: bool = True
    gateway: GatewayWatch | None = None


@quick()
class ApiCall:
    """One request: who sends it, the names in its path, its query and its body as values."""

    services: UiServices
    caller: Caller
    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]


# --- lists ----------------------------------------------------------------------------------------------------------


async def list_runs(call: ApiCall) -> RunsPage:
    query: RunsQuery = call.query
    if not _sees(call, query.principal or call.caller.sees):
        return RunsPage(())
    if query.parent is not None and call.caller.sees is not None and await _seen_run(call, query.parent) is None:
        return RunsPage(())
    infos = await call.services.journal.runs(
        prefix=query.prefix,
        session_id=query.session,
        status=query.status,
        principal=call.caller.sees or query.principal,
        agent=query.agent,
        model=query.model,
        folder=query.folder,
        dialect=query.dialect,
        parent_run_id=query.parent,
        after=_cursor(query.after) or (None if query.from_time is None else (query.from_time, "")),
        oldest_first=query.oldest_first,
        limit=query.limit,
    )
    more = _cursor_text(infos[-1].created, infos[-1].run_id) if len(infos) == query.limit else None
    return RunsPage(await _run_items(call, infos), more)


async def list_sessions(call: ApiCall) -> SessionsPage:
    query: SessionsQuery = call.query
    if not _sees(call, query.principal or call.caller.sees):
        return SessionsPage(())
    infos = await call.services.journal.sessions(
        principal=call.caller.sees or query.principal, after=_cursor(query.after), limit=query.limit
    )
    more = _cursor_text(infos[-1].updated, infos[-1].session_id) if len(infos) == query.limit else None
    return SessionsPage(tuple([await _session_item(call, info) for info in infos]), more)


async def one_session(call: ApiCall) -> SessionItem:
    info = await call.services.journal.session(call.path["session_id"])
    if info is None or not _sees(call, info.principal):
        raise ApiFailure(404, "not_there", "there is no such session")
    return await _session_item(call, info)


async def search(call: ApiCall) -> SearchMatches:
    query: SearchQuery = call.query
    hits = await call.services.journal.search(query.q, principal=call.caller.sees, limit=query.limit)
    return SearchMatches(
        tuple(
            SearchMatch(each.run_id, each.seq, each.title, each.time, each.role, each.snippet, each.session_id)
            for each in hits
        )
    )


def run_item(info: RunInfo) -> RunItem:
    """A run as lists have it."""
    return RunItem(
        info.run_id,
        status_of(info),
        info.title,
        info.model,
        info.agent,
        info.created,
        info.updated,
        info.records,
        info.session_id,
        info.principal,
        info.parent_run_id,
        info.folder,
        info.dialect,
        is_held(info),
    )


async def _run_items(call: ApiCall, infos: Sequence[RunInfo]) -> tuple[RunItem, ...]:
    """Runs as lists have them. A caller learns of no run above them that it does not see."""
    items = tuple(run_item(info) for info in infos)
    if call.caller.sees is None:
        return items
    parents = {each for info in infos if (each := info.parent_run_id) is not None}
    hidden_ids = {each for each in parents if await _seen_run(call, each) is None}
    return tuple(evolve(item, parent_run_id=None) if item.parent_run_id in hidden_ids else item for item in items)


async def _session_item(call: ApiCall, info: SessionInfo) -> SessionItem:
    forked_from = info.forked_from[0] if info.forked_from else None
    if forked_from is not None and call.caller.sees is not None and await _seen_run(call, forked_from) is None:
        forked_from = None
    return SessionItem(
        info.session_id,
        info.title,
        info.created,
        info.updated,
        info.runs,
        info.last_run,
        info.principal,
        forked_from,
    )


def _cursor_text(time: float, name: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([time, name]).encode()).decode().rstrip("=")


def _cursor(text: str | None) -> tuple[float, str] | None:
    if text is None:
        return None
    try:
        time, name = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError):
        time, name = None, None
    if not isinstance(time, float) or not isinstance(name, str):
        raise ApiFailure(400, "bad_request", "`after` is no cursor: take the `next` of the page before")
    return time, name


# --- one run --------------------------------------------------------------------------------------------------------


async def info_of(call: ApiCall) -> RunInfo:
    """The run that the path names. Raises ApiFailure if it is not there, or if the caller does not see it."""
    return await seen_run(call, call.path["run_id"])


async def seen_run(call: ApiCall, run_id: str) -> RunInfo:
    """A run. Raises ApiFailure if it is not there, and the same if the caller does not see it."""
    info = await _seen_run(call, run_id)
    if info is None:
        raise ApiFailure(404, "not_there", "the journal has no such run")
    return info


async def _seen_run(call: ApiCall, run_id: str) -> RunInfo | None:
    info = await call.services.journal.run(run_id)
    return info if info is not None and _sees(call, info.principal) else None


def _sees(call: ApiCall, principal: str | None) -> bool:
    return call.caller.sees in (None, principal)


async def fold_of(call: ApiCall) -> tuple[RunInfo, RunFold, RunState]:
    """The run that the path names, with its state. Raises ApiFailure if it is not there."""
    info = await info_of(call)
    fold = await call.services.folds.of(info.run_id)
    if fold.state is None:
        raise ApiFailure(404, "not_there", "the run was deleted")
    return info, fold, fold.state


async def one_run(call: ApiCall) -> RunDetail:
    info, fold, state = await fold_of(call)
    journal, usage = call.services.journal, state.totals.usage
    inputs = await journal.inputs(info.run_id) if info.status in UNFINISHED_STATUSES else ()
    decisions = {entry.key: cast("Decision", load(entry.data)) for entry in inputs if entry.kind == "decision"}
    questions: list[OpenQuestion] = []
    for call_id, request in state.approvals.open_requests.items() if info.status in UNFINISHED_STATUSES else ():
        decision = decisions.get(decision_key(call_id, request.digest))
        questions.append(
            OpenQuestion(
                call_id,
                fold.questions[call_id],
                request.digest,
                request.call.name,
                request.reason,
                "" if decision is None else ("approved" if decision.approved else "refused"),
                "" if decision is None else decision.by or "someone",
                tuple(AlwaysOffer(*offer) for offer in rules_offered(request)),
                fold.parameters(call_id),
            )
        )
    messages = [
        cast("Message", load(entry.data)) for entry in inputs if entry.kind == "message" and entry.taken_by is None
    ]
    sub_runs = await journal.runs(parent_run_id=info.run_id, principal=call.caller.sees, limit=_MOST_SUB_RUNS)
    (item,) = await _run_items(call, [info])
    setup = await setup_of_run(journal, info.run_id)
    return RunDetail(
        item,
        state.step,
        RunTotals(
            usage.input or 0,
            usage.output or 0,
            usage.cached or 0,
            usage.reasoning or 0,
            state.totals.calls,
            state.totals.estimated,
            state.totals.cost,
        ),
        asdict(cast("Any", state.limits)),
        tuple(questions),
        tuple(state.pending.waits),
        tuple(message.text[:500] for message in messages),
        tuple(run_item(each) for each in sub_runs),
        state.answer or "",
        state.reason,
        why_unanswered(state) if state.status in ("failed", "no_answer") else "",
        asks_elsewhere=bool(questions) and info.status == "running" and is_held(info),
        can_fork_model={"model", "dialect"} <= setup.keys(),
        until=state.until,
    )


async def run_records(call: ApiCall) -> RecordsPage:
    query: PageQuery = call.query
    info = await info_of(call)
    items = [item async for item in _page(call.services.journal, info.run_id, query)]
    end = query.start + len(items)
    return RecordsPage(tuple(items), end, end >= info.records)


async def _page(journal: Journal, run_id: str, query: PageQuery) -> AsyncGenerator[RecordItem]:
    """The records of a page, which ends early if they are large."""
    position, size, count = query.start, 0, _FIRST_READ
    end = query.start + query.limit
    while position < end and size < PAGE_BYTES:
        page = await journal.read(run_id, position, min(count, end - position))
        is_cut = False
        for record in page:
            item = record_item(record)
            is_cut = is_cut or bool(item.cut)
            size += len(json_of(item.event))
            yield item
            if size >= PAGE_BYTES:
                return
        if len(page) < min(count, end - position):
            return
        position += len(page)
        # As many as the page still has room for, if they are like those before.
        room = (PAGE_BYTES - size) * (position - query.start) // max(1, size)
        count = _FIRST_READ if is_cut else max(_FIRST_READ, min(4 * count, _MOST_READ, room))


async def record_text(call: ApiCall) -> TextPiece:
    query: TextQuery = call.query
    record = await record_of(call)
    try:
        text = text_at(record, _place(query.place))
    except LookupError:
        raise ApiFailure(404, "not_there", "the record has no such place") from None
    return TextPiece(text[query.start : query.start + query.length], query.start, len(text))


async def record_image(call: ApiCall) -> tuple[bytes, str]:
    """The bytes and the type of an image in a record. Raises ApiFailure for what browsers do not draw as pixels alone
    (an SVG, say)."""
    record = await record_of(call)
    try:
        part = cast("dict[str, Any]", value_at(record, _place(call.query.place)))
        kind, data = part["media_type"], base64.b64decode(part["data"], validate=True)
    except (LookupError, TypeError, ValueError):
        raise ApiFailure(404, "not_there", "the record has no image at this place") from None
    if kind not in _IMAGES:
        raise ApiFailure(415, "no_image", f"only {', '.join(_IMAGES)} are shown")
    return data, kind


async def record_of(call: ApiCall) -> Record:
    """The record that the path names. Raises ApiFailure if it is not there."""
    info = await info_of(call)
    seq = call.path["seq"]
    number = int(seq) if seq.isascii() and seq.isdigit() and len(seq) < 10 else info.records
    records = await call.services.journal.read(info.run_id, number, 1)
    if not records:
        raise ApiFailure(404, "not_there", f"the run has {info.records} records")
    return records[0]


def _place(text: str) -> Sequence[str | int]:
    try:
        place = json.loads(text)
    except ValueError:
        place = None
    if not isinstance(place, list) or not all(type(key) in (str, int) for key in cast("list[Any]", place)):
        raise ApiFailure(400, "bad_request", "`place` is a JSON array of keys and numbers")
    return cast("list[str | int]", place)


async def run_timeline(call: ApiCall) -> RunChart:
    info, fold, _ = await fold_of(call)
    return fold.chart(time.time() if info.status != "running" or is_held(info) else None)


async def step_messages(call: ApiCall) -> MessagesPage:
    """The messages that the model read at the step whose record the path names (a `ModelAsked`)."""
    query: PageQuery = call.query
    record = await record_of(call)
    if not isinstance(record.event, ModelAsked):
        raise ApiFailure(404, "not_there", "this record asks no model: name one of the kind ModelAsked")
    state = await load_state(call.services.journal, record.run_id, record.seq + 1)
    messages = state.history[query.start : query.start + min(query.limit, 50)]
    return MessagesPage(tuple(message_item(each) for each in messages), query.start, len(state.history))


async def run_events(call: ApiCall) -> AsyncGenerator[bytes] | None:
    """The stream of the run's events; None if there is nothing more to come."""
    info = await info_of(call)
    text = call.headers.get("last-event-id") or ""
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ApiFailure(400, "bad_request", "last-event-id is the number of a record")
    start = int(text) + 1 if text else call.query.start
    if text and info.status not in UNFINISHED_STATUSES and start >= info.records:
        return None  # a browser that reconnects by itself stops then
    return call.services.live.events(info.run_id, start)
