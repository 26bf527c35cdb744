"""Which commands a line runs, as /bin/sh has it, and which of them a rule lets pass by how they begin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from executor_helpers import a_call, results_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.errors import ConfigurationError, ToolDefinitionError
from toolspeak.execute import Rule, StandingRule, StandingRules
from toolspeak.execute.approval.approvers import approve_none
from toolspeak.execute.approval.command_lines import commands_of
from toolspeak.tools import tool

ran: list[str] = []


@tool(command_line="command")
async def shell(command: str, timeout: float = 60) -> str:
    ran.append(command)
    return "done"


@tool
async def other(command: str) -> str:
    ran.append(command)
    return "done"


def runs(line: str, *begins: str, rules: list[Rule] | None = None) -> bool:
    """Whether a line runs without a question, with these rules kept."""
    standing_rules = StandingRules()
    for rule in rules or [Rule("approve", "shell", begins=(each,)) for each in begins]:
        standing_rules.add(rule)
    ran.clear()
    results_of(
        [shell, other], [a_call("shell", command=line)], approver=approve_none(), options={"rules": standing_rules}
    )
    return bool(ran)


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "  git   'status' -s\t",
        "git status 2>&1",
        "git status -s 2>/dev/null",
        "git status && git status; git status || git status\ngit status",
        "git status | head -5 >/dev/null 2>&1",
        "head '$(x) `y` > ; &' \"it's\"",
        "git stat'us' *.py",
    ],
)
def test_commands_that_begin_so_run(line: str):
    assert runs(line, "git status", "head")


@pytest.mark.parametrize(
    "line",
    [
        "git commit",
        "git",
        "gitstatus",
        "git statusx",
        "'git status'",
        "GIT status",
        "./git status",
        "/usr/bin/git status",
        "git -c core.pager=x status",
        "git -C / status",
        "git status -c alias.x=!x",
        "git status --exec=x",
        "git status --upload-pack x",
        "git --exec-path=x status",
        "X=1 git status",
        "PATH=/tmp git status",
        "'X'=1 git status",
        "sudo git status",
        "env git status",
        "command git status",
        "exec git status",
        "nohup git status",
        "timeout 5 git status",
        "! git status",
        "time git status",
        "git status; rm x",
        "git status && rm x",
        "git status || rm x",
        "git status | rm x",
        "git status | xargs rm",
        "git status |& rm x",
        "git status & rm x",
        "git status &",
        "git status &> x",
        "git status\nrm x",
        "git status \\\n; rm x",
        "git status\rrm x",
        "git status;",
        "; git status",
        "git status;; rm",
        "git status $(rm x)",
        "git status `rm x`",
        'git status "$(rm x)"',
        'git status "`rm x`"',
        "git status $X",
        "git status ${X:=rm}",
        "git status $'x'",
        "git status $((1))",
        "git status <(rm x)",
        "git status > x",
        "git status >x",
        "git status >> x",
        "git status 2> x",
        "git status >| x",
        "git status < x",
        "git status << x\nrm\nx",
        "git status >/dev/nullx",
        "git status >/dev/null/../../x",
        "git status >'/dev/null'x",
        "(git status)",
        "{ git status; }",
        "git() { rm x; }; git status",
        "if git status; then rm x; fi",
        "git status # x",
        "git status '",
        'git status "',
        "git sta\\tus",
        "git* status",
        "git stat?s",
        "~/git status",
        "git {status,x}",
        "find . -exec git status ';'",
        "alias git=rm; git status",
        "cd /tmp; git status",
        "",
        " ",
        "\x00git status",
        "git\u00a0status",
        "ｇit status",
    ],
)
def test_nothing_slips_under_a_prefix(line: str):
    assert not runs(line, "git status")


@pytest.mark.parametrize(
    ("prefix", "line"),
    [
        ("make", "make 'X:=$(shell rm -rf x)'"),
        ("make test", "make test 'ARGS=; rm -rf x'"),
        ("make", "make --ev=x"),
        ("uv run make", "uv run make 'X!=rm -rf x'"),
        ("git grep", "git grep -nOrm x"),
        ("go test", "go test -exec rm ./..."),
        ("go build", "go build --toolexec=rm"),
        ("cargo build", "cargo build --config 'build.rustc-wrapper=\"rm\"'"),
        ("gcc", "gcc -wrapper rm x.c"),
        ("gcc-12", "gcc-12 -fplugin=x x.c"),
        ("wget", "wget --use-askpass=rm x"),
        ("zip", "zip -T -TT rm x y"),
        ("npm test", "npm test --script-shell=x"),
    ],
)
def test_an_option_that_has_a_program_run_others_is_asked_about(prefix: str, line: str):
    assert runs(prefix, prefix)
    assert not runs(line, prefix)


def test_other_arguments_of_the_call_are_free_and_another_tool_is_another():
    rules = StandingRules()
    rules.add(Rule("approve", "*", begins=("ls",)))
    ran.clear()
    calls = [a_call("shell", command="ls", timeout=5), a_call("other", command="ls")]
    results_of([shell, other], calls, approver=approve_none(), options={"rules": rules})
    assert ran == ["ls"]  # nobody said that `other` gives its argument to sh


@pytest.mark.parametrize(
    "prefix",
    [
        *(
            "sudo ls",
            "xargs",
            "find",
            "find .",
            "env",
            "sh -c",
            "python",
            "python3.12",
            "python -c",
            "python -m",
            "node",
        ),
        *("git", "git -c x", "git rebase", "docker", "uv run", "uv run python", "npm", "npm run", "ssh host", "awk"),
        *("", "ls; rm", "ls | cat", "$X", "X=1 ls", "ls *", "cd", "./x", "/bin/ls", "if", "''", "sed -n", "bash"),
        *(
            "sqlite3 x",
            "linux64 x",
            "m4",
            "xvfb-run x",
            "ccache x",
            "pkexec x",
            "view x",
            "ash -c",
            "nodejs",
            "java -jar x",
        ),
        *("ip netns", "git hook", "git send-email", "gh alias", "hatch run", "fdfind", "run0 ls", "latex"),
        *("python -m timeit", "uv run uv run", "uv run ./x", "command ls", ". x", "export X", "alias x"),
    ],
)
def test_a_prefix_under_which_any_command_could_run_is_refused(prefix: str):
    rule = Rule("approve", "shell", begins=(prefix,))
    with pytest.raises(ConfigurationError, match=r"begin|where to|second word"):
        StandingRules().add(rule)
    by_hand = StandingRules.loads(StandingRules([StandingRule("1", rule)]).dumps())
    calls = [a_call("shell", command=line) for line in (prefix, f"{prefix} x")]
    ran.clear()
    results_of([shell], calls, approver=approve_none(), options={"rules": by_hand})
    assert ran == []


def test_a_prefix_is_for_a_yes():
    with pytest.raises(ConfigurationError, match="needs the action 'approve'"):
        StandingRules().add(Rule("reject", "shell", begins=("ls",)))


def test_a_rule_for_one_call_is_for_its_very_arguments():
    exact = Rule("approve", "shell", arguments={"command": "ls *"}, exact=True)
    assert runs("ls *", rules=[exact])
    assert not runs("ls x", rules=[exact])
    ran.clear()
    rules = StandingRules()
    rules.add(exact)
    calls = [a_call("shell", command="ls *", timeout=5), a_call("other", command="ls *")]
    results_of([shell, other], calls, approver=approve_none(), options={"rules": rules})
    assert ran == []


def test_a_parameter_that_is_none_is_refused():
    with pytest.raises(ToolDefinitionError, match="command_line='cmd' is not one of its parameters: line"):

        @tool(command_line="cmd")
        def run(line: str) -> str:
            return line


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that write down how they were called, and of nothing else."""
    folder = tmp_path_factory.mktemp("stubs")
    for name in "abc":
        stub = folder / name
        # In one write, for the commands of a pipe run at the same time; no word has a line break in it.
        stub.write_text('#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" "\n" >>"$SEEN"\n')
        stub.chmod(0o755)
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /bin/sh")
@settings(
    max_examples=fewer(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "b",
                "c",
                "a",
                " ",
                " ",
                "'",
                '"',
                ";",
                "&&",
                "|",
                "||",
                "\n",
                "x",
                "-c",
                "2>&1",
                ">/dev/null",
                "1",
                "=",
                "$",
                "`",
                "\\",
                ">",
                "(",
                ")",
                "&",
                "#",
                "~",
                "{",
                "*",
                "é",
                "!",
                "if",
                "/",
                "\t",
                "<",
                "''",
                "%",
            ]
        ),
        max_size=12,
    ).map("".join)
)
@example("a 'x;y' \"it's\" | b 2>&1 && c -c=1")
@example("a 12>/dev/null")
@example("a x2>/dev/null")
@example("a '2'>/dev/null")
@example("a\n\nb")
@example("a \"!\" %s 'é'")
def test_what_is_read_is_what_sh_runs(stubs: Path, line: str):
    commands = commands_of(line)
    if commands is None:
        return
    log_path, empty = stubs / "seen", stubs / "empty"
    empty.mkdir(exist_ok=True)
    log_path.unlink(missing_ok=True)
    environment = {"PATH": str(stubs), "SEEN": str(log_path)}
    result = subprocess.run(
        ["/bin/sh", "-c", line], cwd=empty, env=environment, capture_output=True, check=False, timeout=120
    )
    assert b"yntax" not in result.stderr, (line, result.stderr)
    log = log_path.read_text() if log_path.exists() else ""
    executions = [tuple(entry.split("\0")[:-1]) for entry in log.split("\n\0")[:-1]]
    # What `&&` and `||` leave out does not run, and commands of a pipe run at once: every one that ran was read.
    assert not set(executions) - set(commands), line
    if len(commands) == 1 and commands[0][0] in ("a", "b", "c"):
        assert executions == list(commands), line
    assert os.listdir(empty) == [], line
