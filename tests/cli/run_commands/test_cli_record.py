"""`toolspeak run --record` and `--replay`, and what a run costs, as commands."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from terminal_harness import DEADLINE, TerminalProcess, environment

from forked_commands import completed_text

CALL = '<execute>\n[{"name": "write", "args": {"path": "new.txt", "content": "new"}}]\n</execute>'


def toolspeak(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return completed_text(arguments, cwd=folder, env=environment(), seconds=DEADLINE)


def book(folder: Path) -> str:
    usage = {"input": 1000, "output": 100}
    turns = [{"text": CALL, "usage": usage}, {"text": "Written.", "usage": usage}]
    (folder / "book.json").write_text(json.dumps({"turns": turns}), "utf-8")
    return f"scripted:{folder / 'book.json'}"


def test_a_run_is_recorded_and_played_without_its_tools(tmp_path: Path):
    model = book(tmp_path)
    common = ("run", "Write.", "--approve", "all")
    first = toolspeak(tmp_path, *common, "--model", model, "--record", "run.jsonl", "--journal", "none")
    assert (first.returncode, first.stdout) == (0, "Written.\n")
    assert (tmp_path / "new.txt").read_text() == "new"
    (tmp_path / "new.txt").unlink()
    again = toolspeak(tmp_path, *common, "--replay", "run.jsonl")
    assert (again.returncode, again.stdout) == (0, "Written.\n")
    assert not (tmp_path / "new.txt").exists()
    other = toolspeak(tmp_path, "run", "Read.", "--replay", "run.jsonl")
    assert other.returncode == 1
    assert "at model request 1 of 2" in other.stderr
    assert "-Write.\n+Read." in other.stderr
    both = toolspeak(tmp_path, *common, "--replay", "run.jsonl", "--record", "x")
    assert (both.returncode, "not both" in both.stderr) == (2, True)


def test_what_a_run_costs_is_said_and_limited(tmp_path: Path):
    model = book(tmp_path)
    common = ("run", "Write.", "--approve", "all", "--model", model, "--journal", "j.db")
    without_prices = toolspeak(tmp_path, *common, "--max-cost", "1")
    assert (without_prices.returncode, "is not known" in without_prices.stderr) == (2, True)
    (tmp_path / "prices.json").write_text(json.dumps({model: {"input": 100, "output": 1000}}))
    with_prices = (*common, "--prices", "prices.json")
    with_limit = toolspeak(tmp_path, *with_prices, "--max-cost", "0.0001")
    assert with_limit.returncode == 0
    assert "answered (cost): 2 steps, 1 call" in with_limit.stderr
    assert "tokens (~$0." in with_limit.stderr  # the turn with the call is not read to its end
    process = toolspeak(tmp_path, *with_prices, "--json")
    run = json.loads(process.stdout.splitlines()[0])["run_id"]
    lines = toolspeak(tmp_path, "show", run, "--journal", "j.db").stdout
    assert "1,000 tokens in, 100 out, $0.2000" in lines
    records = toolspeak(tmp_path, "show", run, "--json", "--journal", "j.db").stdout
    read = [json.loads(line) for line in records.splitlines()]
    costs = [record["event"]["cost"] for record in read[:-1] if "usage" in record["event"]]
    assert costs[-1] == 0.2


def test_the_answers_of_a_person_are_played_where_there_is_none(tmp_path: Path):
    other = CALL.replace("new.txt", "other.txt")
    turns = [CALL, other, CALL.replace("new.txt", "third.txt"), "Written."]
    (tmp_path / "book.json").write_text(json.dumps({"turns": turns}), "utf-8")
    arguments = ("run", "Write.", "--model", f"scripted:{tmp_path / 'book.json'}", "--record", "run.jsonl")
    more = ("--journal", "none", "--rules", "rules.jsonl")
    with TerminalProcess(*arguments, *more, cwd=tmp_path, env=environment()) as terminal:
        for answer in ("no, not that one\n", "y\n", "r\n"):
            terminal.read_until("(q)uit the run: ")
            terminal.type(answer)
        terminal.read_until("Which one?")
        terminal.type("2\n")
        code, _ = terminal.finish()
    assert code == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"book.json", "run.jsonl", "rules.jsonl", "other.txt", "third.txt"}
    for name in ("rules.jsonl", "other.txt", "third.txt"):
        (tmp_path / name).unlink()
    again = toolspeak(tmp_path, "run", "Write.", "--replay", "run.jsonl", "--rules", "rules.jsonl")
    assert (again.returncode, again.stdout) == (0, "Written.\n")
    assert "not that one" in again.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"book.json", "run.jsonl"}


@pytest.mark.over_a_second
def test_a_run_that_waited_and_was_resumed_is_played_as_one(tmp_path: Path):
    (tmp_path / "book.json").write_text(json.dumps({"turns": [CALL, "Written."], "follow": True}), "utf-8")
    model = "scripted:book.json"
    waiting = toolspeak(tmp_path, "run", "Write.", "--model", model, "--record", "run.jsonl", "--journal", "j.db")
    assert (waiting.returncode, "waiting for approval" in waiting.stderr) == (3, True)
    early = toolspeak(tmp_path, "run", "Write.", "--replay", "run.jsonl")
    assert (early.returncode, "the recording ends here" in early.stderr) == (3, True)
    assert "toolspeak resume" not in early.stderr
    resume_process = toolspeak(tmp_path, "resume", "--approve", "all", "--journal", "j.db")
    assert (resume_process.returncode, resume_process.stdout) == (0, "Written.\n")
    (tmp_path / "new.txt").unlink()
    again = toolspeak(tmp_path, "run", "Write.", "--replay", "run.jsonl")
    assert (again.returncode, again.stdout) == (0, "Written.\n")
    assert not (tmp_path / "new.txt").exists()
