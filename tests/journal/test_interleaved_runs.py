"""Many runs in one SQLite file: whatever was written in which order, each run is found again, whole."""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.data.events import Record, UserMessageQueued
from toolspeak.data.messages import Message
from toolspeak.errors import JournalError, RunConflict
from toolspeak.journal import MemoryJournal, SqliteJournal
from toolspeak.testing.journal import a_run

RUNS = [f"r{number}" for number in range(5)]
runs = st.sampled_from(RUNS)
steps = st.one_of(
    st.tuples(st.just("together"), st.sets(runs, min_size=1), st.integers(1, 120)),
    st.tuples(st.just("one"), runs, st.integers(1, 300)),
    st.tuples(st.just("stale"), runs, st.integers(1, 3)),
    st.tuples(st.just("delete"), runs, st.just(0)),
    st.tuples(st.just("search"), runs, st.just(0)),
    st.tuples(st.just("another process"), runs, st.just(0)),
    st.tuples(st.just("reopen"), runs, st.just(0)),
)


def message_record(run_id, seq):
    return Record(UserMessageQueued(Message.user(f"word{seq} of {run_id}")), run_id, seq, 0, 1000.0 + seq)


class Both:
    """A SQLite journal, and one in memory that says what must be in it."""

    def __init__(self, path):
        self.path, self.memory, self.counts = path, MemoryJournal(), dict.fromkeys(RUNS, 0)
        self.journals = [SqliteJournal(path), SqliteJournal(path)]

    async def write(self, run_id, count):
        for _ in range(count):
            seq = self.counts[run_id]
            self.counts[run_id] += 1
            record = message_record(run_id, seq) if seq else a_run(run_id, session_id=f"session of {run_id}")[0]
            await self.memory.append(record)
            await self.journals[0].append(record)

    async def do(self, kind, what, count):
        match kind:
            case "together":
                await asyncio.gather(*(self.write(run_id, count) for run_id in what))
            case "one":
                await self.write(what, count)
            case "stale" if self.counts[what] > 1:
                with pytest.raises(RunConflict):
                    await self.journals[0].append(message_record(what, max(1, self.counts[what] - count)))
                with pytest.raises(RunConflict):
                    await self.journals[0].append(message_record(what, self.counts[what] + count))
            case "delete" if self.counts[what]:
                for journal in (self.memory, self.journals[1]):
                    await journal.delete_session(f"session of {what}")
                self.counts[what] = 0
            case "search":
                query = f"word{self.counts[what] - 1} of {what}"
                matches = [
                    {(one.run_id, one.seq) for one in await j.search(query)} for j in (self.memory, *self.journals)
                ]
                assert matches[0] == matches[1] == matches[2]
            case "another process":
                self.journals.reverse()
            case "reopen":
                self.journals[0].close()
            case _:
                pass

    async def check(self):
        for run_id, count in self.counts.items():
            for start in {0, count // 2, max(0, count - 1), count}:
                expected = list(await self.memory.read(run_id, start))
                for journal in self.journals:
                    assert list(await journal.read(run_id, start)) == expected
        counts = {info.run_id: info.records for info in await self.journals[1].runs()}
        assert counts == {run_id: count for run_id, count in self.counts.items() if count}

    def close(self):
        for journal in self.journals:
            journal.close()


def in_both(work):
    with tempfile.TemporaryDirectory() as folder:
        both = Both(Path(folder) / "toolspeak.db")

        async def main():
            try:
                await work(both)
            finally:
                both.close()

        asyncio.run(main())


@given(st.lists(steps, max_size=12))
@settings(deadline=None, max_examples=fewer(25))
def test_each_run_is_found_whole_whatever_was_written_in_which_order(steps_to_do):
    async def work(both):
        for step in steps_to_do:
            await both.do(*step)
        await both.check()

    in_both(work)


def test_records_that_come_where_deleted_ones_were_are_found():
    """The last rows of the table are deleted, so their ids are given out again."""

    async def work(both):
        await both.write("r0", 300)
        await both.write("r1", 700)
        await both.do("delete", "r1", 0)
        await both.write("r2", 20)
        await both.write("r0", 20)
        await both.check()
        await both.do("delete", "r0", 0)
        await both.do("delete", "r2", 0)
        await both.write("r3", 3)
        await both.check()

    in_both(work)


def test_many_short_lived_processes_do_not_leave_ever_more_to_be_looked_through(tmp_path):
    path = tmp_path / "toolspeak.db"

    async def main():
        for number in range(40):
            journal = SqliteJournal(path)
            for seq in range(20):
                run_id = f"r{number}"
                await journal.append(message_record(run_id, seq) if seq else a_run(run_id)[0])
            journal.close()

    asyncio.run(main())
    with sqlite3.connect(path) as db:
        ((unnoted_count,),) = db.execute("SELECT count(*) FROM records WHERE id > (SELECT upto FROM noted)")
        ((noted_count,),) = db.execute("SELECT sum(count) FROM stretches")
    db.close()
    assert unnoted_count + noted_count == 800
    assert unnoted_count < 300


@pytest.mark.parametrize(
    ("deletion", "run_id"),
    [("DELETE FROM stretches WHERE pos % 4294967296 = 20", "r1"), ("DELETE FROM records WHERE id = 40", "r4")],
)
def test_a_part_of_a_run_that_is_missing_is_told(deletion, run_id):
    async def work(both):
        await asyncio.gather(*(both.write(run_id, 60) for run_id in RUNS))
        both.close()
        with sqlite3.connect(both.path) as db:
            db.execute(deletion)
        db.close()
        with pytest.raises(JournalError, match=rf"{run_id}.*missing.*backup"):
            await both.journals[0].read(run_id)

    in_both(work)
