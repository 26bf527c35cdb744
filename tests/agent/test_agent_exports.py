"""A session as lines of JSON: whole, or refused with the line that is wrong."""

import asyncio
import json
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak import Agent, Session
from toolspeak.agent.storage.exports import export_session, import_session
from toolspeak.errors import FormatError, JournalError
from toolspeak.journal import MemoryJournal, SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing.journal import a_run, every_kind, write


async def lines_of(journal, session_id):
    return [line async for line in export_session(journal, session_id)]


async def a_session(journal):
    session = Session(Agent(ScriptedProvider(["one", "two", "three"]), journal=journal), principal="ann")
    await session.run("first")
    fork = await session.fork()
    await fork.run("second")
    await fork.run("third")
    return await lines_of(journal, fork.session_id)


LINES = asyncio.run(a_session(MemoryJournal()))
ODD = [
    None, True, 5, -1, 0.5, 1e300, 10**30, "", "x", "\ud800", "\0", [], {}, ["x"], ["x", 1], ["x", -1], [1, "x"],
    ["x", 1, 2], {"type": "Message"}, [{"format": 1, "type": "RunResumed"}],
]  # fmt: skip


def test_a_file_that_was_cut_or_added_to_is_refused_and_nothing_is_added():
    async def main():
        journal = MemoryJournal()
        for count in range(1, len(LINES)):
            message = f"the first line says {len(LINES) - 1} records, and there are {count - 1}"
            with pytest.raises(FormatError, match=message):
                await import_session(journal, LINES[:count])
        with pytest.raises(FormatError, match="or were added"):
            await import_session(journal, [*LINES, LINES[-1]])
        assert await journal.sessions() == await journal.runs() == ()
        await import_session(journal, [*LINES, "", " "])  # an editor's last line ends
        assert await lines_of(journal, json.loads(LINES[0])["session_id"]) == LINES

    asyncio.run(main())


@settings(deadline=None, max_examples=fewer(60))
@given(st.sampled_from([*json.loads(LINES[0])]), st.sampled_from([*ODD, "left out"]))
def test_a_first_line_with_something_odd_is_taken_by_every_store_or_by_none(tmp_path_factory, name, value):
    head = json.loads(LINES[0])
    head[name] = value
    if value == "left out":
        del head[name]

    async def outcome(journal):
        try:
            info = await import_session(journal, [json.dumps(head), *LINES[1:]])
            again = await lines_of(journal, info.session_id)
            assert [info.session_id for info in await journal.sessions()] == [info.session_id]
        except (FormatError, JournalError) as error:  # JournalError: the runs are another session's
            return str(error)
        finally:
            await journal.aclose()
        return [json.loads(line) for line in again]

    expected = asyncio.run(outcome(MemoryJournal()))
    assert asyncio.run(outcome(SqliteJournal(tmp_path_factory.mktemp("odd") / "toolspeak.db"))) == expected
    if isinstance(expected, str):
        assert expected.startswith("line 1: ") or name in ("records", "session_id")
    else:
        assert expected[0] == head or name == "title"


@pytest.mark.parametrize("time", [-1.0, 1e18])
def test_a_time_that_no_calendar_shows_is_refused(time):
    record = json.loads(LINES[2]) | {"time": time}
    with pytest.raises(FormatError, match="line 3: the field 'time'"):
        asyncio.run(import_session(MemoryJournal(), [*LINES[:2], json.dumps(record), *LINES[3:]]))


def test_a_session_is_exported_as_it_stands_while_somebody_goes_on_with_it():
    async def main():
        here, there = MemoryJournal(), MemoryJournal()
        first = a_run("r", *every_kind(), session_id="s")
        await write(here, first[:3])
        async with aclosing(export_session(here, "s")) as export:
            lines = [await anext(export)]
            await write(here, first[3:])
            await write(here, a_run("r2", session_id="s", session_version=1, follows="r", follows_seq=len(first)))
            lines += [line async for line in export]
        info = await import_session(there, lines)
        assert (info.runs, info.last_run, info.version) == (1, "r", 1)
        assert list(await there.read("r")) == first[:3]

    asyncio.run(main())
