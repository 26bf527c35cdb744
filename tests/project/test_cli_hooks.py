"""Hooks: commands of the configuration that run on events, and decide, change, add or only watch."""

import json
import os
import signal
import sys

import pytest
from scripted_project import calls
from terminal_harness import TerminalProcess

from forked_commands import Command

WRITE = ("write", {"path": "a.txt", "content": "x"})
LIST = ("list", {})
LISTING = '[".git/"]'


@pytest.fixture
def hooks(project):
    """Writes the user's configuration with these hooks: an event, a command, and perhaps a matcher or a timeout."""

    def write(*entries):
        events = {}
        for event, command, *more in entries:
            matcher = next((each for each in more if isinstance(each, str)), "")
            timeout = next((f", timeout = {each}" for each in more if not isinstance(each, str)), "")
            hook = f'{{ type = "command", command = {json.dumps(command)}{timeout} }}'
            events.setdefault(event, []).append(f"{{ matcher = {json.dumps(matcher)}, hooks = [{hook}] }}")
        lines = [f"{event} = [{', '.join(tables)}]" for event, tables in events.items()]
        project.write_home(".config/toolspeak/config.toml", "\n".join(["[hooks]", *lines]))

    return write


def says(value):
    """A command that writes this JSON, and ends well."""
    return f"echo {json.dumps(json.dumps(value))}" if "'" in json.dumps(value) else f"echo '{json.dumps(value)}'"


def decides(event="PreToolUse", **output):
    return says({"hookSpecificOutput": {"hookEventName": event, **output}})


def events_of(project, name="log.jsonl"):
    path = project.folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def decisions(run):
    records = [json.loads(line)["event"] for line in run.process.stdout.splitlines()]
    return [(each["approved"], each["by"]) for each in records if each["type"] == "ApprovalDecided"]


def test_exit_code_2_blocks_the_call_with_the_reason(project, hooks):
    hooks(("PreToolUse", "echo not this file >&2; exit 2", "write|edit"))
    run = project.run(calls(WRITE, LIST), "Done.", options=("--approve", "all", "--json"))
    assert run.code == 0
    assert run.results == ["the call was rejected: not this file", LISTING]
    assert not (project.folder / "a.txt").exists()
    assert decisions(run) == [(False, "PreToolUse hook `echo not this file >&2; exit 2`")]


@pytest.mark.parametrize("command", ["exit 1", "kill -9 $$", "no-such-command", "echo '{\"a\": '", "echo 7; exit 127"])
def test_any_other_failure_is_shown_and_does_not_block(project, hooks, command):
    hooks(("PreToolUse", command))
    run = project.run(calls(LIST), "Done.")
    assert (run.code, run.results) == (0, [LISTING])
    assert f"toolspeak: the PreToolUse hook `{command}` " in run.errors


def test_an_approval_of_a_hook_is_recorded_as_such(project, hooks):
    hooks(("PreToolUse", decides(permissionDecision="allow", permissionDecisionReason="a small file")))
    run = project.run(calls(WRITE), "Done.", options=("--json",))
    assert run.code == 0
    assert (project.folder / "a.txt").read_text() == "x"
    ((is_approved, by),) = decisions(run)
    assert is_approved
    assert by.startswith("PreToolUse hook `echo")


def test_a_refusal_goes_before_an_approval_and_a_question_before_it_too(project, hooks):
    allow, ask = decides(permissionDecision="allow"), decides(permissionDecision="ask", permissionDecisionReason="hm")
    hooks(("PreToolUse", allow), ("PreToolUse", ask))
    assert project.run(calls(LIST), "Done.").code == 3, "a question waits for a person, also about a read"
    hooks(("PreToolUse", ask), ("PreToolUse", decides(permissionDecision="deny")), ("PreToolUse", allow))
    assert "the call was rejected" in project.run(calls(LIST), "Done.").results[0]


def test_a_hook_without_an_opinion_leaves_the_question_to_a_person(project, hooks):
    hooks(("PreToolUse", decides(permissionDecision="defer")))
    assert project.run(calls(WRITE), "Done.").code == 3


@pytest.mark.parametrize(
    "output", [{"permissionDecision": "alow"}, {"permissionDecision": 1}, {"updatedInput": [1]}, {"updatedInput": "x"}]
)
def test_a_decision_that_cannot_be_read_asks_a_person(project, hooks, output):
    hooks(("PreToolUse", decides(**output)))
    run = project.run(calls(LIST), "Done.")
    assert run.code == 3
    assert "the PreToolUse hook `echo" in run.errors


def test_a_hook_changes_the_arguments(project, hooks):
    hooks(("PreToolUse", decides(permissionDecision="allow", updatedInput={"path": "b.txt", "content": "y"}), "write"))
    run = project.run(calls(WRITE), "Done.")
    assert run.code == 0
    assert (project.folder / "b.txt").read_text() == "y"
    assert not (project.folder / "a.txt").exists()


@pytest.mark.parametrize("arguments", [{}, {"path": 7, "content": "x"}, {"path": "../../x", "content": "x"}])
def test_changed_arguments_are_checked_like_a_models(project, hooks, arguments):
    hooks(("PreToolUse", decides(permissionDecision="allow", updatedInput=arguments)))
    run = project.run(calls(WRITE), "Done.")
    assert run.code == 0
    assert "failure" in str(run.requests[1])
    assert os.listdir(project.folder) == [".git"]


def test_what_a_hook_adds_comes_with_the_result(project, hooks):
    hooks(
        ("PreToolUse", decides(additionalContext="before it")),
        ("PostToolUse", decides("PostToolUse", additionalContext="after it")),
        ("PostToolUse", "echo the tests fail >&2; exit 2"),
    )
    (result,) = project.run(calls(LIST), "Done.").results
    assert result.startswith(LISTING)
    assert result.index("before it") < result.index("blocks: the tests fail") < result.index("after it")


def test_every_event_gets_its_data(project, hooks):
    watch = "cat >> log.jsonl"
    names = (
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
        "Stop",
        "SessionEnd",
    )
    hooks(*((name, watch) for name in names))
    failing = ("read", {"path": "no-such"})
    assert project.run(calls(LIST), calls(failing), "Done.", task="look around").code == 0
    events = events_of(project)
    assert [each["hook_event_name"] for each in events] == [
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PreToolUse", "PostToolUseFailure"),
        *("Stop", "SessionEnd"),
    ]
    (session,) = json.loads(project.command("sessions", "--json").stdout)
    assert {each["session_id"] for each in events} == {session["session_id"]}
    assert {each["run_id"] for each in events} == {events[0]["run_id"]} != {session["session_id"]}
    assert {each["cwd"] for each in events} == {str(project.folder)}
    _, prompt, before, after, _, failure, stop, _ = events
    assert prompt["prompt"] == "look around"
    assert (before["tool_name"], before["tool_input"]) == ("list", {})
    assert after["tool_use_id"] == before["tool_use_id"]
    assert after["tool_response"] == [".git/", "log.jsonl"]
    assert "no-such" in failure["error"]
    assert (stop["stop_hook_active"], stop["last_assistant_message"]) == (False, "Done.")


def test_a_prompt_is_blocked_or_gets_context(project, hooks):
    hooks(("SessionStart", "echo the branch is main"), ("UserPromptSubmit", "echo it is Friday"))
    run = project.run("Done.")
    assert run.task.startswith("the task")
    assert run.task.index("the branch is main") < run.task.index("it is Friday")
    hooks(("UserPromptSubmit", "grep -q secret && { echo no secrets >&2; exit 2; }; exit 0"))
    run = project.run("Done.", task="a secret")
    assert run.code == 1
    assert run.requests == []
    assert "no secrets" in run.errors
    assert project.run("Done.", task="nothing").code == 0


def test_a_stop_hook_sends_the_model_on_once(project, hooks):
    hooks(("Stop", "grep -q '\"stop_hook_active\": true' || { echo run the tests first >&2; exit 2; }"))
    run = project.run("Done.", "Tested and done.")
    assert run.process.stdout == "Tested and done.\n"
    assert "run the tests first" in str(run.requests[1])


def test_a_stop_hook_that_always_blocks_is_given_up(project, hooks):
    hooks(("Stop", "echo there is no rule for check >&2; exit 2"))
    run = project.run(*(f"Done {number}." for number in range(9)))
    assert (run.code, run.process.stdout) == (0, "Done 3.\n")
    assert "the Stop hook has blocked 3 times with the same reason: the answer counts now." in run.errors
    assert "there is no rule for check" in run.errors


def test_a_stop_hook_that_blocks_for_other_reasons_each_time_may_do_so_for_longer(project, hooks):
    hooks(("Stop", "echo x >> count; wc -l < count >&2; exit 2"))
    run = project.run(*(f"Done {number}." for number in range(19)))
    assert (run.code, run.process.stdout) == (0, "Done 10.\n")
    assert "the Stop hook has blocked 10 times: the answer counts now." in run.errors


def test_a_hook_ends_the_run(project, hooks):
    hooks(("PreToolUse", says({"continue": False, "stopReason": "enough"})))
    run = project.run(calls(LIST), "Done.")
    assert run.code == 1
    assert "enough" in run.errors


def test_hooks_of_one_event_run_at_the_same_time(project, hooks):
    for name in ("one", "other"):
        os.mkfifo(project.folder / name)
    # Each waits for the other: one after the other they would wait for ever.
    hooks(
        ("PreToolUse", "echo x > one; cat other", 20),
        ("PreToolUse", "cat one; echo x > other", 20),
    )
    run = project.run(calls(LIST), "Done.")
    assert run.code == 0
    assert "was ended after" not in run.errors


def test_a_hook_that_takes_too_long_is_ended_with_its_children(project, hooks):
    hooks(("PreToolUse", "(sleep 60; touch late) & sleep 60", 0.3))
    run = project.run(calls(LIST), "Done.")
    assert run.code == 0
    assert "was ended after 0.3 seconds; give it a longer timeout" in run.errors


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60 & exit 0",
        "setsid sleep 3 & exit 0",
        "exec <&-; exit 0",
        "head -c 1 > /dev/null",
        "cat > /dev/null; exec >&- 2>&-; exit 0",
    ],
    ids=["forks", "leaves the group", "closes its input", "reads one byte", "closes its outputs"],
)
def test_a_hook_may_leave_its_streams_as_it_likes(project, hooks, command):
    hooks(("PreToolUse", command))
    content = "x" * 1_000_000  # more than a pipe holds
    run = project.run(calls(("write", {"path": "a.txt", "content": content})), "Done.", options=("--approve", "all"))
    assert run.code == 0, run.errors
    assert (project.folder / "a.txt").stat().st_size == 1_000_000
    assert "toolspeak: the PreToolUse hook" not in run.errors


@pytest.mark.over_a_second
def test_a_flood_of_output_is_bounded(project, hooks):
    flood = f"{sys.executable} -c \"import sys; [sys.stdout.write('x' * 1_000_000) for _ in range(300)]\""
    hooks(("PreToolUse", flood), ("UserPromptSubmit", flood))
    run = project.run(calls(LIST), "Done.")
    assert run.code == 0
    assert len(run.task) < 20_000
    assert "characters are left out" in run.task


def test_control_characters_of_a_hook_do_not_reach_the_terminal(project, hooks):
    evil = "printf '\\033]0;evil\\007' >&2; exit"
    hooks(("PreToolUse", f"{evil} 1"), ("Stop", f"{evil} 2"), ("PostToolUse", says({"systemMessage": "\x1b[31m"})))
    run = project.run(calls(LIST), "Done.", "Done.", "Done.", options=("--max-steps", "3"))
    assert "\x1b" not in run.errors + run.process.stdout
    assert "evil" in run.errors


def test_hooks_get_no_keys_and_know_the_project(project, hooks):
    hooks(("SessionStart", "env > env.txt"))
    project.run("Done.")
    names = [line.split("=")[0] for line in (project.folder / "env.txt").read_text().splitlines()]
    assert {"PATH", "TOOLSPEAK_PROJECT_DIR", "CLAUDE_PROJECT_DIR"} <= {*names}
    assert "TOOLSPEAK_JOURNAL" not in names


def test_a_question_is_answered_by_a_hook_before_a_person(project, hooks):
    allow = says({"hookSpecificOutput": {"decision": {"behavior": "allow"}}})
    hooks(("PermissionRequest", f"cat >> log.jsonl; {allow}", "write"))
    run = project.run(calls(WRITE), "Done.", options=("--json",))
    assert run.code == 0
    assert decisions(run)[0][1].startswith("PermissionRequest hook")
    (event,) = events_of(project)
    assert event["tool_name"] == "write"
    assert "+x" in event["preview"]
    hooks(("PermissionRequest", "echo no >&2; exit 2"))
    assert "the call was rejected: no" in project.run(calls(("shell", {"command": "ls"})), "Done.").results[0]
    hooks(("PermissionRequest", "exit 0"))
    assert project.run(calls(("shell", {"command": "ls"})), "Done.").code == 3


def test_a_hook_approves_other_arguments(project, hooks):
    change = {"behavior": "allow", "updatedInput": {"path": "b.txt", "content": "y"}}
    hooks(("PermissionRequest", says({"hookSpecificOutput": {"decision": change}})))
    assert project.run(calls(WRITE), "Done.").code == 0
    assert (project.folder / "b.txt").read_text() == "y"
    change["updatedInput"] = {"path": 7}
    hooks(("PermissionRequest", says({"hookSpecificOutput": {"decision": change}})))
    run = project.run(calls(("write", {"path": "c.txt", "content": "x"})), "Done.")
    assert run.code == 3
    assert "wrote an updatedInput that cannot be used" in run.errors


def test_at_a_terminal_a_person_is_asked_after_the_hooks(project, hooks):
    hooks(
        ("PermissionRequest", "exit 0"),
        ("PreToolUse", decides(permissionDecision="ask", permissionDecisionReason="hm")),
    )
    arguments = ("run", "x", "--model", project.model(calls(LIST), "Done."))
    with TerminalProcess(*arguments, cwd=project.folder, env=project.environment) as process:
        process.read_until("hm")
        process.read_until("(q)uit the run: ")
        process.type("y\r")
        code, screen = process.finish()
    assert code == 0, screen


def test_a_sub_agent_has_the_hooks_of_its_calls_and_an_event_of_its_own(project, hooks):
    book = project.write_home("sub.json", json.dumps({"turns": [calls(LIST), "Seen.", "Seen it all."], "follow": True}))
    text = f"---\nname: helper\ndescription: Helps.\ntools: list\nmodel: scripted:{book}\n---\nHelp.\n"
    project.write_home(".config/toolspeak/agents/helper.md", text)
    send_on = "cat >> log.jsonl; test -e once || { touch once; echo look again >&2; exit 2; }"
    hooks(("PreToolUse", "cat >> log.jsonl", "list"), ("SubagentStop", send_on), ("Stop", "cat >> log.jsonl"))
    run = project.run(calls(("task", {"agent": "helper", "task": "look"})), "Done.")
    assert run.results == ["Seen it all."]
    names = [each["hook_event_name"] for each in events_of(project)]
    assert names == ["PreToolUse", "SubagentStop", "SubagentStop", "Stop"]
    assert events_of(project)[1]["agent_type"] == "helper"


def test_a_hook_runs_before_the_history_is_made_shorter(project, hooks):
    hooks(("PreCompact", "cat >> log.jsonl"))
    project.write("a.txt", "long words\n" * 900)
    read = calls(("read", {"path": "a.txt"}))
    run = project.run(read, read, "A summary.", "Done.", options=("--window", "4000"))
    assert run.code == 0, run.errors
    events = events_of(project)
    assert events
    assert {each["trigger"] for each in events} == {"auto"}


def test_a_hook_keeps_the_history_as_it_is(project, hooks):
    hooks(("PreCompact", "cat >> log.jsonl; echo the whole story is needed >&2; exit 2"))
    project.write("a.txt", "long words\n" * 900)
    read = calls(("read", {"path": "a.txt"}))
    run = project.run(read, read, "Done.", options=("--window", "4000"))
    assert run.code == 0, run.errors
    assert run.process.stdout == "Done.\n"
    assert "keeps the conversation as it is: the whole story is needed" in run.errors
    assert len(events_of(project)) == len(run.errors.split("keeps the conversation")) - 1
    assert run.results[0] == "long words\n" * 900  # it was not cleared


def test_the_next_run_of_a_session_has_its_id(project, hooks):
    hooks(("UserPromptSubmit", "cat >> log.jsonl"), ("Stop", "cat >> log.jsonl"))
    model = project.model("One.", "Two.", follow=True)
    for options in ((), ("-c",)):
        assert project.command("run", "x", "--model", model, *options).returncode == 0
    events = events_of(project)
    assert len({each["session_id"] for each in events}) == 1
    assert len({each["run_id"] for each in events}) == 2


def test_a_resumed_run_has_the_hooks_that_it_began_with(project, hooks):
    hooks(("PreToolUse", "cat >> log.jsonl"), ("SessionStart", "cat >> log.jsonl"))
    model = project.model(calls(WRITE), "Done.", follow=True)
    assert project.command("run", "x", "--model", model).returncode == 3
    project.write_home(".config/toolspeak/config.toml", "")
    process = project.command("resume", "--approve", "all", cwd=project.home)
    assert process.returncode == 0, process.stderr
    assert [each.get("source", each.get("tool_name")) for each in events_of(project)] == [
        *("startup", "write"),
        *("resume", "write"),
    ]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("PreTolUse = []", "there is no event 'PreTolUse'. Did you mean 'PreToolUse'?"),
        ("Stop = 7", "Stop: write a list"),
        ("Stop = [{hooks = [{command = ''}]}]", "Stop[0].hooks[0].command: write the command line"),
        ("Stop = [{hooks = [{command = 'x', timeout = 0}]}]", "timeout: write a number of seconds above 0"),
        ("Stop = [{hooks = [{command = 'x', type = 'prompt'}]}]", "hooks are commands"),
        ("Stop = [{hooks = [{comand = 'x'}]}]", "unknown key 'comand'. Did you mean 'command'?"),
        ("Stop = [{matcher = '(', hooks = []}]", "'(' is not a regular expression"),
        ("Stop = ['x']", "Stop[0]: write a table with the keys matcher, hooks"),
    ],
)
def test_wrong_settings_are_refused_with_the_place(project, table, problem):
    place = project.write_home(".config/toolspeak/config.toml", f"[hooks]\n{table}\n")
    run = project.run("Done.")
    assert run.code == 2
    assert f"{place}:" in run.errors
    assert problem in run.errors


def test_a_projects_hooks_run_only_if_they_are_trusted(project):
    project.write(".toolspeak/config.toml", '[hooks]\nSessionStart = [{hooks = [{command = "touch ran"}]}]\n')
    run = project.run("Done.")
    assert run.code == 0
    assert not (project.folder / "ran").exists()
    assert "config trust" in run.errors


CLAUDE = {
    "permissions": {"allow": ["Bash"]},
    "hooks": {
        "PreToolUse": [
            {"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "cat >> log.jsonl"}]},
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo no >&2; exit 2", "async": True}]},
        ],
        "Notification": [{"hooks": [{"type": "command", "command": "touch never"}]}],
        "Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}, {"type": "command", "command": "touch stopped"}]}],
    },
}


def test_the_hooks_of_claude_code_run_as_they_are(project):
    project.write_home(".claude/settings.json", json.dumps(CLAUDE))
    project.write_home(".config/toolspeak/config.toml", '[hooks]\nfile = "~/.claude/settings.json"\n')
    run = project.run(calls(WRITE, ("shell", {"command": "ls"}), LIST), "Done.", options=("--approve", "all"))
    assert run.code == 0, run.errors
    assert run.results[1] == "the call was rejected: no"
    (event,) = events_of(project)
    assert (event["tool_name"], event["tool_input"]) == ("Write", {"file_path": "a.txt", "content": "x"})
    assert (project.folder / "stopped").exists()
    assert not (project.folder / "never").exists()


def test_a_hook_of_claude_code_changes_arguments_by_its_names(project):
    settings = json.loads(json.dumps(CLAUDE))
    change = decides(permissionDecision="allow", updatedInput={"file_path": "b.txt", "content": "y"})
    settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"] = change
    project.write_home(".claude/settings.json", json.dumps(settings))
    project.write_home(".config/toolspeak/config.toml", '[hooks]\nfile = "~/.claude/settings.json"\n')
    assert project.run(calls(WRITE), "Done.").code == 0
    assert (project.folder / "b.txt").read_text() == "y"


def test_a_projects_hooks_of_claude_code_are_trusted_with_its_configuration(project):
    project.write(".toolspeak/config.toml", '[hooks]\nfile = ".claude/settings.json"\n')
    file = project.write(".claude/settings.json", json.dumps(CLAUDE))
    assert project.run("Done.").code == 0
    assert not (project.folder / "stopped").exists()
    trust = project.command("config", "trust", "--yes")
    assert "touch stopped" in trust.stdout + trust.stderr
    assert project.run("Done.").code == 0
    assert (project.folder / "stopped").exists()
    (project.folder / "stopped").unlink()
    file.write_text(json.dumps({**CLAUDE, "new": 1}))
    assert project.run("Done.").code == 0
    assert not (project.folder / "stopped").exists(), "a file that changed is not trusted"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ('{"hooks": [1]}', "hooks: write a table"),
        ('{"hooks": {"Stop": [{"hooks": [{"command": 7}]}]}}', "write the command line"),
        ('{"hooks": {"Stop": [{"matcher": "(", "hooks": []}]}}', "is not a regular expression"),
    ],
)
def test_a_file_of_hooks_that_cannot_be_used_is_refused(project, text, problem):
    project.write_home(".claude/settings.json", text)
    project.write_home(".config/toolspeak/config.toml", '[hooks]\nfile = "~/.claude/settings.json"\n')
    run = project.run("Done.")
    assert run.code == 2
    assert "settings.json" in run.errors
    assert problem in run.errors


def test_ctrl_c_ends_a_hook_with_the_run(project, hooks):
    os.mkfifo(project.folder / "began")
    hooks(("PreToolUse", "echo $$ > began; sleep 600", 900), ("SessionEnd", "touch over"))
    null = os.open(os.devnull, os.O_RDWR)
    arguments = ("run", "x", "--model", project.model(calls(LIST), "Done."))
    command = Command(arguments, cwd=project.folder, env=project.environment, streams=(null, null, null), session=True)
    with (project.folder / "began").open() as pipe:
        hook = int(pipe.read())
    command.send_signal(signal.SIGINT)
    assert command.wait(120) == 130
    os.close(null)
    with pytest.raises(ProcessLookupError):
        os.kill(hook, 0)
    assert (project.folder / "over").exists()
