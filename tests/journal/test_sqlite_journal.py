"""What SQLite alone has: one file, other versions of it, and everything that may be wrong with it."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from toolspeak import Agent, Message, ToolCall, get_dialect, tool
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.events import Record, RunFinished, RunResumed
from toolspeak.errors import ConfigurationError, JournalError, RunBusy, RunError
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing.journal import a_run, every_kind, write

SCHEMA_1 = (Path(__file__).parent / "schema_1.sql").read_text(encoding="utf-8")
CALL = get_dialect("cogency-json").render([Message("assistant", (ToolCall("", "effect", {}),))])[0].text


@pytest.fixture
def path(tmp_path):
    return tmp_path / "toolspeak.db"


def use(path, work, **options):
    """What `work(journal)` comes to."""

    async def main():
        journal = SqliteJournal(path, **options)
        try:
            return await work(journal)
        finally:
            await journal.aclose()

    return asyncio.run(main())


def fill_file(path, runs=3, text=""):
    """A journal with some runs in it; the first one's records."""
    first = a_run("r0", *every_kind(), task=f"task {text}")

    async def fill(journal):
        await write(journal, first)
        for number in range(1, runs):
            await write(journal, a_run(f"r{number}", *every_kind(), task=f"task {number} {text}"))

    use(path, fill)
    return first


def run_agent(path, ran, **options):
    """Runs an agent whose one call has an effect, with a journal in this file."""

    @tool(read_only=True)
    def effect() -> str:
        "Has an effect."
        ran.append(1)
        return "done"

    async def work(journal):
        return await Agent(ScriptedProvider([CALL, "ok"]), [effect], journal=journal).run("go")

    return use(path, work, **options)


def test_a_run_is_in_the_file_and_its_folder_is_made(tmp_path):
    path, ran = tmp_path / "a" / "b" / "x.db", []
    result = run_agent(path, ran)
    assert (result.answer, ran) == ("ok", [1])
    state = use(path, lambda journal: load_state(journal, result.run_id))
    assert state == result.state
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


# --- versions ----------------------------------------------------------------------------------------------------


LATER = {
    2: "ALTER TABLE runs ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0;"
    """CREATE VIRTUAL TABLE found USING fts5(words, tokenize = "unicode61 remove_diacritics 0");""",
    3: "ALTER TABLE runs ADD COLUMN suspend INTEGER;",
}
"""What each later version added, as it was released."""


@pytest.mark.parametrize("version", range(1, 4))
def test_a_file_of_an_earlier_version_is_brought_forward_whole(path, version):
    old = sqlite3.connect(path)
    old.executescript(SCHEMA_1)
    for number in range(2, version + 1):
        old.executescript(f"{LATER[number]} PRAGMA user_version = {number}")
    if version > 1:  # the run behind it has been searched
        old.execute("INSERT INTO found (rowid, words) VALUES (4294967297, 'plans')")
        old.execute("UPDATE runs SET indexed = 3 WHERE run_id = 'r1'")
        old.commit()
    old.close()

    async def main(journal):
        first, second = await journal.read("r1"), await journal.read("r2")
        assert [type(record.event).__name__ for record in first] == ["RunStarted", "ModelAnswered", "RunFinished"]
        assert first[1].event.message.text == "plans " + "xy" * 35_000
        state = await load_state(journal, "r2")
        assert [message.text[:5] for message in state.messages] == ["What ", "plans", "And n"]
        (session,) = await journal.sessions()
        assert (session.title, session.version, session.last_run, session.principal) == (
            "What is in notes.md?", 2, "r2", "ann",
        )  # fmt: skip
        assert [info.records for info in await journal.runs()] == [1, 3]
        assert [match.run_id for match in await journal.search("plans")] == ["r1"]
        await journal.append(Record(RunResumed(), "r2", len(second), 0, 1.0))
        await journal.delete_session("s1")
        return await journal.sessions()

    assert use(path, main) == ()


def test_a_file_of_a_later_version_is_left_alone(path):
    fill_file(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"toolspeak\.db.*later toolspeak.*version 99.*upgrade"):
        use(path, lambda journal: journal.runs())
    assert path.read_bytes() == before


@pytest.mark.over_a_second
def test_several_that_make_the_file_at_once_make_one(tmp_path):
    """Each from a thread of its own, as processes do; again and again, for what happens in one of hundred times."""

    def write_one(path: Path, run_id: str) -> None:
        journal = SqliteJournal(path)
        try:
            asyncio.run(write(journal, a_run(run_id)))
        finally:
            journal.close()

    with ThreadPoolExecutor(8) as threads:
        for number in range(40):
            path = tmp_path / str(number) / "toolspeak.db"
            list(threads.map(partial(write_one, path), [f"r{i}" for i in range(8)]))
            assert len(use(path, lambda journal: journal.runs())) == 8


@pytest.mark.skipif(sys.platform != "linux", reason="needs a clock that counts from the machine's start")
def test_a_clock_that_is_set_takes_no_lease_away(path):
    """By an hour, while a run is held: neither in the process that holds it, nor in one that begins later."""
    wall = [1e9]

    async def main():
        holder = SqliteJournal(path, clock=lambda: wall[0])
        lease = await holder.acquire("r1", "holder", 30)
        for step in (3600, -7200):
            wall[0] += step
            later = SqliteJournal(path, clock=lambda: wall[0])
            for journal in (holder, later):
                with pytest.raises(RunBusy, match=r"free in (30|2\d) seconds"):
                    await journal.acquire("r1", "another", 30)
                assert await journal.ask_to_suspend("r1")
            later.close()
        assert (await holder.renew(lease, 0)).suspend
        assert (await holder.acquire("r1", "another", 30)).epoch == 2
        holder.close()

    asyncio.run(main())


# --- faults: the error names the file and the remedy, and nothing was done that is not recorded -----------------


def others_database(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()


def no_database(path):
    path.write_bytes(b"This is a text file, and longer than a header of a hundred bytes would be. " * 100)


def truncate(path):
    fill_file(path, text="x" * 30_000)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def garble(path):
    fill_file(path, runs=30, text="x" * 3000)
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


def a_folder(path):
    path.mkdir()


def in_a_file(path):
    path.parent.rmdir()
    path.parent.write_text("not a folder")


@pytest.mark.parametrize(
    ("break_it", "remedy"),
    [
        (others_database, "another program.*name another file"),
        (no_database, "not a SQLite database"),
        (truncate, "damaged.*backup"),
        (garble, "damaged.*backup"),
        (in_a_file, "cannot be created"),
        (a_folder, "is a folder: name a file in it"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_file_that_cannot_be_used_is_named_with_the_remedy_and_nothing_runs(path, break_it, remedy):
    break_it(path)
    ran = []
    with pytest.raises(JournalError, match=f"(?s){path.parent.name}.*{remedy}"):
        run_agent(path, ran)
    assert ran == []


def test_a_record_that_was_garbled_is_named(path):
    fill_file(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE records SET data = substr(data, 1, 20) WHERE pos % 4294967296 = 2")
    db.close()
    with pytest.raises(
        JournalError, match=r"toolspeak\.db is damaged: record 2 of run r0 differs from what was written"
    ):
        use(path, lambda journal: journal.read("r0"))


def test_a_locked_file_is_waited_for_without_stopping_others_and_then_named(path):
    fill_file(path)
    locker = sqlite3.connect(path, isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    ran, turns = [], []

    async def is_reported(journal):
        async def beat():
            while True:
                turns.append(1)
                await asyncio.sleep(0.001)

        beating = asyncio.create_task(beat())
        with pytest.raises(JournalError, match=r"toolspeak\.db.*locked.*end that process"):
            await journal.append(Record(RunResumed(), "r0", 7, 0, 1.0))
        assert len(turns) > 10
        beating.cancel()

    async def waits(journal):
        waiting = asyncio.create_task(journal.append(Record(RunFinished("failed", "", ""), "r1", 7, 0, 1.0)))
        await asyncio.sleep(0.01)
        locker.execute("COMMIT")
        await waiting
        return await journal.read("r1")

    use(path, is_reported, lock_seconds=0.3)
    assert len(use(path, waits, lock_seconds=60)) == 8
    locker.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalError, match="locked"):
        run_agent(path, ran, lock_seconds=0.05)
    locker.close()
    assert ran == []


FULL = """
import asyncio, resource, sys
from toolspeak import Agent, JournalError, Limits, SqliteJournal, tool
from toolspeak.providers.scripted_provider import ScriptedProvider

path, limit = sys.argv[1], int(sys.argv[2])
marks = open(path + ".marks", "ab", buffering=0)

@tool
def effect() -> str:
    "Has an effect."
    marks.write(b"x")
    return "y" * 9000

async def main():
    await Agent(ScriptedProvider(["ok"]), journal=journal).run("first")
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    provider, limits = ScriptedProvider([sys.argv[3]] * 500), Limits(500, repeats=None)
    agent = Agent(provider, [effect], journal=journal, limits=limits, approve="all")
    try:
        await agent.run("fill it")
    except JournalError as error:
        print(error)

journal = SqliteJournal(path)
asyncio.run(main())
"""


@pytest.mark.over_a_second
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE as Linux has it")
@pytest.mark.parametrize(
    "kilobytes", [pytest.param(300, marks=pytest.mark.slow), 417, pytest.param(1000, marks=pytest.mark.slow)]
)
def test_a_full_disk_ends_the_run_before_the_effect_and_the_journal_stays_good(path, kilobytes):
    result = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(kilobytes * 1024), CALL], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert "toolspeak.db" in result.stdout
    assert "free some space" in result.stdout

    async def look(journal):
        run = (await journal.runs())[0]
        return [type(record.event).__name__ for record in await journal.read(run.run_id)]

    kinds = use(path, look)
    effects = len(Path(f"{path}.marks").read_bytes())
    assert effects > 1
    assert kinds.count("ToolStarted") == effects
    assert kinds.count("ToolFinished") in (effects, effects - 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs users and processes as Unix has them")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_file_that_is_read_only_is_named_with_the_remedy(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir()
    path = folder / "toolspeak.db"
    fill_file(path)
    for name in folder.iterdir():
        name.chmod(0o444)
    folder.chmod(0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    reader, writer = os.pipe()
    child = os.fork()  # what is loaded already need not be readable by the other user
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            run_agent(path, [])
        except BaseException as error:  # noqa: BLE001 - the child has nobody else to tell
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        output = pipe.read()
    folder.chmod(0o755)
    assert output.startswith("JournalError"), output
    assert str(path) in output
    assert "the right to" in output


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE as Linux has it")
def test_a_file_that_is_brought_forward_while_the_disk_is_full_stays_as_it_was(path):
    old = sqlite3.connect(path)
    old.executescript(SCHEMA_1)
    more = "INSERT INTO records (pos, data) SELECT pos + ?, data || ? FROM records WHERE pos = 4294967298"
    old.executemany(more, [(number, " " * 3000) for number in range(1, 31)])
    old.commit()
    old.close()
    program = (
        "import asyncio, resource, sys; from toolspeak import SqliteJournal;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000));"
        "asyncio.run(SqliteJournal(sys.argv[1]).runs())"
    )
    result = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60)
    assert "toolspeak.db" in result.stderr
    assert "free some space" in result.stderr
    assert len(use(path, lambda journal: journal.read("r1"))) == 33


@pytest.mark.parametrize("name", [":memory:", "odd name?mode=ro"])
def test_a_name_is_a_file_s_whatever_it_looks_like(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    first = fill_file(name)
    assert (tmp_path / name).exists()
    assert list(use(name, lambda journal: journal.read("r0"))) == first


def test_a_relative_name_is_the_same_file_wherever_the_process_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    async def main(journal):
        await write(journal, a_run("r0"))
        monkeypatch.chdir(tmp_path / "elsewhere")
        return await journal.read("r0")

    assert len(use("toolspeak.db", main)) == 1


def test_a_word_for_sync_that_nobody_knows_is_refused(path):
    with pytest.raises(ConfigurationError, match=r"'effect'.*effects, always, never"):
        SqliteJournal(path, sync="effect")


def test_a_journal_that_was_closed_opens_again(path):
    first = fill_file(path)

    async def main(journal):
        await journal.read("r0")
        journal.close()
        return await journal.read("r0")

    assert list(use(path, main)) == first


def test_an_unknown_run_is_said_to_be_unknown(path):
    with pytest.raises(RunError, match="no run nobody"):
        use(path, lambda journal: load_state(journal, "nobody"))


counts_bytes = pytest.mark.skipif(
    not Path("/proc/self/io").exists(), reason="the bytes that a process reads are counted on Linux"
)


def bytes_read():
    return int(Path("/proc/self/io").read_text().split()[1])


@counts_bytes
def test_a_look_for_due_runs_does_not_pass_over_the_finished_ones(path):
    def ended_run(number):
        return [replace(each, agent="a") for each in a_run(f"run-{number}", RunFinished("answered", "x", "answer"))]

    async def look(journal):
        await journal.runs(limit=1)
        before = bytes_read()
        assert await journal.due_runs(2_000.0, agents=["a"]) == ()
        return bytes_read() - before

    counts = []
    for numbers in (range(300), range(300, 3_000)):
        use(path, lambda journal, numbers=numbers: journal.add_runs([ended_run(number) for number in numbers]))
        counts.append(use(path, look))
    assert counts[1] < 2 * counts[0]


@counts_bytes
def test_a_worker_that_takes_up_one_run_after_the_other_reads_the_whole_file_once(path):
    async def main():
        journal = SqliteJournal(path)
        for number in range(400):  # the newest records are always searched, so those are small
            await write(journal, a_run(f"old-{number}", task="x" * (50_000 if number < 100 else 10)))
        for number in range(3):
            lease = await journal.acquire(f"run-{number}", "gone", 0.0)
            await journal.append(a_run(f"run-{number}")[0], lease)
        counts = [bytes_read()]
        for number in range(3):
            assert (await journal.acquire(f"run-{number}", "me", 60)).took_over
            counts.append(bytes_read())
        journal.close()
        return [after - before for before, after in pairwise(counts)]

    first, *others = asyncio.run(main())
    size = path.stat().st_size
    assert first > 0.9 * size
    assert max(others) < 0.1 * size
