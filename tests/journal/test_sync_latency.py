"""Where a sync is waited for: in the event loop while they are short, else in a thread."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_turns import turns_of_the_loop

from toolspeak.data.events import Record, RunFinished, RunResumed, UserMessageQueued
from toolspeak.data.messages import Message
from toolspeak.journal import SqliteJournal
from toolspeak.journal.commits import SHORT, Syncs
from toolspeak.testing.journal import a_run, write

IN_MEMORY = Path("/dev/shm")


def after(*seconds):
    syncs = Syncs()
    for one in seconds:
        syncs.took(one)
    return syncs


@pytest.mark.parametrize(
    ("seconds", "short"),
    [
        ((), False),  # nothing is known of the disk
        ((0.0001,) * 5, False),
        ((0.0001,) * 40, True),
        ((0.005,) * 40, False),  # a slow disk
        ((0.0001,) * 40 + (0.008,), False),  # once is enough to be careful,
        ((0.0001,) * 40 + (0.008,) + (0.0001,) * 10, True),  # and not for long
        ((0.0001,) * 40 + (0.002,), True),
        ((0.0001,) * 40 + (0.002,) * 8, False),  # it has become slower
        ((0.0001,) * 40 + (10.0,) + (0.0001,) * 10, False),  # it stood still
    ],
)
def test_the_loop_waits_for_syncs_while_they_are_short(seconds, short):
    assert after(*seconds).short is short


@given(st.lists(st.floats(0, 60)), st.floats(0, SHORT * 0.9), st.floats(SHORT * 1.1, 60))
def test_whatever_was_the_last_syncs_decide(before, fast, slow):
    assert after(*before, *[fast] * 200).short
    assert not after(*before, *[slow] * 200).short


@pytest.mark.skipif(not IN_MEMORY.is_dir(), reason="a folder in memory is needed, where syncs are short")
def test_short_syncs_are_made_in_the_loop_and_others_still_get_their_turn():
    async def main(journal):
        await write(journal, a_run("r"))
        turns_without_sync = [
            await turns_of_the_loop(journal.append(Record(RunResumed(), "r", seq, 0, 2.0))) for seq in range(1, 4)
        ]
        run_end = RunFinished("answered", "yes", "answer")
        turns_with_sync = [
            await turns_of_the_loop(journal.append(Record(run_end, "r", seq, 0, 2.0))) for seq in range(4, 200)
        ]
        await journal.aclose()
        return turns_without_sync, turns_with_sync

    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        turns_without_sync, turns_with_sync = asyncio.run(main(SqliteJournal(Path(folder, "toolspeak.db"))))
    assert min(turns_without_sync) > 1
    assert turns_with_sync[0] > max(turns_without_sync)  # in the thread: nothing is known of the disk
    assert min(turns_with_sync) == max(turns_without_sync)  # in the loop


@pytest.mark.parametrize("sync", ["never", "always"])
@pytest.mark.parametrize(("count", "size"), [(100, 300_000), (3000, 300)])
def test_the_write_ahead_log_stays_short_whatever_is_recorded(tmp_path, sync, count, size):
    async def main(journal):
        await write(journal, a_run("r"))
        for start in range(1, count, 10):
            events = [UserMessageQueued(Message.user(f"{seq:0{size}}")) for seq in range(start, start + 10)]
            records = [Record(event, "r", seq, 0, 2.0) for seq, event in enumerate(events, start)]
            await asyncio.gather(*map(journal.append, records))
        log = os.stat(f"{journal.path}-wal").st_size
        await journal.aclose()
        return log

    # A thousand pages, and the groups before and after somebody has looked: 3 MB each.
    assert asyncio.run(main(SqliteJournal(tmp_path / "toolspeak.db", sync=sync))) < 1000 * 4096 + 3 * 3_000_000
