"""The sandbox as a user has it: options, what is said and recorded, and what a model's commands can and cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_levels import problem_with

from forked_commands import completed_text
from toolspeak.data.codec import loads
from toolspeak.data.events import Record, ToolFinished, ToolStarted
from toolspeak.journal import SqliteJournal

needs_bubblewrap = pytest.mark.skipif(bool(problem_with("bubblewrap")), reason=problem_with("bubblewrap") or "-")
needs_boundary = pytest.mark.skipif(
    bool(problem_with("bubblewrap") and problem_with("landlock")),
    reason=f"{problem_with('bubblewrap')}; {problem_with('landlock')}",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    return work


def run(
    folder: Path, calls: list[dict], *options: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess:
    """`toolspeak run` without a terminal, with a model that makes the calls of `shell`, one in a turn."""
    turns = [
        f"<tool_call>\n{json.dumps({'name': 'shell', 'arguments': arguments})}\n</tool_call>" for arguments in calls
    ]
    book = folder.parent / "model.json"
    book.write_text(json.dumps({"turns": [*turns, "Done."]}))
    command = ["run", "task", "--model", f"scripted:{book}", "--dialect", "hermes", "--approve", "all", "--json",
               "--journal", str(folder.parent / "journal.db"), *options]  # fmt: skip
    if env is not None and "PYTHONPATH" in env:
        return run_fresh_process(command, folder, env)
    return completed_text(command, cwd=folder, env={**os.environ, **(env or {})}, session=True)


def run_fresh_process(arguments: list[str], folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess:
    """`toolspeak`, started from nothing, so that Python takes what `env` changes of it."""
    return subprocess.run(
        [sys.executable, "-m", "toolspeak", *arguments],
        cwd=folder,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=120,
        check=False,
    )


def records(result: subprocess.CompletedProcess) -> list[Record]:
    entries = [loads(line) for line in result.stdout.splitlines()]
    return [each for each in entries if isinstance(each, Record)]


def results(result: subprocess.CompletedProcess) -> list[dict]:
    return [each.event.result.structured or each.event.result.text for each in records(result)
            if isinstance(each.event, ToolFinished)]  # fmt: skip


@needs_boundary
def test_what_is_active_is_said_and_stands_in_each_record(folder: Path):
    result = run(folder, [{"command": "echo hi"}])
    assert result.returncode == 0, result.stderr
    level = result.stderr.split("toolspeak: sandbox: ")[1].split()[0].strip(";:")
    assert level in ("bubblewrap", "landlock")
    starts = [each.event for each in records(result) if isinstance(each.event, ToolStarted)]
    assert [each.sandbox for each in starts] == [level]

    async def journal_records() -> list[Record]:
        journal = SqliteJournal(folder.parent / "journal.db")
        try:
            (info,) = await journal.runs()
            return await journal.read(info.run_id)
        finally:
            await journal.aclose()

    in_journal = [each.event.sandbox for each in asyncio.run(journal_records()) if isinstance(each.event, ToolStarted)]
    assert in_journal == [level]


@needs_boundary
def test_a_command_is_held_to_what_its_call_declares(folder: Path):
    (folder / "src").mkdir()
    result = run(
        folder,
        [
            {"command": "echo a > a", "writes": []},
            {"command": "echo b > src/b; echo b > b", "writes": ["src"]},
            {"command": "echo c > c; echo c > ../c"},
            {"command": "true", "writes": ["../elsewhere"]},
            {"command": "true", "writes": ["missing/folder"]},
        ],
    )
    assert result.returncode == 0, result.stderr
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["c", "src", "src/b"]
    assert not (folder.parent / "c").exists()
    call_effects = [each.event.effects for each in records(result) if isinstance(each.event, ToolStarted)]
    assert [sorted(each.writes) for each in call_effects[:3]] == [[], [f"file:{folder / 'src'}"], [f"file:{folder}"]]
    assert not any(each.external for each in call_effects)
    *_, outside, missing = results(result)
    assert "lies outside of the workspace" in outside
    assert "does not exist: name the folder" in missing


def test_off_is_off(folder: Path):
    result = run(folder, [{"command": "echo a > ../a", "writes": []}], "--sandbox", "off")
    assert "toolspeak: sandbox: off: commands have all your rights\n" in result.stderr
    assert (folder.parent / "a").exists()
    assert [each.event.sandbox for each in records(result) if isinstance(each.event, ToolStarted)] == ["none"]


def without_boundaries(folder: Path) -> dict[str, str]:
    """The environment of a system that has neither boundary: no `bwrap`, and a Python whose kernel says so."""
    hook = folder.parent / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text("import platform\nplatform.machine = lambda: 'riscv64'\n")
    return {"PYTHONPATH": os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.parametrize("options", [(), ("--sandbox", "required")])
def test_where_one_is_required_and_there_is_none_nothing_begins_and_the_remedy_is_named(folder: Path, options):
    result = run(folder, [{"command": "echo a > a"}], *options, env=without_boundaries(folder))
    assert result.returncode == 2
    assert "commands need a sandbox here, and this system has none (bubblewrap: " in result.stderr
    assert "install bubblewrap" in result.stderr
    assert "--sandbox off, or TOOLSPEAK_SANDBOX=off" in result.stderr
    assert list(folder.iterdir()) == []
    assert not (folder.parent / "journal.db").exists()


def test_a_worker_that_cannot_hold_commands_does_not_start(folder: Path):
    result = run_fresh_process(["worker", "nowhere:agent"], folder, without_boundaries(folder))
    assert result.returncode == 2
    assert "install bubblewrap" in result.stderr


@pytest.mark.over_a_second
def test_the_doctor_says_what_holds_commands_and_what_to_do(folder: Path):
    def finding(**env: str) -> tuple[str, str]:
        result = run_fresh_process(
            ["doctor", "--json"], folder, {**without_boundaries(folder), "HOME": str(folder), **env}
        )
        (row,) = [row for row in json.loads(result.stdout)["findings"] if row["subject"] == "sandbox"]
        return row["state"], f"{row['text']} {row['remedy']}"

    state, text = finding()
    assert state == "warning"
    assert text.startswith("none (bubblewrap: ")
    assert "install bubblewrap" in text
    assert finding(TOOLSPEAK_SANDBOX="required")[0] == "problem"
    assert finding(TOOLSPEAK_SANDBOX="off")[1].startswith("off: commands have all your rights, as you set it")
    assert finding(TOOLSPEAK_SANDBOX="nonsense")[0] == "problem"


@pytest.mark.over_a_second
def test_auto_goes_on_without_one_and_says_so(folder: Path):
    result = run(folder, [{"command": "echo a > a"}], "--sandbox", "auto", env=without_boundaries(folder))
    assert "toolspeak: sandbox: none (" in result.stderr
    assert (folder / "a").exists()


@needs_boundary
def test_reads_ask_unless_the_setting_lets_them_run(folder: Path):
    calls = [{"command": "echo read", "writes": []}, {"command": "echo write"}]
    refusals = run(folder, calls, "--approve", "none")
    assert ["rejected" in str(each) for each in results(refusals)] == [True, True]
    free = run(folder, calls, "--approve", "none", "--unasked-reads")
    assert ["rejected" in str(each) for each in results(free)] == [False, True]
    network = run(
        folder, [{**calls[0], "network": True}], "--approve", "none", "--unasked-reads", "--allow-net", "a.example"
    )
    assert ["rejected" in str(each) for each in results(network)] == [True]


@needs_boundary
def test_options_open_what_they_name(folder: Path, tmp_path: Path):
    cache, home = tmp_path / "cache", tmp_path / "home"
    cache.mkdir()
    home.mkdir()
    (home / ".npmrc").write_text("token")
    command = {"command": f"echo a > {cache}/a; cat ~/.npmrc"}
    env = {"HOME": str(home)}
    closed_run = run(folder, [command], env=env)
    assert not (cache / "a").exists()
    assert "token" not in str(results(closed_run))
    open_run = run(folder, [command], "--sandbox-write", str(cache), "--sandbox-read", str(home / ".npmrc"), env=env)
    assert (cache / "a").exists(), open_run
    assert "token" in str(results(open_run))


@pytest.fixture
def server() -> Iterator[int]:
    """A server on this machine that greets who connects. Returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(1000)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.over_a_second
@needs_bubblewrap
def test_hosts_of_the_list_are_reached_and_others_are_named(folder: Path, server: int):
    ask = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=120).read())"
    (folder / "ask.py").write_text(ask)
    calls = [
        {"command": f"python3 ask.py http://localhost:{server}/", "network": True, "writes": []},
        {"command": f"python3 ask.py http://localhost:{server}/", "writes": []},
        {"command": "python3 ask.py http://other.example:81/", "network": True, "writes": []},
        {"command": f"python3 ask.py http://127.0.0.1:{server}/", "network": True, "writes": []},
    ]
    answer, unlisted_answer, refusal, address = results(run(folder, calls, "--allow-net", f"localhost:{server}"))
    assert "hello" in answer["output"], answer
    assert "sandbox" not in answer
    assert unlisted_answer["exit_code"] != 0
    assert "`--allow-net other.example:81` allows it" in refusal["sandbox"]
    assert f"`--allow-net 127.0.0.1:{server}` allows it" in address["sandbox"]
    (no_host_answer,) = results(run(folder, calls[:1]))
    assert "no host is allowed here" in no_host_answer
    (literal,) = results(run(folder, calls[3:], "--allow-net", f"127.0.0.1:{server}"))
    assert "hello" in literal["output"], literal


@pytest.mark.parametrize(
    "rule", ["http://a.example", "a.example:0", "a.example:70000", "a*.example", "*.*.example", ""]
)
def test_what_is_no_host_is_refused_with_how_to_write_it(folder: Path, rule: str):
    result = run(folder, [], "--allow-net", rule)
    assert result.returncode == 2
    assert "443" in result.stderr


@needs_bubblewrap
def test_the_journal_in_the_workspace_is_not_seen(folder: Path):
    journal = folder / "toolspeak.db"
    result = run(folder, [{"command": "cat toolspeak.db; echo > toolspeak.db; rm -f toolspeak.db; true"}],
               "--journal", str(journal))  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "SQLite" not in str(results(result))
    assert journal.read_bytes().startswith(b"SQLite format 3")


@pytest.mark.over_a_second
@needs_boundary
def test_ending_the_run_ends_the_command(folder: Path):
    os.mkfifo(folder / "fifo")
    book = folder.parent / "model.json"
    call = {"name": "shell", "arguments": {"command": "exec 9>fifo; echo open >&9; exec sleep 600"}}
    book.write_text(json.dumps({"turns": [f"<tool_call>\n{json.dumps(call)}\n</tool_call>", "Done."]}))
    command = [sys.executable, "-m", "toolspeak", "run", "task", "--model", f"scripted:{book}", "--dialect", "hermes",
               "--approve", "all", "--journal", "none"]  # fmt: skip
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    with (folder / "fifo").open("rb") as fifo:
        assert fifo.readline() == b"open\n"
        process.terminate()
        assert fifo.read() == b""  # the last process that could write has ended
    assert process.wait(60) == 130


@needs_boundary
def test_your_configuration_opens_what_it_names_and_a_projects_may_not(folder: Path, tmp_path: Path):
    config, cache = tmp_path / "config.toml", tmp_path / "cache"
    cache.mkdir()
    config.write_text(f'[sandbox]\nmode = "required"\nwritable = ["{cache}"]\nunasked_reads = true\n')
    env = {"TOOLSPEAK_CONFIG": str(config)}
    calls = [{"command": f"echo a > {cache}/a"}, {"command": "echo read", "writes": []}]
    run(folder, calls[:1], env=env)
    assert (cache / "a").exists()
    outcomes = results(run(folder, calls, "--approve", "none", env=env))
    assert ["rejected" in str(each) for each in outcomes] == [True, False]
    (folder / ".toolspeak").mkdir()
    (folder / ".toolspeak" / "config.toml").write_text('[sandbox]\nmode = "off"\n')
    result = run(folder, [{"command": "echo a > ../a"}])
    assert "config.toml:1: sandbox: only your own file" in result.stderr, result.stderr
    assert not (folder.parent / "a").exists()
