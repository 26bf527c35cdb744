"""The contract of a journal, as checks for a store of your own; `queued_runs` has more of them.

Each check takes `open_store`, a function that opens the same store, empty at first, again and again: two journals of it
act as two processes. A check raises AssertionError. Ids are new in each check, so one store serves them all.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from toolspeak.data.events import (
    Event,
    ModelAnswered,
    ModelAsked,
    Record,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolFinished,
    ToolStarted,
    UnknownEvent,
    UserMessageQueued,
)
from toolspeak.data.messages import FilePart, Message, TextPart, ToolCall, ToolResult
from toolspeak.errors import JournalError, LeaseLost, RunBusy, RunConflict
from toolspeak.journal.base import Journal, SessionInfo

OpenStore: TypeAlias = Callable[[], Journal]
Check: TypeAlias = Callable[[OpenStore], Awaitable[None]]

_ODD = "NUL \0, a lone surrogate \ud800, an emoji 😀, a quote ' and a $1"


def new_id() -> str:
    return uuid.uuid4().hex


def a_run(run_id: str, *events: Event, task: str = "do it", time: float = 1000.0, **start: Any) -> list[Record]:
    """The records of a run that starts with a task and continues with these events, a second each."""
    principal = start.pop("principal", None)
    whole = (RunStarted((Message.user(task),), "model", **start), *events)
    return [Record(event, run_id, seq, seq, time + seq, principal=principal) for seq, event in enumerate(whole)]


async def write(journal: Journal, records: Sequence[Record]) -> None:
    for record in records:
        await journal.append(record)


async def error_of(kind: type[Exception], work: Awaitable[Any]) -> Exception:
    """The error of this kind that the work raises."""
    try:
        await work
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def every_kind() -> tuple[Event, ...]:
    """Events with everything a store may get wrong: odd text, bytes, nested values, kinds of a later version."""
    call = ToolCall("call_1_0", "write", {"text": _ODD, "n": [1, 2.5, None, {"type": "x"}]}, extra={"later": [1]})
    file = FilePart("a", "application/octet-stream", bytes(range(256)))
    return (
        ModelAsked("model", "a" * 64, "b" * 64),
        ModelAnswered(Message("assistant", (TextPart(_ODD), call)), "tool_calls"),
        ToolStarted("call_1_0", "write", "key"),
        ToolFinished(ToolResult("call_1_0", "write", "success", (TextPart(_ODD), file), structured={"$blob": 1})),
        UnknownEvent("OfTomorrow", {"a": [_ODD]}),
        RunFinished("answered", _ODD, "answer"),
    )


async def check_records_come_back(open_store: OpenStore) -> None:
    """What was appended is read again, whole, in order, by everybody, from anywhere on."""
    run_id, other = new_id(), new_id()
    records = [replace(r, extra={"odd": _ODD}) for r in a_run(run_id, *every_kind(), task=_ODD)]
    writer, reader = open_store(), open_store()
    assert list(await reader.read(run_id)) == []
    for seq, record in enumerate(records):
        await writer.append(record)
        assert list(await reader.read(run_id)) == records[: seq + 1]
    await write(writer, a_run(other))
    assert list(await reader.read(run_id)) == records
    assert list(await reader.read(run_id, 3)) == records[3:]
    assert list(await reader.read(run_id, 99)) == []
    assert list(await reader.read(run_id, 0, 1)) == records[:1]
    assert list(await reader.read(run_id, 2, 2)) == records[2:4]
    assert list(await reader.read(run_id, 0, 0)) == []
    assert list(await reader.read(new_id())) == []


async def check_one_of_two_writers_wins(open_store: OpenStore) -> None:
    """If two writers continue from the same record, one gets an error, and the other's record stays."""
    run_id = new_id()
    first, second = open_store(), open_store()
    await write(first, a_run(run_id))
    for seq in range(1, 6):
        rivals = [
            journal.append(Record(UserMessageQueued(Message.user(name)), run_id, seq, 0, 1.0))
            for journal, name in ((first, "first"), (second, "second"))
        ]
        outcomes = await asyncio.gather(*rivals, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes if outcome] == [RunConflict], outcomes
    assert [record.seq for record in await second.read(run_id)] == list(range(6))
    for seq in (0, 3, 7):
        await error_of(RunConflict, first.append(Record(RunResumed(), run_id, seq, 0, 1.0)))
    await error_of(RunConflict, first.append(a_run(run_id)[0]))


async def check_a_run_begins_with_its_start(open_store: OpenStore) -> None:
    journal, run_id = open_store(), new_id()
    await error_of(JournalError, journal.append(Record(RunResumed(), run_id, 0, 0, 1.0)))
    await error_of(RunConflict, journal.append(Record(RunResumed(), run_id, 1, 0, 1.0)))
    assert await journal.run(run_id) is None
    assert list(await journal.read(run_id)) == []


async def check_many_at_once(open_store: OpenStore) -> None:
    """Runs that are written at the same time do not mix, and one's refusal touches no other."""
    journal = open_store()
    runs = {run_id: a_run(run_id, *every_kind()) for run_id in (new_id() for _ in range(20))}
    await asyncio.gather(*(write(journal, records) for records in runs.values()))
    stale = next(iter(runs))
    more = [Record(RunResumed(), run_id, len(records), 0, 1.0) for run_id, records in runs.items()]
    more[0] = Record(RunResumed(), stale, 1, 0, 1.0)
    outcomes = await asyncio.gather(*map(journal.append, more), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [RunConflict] + [type(None)] * 19
    for run_id, records in runs.items():
        assert list(await journal.read(run_id))[: len(records)] == records


async def check_large_contents(open_store: OpenStore) -> None:
    """Contents of any size come back, and go with the last session that has them."""
    journal, remaining, deleted_session = open_store(), new_id(), new_id()
    large = "\ud800é\0" * 60_000
    items = {"many": [f"item {i}" for i in range(20_000)]}
    tool_finished = ToolFinished(ToolResult("call_1_0", "read", "success", (TextPart(large),) * 2, structured=items))
    runs = {session: a_run(new_id(), tool_finished, session_id=session) for session in (remaining, deleted_session)}
    for records in runs.values():
        await write(journal, records)
        assert list(await open_store().read(records[0].run_id)) == records
    await journal.delete_session(deleted_session)
    assert list(await journal.read(runs[remaining][0].run_id)) == runs[remaining]
    await journal.delete_session(remaining)
    again = a_run(new_id(), tool_finished)
    await write(journal, again)
    assert list(await journal.read(again[0].run_id)) == again


async def check_a_lease_keeps_others_out(open_store: OpenStore) -> None:
    run_id = new_id()
    mine, theirs = open_store(), open_store()
    records = a_run(run_id, *every_kind())
    lease = await mine.acquire(run_id, "me", 60)
    assert not lease.took_over
    await mine.append(records[0], lease)
    error = await error_of(RunBusy, theirs.acquire(run_id, "them", 60))
    assert run_id in str(error)
    await error_of(LeaseLost, theirs.append(records[1]))
    await mine.append(records[1], lease)
    info = await theirs.run(run_id)
    assert info is not None
    assert info.owner == "me"
    await mine.renew(lease, 60)
    await mine.release(lease)
    await error_of(LeaseLost, mine.append(records[2], lease))
    await error_of(LeaseLost, mine.renew(lease, 60))
    await theirs.append(records[2])
    their_lease = await theirs.acquire(run_id, "them", 60)
    assert their_lease.epoch > lease.epoch
    assert not their_lease.took_over  # the holder before released it
    await mine.release(lease)
    await theirs.append(records[3], their_lease)


async def check_a_stale_owner_is_fenced_off(open_store: OpenStore) -> None:
    """An owner that slept through its lease can record nothing more, so it begins no effect."""
    run_id = new_id()
    mine, theirs = open_store(), open_store()
    records = a_run(run_id, *every_kind())
    lease = await mine.acquire(run_id, "me", -1)
    await mine.append(records[0], lease)
    await mine.append(records[1], lease)  # no process has taken it over yet
    their_lease = await theirs.acquire(run_id, "them", 60)
    assert their_lease.took_over
    error = await error_of(LeaseLost, mine.append(records[2], lease))
    assert "taken over" in str(error)
    await error_of(LeaseLost, mine.renew(lease, 60))
    await error_of(RunBusy, mine.acquire(run_id, "me", 60))
    await theirs.append(records[2], their_lease)
    assert list(await mine.read(run_id)) == records[:3]


async def check_one_of_two_takes_a_run(open_store: OpenStore) -> None:
    run_id = new_id()
    await write(open_store(), a_run(run_id))
    attempts = [open_store().acquire(run_id, name, 60) for name in ("a", "b", "c")]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Lease", "RunBusy", "RunBusy"], outcomes


async def check_a_request_to_suspend_reaches_the_holder(open_store: OpenStore) -> None:
    mine, other, run_id = open_store(), open_store(), new_id()
    assert not await other.ask_to_suspend(run_id)
    lease = await mine.acquire(run_id, "mine", 60)
    await mine.append(a_run(run_id)[0], lease)
    assert not (await mine.renew(lease, 60)).suspend
    assert await other.ask_to_suspend(run_id)
    await mine.append(Record(ModelAsked("model", "", ""), run_id, 1, 1, 1001.0), lease)  # what is asked is no record
    assert (await mine.renew(lease, 60)).suspend
    await mine.release(lease)
    assert not await other.ask_to_suspend(run_id)
    again = await mine.acquire(run_id, "mine", 60)
    assert not (await mine.renew(again, 60)).suspend, "what was asked of one lease is asked of another"
    await mine.acquire(run_id, "mine", -1)
    assert not await other.ask_to_suspend(run_id), "an expired lease has no holder"
    await mine.append(Record(RunPaused("suspended"), run_id, 2, 1, 1002.0), await mine.acquire(run_id, "mine", 60))
    info = await other.run(run_id)
    assert info is not None
    assert info.status == "suspended"


async def check_runs_are_listed(open_store: OpenStore) -> None:
    journal, session, user = open_store(), new_id(), new_id()
    paused_run, ended_run = new_id(), new_id()
    await write(journal, a_run(paused_run, RunPaused("awaiting_approval", ("call_1_0",)), principal=user, time=2000.0))
    await write(
        journal, a_run(ended_run, *every_kind(), task="two\nlines", principal=user, session_id=session, time=3000.0)
    )
    infos = await journal.runs(principal=user)
    assert [info.run_id for info in infos] == [ended_run, paused_run]
    assert infos[0] == await journal.run(ended_run)
    assert (infos[0].status, infos[0].title, infos[0].records, infos[0].updated) == ("answered", "two", 7, 3006.0)
    assert [info.run_id for info in await journal.runs(principal=user, status="awaiting_approval")] == [paused_run]
    assert [info.run_id for info in await journal.runs(session_id=session)] == [ended_run]
    assert [info.run_id for info in await journal.runs(principal=user, alone=True, limit=1)] == [paused_run]
    of_tool = new_id()
    await write(journal, [replace(each, parent_run_id=paused_run) for each in a_run(of_tool)])
    assert [info.run_id for info in await journal.runs(prefix=of_tool)] == [of_tool]
    assert list(await journal.runs(prefix=of_tool, alone=True)) == [], "a run that another run started is not alone"
    assert [info.run_id for info in await journal.runs(prefix=ended_run[:20])] == [ended_run]
    assert [info.run_id for info in await journal.runs(principal=user, limit=1)] == [ended_run]
    assert list(await journal.runs(principal=user, after=(infos[0].created, ended_run))) == [infos[1]]
    assert list(await journal.runs(principal=user, after=(infos[1].created, paused_run))) == []
    assert list(await journal.runs(principal=user, oldest_first=True)) == [*reversed(infos)]
    assert list(await journal.runs(principal=user, oldest_first=True, limit=1)) == [infos[1]]
    assert list(await journal.runs(principal=user, oldest_first=True, after=(infos[1].created, paused_run))) == [
        infos[0]
    ]
    assert list(await journal.runs(principal=user, oldest_first=True, after=(infos[0].created, ended_run))) == []
    await journal.append(Record(RunResumed(), paused_run, 2, 1, 2002.0))
    info = await journal.run(paused_run)
    assert info is not None
    assert (info.status, info.updated) == ("running", 2002.0)
    run_id = new_id()
    await journal.acquire(run_id, "me", 60)
    assert await journal.run(run_id) is None


async def check_lists_of_runs_have_pages_and_filters(open_store: OpenStore) -> None:
    """Pages of a list hold each run once, also where runs began at the same moment."""
    journal, user, others = open_store(), new_id(), new_id()
    setup = {"workspace": f"/srv/{user}", "dialect": f"d-{user}", "model": "x"}
    names = sorted((new_id() for _ in range(5)), reverse=True)
    for run_id in names:
        (record,) = a_run(run_id, principal=user, setup=setup, time=1500.0)
        await journal.append(replace(record, agent=user))
    (record,) = a_run(new_id(), principal=others, time=1500.0)
    await journal.append(replace(record, parent_run_id=names[0]))
    run_ids: list[str] = []
    after: tuple[float, str] | None = None
    while page := await journal.runs(principal=user, after=after, limit=2):
        run_ids += [info.run_id for info in page]
        after = page[-1].created, page[-1].run_id
    assert run_ids == names
    filters: list[dict[str, Any]] = [{"agent": user}, {"folder": f"/srv/{user}"}, {"dialect": f"d-{user}"}]
    for criteria in filters:
        assert [info.run_id for info in await journal.runs(**criteria)] == names
        assert list(await journal.runs(principal=others, **criteria)) == []
    assert len(await journal.runs(principal=user, model="model")) == 5
    assert list(await journal.runs(principal=user, model="x")) == []
    assert [info.run_id for info in await journal.runs(parent_run_id=names[0])] == [record.run_id]
    sessions = sorted((new_id() for _ in range(3)), reverse=True)
    for session in sessions:
        await write(journal, a_run(new_id(), principal=user, session_id=session, time=1700.0))
    first = await journal.sessions(principal=user, limit=2)
    rest = await journal.sessions(principal=user, after=(first[-1].updated, first[-1].session_id), limit=2)
    assert [info.session_id for info in (*first, *rest)] == sessions


async def check_sessions(open_store: OpenStore) -> None:
    journal, session, user = open_store(), new_id(), new_id()
    first, second = new_id(), new_id()
    assert await journal.session(session) is None
    start: dict[str, Any] = {"session_id": session, "principal": user}
    await write(journal, a_run(first, task="  The first\nthing  ", **start))
    info = await journal.session(session)
    assert info is not None
    assert (info.title, info.version, info.runs, info.last_run) == ("The first", 1, 1, first)
    await error_of(RunConflict, write(journal, a_run(new_id(), **start)))
    await write(journal, a_run(second, session_version=1, follows=first, follows_seq=1, time=1100.0, **start))
    renamed_session = await open_store().rename_session(session, "Odd \ud800 title", 2)
    assert (renamed_session.version, renamed_session.title) == (3, "Odd \ufffd title")
    error = await error_of(RunConflict, journal.rename_session(session, "Mine", 2))
    assert session in str(error)
    assert await journal.session(session) == renamed_session
    assert list(await journal.sessions(principal=user)) == [renamed_session]
    assert (renamed_session.runs, renamed_session.last_run, renamed_session.updated) == (2, second, 1100.0)
    lease = await journal.acquire(second, "me", 60)
    await error_of(RunBusy, journal.delete_session(session))
    await journal.release(lease)
    await journal.delete_session(session)
    await error_of(RunConflict, journal.delete_session(session))
    assert await journal.session(session) is None
    assert list(await journal.read(first)) == []
    assert list(await journal.runs(session_id=session)) == []


async def check_a_session_is_deleted_with_the_runs_that_its_tools_started(open_store: OpenStore) -> None:
    journal, session, other = open_store(), new_id(), new_id()
    parent, child, grandchild, apart, alone = (new_id() for _ in range(5))
    await write(journal, a_run(parent, session_id=session))
    of_tools = ((child, parent, None), (grandchild, child, None), (apart, parent, other), (alone, new_id(), None))
    for run_id, of, its_session in of_tools:
        records = a_run(run_id, session_id=its_session)
        await write(journal, [replace(record, parent_run_id=of) for record in records])
    lease = await journal.acquire(grandchild, "me", 60)
    await error_of(RunBusy, journal.delete_session(session))
    await journal.release(lease)
    await journal.delete_session(session)
    assert [bool(await journal.read(run_id)) for run_id in (parent, child, grandchild, apart, alone)] == [
        *(False, False, False),
        *(True, True),
    ]


async def check_a_refused_start_leaves_nothing(open_store: OpenStore) -> None:
    journal, session, run_id = open_store(), new_id(), new_id()
    await write(journal, a_run(new_id(), session_id=session))
    before = await journal.session(session)
    await error_of(RunConflict, write(journal, a_run(run_id, session_id=session, session_version=7)))
    assert await journal.run(run_id) is None
    lease = await journal.acquire(run_id, "me", 60)
    await error_of(LeaseLost, write(journal, a_run(run_id, session_id=session, session_version=1)))
    assert await journal.session(session) == before
    await journal.append(a_run(run_id, session_id=session, session_version=1)[0], lease)


async def check_a_session_is_added_as_it_is(open_store: OpenStore) -> None:
    journal, session, run_id = open_store(), new_id(), new_id()
    history = (Message.user(_ODD), Message.assistant("x" * 100_000))
    info = SessionInfo(session, "A title", 1.0, 2.0, 5, 1, run_id, "user", forked_from=(new_id(), 3), history=history)
    records = a_run(run_id, *every_kind(), session_id=session, session_version=4)
    await journal.add_session(info, records)
    assert await open_store().session(session) == info
    assert list(await journal.read(run_id)) == records
    assert (await journal.runs(session_id=session))[0].records == len(records)
    await error_of(RunConflict, journal.add_session(info))
    other = replace(info, session_id=new_id())
    theirs = a_run(run_id, session_id=other.session_id)
    await error_of(RunConflict, journal.add_session(other, theirs))
    await error_of(JournalError, journal.add_session(other, a_run(new_id(), *every_kind(), session_id="")[1:]))
    assert await journal.session(other.session_id) is None


async def check_search(open_store: OpenStore) -> None:
    journal, session, user, other = open_store(), new_id(), new_id(), new_id()
    word = "w" + new_id()
    answer = ModelAnswered(Message.assistant(f"The façade of {word} is PAINTED in src/blue_paint.py."), "stop")
    result = ToolResult("call_1_0", "read", "success", (TextPart(f"colour of {word}: \0 blue"),))
    mine = a_run(new_id(), answer, ToolFinished(result), task="What?", session_id=session, principal=user)
    await write(journal, mine)
    await write(journal, a_run(new_id(), answer, principal=other, time=2000.0))
    hits = await journal.search(f"{word} blue", principal=user)
    assert [(one.run_id, one.seq, one.role) for one in hits] == [
        (mine[0].run_id, 2, "tool"),
        (mine[0].run_id, 1, "assistant"),
    ]
    assert (hits[0].session_id, hits[0].title) == (session, "What?")
    assert word in hits[1].snippet
    assert len(await journal.search(f"FAÇADE painted {word}")) == 2
    assert len(await journal.search(f"FAÇADE painted {word}", limit=1)) == 1
    assert [one.seq for one in await journal.search(f"{word} col", principal=user)] == [2]
    for nothing in (f"{word} facade", f"col {word}", f'{word} "', "", '" OR *', f"{word} NOT blue"):
        assert [one for one in await journal.search(nothing, principal=user) if nothing != f'{word} "'] == [], nothing
    run_without_principal = a_run(new_id(), answer)
    await write(journal, run_without_principal)
    await write(journal, a_run(new_id(), answer, principal=f"{user}\0"))
    assert [one.run_id for one in await journal.search(word, private=True)] == [run_without_principal[0].run_id]
    assert {one.run_id for one in await journal.search(word, principal=user, private=True)} == {mine[0].run_id}
    await journal.append(Record(UserMessageQueued(Message.user(f"{word} again")), mine[0].run_id, 3, 1, 1.0))
    assert [one.seq for one in await journal.search(f"{word} again")] == [3]
    await journal.delete_session(session)
    assert list(await journal.search(word, principal=user)) == []


RECORD_CHECKS: tuple[Check, ...] = (
    check_records_come_back,
    check_one_of_two_writers_wins,
    check_a_run_begins_with_its_start,
    check_many_at_once,
    check_large_contents,
    check_a_lease_keeps_others_out,
    check_a_stale_owner_is_fenced_off,
    check_one_of_two_takes_a_run,
    check_a_request_to_suspend_reaches_the_holder,
    check_runs_are_listed,
    check_lists_of_runs_have_pages_and_filters,
    check_sessions,
    check_a_session_is_deleted_with_the_runs_that_its_tools_started,
    check_a_refused_start_leaves_nothing,
    check_a_session_is_added_as_it_is,
    check_search,
)
"""The checks about records, leases and sessions."""
