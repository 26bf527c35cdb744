"""`shell`: output, limits, and that nothing it started outlives the call."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from process_helpers import gone, until

from patience import in_time
from toolspeak import Agent
from toolspeak.data.events import Event
from toolspeak.data.messages import ToolCall
from toolspeak.errors import ToolError
from toolspeak.execute import BatchContext, Executor, approve_all
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools import RunContext, Toolset
from toolspeak.tools.builtin import Workspace, shell_tool, workspace_tools
from toolspeak.tools.builtin.capture import Capture

TREE = "(sh -c 'echo $$ > pid; exec sleep 1000' & echo started; wait)"


def run(call, command: str, **arguments) -> dict:
    return asyncio.run(call("shell", command=command, **arguments))


def written_pid(root) -> int:
    return int((root / "pid").read_text())


def test_output_and_exit_code(call, root):
    assert run(call, "echo out; echo err >&2; pwd -P; exit 3") == {
        "exit_code": 3,
        "output": f"out\nerr\n{root.resolve()}\n",
    }
    assert asyncio.run(call("shell", cmd="true")) == {"exit_code": 0, "output": ""}
    assert run(call, "kill -9 $$")["exit_code"] == 137
    assert run(call, "no-such-command-anywhere")["exit_code"] == 127


def test_there_is_no_input(call):
    assert run(call, "cat; echo end", timeout=20) == {"exit_code": 0, "output": "end\n"}


def test_bytes_that_are_no_text_are_shown(call):
    assert run(call, "printf 'a\\377b'")["output"] == "a\ufffdb"


def test_a_long_output_keeps_its_ends_in_bounded_memory(call):
    result = run(call, "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last")
    output = result["output"]
    assert result["exit_code"] == 0
    assert output.startswith("first\nxxx")
    assert output.endswith("xxx\nlast\n")
    assert f"\n... {50_000_000 + 12 - 16_384} bytes left out ...\n" in output
    assert len(output) < 16_500


def test_time_over_ends_the_whole_tree(call, root):
    def attempt(seconds: float) -> None:
        result = run(call, TREE, timeout=seconds)
        assert f"ended after {seconds:g} seconds" in result["timed_out"]
        assert result["output"] == "started\n"
        asyncio.run(until(lambda: gone(written_pid(root)), "the child's child lives on"))

    in_time(attempt, 0.6, 6, 60)


def through_executor(root, command: str, timeout: float):
    async def emit(_event: Event) -> None: ...

    call = ToolCall("c1", "shell", {"command": command, "timeout": timeout})
    executor = Executor(Toolset([shell_tool(Workspace(root))]), tool_timeout=0.3)
    batch = executor.run([call], emit=emit, context=BatchContext("r"), approver=approve_all)
    (result,) = asyncio.run(batch).results
    return result


def test_the_argument_is_the_limit_whatever_other_tools_may_take(root):
    result = through_executor(root, "sleep 0.5; echo done", 20)
    assert (result.status, result.structured) == ("success", {"exit_code": 0, "output": "done\n"})


def test_what_a_command_wrote_until_its_time_was_over_reaches_the_model(root):
    def attempt(seconds: float) -> None:
        result = through_executor(root, "echo kept; exec sleep 1000", seconds)
        assert result.status == "success"
        assert result.structured["output"] == "kept\n"
        assert f"ended after {seconds:g} seconds" in result.structured["timed_out"]

    in_time(attempt, 0.6, 6, 60)


@pytest.mark.over_a_second
def test_what_ignores_sigterm_is_killed(call, root):
    def attempt(seconds: float) -> None:
        result = run(call, "trap '' TERM; echo $$ > pid; while :; do sleep 1000; done", timeout=seconds)
        assert result["timed_out"]
        assert result["exit_code"] == 137
        assert gone(written_pid(root))

    in_time(attempt, 0.6, 6, 60)


def test_a_command_may_clean_up_when_its_time_is_over(call, root):
    def attempt(seconds: float) -> None:
        command = "trap 'echo cleaned; exit 5' TERM; echo up; while :; do sleep 0.05; done"
        result = run(call, command, timeout=seconds)
        assert result["output"].startswith("up\n")
        assert result["output"].endswith("cleaned\n")
        assert result["exit_code"] == 5

    in_time(attempt, 0.6, 6, 60)


@pytest.mark.over_a_second
@pytest.mark.parametrize("times", [1, 3])
def test_cancellation_ends_the_whole_tree(call, root, times):
    async def cancel() -> None:
        task = asyncio.create_task(call("shell", command=f"trap '' TERM; {TREE}"))
        await until(lambda: (root / "pid").exists() and (root / "pid").read_text().endswith("\n"), "not started")
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: gone(written_pid(root)), "the child's child lives on")

    asyncio.run(cancel())


def test_a_background_process_does_not_keep_the_call_and_is_ended(call, root):
    result = run(call, "sleep 1000 & echo $! > pid; echo done")
    assert (result["exit_code"], result["output"]) == (0, "done\n")
    assert "timed_out" not in result
    asyncio.run(until(lambda: gone(written_pid(root)), "the background process lives on"))


def test_a_quiet_background_process_is_ended_too(call, root):
    run(call, "sleep 1000 >/dev/null 2>&1 & echo $! > pid")
    asyncio.run(until(lambda: gone(written_pid(root)), "the background process lives on"))


def test_the_result_says_what_ran_on_and_was_ended(call):
    result = run(call, "sleep 1001 & sleep 1002 >/dev/null 2>&1 & echo started")
    note = result.pop("background")
    assert result == {"exit_code": 0, "output": "started\n"}
    assert "sleep 1001" in note
    assert "sleep 1002" in note
    assert "was ended with the command" in note
    assert run(call, "sleep 0 & wait; (echo a; echo b) | cat") == {"exit_code": 0, "output": "a\nb\n"}


@pytest.mark.over_a_second
def test_a_process_that_left_the_group_does_not_hold_the_call(call, root):
    program = "import os, time; os.setsid(); open('pid', 'w').write(f'{os.getpid()}\\n'); time.sleep(1000)"
    result = run(call, f'python3 -c "{program}" & while [ ! -s pid ]; do sleep 0.01; done')
    assert result == {"exit_code": 0, "output": ""}  # after its timeout it says `timed_out`
    os.kill(written_pid(root), 9)


def test_commands_run_side_by_side_and_leave_no_descriptor(call):
    async def many() -> list[dict]:
        await call("shell", command="true")  # what asyncio opens once
        before = set(os.listdir("/dev/fd"))
        results = await asyncio.gather(*(call("shell", command=f"echo {n}") for n in range(20)))
        await until(lambda: set(os.listdir("/dev/fd")) <= before, "descriptors leak")
        return results

    assert [result["output"] for result in asyncio.run(many())] == [f"{n}\n" for n in range(20)]


SECRET_LOOKING = (
    "SOME_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD_FILE", "client_secret", "OPENAI_KEY", "DATABASE_URL", "SECRET_KEY",
    "TOOLSPEAK_JOURNAL", "SSH_AUTH_SOCK", "PGPASSFILE", "REDIS_URL", "SENTRY_DSN", "HARMLESS", "PATH_TO_KEY", "path",
)  # fmt: skip


def test_a_command_gets_the_listed_variables_alone(call, monkeypatch):
    for name in SECRET_LOOKING:
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    lines = run(call, "env | cut -d= -f1")["output"].split()
    # The last ones are sh's own.
    variables = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "LC_ALL"}
    assert set(lines) <= variables | {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {"PATH", "LC_ALL"} <= set(lines)


def test_a_named_variable_is_passed_on(call, root, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://u:p@h/d")
    monkeypatch.setenv("HARMLESS", "hidden")
    call.tools = workspace_tools(root, env=("DATABASE_URL", "NOT_SET"))
    assert run(call, "echo $DATABASE_URL $HARMLESS $NOT_SET")["output"] == "postgres://u:p@h/d\n"


@pytest.mark.parametrize(("command", "timeout"), [("x\0y", 60), ("true", 0), ("true", -1)])
def test_wrong_arguments_are_clear_errors(call, command, timeout):
    with pytest.raises(ToolError, match=r"NUL|above 0"):
        run(call, command, timeout=timeout)


def test_a_workspace_that_is_gone_is_a_clear_error(call, root):
    root.rmdir()
    before = set(os.listdir("/dev/fd"))
    with pytest.raises(ToolError, match="could not be started"):
        run(call, "true")
    assert set(os.listdir("/dev/fd")) == before


def test_it_is_declared_as_touching_everything_and_shown_before(call):
    effects = call.effects("shell", command="ls")
    assert effects.reads == effects.writes == {"*"}
    assert effects.external
    assert effects.declared
    assert not effects.idempotent
    assert call.preview("shell", command="ls\x1b[8m; rm x") == "ls\\x1b[8m; rm x"


def test_the_output_limit_can_be_chosen(call, root):
    call.tools = Toolset([shell_tool(Workspace(root), output_limit=10)])
    assert run(call, "echo 123456789012")["output"] == "12345\n... 3 bytes left out ...\n9012\n"


@given(text=st.text("aé€😀", max_size=60), limit=st.integers(8, 80), size=st.integers(1, 9))
def test_a_capture_loses_only_the_middle(text, limit, size):
    data = text.encode()
    capture = Capture(limit)
    for at in range(0, len(data), size):
        capture.add(data[at : at + size])
    output = capture.text()
    if len(data) <= limit:
        assert output == text
        return
    head, _, rest = output.partition("\n... ")
    count, _, tail = rest.partition(" bytes left out ...\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head.encode()) + int(count) + len(tail.encode()) == len(data)
    assert limit - 6 <= len((head + tail).encode()) <= limit


def test_a_command_reports_its_last_lines_while_it_runs(root):
    """The command waits until its lines were reported: no clock decides."""
    os.mkfifo(root / "go")
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        if line == "line 20":
            (root / "go").write_text("on")

    async def main():
        tool = shell_tool(Workspace(root))
        command = "for i in $(seq 20); do echo line $i; done; printf '10%%\\r100%%\\n'; cat go; echo; echo end"
        arguments = tool.read_arguments({"command": command})
        context = RunContext(None, ToolCall("call_1_0", "shell", {}), progress=progress)
        return await tool.function(**arguments, ctx=context)

    assert asyncio.run(main())["exit_code"] == 0
    assert lines[:4] == ["line 18", "line 19", "line 20", "100%"]


@pytest.mark.parametrize(("escaped_text", "text"), [
    (r"\033[31mred\033[0m \033]0;title\007plain\n", "red plain\n"),
    (r"start\n 10%%\r100%%\nend\n", "start\n100%\nend\n"),
    (r"one\r\ntwo\r\n", "one\r\ntwo\r\n"),
    (r"\r\033[Kline\r", "line\r"),
    (r"[31m is no colour\n", "[31m is no colour\n"),
])  # fmt: skip
def test_the_output_is_what_a_terminal_shows_in_the_end(call, escaped_text, text):
    assert run(call, f"printf '{escaped_text}'")["output"] == text


def test_a_command_runs_in_a_folder_of_the_workspace(call, root, tmp_path_factory):
    (root / "sub dir").mkdir()
    (root / "a.txt").write_text("")
    assert run(call, "pwd -P; echo $PWD", cwd="sub dir")["output"] == f"{(root / 'sub dir').resolve()}\n" * 2
    outside = tmp_path_factory.mktemp("outside")
    (root / "link").symlink_to(outside)
    for cwd in ("..", "/etc", "link", "missing", "a.txt", "a\0b"):
        with pytest.raises(ToolError):
            run(call, "pwd", cwd=cwd)


def test_the_folder_is_part_of_the_question_and_of_what_rules_see(root):
    (root / "sub").mkdir()

    def request(**arguments):
        turn = ScriptedTurn("", calls=[ScriptedCall("shell", {"command": "git status", **arguments})])
        questions = []

        async def refuse(question) -> bool:
            questions.append(question)
            return False

        model = ScriptedProvider([turn, "Done."], tools=True)
        Agent(model, [shell_tool(Workspace(root))], approve=refuse).run_sync("Go.")
        return questions[0]

    assert request(cwd="sub").preview == "# in the folder: sub\ngit status"
    assert request(cwd="sub").command_line == "cd sub && git status"
    assert request().command_line == "git status"
