"""What happens while records are on their way into the file: others go on, and a cancellation leaves nothing open."""

import asyncio
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
from loop_turns import turns_of_the_loop

from toolspeak import Agent, Approval, Message, ToolCall, get_dialect, tool
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.events import Record, RunFinished, RunResumed, UserMessageQueued
from toolspeak.errors import JournalError, RunConflict
from toolspeak.journal import SqliteJournal, open_journal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing.journal import a_run, every_kind, write

STORES = ("sqlite", "postgres")
RUN_END = RunFinished("answered", "yes", "answer")
CALL = get_dialect("cogency-json").render([Message("assistant", (ToolCall("", "effect", {}),))])[0].text


def next_record(run_id, seq, event=RUN_END):
    return Record(event, run_id, seq, 0, 2.0)


@pytest.fixture(params=STORES)
def journal(request, tmp_path):
    """A journal of each kind that waits for something; it closes itself where it is used."""
    if request.param == "sqlite":
        return SqliteJournal(tmp_path / "toolspeak.db")
    return open_journal(request.getfixturevalue("postgres_url"))


def use(journal, work):
    async def main():
        try:
            return await work()
        finally:
            await journal.aclose()

    return asyncio.run(main())


def test_others_go_on_while_a_record_is_synced(tmp_path):
    journal = SqliteJournal(tmp_path / "toolspeak.db")

    async def main():
        await write(journal, a_run("r"))
        at_once = await turns_of_the_loop(journal.append(next_record("r", 1, RunResumed())))
        turns_for_sync = await turns_of_the_loop(journal.append(next_record("r", 2)))
        assert turns_for_sync > at_once
        task = asyncio.create_task(journal.append(next_record("r", 3)))
        for _ in range(at_once):
            await asyncio.sleep(0)
        assert not task.done()
        assert len(await journal.read("r")) in (3, 4)  # neither does who reads wait for it
        await task

    use(journal, main)


@pytest.mark.over_a_second
def test_others_go_on_while_much_is_indexed_for_a_search_and_two_may_do_it(journal):
    user = f"user {id(journal)}"

    async def main():
        for run_id in ("long", "short"):
            await write(journal, a_run(f"{user} {run_id}", task="find this", principal=user))
        event = UserMessageQueued(Message.user("find that"))
        records = [replace(next_record(f"{user} long", seq, event), principal=user) for seq in range(1, 1201)]
        await write(journal, records[:1000])
        assert await turns_of_the_loop(journal.search("find", principal=user)) > 5
        await write(journal, records[1000:])
        matches, again = await asyncio.gather(*[journal.search("find", principal=user, limit=2000) for _ in range(2)])
        assert sorted((one.run_id, one.seq) for one in matches) == [
            *((f"{user} long", seq) for seq in range(1201)),
            (f"{user} short", 0),
        ]
        assert matches == again
        it = next_record(f"{user} short", 1, replace(event, message=Message.user("find it")))
        await journal.append(replace(it, principal=user))
        assert len(await journal.search("find it", principal=user)) == 1

    use(journal, main)


@pytest.mark.over_a_second
def test_what_comes_while_a_record_is_synced_keeps_its_order_and_is_written(tmp_path):
    journal = SqliteJournal(tmp_path / "toolspeak.db")

    async def main():
        await write(journal, a_run("r"))
        tasks = []
        for seq in range(1, 60):
            event = RUN_END if seq % 3 else RunResumed()
            tasks.append(asyncio.create_task(journal.append(next_record("r", seq, event))))
            await asyncio.sleep(0)
            if seq % 7 == 0:
                lease = await journal.acquire("other", "me", 60)  # another transaction, in between
                await journal.release(lease)
        await asyncio.gather(*tasks)
        assert [record.seq for record in await journal.read("r")] == list(range(60))

    use(journal, main)


def test_a_cancelled_append_is_either_not_written_or_known_to_be(journal):
    async def main():
        run_id = f"cancelled {id(journal)}"
        await write(journal, a_run(run_id))
        seq, outcomes = 1, []
        for turns in range(40):
            steps = []

            async def work(seq=seq, steps=steps):
                await journal.append(next_record(run_id, seq))
                steps.append(seq)
                await asyncio.sleep(0)
                steps.append("went on")

            task = asyncio.create_task(work())
            for _ in range(turns % 10):
                await asyncio.sleep(0)
            is_cancelled = task.cancel()
            if turns > 20:  # twice
                await asyncio.sleep(0)
                is_cancelled = task.cancel() or is_cancelled
            try:
                await task
            except asyncio.CancelledError:
                assert is_cancelled
                assert "went on" not in steps, "the cancellation was lost"
            else:
                assert not is_cancelled, "the cancellation was lost"
            seq += seq in steps
            assert len(await journal.read(run_id)) == seq
            outcomes.append(bool(steps))
        assert set(outcomes) == {True, False}

    use(journal, main)


def test_a_cancelled_append_that_is_refused_is_not_written(journal):
    async def main():
        run_id = f"refused {id(journal)}"
        await write(journal, a_run(run_id))
        for turns in range(8):
            task = asyncio.create_task(journal.append(next_record(run_id, 7)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, RunConflict)):
                await task
        assert len(await journal.read(run_id)) == 1

    use(journal, main)


def test_a_timeout_is_a_timeout_although_the_record_was_written(tmp_path):
    journal = SqliteJournal(tmp_path / "toolspeak.db")

    async def main():
        await write(journal, a_run("r"))
        loop = asyncio.get_running_loop()

        async def in_time():
            async with asyncio.timeout(None) as limit:
                loop.call_soon(loop.call_soon, limit.reschedule, 0)  # once the record is given to the disk
                await journal.append(next_record("r", 1))
                await asyncio.sleep(60)

        with pytest.raises(TimeoutError):
            await in_time()
        return len(await journal.read("r"))

    assert use(journal, main) in (1, 2)


@pytest.mark.parametrize("event", [RUN_END, RunResumed()], ids=["synced", "at once"])
def test_while_the_file_is_locked_a_cancelled_append_gives_up(tmp_path, event):
    path = tmp_path / "toolspeak.db"
    journal = SqliteJournal(path)

    async def main():
        await write(journal, a_run("r"))
        locker = sqlite3.connect(path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        tasks = [asyncio.create_task(journal.append(next_record("r", 1, event))) for _ in range(2)]
        for _ in range(20):
            await asyncio.sleep(0)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        locker.execute("COMMIT")
        locker.close()
        await tasks[1]
        return len(await journal.read("r"))

    assert use(journal, main) == 2


class Cancelling(SqliteJournal):
    """Cancels a task some turns of the loop after a certain record is appended."""

    def __init__(self, path, number, turns):
        super().__init__(path)
        self.task = None
        self._number, self._turns, self._count = number, turns, 0

    async def append(self, record, lease=None):
        if self._count == self._number:
            asyncio.ensure_future(self._cancel())  # noqa: RUF006 - the loop holds it while it is ready
        self._count += 1
        await super().append(record, lease)

    async def _cancel(self):
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self.task.cancel()


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("turns", range(4))
def test_a_cancelled_run_knows_what_is_recorded_of_it_and_goes_on(tmp_path, number, turns):
    journal, ran = Cancelling(tmp_path / "toolspeak.db", number, turns), []

    @tool
    def effect(amount: int = 1) -> str:
        "Has an effect."
        ran.append(amount)
        return "done"

    async def main():
        def answer(messages):
            return CALL if messages[-1].text == "go" else "ok"

        agent = Agent(
            ScriptedProvider([answer] * 9), [effect], journal=journal, approve=Approval("all", in_doubt="report")
        )
        run = agent.start("go")
        journal.task = asyncio.create_task(run.finish())
        try:
            await journal.task
        except asyncio.CancelledError:
            records = await journal.read(run.run_id)
            assert len(records) == (run.state.seq if records else 0)
            if not records:
                return "never began"
            assert run.state == await load_state(journal, run.run_id)
            if run.state.status == "running":
                return (await agent.resume(run.run_id)).status
        return run.state.status

    assert use(journal, main) in ("answered", "never began")
    assert len(ran) <= 1


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("turns", range(5))
def test_what_is_being_appended_is_written_before_the_file_is_closed(tmp_path, turns, asynchronous):
    journal = SqliteJournal(tmp_path / "toolspeak.db")

    async def main():
        await write(journal, a_run("r", *every_kind()))
        tasks = [asyncio.create_task(journal.append(next_record("r", 7 + number))) for number in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns == 0:
            assert not any(task.done() for task in tasks)
        if asynchronous:
            await journal.aclose()
        else:
            journal.close()
        await asyncio.gather(*tasks)
        return len(await journal.read("r"))

    assert use(journal, main) == 10


def test_others_go_on_while_the_file_is_closed_and_it_opens_again(tmp_path):
    journal = SqliteJournal(tmp_path / "toolspeak.db")

    async def main():
        await write(journal, a_run("r", *every_kind()))
        closing = asyncio.ensure_future(turns_of_the_loop(journal.aclose()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await journal.append(next_record("r", 7))  # somebody needs it again, before it is closed
        assert await closing > 2
        assert await turns_of_the_loop(journal.aclose()) > 2
        assert [path.name for path in tmp_path.iterdir()] == ["toolspeak.db"]  # nothing is left to be tidied up
        return len(await journal.read("r"))

    assert use(journal, main) == 8


@pytest.mark.over_a_second
def test_a_file_that_is_locked_when_it_is_closed_is_named_to_who_appends(tmp_path):
    path = tmp_path / "toolspeak.db"
    journal = SqliteJournal(path)

    async def main():
        await write(journal, a_run("r"))
        locker = sqlite3.connect(path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(journal.append(next_record("r", 1)))
        for _ in range(20):
            await asyncio.sleep(0)
        journal.close()
        locker.close()
        with pytest.raises(JournalError, match=r"toolspeak\.db.*locked"):
            await task

    use(journal, main)


def test_every_record_is_synced_on_demand_and_so_are_sessions(tmp_path):
    journal = SqliteJournal(tmp_path / "toolspeak.db", sync="always")

    async def main():
        await write(journal, a_run("r", *every_kind(), session_id="s"))
        tasks = [asyncio.create_task(journal.append(next_record("r", 7))), journal.rename_session("s", "Mine", 1)]
        await asyncio.gather(*tasks)
        task = asyncio.create_task(journal.rename_session("s", "Yours", 2))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        info = await journal.session("s")
        return info.title, info.version, len(await journal.read("r"))

    assert use(journal, main) in (("Mine", 2, 8), ("Yours", 3, 8))


LATE = """
import asyncio, atexit, sys
from toolspeak import SqliteJournal
from toolspeak.testing.journal import a_run, every_kind, write

async def main():
    journal = SqliteJournal(sys.argv[1], sync=sys.argv[2])
    await write(journal, a_run("r", *every_kind(), session_id="s"))
    await journal.rename_session("s", "Late", 1)
    await journal.aclose()

atexit.register(lambda: asyncio.run(main()))
"""


@pytest.mark.parametrize("sync", ["effects", "always"])
def test_a_process_that_is_ending_and_takes_no_more_threads_records_all_the_same(tmp_path, sync):
    path = tmp_path / "toolspeak.db"
    result = subprocess.run([sys.executable, "-c", LATE, path, sync], capture_output=True, text=True, timeout=60)
    assert result.stderr == ""
    journal = SqliteJournal(path)
    assert len(use(journal, lambda: journal.read("r"))) == 7
