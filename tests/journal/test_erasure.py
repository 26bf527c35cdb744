"""Erasing a principal: no byte of a marker text remains in the files of a journal."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from postgres_server import postgres

from toolspeak.agent.storage.sessions import fork_session
from toolspeak.data.events import (
    ModelAnswered,
    Record,
    RunFinished,
    RunPaused,
    ToolFinished,
    UserMessageQueued,
)
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult
from toolspeak.errors import JournalError, RunBusy
from toolspeak.journal import SqliteJournal
from toolspeak.journal.base import RunInput
from toolspeak.journal.check import CheckProgress, check_journal
from toolspeak.journal.postgres import PostgresJournal
from toolspeak.testing.journal import a_run, write

WRITER = Path(__file__).with_name("steady_writer.py")
MARKER = "Zebrafinkenlied"
RUN_END = RunFinished("answered", "Done.", "answer")


def events(text: str):
    """Events with a text in each place that a journal stores differently."""
    large = f"{text} " + random.Random(text).randbytes(60_000).hex()  # stored apart from its record
    call = ToolCall("call_1_0", "write", {"text": text})
    return (
        UserMessageQueued(Message.user(f"more of {text}")),
        ModelAnswered(Message("assistant", (TextPart(f"about {text}"), call)), "tool_calls"),
        ToolFinished(ToolResult("call_1_0", "write", "success", (TextPart(large),)), whole=large),
    )


async def fill(journal):
    """Runs of ann, with a marker in every text, and runs of ben."""
    for number in range(8):  # more than a page of each table, so that pages are split and used again
        text = f"{MARKER}{number}"
        await write(journal, a_run(f"{text}-a", *events(text), RUN_END, task=text, principal="ann"))
        await write(journal, a_run(f"ben-{number}", *events(f"Amsel{number}"), RUN_END, task="Amsel", principal="ben"))
    session = f"session-{MARKER}"
    await write(journal, a_run("ann-s1", *events(MARKER), RUN_END, task=MARKER, principal="ann", session_id=session))
    await write(
        journal,
        a_run("ann-s2", RunPaused("awaiting_approval", ("c",)), task=MARKER, principal="ann", session_id=session,
              session_version=1, follows="ann-s1", follows_seq=5),
    )  # fmt: skip
    await fork_session(journal, session, "ann-s1")
    sub_run = [replace(record, parent_run_id="ann-s1") for record in a_run("sub", *events(f"{MARKER}sub"), RUN_END)]
    await write(journal, sub_run)
    await journal.add_input(RunInput("ann-s2", "event", f"event-{MARKER}", "key", {"text": MARKER}, "ann", 1.0))
    for number in range(600):
        await journal.publish("ann-s2", f"{MARKER} delta {number}")
    assert [hit.run_id for hit in await journal.search(f"{MARKER}3")]  # so that it is in the index of the search
    await write(journal, a_run("deleted", *events(MARKER), RUN_END, task=MARKER, principal="ann"))
    await journal.delete_group(await journal.group_of("deleted"))


async def what_remains(journal):
    findings = [finding async for finding in check_journal(journal, CheckProgress())]
    assert findings == []
    assert {info.principal for info in await journal.runs()} == {"ben"}
    assert len(await journal.runs()) == 8
    assert await journal.sessions() == ()
    assert {hit.run_id for hit in await journal.search("Amsel3")} == {"ben-3"}
    assert await journal.search(MARKER) == ()
    records = await journal.read("ben-5")
    assert records == tuple(a_run("ben-5", *events("Amsel5"), RUN_END, task="Amsel", principal="ben"))


def holders(folder: Path, text: str = MARKER) -> list[str]:
    """The files that hold the text, in any case: the index of the search has it in lower case."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(file.name for file in files if text.lower().encode() in file.read_bytes().lower())


def test_nothing_of_an_erased_principal_is_in_the_file_or_its_log(tmp_path):
    async def work():
        journal, reader = SqliteJournal(tmp_path / "runs.db"), SqliteJournal(tmp_path / "runs.db")
        await fill(journal)
        assert await reader.search("Amsel")
        assert "runs.db" in holders(tmp_path)
        assert "runs.db-wal" in holders(tmp_path)
        assert await journal.erase_principal("ann") == (11, 2)
        assert holders(tmp_path) == []  # while both have the file open
        await what_remains(journal)
        await what_remains(reader)
        assert holders(tmp_path, "Amsel") != []
        await write(journal, a_run("next", RUN_END, principal="ben"))
        await journal.aclose()
        await reader.aclose()
        assert holders(tmp_path) == []

    asyncio.run(work())


def test_deleted_pieces_of_text_do_not_wait_for_an_erasure(tmp_path):
    """Pages that are freed are overwritten: `sessions delete` and `prune` delete for good too."""

    async def work():
        journal = SqliteJournal(tmp_path / "runs.db")
        await write(journal, a_run("one", *events(MARKER), RUN_END, task=MARKER, principal="ann"))
        await write(journal, a_run("two", RUN_END, task="Amsel"))
        await journal.delete_group(await journal.group_of("one"))
        await journal.aclose()
        return holders(tmp_path)

    assert asyncio.run(work()) == []


def test_an_erasure_waits_for_no_one(tmp_path):
    """It is refused before anything is erased, if another process has the file open or drives one of the runs."""
    path = tmp_path / "runs.db"

    async def check_refusals():
        journal = SqliteJournal(path)
        await write(journal, a_run("anns", task=MARKER, principal="ann"))
        lease = await journal.acquire("anns", "a process", 60)
        with pytest.raises(RunBusy):
            await journal.erase_principal("ann")
        await journal.release(lease)
        await journal.aclose()

    async def erase():
        journal = SqliteJournal(path)
        try:
            return await journal.erase_principal("ann")
        finally:
            await journal.aclose()

    asyncio.run(check_refusals())
    with subprocess.Popen([sys.executable, WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "1\n"
        try:
            with pytest.raises(JournalError, match="open in another process"):
                asyncio.run(erase())
        finally:
            writer.terminate()
        writer.stdout.read()
    assert holders(tmp_path) == ["runs.db"]
    assert asyncio.run(erase()) == (1, 0)
    assert holders(tmp_path) == []


def test_an_erasure_that_a_reader_delays_says_so_and_is_finished_by_the_next(tmp_path):
    async def work():
        journal = SqliteJournal(tmp_path / "runs.db", lock_seconds=0.2)
        await write(journal, a_run("anns", task=MARKER, principal="ann"))
        reader = SqliteJournal(tmp_path / "runs.db")
        async with reader._reading() as db:
            await db.rows("SELECT * FROM runs")
            with pytest.raises(JournalError, match="another process reads the file"):
                await journal.erase_principal("ann")
        assert await journal.erase_principal("ann") == (0, 0)
        assert holders(tmp_path) == []
        await reader.aclose()
        await journal.aclose()

    asyncio.run(work())


@pytest.mark.over_a_second
def test_nothing_of_an_erased_principal_is_in_the_tables_of_postgresql():
    with postgres() as url:
        data = Path(url.partition("host=")[2]) / "data" / "base"

        async def work():
            journal = PostgresJournal(url)
            await fill(journal)
            connection = await asyncpg.connect(url)
            await connection.execute("CHECKPOINT")
            assert holders(data) != []
            assert await journal.erase_principal("ann") == (11, 2)
            await what_remains(journal)
            await connection.execute("CHECKPOINT")
            await connection.close()
            await journal.aclose()
            assert holders(data) == []
            assert holders(data, "Amsel") != []

        asyncio.run(work())


def test_a_decision_of_the_principal_about_another_ones_run_stays(tmp_path):
    """It is a fact of that run."""

    async def work():
        journal = SqliteJournal(tmp_path / "runs.db")
        await write(journal, a_run("bens", RunPaused("awaiting_approval", ("c",)), principal="ben"))
        await journal.add_input(RunInput("bens", "decision", "c", "c", {"approved": True}, "ann", 1.0))
        await journal.erase_principal("ann")
        inputs = await journal.inputs("bens")
        await journal.append(Record(RUN_END, "bens", 2, 1, 1.0))
        await journal.aclose()
        return [entry.principal for entry in inputs]

    assert asyncio.run(work()) == ["ann"]
