"""A journal is copied while it is in use, is restored, and its runs go on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from postgres_server import binaries

from toolspeak import Agent, RunContext, tool
from toolspeak.errors import ConfigurationError, JournalError
from toolspeak.journal import SqliteJournal, open_journal
from toolspeak.journal.check import CheckProgress, check_journal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing.journal import a_run, every_kind, write

WRITER = Path(__file__).with_name("steady_writer.py")


async def check_copy(path):
    journal, progress = SqliteJournal(path), CheckProgress()
    findings = [finding async for finding in check_journal(journal, progress)]
    infos = await journal.runs()
    await journal.aclose()
    assert [finding for finding in findings if finding.kind == "damage"] == []
    return infos


def toolspeak(*arguments, code=0):
    result = subprocess.run(
        [sys.executable, "-m", "toolspeak", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == code, result
    return result.stdout + result.stderr


@pytest.mark.over_a_second
def test_each_copy_that_is_made_while_a_process_writes_is_whole(tmp_path):
    path = tmp_path / "runs.db"
    with subprocess.Popen([sys.executable, WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        count = int(writer.stdout.readline())
        for number in range(5):
            copy = tmp_path / f"copy-{number}.db"

            async def make(copy=copy):
                journal = SqliteJournal(path)
                await journal.backup(copy)
                await journal.aclose()

            asyncio.run(make())
            infos = asyncio.run(check_copy(copy))
            assert len([info for info in infos if info.status == "answered"]) >= count
            count = int(writer.stdout.readline())
        writer.terminate()
        assert writer.stdout.read().endswith("done\n")
    assert {file.name for file in tmp_path.iterdir()} == {"runs.db", *(f"copy-{number}.db" for number in range(5))}
    assert copy.stat().st_mode & 0o777 == 0o600


def test_no_backup_is_overwritten_and_a_damaged_journal_makes_none(tmp_path):
    async def main():
        journal = SqliteJournal(tmp_path / "runs.db")
        for number in range(40):
            await write(journal, a_run(f"r{number}", *every_kind(), task="x" * 4000))
        await journal.backup(tmp_path / "copy.db")
        with pytest.raises(ConfigurationError, match="exists"):
            await journal.backup(tmp_path / "copy.db")
        await journal.aclose()
        content = bytearray((tmp_path / "runs.db").read_bytes())
        content[20 * 4096 : 26 * 4096] = b"\xff" * 6 * 4096
        (tmp_path / "runs.db").write_bytes(content)
        journal = SqliteJournal(tmp_path / "runs.db")
        with pytest.raises(JournalError, match=r"runs\.db"):
            await journal.backup(tmp_path / "other.db")
        await journal.aclose()
        assert not (tmp_path / "other.db").exists()

    asyncio.run(main())


class Shop:
    """An agent that pays 1, checks the stock, and pays 2. Its bank keeps the key of each payment."""

    def __init__(self) -> None:
        self.payments: list[tuple[int, str]] = []
        self.checking, self.go_on = asyncio.Event(), asyncio.Event()

    def agent(self, journal, *, turns) -> Agent:
        @tool
        def pay(amount: int, ctx: RunContext) -> str:
            "Pays an amount."
            self.payments.append((amount, ctx.idempotency_key))
            return f"paid {amount}"

        @tool(read_only=True)
        async def check_stock() -> str:
            "Looks how much there is."
            self.checking.set()
            await self.go_on.wait()
            return "enough"

        calls = [("pay", {"amount": 1}), ("check_stock", {}), ("pay", {"amount": 2})]
        texts = [f"<execute>{json.dumps([{'name': name, 'args': args}])}</execute>" for name, args in calls]
        script = ScriptedProvider([*texts, "Paid."][-turns:])
        return Agent(script, [pay, check_stock], dialect="cogency-json", name="shop", journal=journal, approve="all")


async def story(journal, back_up, restore, open_copy):
    """A run pays 1, a backup is made, the run pays 2 and ends; then the backup is restored, and the run resumed."""
    shop = Shop()
    running = asyncio.ensure_future(shop.agent(journal, turns=4).run("Pay", run_id="order"))
    await shop.checking.wait()
    await back_up()
    shop.go_on.set()
    assert (await running).answer == "Paid."
    assert [amount for amount, _ in shop.payments] == [1, 2]
    await journal.aclose()
    await restore()
    restored_journal = open_copy()
    info = await restored_journal.run("order")
    assert info is not None
    assert info.status == "running"
    result = await shop.agent(restored_journal, turns=2).resume("order")
    await restored_journal.aclose()
    assert result.answer == "Paid."
    return shop.payments


def test_a_restored_file_goes_on_and_repeats_only_what_came_after_the_backup(tmp_path):
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"

    async def back_up():
        await asyncio.to_thread(toolspeak, "journal", "backup", copy, "--journal", path)

    async def restore():
        for file in tmp_path.glob("runs.db*"):
            file.unlink()
        copy.rename(path)

    payments = asyncio.run(story(SqliteJournal(path), back_up, restore, lambda: SqliteJournal(path)))
    (_, first), (_, second), (amount, again) = payments
    assert (amount, again) == (2, second)  # the bank knows the key, and can refuse the second payment
    assert first != second


@pytest.mark.over_a_second
def test_a_dump_of_postgresql_goes_on_and_repeats_only_what_came_after_it(postgres_url, tmp_path):
    dump, new = tmp_path / "journal.dump", postgres_url.replace("/postgres?", "/restored?")
    tools = binaries()

    def call(*command):
        subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=60)

    async def back_up():
        await asyncio.to_thread(call, tools / "pg_dump", "-Fc", "-n", "toolspeak", "-f", dump, postgres_url)

    async def restore():
        call(tools / "psql", postgres_url, "-c", "CREATE DATABASE restored ENCODING 'UTF8' TEMPLATE template0")
        call(tools / "pg_restore", "-d", new, dump)
        # The dump has the lease of the process that drove the run; this stands for its 30 seconds.
        call(tools / "psql", new, "-c", "UPDATE toolspeak.runs SET held_until = 0")
        # The dump has the lease of the process that drove the run; this stands for its 30 seconds.
        call(tools / "psql", new, "-c", "UPDATE toolspeak.runs SET held_until = 0")

    payments = asyncio.run(story(open_journal(postgres_url), back_up, restore, lambda: open_journal(new)))
    assert [amount for amount, _ in payments] == [1, 2, 2]
    assert payments[1] == payments[2]
    assert json.loads(toolspeak("journal", "check", "--json", "--journal", new))["whole"]


@pytest.mark.slow
def test_the_unfinished_runs_of_a_restored_journal_are_closed_on_request(tmp_path):
    path = tmp_path / "runs.db"

    async def main():
        journal, shop = SqliteJournal(path), Shop()
        running = asyncio.ensure_future(shop.agent(journal, turns=4).run("Pay", run_id="order"))
        await shop.checking.wait()
        await journal.backup(tmp_path / "copy.db")
        shop.go_on.set()
        await running
        await journal.aclose()

    asyncio.run(main())
    copy = tmp_path / "copy.db"
    arguments = ("journal", "close", "--restored", "--older-than", "0h", "--journal", copy)
    assert "nothing was changed" in toolspeak(*arguments, code=2)
    assert toolspeak(*arguments, "--yes") == "closed: 1 run\n"
    assert toolspeak(*arguments, "--yes") == "closed: 0 runs\n"
    (info,) = asyncio.run(check_copy(copy))
    assert info.status == "no_answer"
    assert "unknown_outcome" in toolspeak("show", "order", "--json", "--journal", copy)
