"""`toolspeak exec`: a reply in, the results out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import toolspeak

CALLS = (
    '<execute>[{"name": "write", "args": {"path": "a.txt", "content": "x"}}, {"name": "list", "args": {}}]</execute>'
)


def results(process) -> list[dict]:
    assert process.returncode == 0, process.stderr
    text = process.stdout.decode()
    assert text.startswith("<results>\n")
    assert text.endswith("\n</results>\n")
    return json.loads(text.removeprefix("<results>\n").removesuffix("\n</results>\n"))


def test_it_runs_the_calls_and_prints_the_results_block(tmp_path):
    reply = CALLS.replace('"list", "args": {}', '"list", "args": {"prefix": "none-yet/"}')
    process = toolspeak("exec", "--dialect", "cogency-json", "--approve", "all", reply=reply, cwd=tmp_path)
    assert [(row["tool"], row["status"]) for row in results(process)] == [("write", "success"), ("list", "failure")]
    assert (tmp_path / "a.txt").read_text() == "x"


def test_the_workspace_is_another_folder(tmp_path):
    (tmp_path / "inner").mkdir()
    arguments = ("exec", "--dialect", "cogency-json", "--approve", "all", "--workspace", "inner")
    results(toolspeak(*arguments, reply=CALLS, cwd=tmp_path))
    assert (tmp_path / "inner" / "a.txt").exists()


def test_without_a_terminal_a_write_is_refused_with_the_reason(tmp_path):
    process = toolspeak("exec", "--dialect", "cogency-json", reply=CALLS, cwd=tmp_path, terminal=False)
    write, listing = results(process)
    assert write["status"] == "failure"
    assert "no terminal" in write["content"]
    assert listing == {"tool": "list", "status": "success", "content": []}
    assert not (tmp_path / "a.txt").exists()


def test_approve_none_refuses_writes_and_lets_reads_run(tmp_path):
    process = toolspeak("exec", "--dialect", "cogency-json", "--approve", "none", reply=CALLS, cwd=tmp_path)
    assert [row["status"] for row in results(process)] == ["failure", "success"]


def test_a_malformed_call_gets_a_result_in_its_position(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    reply = '<execute>[{"name": "read", "args": {"file": "a.txt"}}, 5, {"name": "red", "args": {}}]</execute>'
    rows = results(toolspeak("exec", "--dialect", "cogency-json", reply=reply, cwd=tmp_path))
    assert rows[0] == {"tool": "read", "status": "success", "content": "a"}
    assert "a call is an object" in rows[1]["content"]
    assert "Did you mean 'read'?" in rows[2]["content"]


def test_calls_cut_by_the_token_limit_do_not_run(tmp_path):
    arguments = ("exec", "--dialect", "cogency-json", "--approve", "all", "--finish", "length")
    process = toolspeak(*arguments, reply=CALLS.removesuffix("</execute>"), cwd=tmp_path)
    assert "cut off" in results(process)[0]["content"]
    assert not (tmp_path / "a.txt").exists()


def test_auto_runs_the_calls_of_any_dialect_and_answers_in_it(tmp_path):
    (tmp_path / "a.txt").write_text("hello\n")
    reply = '<tool_call>{"name": "read", "arguments": {"path": "a.txt"}}</tool_call>'
    process = toolspeak("exec", "--dialect", "auto", reply=reply, cwd=tmp_path)
    assert process.stdout.startswith(b"<tool_response>\nhello")
    assert b"read as hermes" in process.stderr
    process = toolspeak("exec", "--model", "moonshotai/Kimi-K2-Instruct", reply=reply, cwd=tmp_path)
    assert process.stdout.startswith(b"## Return of ")


def test_the_xml_dialect_runs_in_order(tmp_path):
    reply = "<execute><write><file>a</file><content>1</content></write><read><file>a</file></read></execute>"
    rows = results(toolspeak("exec", "--dialect", "cogency-xml", "--approve", "all", reply=reply, cwd=tmp_path))
    assert [row["content"] for row in rows] == [{"bytes": 1}, "1"]


def test_tool_call_prints_the_message_and_errors_begin_with_error(tmp_path):
    (tmp_path / "a.txt").write_text("text\n")
    reply = '<tool_call>{"name": "read", "arguments": {"path": "%s"}}</tool_call>'
    process = toolspeak("exec", "--dialect", "tool-call", reply=reply % "a.txt", cwd=tmp_path)
    assert process.stdout == b"text\n"
    process = toolspeak("exec", "--dialect", "tool-call", reply=reply % "b.txt", cwd=tmp_path)
    assert process.stdout.startswith(b"ERROR: ")


def test_only_the_last_tool_call_runs_and_the_others_are_reported(tmp_path):
    call = '<tool_call>{"name": "write", "arguments": {"path": "%s", "content": ""}}</tool_call>'
    arguments = ("exec", "--dialect", "tool-call", "--approve", "all")
    process = toolspeak(*arguments, reply=call % "first" + call % "last", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    assert b"ignored: a call to write" in process.stderr


def test_a_reply_without_calls_prints_nothing(tmp_path):
    process = toolspeak("exec", "--dialect", "cogency-json", reply="Use <execute> for that.", cwd=tmp_path)
    assert (process.returncode, process.stdout) == (0, b"")
    assert b"no calls" in process.stderr


def test_reads_are_remembered_between_replies(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    read = '<execute>[{"name": "read", "args": {"file": "a.txt"}}]</execute>'
    write = '<execute>[{"name": "write", "args": {"file": "a.txt", "content": "new"}}]</execute>'
    arguments = ("exec", "--dialect", "cogency-json", "--approve", "all")
    assert results(toolspeak(*arguments, reply=write, cwd=tmp_path))[0]["status"] == "failure"
    results(toolspeak(*arguments, "--reads", "reads.json", reply=read, cwd=tmp_path))
    assert results(toolspeak(*arguments, "--reads", "reads.json", reply=write, cwd=tmp_path))[0]["status"] == "success"
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("arguments", "reply", "complaint"),
    [
        (("exec", "--dialect", "cogency-jso"), "", "Did you mean 'cogency-json'?"),
        (("exec",), "", "--dialect"),
        (("exec", "--dialect", "tool-call", "--workspace", "nowhere"), "", "nowhere"),
        (("exec", "--dialect", "tool-call"), b"\xff", "not UTF-8"),
        (("parse", "--dialect", "tool-call", "--tools", "nowhere.json"), "", "nowhere.json"),
        (("tools", "--show", "rad"), "", "Did you mean 'read'?"),
        (("dialects", "--show", "x"), "", "`toolspeak dialects` lists them all"),
    ],
)
def test_usage_errors_say_what_to_do_and_exit_2(arguments, reply, complaint, tmp_path):
    process = toolspeak(*arguments, reply=reply, cwd=tmp_path)
    assert (process.returncode, process.stdout) == (2, b"")
    assert complaint in process.stderr.decode()


def test_a_damaged_reads_file_is_named_and_nothing_runs(tmp_path):
    (tmp_path / "reads.json").write_text("[")
    arguments = ("exec", "--dialect", "cogency-json", "--approve", "all", "--reads", "reads.json")
    process = toolspeak(*arguments, reply=CALLS, cwd=tmp_path)
    assert process.returncode == 2
    assert "reads.json" in process.stderr.decode()
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.over_a_second
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ending_it_from_outside_ends_the_command_too(number, tmp_path):
    wait = "echo $$ > pid; mkfifo gate; read line < gate"
    reply = f'<execute>[{{"name": "shell", "args": {{"command": "{wait}"}}}}]</execute>'
    # In a sandbox its process id would be that of a namespace of its own.
    options = ("--dialect", "cogency-json", "--approve", "all", "--sandbox", "off")
    command = [sys.executable, "-m", "toolspeak", "exec", *options]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process.stdin.write(reply.encode())
    process.stdin.close()
    child = wait_for(lambda: (tmp_path / "gate").exists() and int((tmp_path / "pid").read_text() or 0))
    process.send_signal(number)
    assert process.wait(timeout=120) == 130
    assert wait_for(lambda: not Path(f"/proc/{child}").exists())


def wait_for(probe, seconds=120.0):
    """What `probe` gives once it is true; looks at the disk and at processes, which announce nothing."""
    end = time.monotonic() + seconds
    while not (value := probe()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return value


def test_reasoning_that_the_prompt_opened_runs_nothing(tmp_path):
    reply = f"I could {CALLS}</think>No."
    arguments = ("exec", "--dialect", "cogency-json", "--approve", "all", "--starts-in", "reasoning")
    assert toolspeak(*arguments, reply=reply, cwd=tmp_path).stdout == b""
    assert not (tmp_path / "a.txt").exists()


def shell(command: str) -> str:
    return f"<execute>{json.dumps([{'name': 'shell', 'args': {'command': command}}])}</execute>"


@pytest.mark.skipif(sys.platform != "linux", reason="the environment of a process is in /proc on Linux alone")
def test_a_command_cannot_read_the_environment_of_the_program_that_started_it(tmp_path):
    # Root may read every environment; without its capabilities it is a user like any other.
    user = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    read = "cat /proc/$PPID/environ > /dev/null && echo readable"
    plain = [*user, sys.executable, "-c", f"import subprocess; subprocess.run({read!r}, shell=True, check=False)"]
    assert subprocess.run(plain, capture_output=True, check=False).stdout == b"readable\n", "without it, it can"
    command = [*user, sys.executable, "-m", "toolspeak", "exec", "--dialect", "cogency-json", "--approve", "all"]
    process = subprocess.run(command, input=shell(read).encode(), cwd=tmp_path, capture_output=True, check=False)
    output = results(process)[0]["content"]["output"]
    assert "Permission denied" in output
    assert "readable" not in output


@pytest.mark.over_a_second
def test_env_passes_a_variable_on(tmp_path):
    arguments = ("exec", "--dialect", "cogency-json", "--approve", "all")
    reply = shell("echo ${CI_NAME-none}")
    env = {**os.environ, "CI_NAME": "lab"}
    for more, output in (((), "none\n"), (("--env", "CI_NAME"), "lab\n")):
        command = [sys.executable, "-m", "toolspeak", *arguments, *more]
        process = subprocess.run(command, input=reply.encode(), cwd=tmp_path, env=env, capture_output=True, check=False)
        assert results(process)[0]["content"]["output"] == output


def test_the_active_file_is_the_one_that_is_named(tmp_path):
    arguments = ("exec", "--dialect", "tool-call")
    reply = '<tool_call>{"name": "active_file"}</tool_call>'
    result = toolspeak(*arguments, "--active-file", "src/a.py", reply=reply, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, b"src/a.py\n")
    assert b"No file is active" in toolspeak(*arguments, reply=reply, cwd=tmp_path).stdout
