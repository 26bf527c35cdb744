"""The journal that lasts as long as its process."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.data.events import Record, RunResumed
from toolspeak.journal.memory import MemoryJournal


def record(run_id, seq):
    return Record(RunResumed(), run_id, seq, 0, float(seq))


@given(st.lists(st.sampled_from("abc")))
def test_each_run_reads_its_own_records_in_order(run_ids):
    async def main():
        journal, written = MemoryJournal(), {run_id: [] for run_id in "abc"}
        for run_id in run_ids:
            one = record(run_id, len(written[run_id]))
            written[run_id].append(one)
            await journal.append(one)
            assert list(await journal.read(run_id)) == written[run_id]
        for run_id, records in written.items():
            assert list(await journal.read(run_id)) == records

    asyncio.run(main())


def test_an_unknown_run_has_no_records_and_is_not_made_by_reading():
    async def main():
        journal = MemoryJournal()
        assert list(await journal.read("nobody")) == []

    asyncio.run(main())


def test_what_was_read_does_not_grow_and_cannot_be_changed():
    async def main():
        journal = MemoryJournal()
        await journal.append(record("a", 0))
        before = await journal.read("a")
        await journal.append(record("a", 1))
        assert len(before) == 1
        with pytest.raises(TypeError):
            before[0] = record("a", 9)

    asyncio.run(main())
