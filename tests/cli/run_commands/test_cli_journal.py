"""`resume`, `sessions`, `show` and `diff`, on a run that was killed."""

import asyncio
import json
import os
import re
import shlex
import signal
import time

import pytest
from click.testing import CliRunner
from terminal_harness import DEADLINE, TerminalProcess, environment

from forked_commands import PipedCommand, completed_text
from toolspeak import Agent, Session
from toolspeak.cli.main import cli
from toolspeak.data.codec import loads
from toolspeak.data.events import RunFinished, ToolStarted
from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.values import evolve
from toolspeak.dialects import get_dialect
from toolspeak.engines import RunClient
from toolspeak.errors import ConfigurationError, ToolspeakError
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.testing.journal import a_run


def calling(name, **arguments):
    return get_dialect("cogency-json").render([Message("assistant", (ToolCall("", name, arguments),))])[0].text


class Folder:
    """A workspace, a playbook and a journal; `toolspeak` runs the command on them."""

    def __init__(self, path):
        self.work, self.path = path / "work", path / "toolspeak.db"
        self.work.mkdir()
        self.book = path / "book.json"
        self.env = environment(TOOLSPEAK_JOURNAL=str(self.path), TOOLSPEAK_MODEL=f"scripted:{self.book}")

    def plays(self, *turns):
        self.book.write_text(json.dumps({"turns": turns, "follow": True}), encoding="utf-8")

    def start(self, *arguments):
        return PipedCommand(arguments, cwd=self.work, env=self.env, session=True)

    def toolspeak(self, *arguments, code=0):
        process = completed_text(arguments, cwd=self.work, env=self.env, session=True, seconds=DEADLINE)
        assert process.returncode == code, (process.stdout, process.stderr)
        return process.stdout + process.stderr if code else process.stdout

    def here(self, *arguments, code=0):
        """Like `toolspeak`, in this process: for commands that need no terminal and are not killed."""
        result = CliRunner().invoke(cli, arguments, env=self.env)
        error = result.exception if isinstance(result.exception, ToolspeakError) else None
        exit_code = result.exit_code if error is None else 2 if isinstance(error, ConfigurationError) else 1
        assert exit_code == code, (result.output, result.exception)
        return result.stdout + (str(error) if error else "")

    def read(self, work):
        async def main():
            journal = SqliteJournal(self.path)
            try:
                return await work(journal)
            finally:
                journal.close()

        return asyncio.run(main())

    def wait_for(self, kind, name):
        async def there(journal):
            for run in await journal.runs():
                for record in await journal.read(run.run_id):
                    if isinstance(record.event, kind) and record.event.name == name:
                        return run.run_id
            return None

        end = time.monotonic() + DEADLINE
        while (run_id := self.read(there)) is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        return run_id


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.mark.over_a_second
def test_a_killed_run_is_resumed_shown_and_compared(folder):
    folder.plays(
        calling("write", path="a.txt", content="a\n"), calling("shell", command="sleep 60; echo x >> b"), "Done."
    )
    process = folder.start("run", "Make a file\nand more", "--approve", "all")
    run_id = folder.wait_for(ToolStarted, "shell")
    follower = folder.start("show", run_id[:8], "--follow", "--json")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (folder.work / "a.txt").read_text() == "a\n"

    assert folder.toolspeak("resume", "--json").endswith("\n")
    assert not (folder.work / "b").exists()
    output, _ = follower.communicate(timeout=DEADLINE)
    *lines, last = output.splitlines()
    records = [loads(line) for line in lines]
    summary = json.loads(last)["summary"]
    assert (summary["run_id"], summary["status"], summary["steps"], summary["calls"]) == (run_id, "answered", 3, 2)
    assert summary["tokens"]["input"] > summary["tokens"]["output"] > 0
    assert summary["cost"] is None
    assert [record.seq for record in records] == list(range(len(records)))
    assert isinstance(records[-1].event, RunFinished)
    assert records[-1].event.answer == "Done."
    results = {r.event.result.name: r.event.result.code for r in records if hasattr(r.event, "result")}
    assert results == {"write": None, "shell": "unknown_outcome"}

    output = folder.toolspeak("show", run_id[:6])
    for expected in ("run started on scripted", "step 3", "▸ write path", "shell started", "resumed", "unknown outcome",
                     "tokens in", "answered (answer): Done.", f"{run_id}: answered: 3 steps, 2 calls"):  # fmt: skip
        assert expected in output
    assert "nothing to resume" in folder.toolspeak("resume", run_id[:6], code=1)
    assert "no run is unfinished" in folder.toolspeak("resume", code=2)
    assert folder.toolspeak("resume", "--all") == ""

    folder.plays("Another answer.")
    folder.toolspeak("run", "Make a file\nand more", "--approve", "none")
    (newest,) = folder.read(lambda journal: journal.runs(limit=1))
    assert folder.toolspeak("diff", run_id, run_id) == ""
    difference = folder.toolspeak("diff", run_id, newest.run_id, code=1)
    assert "-  ▸ write" in difference
    assert "+model: Another answer." in difference
    assert "(~" not in difference


def test_a_killed_run_continues_its_recording_and_replays_as_one(folder):
    folder.plays(
        calling("write", path="a.txt", content="a\n"), calling("shell", command="sleep 60; echo x >> b"), "Done."
    )
    process = folder.start("run", "Make a file", "--approve", "all", "--record", "../run.jsonl")
    folder.wait_for(ToolStarted, "shell")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    folder.toolspeak("resume")
    (folder.work / "a.txt").unlink()

    output = folder.toolspeak("run", "Make a file", "--replay", "../run.jsonl", "--json")
    results = [r.event.result for r in map(loads, output.splitlines()) if hasattr(r.event, "result")]
    assert [(result.name, result.code) for result in results] == [("write", None), ("shell", "unknown_outcome")]
    assert loads(output.splitlines()[-1]).event.answer == "Done."
    assert list(folder.work.iterdir()) == []


def test_a_missing_or_foreign_recording_is_not_continued(folder):
    folder.plays(calling("write", path="a.txt", content="a\n"), "Done.")
    cassette = folder.work.parent / "run.jsonl"
    other = ("run", "Else", "--approve", "none", "--record", str(cassette))
    for meanwhile, why in ((cassette.unlink, "cannot be read"), (lambda: folder.toolspeak(*other), "another run")):
        folder.toolspeak("run", "Make a file", "--record", str(cassette), code=3)
        meanwhile()
        before = cassette.exists() and cassette.read_bytes()
        _, output = folder.start("resume", "--approve", "all").communicate(timeout=DEADLINE)
        assert "the rest is not recorded" in output
        assert why in output
        assert before == (cassette.exists() and cassette.read_bytes())


def test_all_interrupted_runs_continue_except_one_that_another_process_holds(folder):
    folder.plays(calling("shell", command="sleep 60"), "Done.")
    interrupted_process = folder.start("run", "one", "--approve", "all")
    folder.wait_for(ToolStarted, "shell")
    interrupted_process.kill()
    interrupted_process.communicate()
    open_process = folder.start("run", "two", "--approve", "all")
    while len(runs := folder.read(lambda journal: journal.runs(status="running"))) < 2:
        time.sleep(0.02)
    info_of_held = folder.read(lambda journal: journal.run(runs[0].run_id))
    process = folder.start("resume", "--all")
    _, output = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert f"run {runs[0].run_id} is held by process {info_of_held.owner.split()[1]} of this machine" in output
    statuses = lambda: [run.status for run in folder.read(lambda journal: journal.runs())]  # noqa: E731
    assert statuses() == ["running", "answered"]

    watcher = folder.start("resume", "--all", "--watch")
    assert "watching" in watcher.stderr.readline()
    os.killpg(open_process.pid, signal.SIGKILL)
    open_process.communicate()
    end = time.monotonic() + DEADLINE
    while statuses() != ["answered", "answered"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    watcher.send_signal(signal.SIGINT)
    _, output = watcher.communicate(timeout=DEADLINE)
    assert watcher.returncode == 130
    assert output.count("resuming") == 1


def test_a_watcher_continues_a_run_after_its_decision(folder):
    folder.plays(calling("shell", command="echo yes > log"), "Done.")
    process = folder.start("run", "one")
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 3
    alien = a_run("alien")[0]  # a run of another program is skipped and blocks nothing
    folder.read(lambda journal: journal.append(evolve(alien, agent="agent")))
    watcher = folder.start("resume", "--all", "--watch")
    assert "watching" in watcher.stderr.readline()
    assert "resuming alien" in watcher.stderr.readline()
    assert "was not started by `toolspeak run`" in watcher.stderr.readline()
    (waiting,) = folder.read(lambda journal: journal.runs(status="awaiting_approval"))
    (call,) = folder.read(lambda journal: RunClient(journal).status(waiting.run_id)).requests
    folder.here("decide", waiting.run_id, call.call_id, "yes")
    end = time.monotonic() + DEADLINE
    while folder.read(lambda journal: journal.run(waiting.run_id)).status != "answered":
        assert time.monotonic() < end
        time.sleep(0.05)
    assert (folder.work / "log").read_text() == "yes\n"
    watcher.send_signal(signal.SIGINT)
    _, output = watcher.communicate(timeout=DEADLINE)
    assert (watcher.returncode, output.count("resuming"), output.count("was not started")) == (130, 1, 0)


def test_a_run_that_another_process_has_ended_meanwhile_is_skipped(folder):
    folder.plays(calling("shell", command="until [ -e gate ]; do sleep 0.05; done"), "Done.")

    async def count_starts(journal):
        records = [record for run in await journal.runs() for record in await journal.read(run.run_id)]
        return sum(isinstance(record.event, ToolStarted) for record in records)

    for number, task in enumerate(("older", "newer"), 1):
        process = folder.start("run", task, "--approve", "all")
        while folder.read(count_starts) < number:  # a call that was not started would run when its run is resumed
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    newer, older = folder.read(lambda journal: journal.runs())
    one = folder.start("resume", "--all", "--approve", "all", "--in-doubt", "repeat")  # begins with the newer
    while folder.read(lambda journal: journal.run(newer.run_id)).owner == newer.owner:
        time.sleep(0.02)
    folder.plays("Done.", "Done.")  # `one` already has its call, and waits for the gate
    assert folder.toolspeak("resume", older.run_id, "--in-doubt", "report") == "Done.\n"
    (folder.work / "gate").touch()
    _, output = one.communicate(timeout=DEADLINE)
    assert (one.returncode, output.count("resuming")) == (0, 1), output


def test_a_follower_of_a_run_reads_that_it_was_deleted(folder):
    records = a_run("held", session_id="s")
    folder.read(lambda journal: journal.append(records[0]))
    follower = folder.start("show", "held", "--follow")
    assert "run started" in follower.stdout.readline()
    folder.here("sessions", "delete", "s", "--yes")
    _, output = follower.communicate(timeout=DEADLINE)
    assert (follower.returncode, "held was deleted" in output) == (2, True)


@pytest.mark.over_a_second
def test_a_run_of_another_process_is_suspended_and_continues(folder):
    gate = "until [ -e gate ]; do sleep 0.05; done; echo one >> log"
    folder.plays(both(gate, "echo two >> log"), "Done.")
    holder = folder.start("run", "go", "--approve", "all")
    run_id = folder.wait_for(ToolStarted, "shell")
    asking = folder.start("suspend", run_id[:8])
    assert "waiting for run" in asking.stderr.readline()
    # The current call finishes, however long it takes.
    assert folder.read(lambda journal: journal.run(run_id)).status == "running"
    lease = lambda: folder.read(lambda journal: journal.run(run_id)).held_until  # noqa: E731
    lease_before, end = lease(), time.monotonic() + DEADLINE
    while lease() == lease_before:  # the holder hears of it with its next heartbeat
        assert time.monotonic() < end
        time.sleep(0.02)
    (folder.work / "gate").touch()
    _, output = holder.communicate(timeout=DEADLINE)
    assert holder.returncode == 4
    assert f"suspended: `toolspeak resume {run_id[:8]}`" in output
    _, output = asking.communicate(timeout=DEADLINE)
    assert (asking.returncode, output.splitlines()[-1]) == (0, f"toolspeak: run {run_id[:8]} is suspended")
    assert (folder.work / "log").read_text() == "one\n"
    assert "suspended" in folder.here("sessions")
    summary = folder.here("show", run_id)
    assert summary.count("started") == 2  # the run and its first call
    assert f"{run_id}: suspended: 1 step" in summary
    assert "is suspended: only a run in progress can be suspended" in folder.here("suspend", run_id, code=1)
    assert "no run is in progress" in folder.here("suspend", code=2)
    assert folder.toolspeak("resume", "--all") == ""  # whoever suspended it decides when it continues
    assert folder.toolspeak("resume", run_id[:8]) == "Done.\n"
    assert (folder.work / "log").read_text() == "one\ntwo\n"


def both(*commands):
    calls = tuple(ToolCall("", "shell", {"command": command}) for command in commands)
    return get_dialect("cogency-json").render([Message("assistant", calls)])[0].text


def test_a_run_that_was_killed_is_suspended_at_once(folder):
    folder.plays(calling("shell", command="sleep 60"), "Done.")
    process = folder.start("run", "go", "--approve", "all")
    run_id = folder.wait_for(ToolStarted, "shell")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert f"{run_id[:8]} was interrupted: name it" in folder.here("suspend", code=2)
    assert folder.read(lambda journal: journal.run(run_id)).status == "running"
    folder.here("suspend", run_id[:8])
    assert folder.read(lambda journal: journal.run(run_id)).status == "suspended"
    assert folder.toolspeak("resume") == "Done.\n"


def test_a_session_whose_last_run_was_killed_continues_at_once(folder):
    folder.plays(calling("shell", command="sleep 60"), "Done.")
    process = folder.start("run", "go", "--approve", "all")
    folder.wait_for(ToolStarted, "shell")
    assert "still going on" in folder.toolspeak("run", "and?", "--continue", code=1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    folder.plays("as before", "I do not know what became of it.")
    assert folder.toolspeak("run", "What became of it?", "--continue") == "I do not know what became of it.\n"
    (session,) = json.loads(folder.here("sessions", "--json"))
    assert [run["status"] for run in session["runs"]] == ["answered", "no_answer"]


@pytest.mark.over_a_second
def test_continue_takes_the_last_session_of_this_folder_with_its_model(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    second = tmp_path / "second.json"
    second.write_text(json.dumps({"turns": ["I am the second.", "The second again."], "follow": True}))
    folder.plays("I am the first.", "The first again.")
    assert folder.toolspeak("run", "Who?") == "I am the first.\n"
    there = ("--workspace", str(other))
    assert folder.toolspeak("run", "Who?", *there, "--model", f"scripted:{second}") == "I am the second.\n"

    # The other folder's session was used last, and TOOLSPEAK_MODEL names the first model.
    assert folder.toolspeak("run", "And now?", "-c") == "The first again.\n"
    assert folder.toolspeak("run", "And now?", "-c", *there) == "The second again.\n"
    folder.plays("one", "two", "The first, as asked.")
    assert (
        folder.toolspeak("run", "And?", "-c", *there, "--model", f"scripted:{folder.book}") == "The first, as asked.\n"
    )

    runs_by_folder = {each["folder"]: each["runs"] for each in json.loads(folder.here("sessions", "--json"))}
    assert list(runs_by_folder) == [str(other.resolve()), str(folder.work.resolve())]
    assert [run["model"] for run in runs_by_folder[str(folder.work.resolve())]] == [f"scripted:{folder.book}"] * 2
    header, *lines = folder.here("sessions").splitlines()  # whole columns, where no person reads them
    assert header.split("\t") == ["session, run", "last used, status", "folder, model", "title"]
    folders = [line.split("\t")[2] for line in lines if line[0] != " "]
    assert folders == [str(other.resolve()), str(folder.work.resolve())]
    assert all(len(line.split("\t")) == 4 for line in lines)

    empty = tmp_path / "empty"
    empty.mkdir()
    output = folder.toolspeak("run", "And?", "-c", "--workspace", str(empty), code=2)
    assert f"there is no session of {empty.resolve()} to continue" in output
    assert "--session" in output


def test_a_session_continues_in_its_dialect_without_an_option_for_its_model(folder):
    folder.plays("<tool_call>\n" + json.dumps({"name": "list", "arguments": {}}) + "\n</tool_call>", "Empty.", "Still.")
    first = folder.toolspeak("run", "What is here?", "--dialect", "tool-call")
    assert first == "Empty.\n"
    del folder.env["TOOLSPEAK_MODEL"]
    assert folder.toolspeak("run", "And now?", "-c") == "Still.\n"
    (session,) = json.loads(folder.here("sessions", "--json"))
    start = folder.read(lambda journal: journal.read(session["runs"][0]["run_id"], 0, 1))[0].event
    assert start.setup["dialect"] == "tool-call"
    assert "the model is missing" in folder.toolspeak("run", "Anything", code=2)


def test_a_run_whose_process_is_dead_is_interrupted_and_not_running(folder):
    folder.plays(calling("shell", command="sleep 60"), "Done.")
    process = folder.start("run", "go", "--approve", "all")
    run_id = folder.wait_for(ToolStarted, "shell")

    def statuses():
        (session,) = json.loads(folder.here("sessions", "--json"))
        report = json.loads(folder.here("show", run_id[:8], "--json").splitlines()[-1])
        return [run["status"] for run in session["runs"]], report["summary"]["status"]

    assert statuses() == (["running"], "running")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert statuses() == (["interrupted"], "interrupted")
    assert "interrupted" in folder.here("sessions")
    assert "interrupted: 1 step" in folder.here("show", run_id[:8])


@pytest.mark.over_a_second
def test_ctrl_c_says_how_to_continue(folder):
    folder.plays(calling("shell", command="sleep 60"), "Done.")
    process = folder.start("run", "go", "--approve", "all")
    run_id = folder.wait_for(ToolStarted, "shell")
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert f"`toolspeak resume {run_id[:8]}` continues it" in output
    (session,) = json.loads(folder.here("sessions", "--json"))
    assert [run["status"] for run in session["runs"]] == ["interrupted"]
    process = folder.start("run", "go", "--approve", "all", "--journal", "none")
    while "list" not in output and "shell" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    assert "resume" not in process.communicate(timeout=DEADLINE)[1]


def test_watch_needs_all(folder):
    assert "--watch needs --all" in folder.here("resume", "--watch", code=2)


def test_resuming_decides_a_waiting_call(folder):
    folder.plays(calling("write", path="a.txt", content="a\n"), "Done.")
    waiting = folder.toolspeak("run", "go", code=3)
    (run,) = folder.read(lambda journal: journal.runs())
    assert f"toolspeak resume {run.run_id[:8]}" in waiting
    folder.toolspeak("resume", run.run_id[:8], "--approve", "all")
    assert (folder.work / "a.txt").exists()


def test_a_run_is_resumed_from_another_folder(folder, monkeypatch):
    folder.plays(calling("write", path="a.txt", content="a\n"), "Done.")
    monkeypatch.chdir(folder.work)
    folder.toolspeak("run", "go", "--model", "scripted:../book.json", code=3)
    monkeypatch.chdir("/")
    assert folder.here("resume", "--approve", "all") == "Done.\n"
    assert (folder.work / "a.txt").exists()


def test_sessions_are_continued_listed_renamed_forked_searched_moved_and_deleted(folder, monkeypatch):
    monkeypatch.chdir(folder.work)
    folder.plays("The sky is blue.", "It is grey.")
    folder.here("run", "What colour\nis it?")
    folder.here("run", "And today?", "--continue")
    (session,) = json.loads(folder.here("sessions", "--json"))
    assert (session["title"], len(session["runs"])) == ("What colour", 2)
    short = session["session_id"][:8]
    listing = folder.here("sessions")
    assert short in listing
    assert "answered" in listing
    folder.here("sessions", "rename", short, "The sky")
    assert "The sky" in folder.here("sessions")
    assert "assistant: It is grey." in folder.here("sessions", "search", "gre")
    first = session["runs"][1]["run_id"]
    fork_id = folder.here("sessions", "fork", short, "--run", first[:10], "--at", "1").strip()
    folder.plays("Forked.")
    assert folder.here("run", "Otherwise?", "--session", fork_id[:8]) == "Forked.\n"
    export = folder.here("sessions", "export", short)
    assert "already" in folder.here("sessions", "import", write(folder.path.parent / "s.jsonl", export), code=1)
    assert "write the session's whole id" in folder.here("sessions", "delete", short, code=2)
    assert short in folder.here("sessions")
    folder.here("sessions", "delete", short, "--yes")
    assert "no session" in folder.here("sessions", "delete", short, "--yes", code=2)
    assert folder.here("sessions", "import", str(folder.path.parent / "s.jsonl")).strip() == session["session_id"]
    assert folder.here("sessions", "export", short) == export
    assert "line 1" in folder.here("sessions", "import", write(folder.path.parent / "x", "{}"), code=1)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_run_that_a_program_started_outside_of_a_session_is_listed(folder):
    async def main(journal):
        return await Agent(ScriptedProvider(["yes"]), journal=journal).run("Is it there?")

    result = folder.read(main)
    listing = folder.here("sessions")
    assert result.run_id[:8] in listing
    assert "Is it there?" in listing
    (entry,) = json.loads(folder.here("sessions", "--json"))
    assert (entry["session_id"], [run["run_id"] for run in entry["runs"]]) == (None, [result.run_id])
    assert "answered (answer): yes" in folder.here("show", result.run_id[:8])

    async def later(journal):  # a session with many runs, all of them newer
        agent = Agent(ScriptedProvider(["yes"] * 3), journal=journal)
        session = Session(agent)
        for task in ("one", "two", "three"):
            await session.run(task)

    folder.read(later)
    listing = json.loads(folder.here("sessions", "--limit", "2", "--json"))
    assert [(entry["title"], len(entry["runs"])) for entry in listing] == [("one", 3), ("Is it there?", 1)]


def test_runs_that_tools_started_are_no_conversations_and_each_run_has_its_title(folder):
    assert folder.here("sessions") == ""  # the note that there are none is an error's

    async def main(journal):
        helper = Agent(ScriptedProvider(["Inner."]), journal=journal, name="helper", description="Helps.")
        call = ScriptedTurn("", calls=[ScriptedCall("helper", {"task": "Help me."})])
        model = ScriptedProvider([call, "Outer.", "Later."], tools=True)
        session = Session(Agent(model, [helper.as_tool()], approve="all", journal=journal))
        first, second = await session.run("The task"), await session.run("More")
        runs = await journal.runs()
        assert sorted(run.parent_run_id is None for run in runs) == [False, True, True]
        return first.run_id, second.run_id

    run_ids = folder.read(main)
    (entry,) = json.loads(folder.here("sessions", "--json"))
    assert {run["run_id"] for run in entry["runs"]} == set(run_ids)
    _, session_row, *run_rows = [line.split("\t") for line in folder.here("sessions").splitlines()]
    assert session_row[-1] == "The task"
    assert [row[-1] for row in run_rows] == ["More", "The task"]
    inner = re.search(r"helper \(run ([0-9a-f]{8})\) ran for it", folder.here("show", run_ids[0]))
    assert inner is not None
    assert "user: Help me." in folder.here("show", inner[1])


def test_a_title_cannot_control_the_terminal(folder, monkeypatch):
    monkeypatch.chdir(folder.work)
    folder.plays(calling("read", path="a.txt"), "\x1b[31m red")
    folder.here("run", "Evil \x1b]0;title\x07 task", "--approve", "none")
    (run,) = folder.read(lambda journal: journal.runs())
    for output in (folder.here("sessions"), folder.here("show", run.run_id), folder.here("sessions", "search", "red")):
        assert "␛" in output
        assert "\x1b" not in output
    records = a_run("killed", task="Evil \x1b]0;title\x07 task")
    folder.read(lambda journal: journal.append(records[0]))
    progress = folder.toolspeak("resume", "--all", code=1)
    assert "resuming killed" in progress
    assert "\x1b" not in progress


def test_the_cost_of_a_run_is_summed_up(folder, monkeypatch):
    monkeypatch.chdir(folder.work)
    folder.plays(calling("list", path="."), "Done.")
    prices = write(
        folder.path.parent / "prices.json", json.dumps({f"scripted:{folder.book}": {"input": 1, "output": 2}})
    )
    folder.here("run", "go", "--prices", prices)
    (run,) = folder.read(lambda journal: journal.runs())
    *records, last = folder.here("show", run.run_id, "--json").splitlines()
    summary = json.loads(last)["summary"]
    costs = [json.loads(line)["event"]["cost"] for line in records if '"ModelAnswered"' in line]
    assert len(costs) == 2
    assert summary["cost"] == pytest.approx(sum(costs))
    assert summary["cost"] == pytest.approx((summary["tokens"]["input"] + 2 * summary["tokens"]["output"]) / 1e6)
    output = folder.here("show", run.run_id)
    assert f"tokens (~${summary['cost']:.4f})" in output
    assert "model: 1 call " in output


def test_a_name_without_a_run_or_a_journal_is_a_usage_error(folder):
    assert "there is no run 'abc'" in folder.here("show", "abc", code=2)
    assert "there is no journal for postgres-ql://" in folder.here("sessions", "--journal", "postgres-ql://x", code=2)
    assert "not both" in folder.here("resume", "abc", "--all", code=2)


def test_a_task_after_a_waiting_run_is_refused_until_it_is_decided_or_closed(folder):
    folder.plays(calling("write", path="a.txt", content="a\n"), "Next.")
    folder.toolspeak("run", "Make a file", code=3)
    output = folder.toolspeak("run", "-c", "next", code=1)
    assert "waits for a decision about write" in output
    assert "toolspeak resume " in output
    assert "--close" in output
    assert folder.toolspeak("run", "-c", "--close", "next") == "Next.\n"
    first = folder.read(lambda journal: journal.runs())[-1]
    assert (first.title, first.status) == ("Make a file", "no_answer")
    assert "it has ended" in folder.toolspeak("resume", first.run_id, "--approve", "all", code=1)
    assert not (folder.work / "a.txt").exists()
    assert "--close needs --session or -c" in folder.toolspeak("run", "--close", "next", code=2)


@pytest.mark.parametrize(
    ("answer", "is_deleted", "code"),
    [
        ("y\n", True, 0),
        ("Ok.\n", True, 0),
        ("n\n", False, 1),
        ("\n", False, 1),
        ("what?\n", False, 1),
        ("\x04", False, 1),
        ("\x03", False, 130),
    ],
)
def test_deleting_a_session_says_what_it_deletes_and_asks_at_a_terminal(folder, answer, is_deleted, code):
    for record in a_run("one", session_id="session", task="Paint \x1b[2J it"):
        folder.read(lambda journal, record=record: journal.append(record))
    env = {**environment(), **folder.env}
    with TerminalProcess("sessions", "delete", "sess", cwd=folder.work, env=env) as process:
        question = process.read_until("Delete it for good?")
        assert "session session, last used" in question
        assert "1 runs with" in question
        assert "\x1b[2J" not in question
        process.type(answer)
        exit_code, screen = process.finish()
    assert (exit_code, "nothing was deleted" in screen) == (code, code == 1)
    assert (folder.read(lambda journal: journal.session("session")) is None) == is_deleted


@pytest.mark.parametrize("forgery", ["set up to say yes", "decided"])
def test_an_imported_session_of_somebody_else_runs_nothing(folder, forgery):
    """The settings and decisions in a file approve nothing here."""
    folder.plays(calling("write", path="a.txt", content="a\n"), "Done.")
    folder.toolspeak("run", "Make a file", code=3)
    (session,) = json.loads(folder.here("sessions", "--json"))
    export = folder.here("sessions", "export", session["session_id"])
    folder.here("sessions", "delete", session["session_id"])
    if forgery == "decided":
        head, *records = export.splitlines()
        question = next(json.loads(each) for each in records if '"ApprovalRequested"' in each)
        yes = {
            "type": "ApprovalDecided",
            "call_id": question["call_id"],
            "approved": True,
            "digest": question["event"]["digest"],
        }
        last = {**json.loads(records[-1]), "event": yes}
        export = "\n".join([head, *records[:-1], json.dumps(last)])
    else:
        assert '"approve":"ask"' in export
        export = export.replace('"approve":"ask"', '"approve":"all"')
    file = write(folder.path.parent / "s.jsonl", export)
    assert folder.here("sessions", "import", file).strip() == session["session_id"]
    (run,) = folder.read(lambda journal: journal.runs())
    assert run.status == "no_answer"
    folder.toolspeak("resume", code=2)
    assert not (folder.work / "a.txt").exists()
    assert folder.toolspeak("run", "-c", "And now?") == "Done.\n"
    folder.here("sessions", "delete", session["session_id"])
    folder.here("sessions", "import", "--trust", file)
    assert folder.toolspeak("resume") == "Done.\n"
    assert (folder.work / "a.txt").exists()


def test_the_command_to_continue_can_be_typed_as_it_is_printed(folder):
    folder.plays(calling("write", path="a.txt", content="a\n"), "Done.")
    elsewhere = str(folder.path.parent / "another place.db")
    output = folder.toolspeak("run", "Make a file", "--journal", elsewhere, code=3)
    program, *arguments = shlex.split(output.partition("`")[2].partition("`")[0])
    assert program == "toolspeak"
    assert folder.toolspeak(*arguments, "--approve", "all") == "Done.\n"
    output = folder.toolspeak("run", "Make a file", "--journal", "none", code=3)
    assert "no journal for the run" in output
    assert "resume" not in output
