"""Real workers: killed, drained and two at a time, on one SQLite file and on PostgreSQL."""

import asyncio
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from shop import new_id, task

from forked_commands import PipedCommand, completed_text
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.events import ToolFinished, ToolStarted
from toolspeak.data.run_values import Limits
from toolspeak.engines import RunClient
from toolspeak.journal import open_journal

HERE = Path(__file__).parent
SECONDS = 120


def read_until(process, pattern):
    for text in process.stderr:
        if pattern in text:
            return
    raise AssertionError(f"the worker ended and did not say {pattern!r}")


class Shop:
    """Workers of `worker_shop` on one journal, and its log."""

    def __init__(self, folder, place):
        self.folder, self.place = folder, place
        (folder / "log").touch()
        self.stack = ExitStack()
        self.environment = {
            **os.environ,
            "SHOP_FOLDER": str(folder),
            "TOOLSPEAK_JOURNAL": place,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH")))),
        }

    def worker(self, *arguments, what="worker_shop:shop"):
        process = PipedCommand(["worker", what, *arguments], env=self.environment, cwd=self.folder)
        self.stack.callback(self.end, process)
        read_until(process, "driving runs")
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def run(self, *arguments):
        return completed_text(arguments, env=self.environment, cwd=self.folder)

    def lines(self):
        return [text.split(" ", 1) for text in (self.folder / "log").read_text().splitlines()]

    def wait_for(self, text):
        """The process id of the line of the log with this text, once it is there."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for pid, entry in self.lines():
                if entry == text:
                    return int(pid)
            time.sleep(0.02)
        raise AssertionError(f"{text} did not come; the log: {self.lines()}")

    def ask(self, work):
        async def main():
            journal = open_journal(self.place)
            try:
                async with asyncio.timeout(SECONDS):
                    return await work(RunClient(journal))
            finally:
                await journal.aclose()

        return asyncio.run(main())

    def submit(self, *turns, run_id=None):
        run_id = run_id or new_id()
        return self.ask(lambda client: client.submit("shop", task(*turns), run_id=run_id)).run_id

    def result(self, run_id):
        return self.ask(lambda client: client.result(run_id))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def shop(request, tmp_path):
    place = request.getfixturevalue("postgres_url") if request.param == "postgres" else str(tmp_path / "runs.db")
    shop = Shop(tmp_path, place)
    with shop.stack:
        yield shop


@pytest.mark.over_a_second
def test_a_killed_workers_run_goes_on_in_another_and_nothing_runs_twice(shop):
    first = shop.worker()
    run_id = shop.submit([("once", {"name": "a"})], [("hold", {"name": "gate"})], [("once", {"name": "b"})])
    shop.wait_for("enter gate")
    second = shop.worker()
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (shop.folder / "gate").touch()
    result = shop.result(run_id)
    assert result.answer == "did a; held gate; did b"
    assert [entry for _, entry in shop.lines()].count("once a") == 1
    assert [entry for _, entry in shop.lines()].count("once b") == 1
    assert shop.wait_for("leave gate") == second.pid
    events = [each.event for each in result.run_records.records]
    assert sum(isinstance(each, ToolStarted) for each in events) == 4, "the call under way alone began again"
    assert sum(isinstance(each, ToolFinished) for each in events) == 3


@pytest.mark.over_a_second
def test_two_workers_share_runs_and_each_run_has_one(shop):
    workers = [shop.worker("--concurrency", "1"), shop.worker("--concurrency", "1")]
    ids = [shop.submit([("hold", {"name": "gate"})], [("once", {"name": f"r{number}"})]) for number in range(6)]
    until = time.monotonic() + SECONDS
    while len({pid for pid, _ in shop.lines()}) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    (shop.folder / "gate").touch()
    assert [shop.result(run_id).answer for run_id in ids] == [f"held gate; did r{number}" for number in range(6)]
    entries = [entry for _, entry in shop.lines()]
    assert sorted(entry for entry in entries if entry.startswith("once")) == [f"once r{number}" for number in range(6)]
    assert entries.count("enter gate") == 6
    assert {int(pid) for pid, _ in shop.lines()} == {each.pid for each in workers}


def test_a_worker_drains_on_sigterm_and_the_run_goes_on_elsewhere(shop):
    first = shop.worker()
    run_id = shop.submit([("hold", {"name": "gate"})], [("once", {"name": "a"})])
    shop.wait_for("enter gate")
    first.send_signal(signal.SIGTERM)
    read_until(first, "draining")
    (shop.folder / "gate").touch()
    first.communicate(timeout=SECONDS)
    assert first.returncode == 0
    status = shop.ask(lambda client: client.status(run_id))
    assert status.status == "queued", "the call under way came to its end, and nothing began after it"
    assert [entry for _, entry in shop.lines()] == ["enter gate", "leave gate"]
    second = shop.worker(what="worker_shop:agents_by_name")
    assert shop.result(run_id).answer == "held gate; did a"
    assert shop.wait_for("once a") == second.pid


def test_what_does_not_end_in_time_is_cut_off_and_a_second_signal_ends_at_once(shop):
    first = shop.worker("--drain", "0.2")
    shop.submit([("pay", {"order": "1"})])
    run_id = shop.submit([("hold", {"name": "gate"})])
    shop.wait_for("enter gate")
    first.send_signal(signal.SIGTERM)
    read_until(first, "draining")
    (shop.folder / "gate").touch()  # its thread cannot be stopped
    first.communicate(timeout=SECONDS)
    assert first.returncode == 0
    second = shop.worker()
    assert shop.result(run_id).answer == "held gate"
    second.send_signal(signal.SIGINT)
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=SECONDS)
    # The second signal may find a worker that has ended its work: the interpreter dies of it, which a shell calls 130.
    assert second.returncode in (0, 130, -signal.SIGINT)


@pytest.mark.over_a_second
def test_the_command_line_submits_decides_delivers_and_lists(shop):
    run_id = new_id()
    words = task([("pay", {"order": "7"})])
    assert shop.run("submit", "shop", words, "--run-id", run_id).stdout.strip() == run_id
    assert shop.run("submit", "shop", words, "--run-id", run_id).stdout.strip() == run_id
    listing = shop.run("sessions").stdout
    assert run_id in listing
    assert "queued" in listing
    conflict = shop.run("submit", "shop", task(), "--run-id", run_id)
    assert (conflict.returncode, "another task" in conflict.stderr) == (1, True)
    early = shop.run("deliver", run_id, "payment:8", "1")
    assert early.returncode == 0
    shop.worker(what="worker_shop:many")
    shop.ask(lambda client: _until(client, run_id, "waiting"))
    assert ": waiting" in shop.run("show", run_id).stdout
    assert "is delivered" in shop.run("deliver", run_id, "payment:7", '{"euro": 5}', "--key", "k").stderr
    process_result = shop.run("submit", "shop", words, "--run-id", run_id, "--wait")
    assert (process_result.returncode, process_result.stdout.strip()) == (0, "7 paid {'euro': 5}")
    assert "counts once" in shop.run("deliver", run_id, "payment:7", "6", "--key", "k").stderr
    assert shop.run("deliver", run_id, "payment:7", "{").returncode == 2
    assert shop.run("decide", run_id, "call_1_0", "yes").returncode == 1
    assert shop.run("decide", run_id, "call_1_0", "yes", "--reason", "x").returncode == 2


@pytest.mark.over_a_second
def test_the_command_line_submits_the_next_task_of_a_session_with_limits_of_its_own(shop):
    async def begin(client):
        queued_run = await client.submit("shop", task(), session_id="talk-1", limits=Limits(steps=3))
        return await client.result(queued_run.run_id)

    shop.worker(what="worker_shop:many")
    shop.ask(begin)
    options = ("--session", "talk", "--max-steps", "7", "--max-seconds", "600", "--wait")
    arguments = ["submit", "shop", "-", *options]
    process = completed_text(arguments, env=shop.environment, cwd=shop.folder, stdin=task().encode())
    assert process.returncode == 0, process.stderr

    async def runs(client):
        return [await load_state(client.journal, info.run_id) for info in await client.journal.runs()]

    states = shop.ask(runs)
    assert [state.session_id for state in states] == ["talk-1"] * 2
    assert {state.limits.steps for state in states} == {3, 7}
    assert max(len(state.messages) for state in states) == 4
    priceless = shop.run("submit", "shop", task(), "--max-cost", "1", "--wait")
    assert priceless.returncode == 1
    assert "a limit of 1 US dollars cannot be enforced" in priceless.stdout
    assert "there is no session" in shop.run("submit", "shop", "x", "--session", "nothing").stderr
    assert "the task is empty" in shop.run("submit", "shop", " ").stderr


def test_a_submission_that_waits_ends_with_a_run_that_is_suspended(shop):
    words = task([("pay", {"order": "7"})])
    run_id = shop.submit([("pay", {"order": "7"})])
    shop.worker()
    shop.ask(lambda client: _until(client, run_id, "waiting"))
    shop.ask(lambda client: client.suspend(run_id))
    given_up = shop.run("submit", "shop", words, "--run-id", run_id, "--wait")
    assert (given_up.returncode, given_up.stdout) == (4, "")
    assert f"run {run_id} is suspended" in given_up.stderr
    shop.ask(lambda client: client.resume(run_id))
    shop.ask(lambda client: client.deliver(run_id, "payment:7", 5))
    process_result = shop.run("submit", "shop", words, "--run-id", run_id, "--wait")
    assert (process_result.returncode, process_result.stdout.strip()) == (0, "7 paid 5")


async def _until(client, run_id, status):
    async for _ in client.journal.follow(run_id):
        if (await client.status(run_id)).status == status:
            return


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere:shop"], "there is no module nowhere"),
        (["worker_shop:shopp"], "worker_shop has no 'shopp'. Did you mean 'shop'?"),
        (["worker_shop:FOLDER"], "names no agents"),
        (["nowhere.py"], "there is no file nowhere.py"),
        (["worker_shop:shop", "--engine", "mars://x"], "no engine is known for 'mars://x'"),
        (["worker_shop:shop", "--per-agent", "shop"], "write NAME=COUNT"),
        (["worker_shop:shop", "--per-agent", "till=1"], "has no agent till"),
        (["worker_shop:shop", "--deps", "worker_shop:none"], "worker_shop has no 'none'"),
    ],
)
def test_a_worker_that_cannot_work_says_why(tmp_path, arguments, message):
    process_result = Shop(tmp_path, str(tmp_path / "runs.db")).run("worker", *arguments)
    assert (process_result.returncode, message in process_result.stderr) == (2, True), process_result.stderr


def test_a_worker_says_whose_journal_it_takes(shop):
    refusal = shop.run("worker", "worker_shop:shop", "--journal", "runs.db")
    assert refusal.returncode == 2
    assert "a worker uses the journal of its agents: Agent(…, journal=" in refusal.stderr
