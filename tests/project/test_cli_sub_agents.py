"""Sub-agents: agents in Markdown files, which the tool `task` runs as sub-runs."""

import json
import os

import pytest
from scripted_project import calls
from terminal_harness import TerminalProcess

from forked_commands import Command

TASK = ("task", {"agent": "reviewer", "task": "Look at a.txt"})


def agent(name="reviewer", more="tools: Read, Grep\n", body="You review files."):
    return f"---\nname: {name}\ndescription: Reviews a file.\n{more}---\n{body}\n"


@pytest.fixture
def reviewer(project):
    """Writes the user's sub-agent, whose model plays these turns."""

    def write(*turns, more="tools: Read, Grep\n"):
        book = project.write_home("reviewer.json", json.dumps({"turns": [*turns], "follow": True}))
        project.write_home(".config/toolspeak/agents/reviewer.md", agent(more=f"model: scripted:{book}\n{more}"))

    return write


def test_a_sub_agent_works_alone_and_answers_once(project, reviewer):
    project.write("a.txt", "content")
    project.write("AGENTS.md", "of the top")
    reviewer(calls(("read", {"path": "a.txt"})), "It says {{last}}.")
    run = project.run(calls(TASK), "Done.")
    assert run.code == 0, "a sub-agent that only reads asks nobody"
    assert run.results == ["It says content."]
    assert 'task: read {"path": "a.txt"}' in run.errors
    definition = next(each for each in run.requests[0]["tools"] if each["name"] == "task")
    assert "- reviewer: Reviews a file." in definition["description"]
    assert definition["parameters"]["properties"]["agent"]["enum"] == ["reviewer"]


def test_it_has_only_the_tools_that_its_file_names(project, reviewer):
    reviewer(calls(("write", {"path": "b.txt", "content": "x"}), ("task", TASK[1])), "I could not: {{last}}")
    run = project.run(calls(TASK), "Done.", options=("--approve", "all"))
    assert not (project.folder / "b.txt").exists()
    assert "no tool is called 'write'. Known: find, read." in run.results[0]
    assert "no tool is called 'task'" in run.results[0]


def test_its_own_calls_ask_for_approval_in_the_run_above(project, reviewer):
    reviewer(calls(("write", {"path": "b.txt", "content": "x"})), "Written.", more="tools: write\n")
    model = project.model(calls(TASK), "Done.", follow=True)
    asks = project.command("run", "x", "--model", model)
    assert asks.returncode == 3
    assert "reviewer works on this with write. Its own calls ask for approval, too." in asks.stderr
    resumption = project.command("resume", "--approve", "none")
    assert resumption.returncode == 0
    assert not (project.folder / "b.txt").exists()


def test_what_is_approved_for_the_run_is_approved_for_its_sub_agents(project, reviewer):
    reviewer(calls(("write", {"path": "b.txt", "content": "x"})), "Written.", more="tools: write\n")
    assert project.run(calls(TASK), "Done.", options=("--approve", "all")).code == 0
    assert (project.folder / "b.txt").read_text() == "x"


def test_it_goes_on_after_its_process_was_killed(project, reviewer):
    os.mkfifo(project.folder / "began")
    first = ("shell", {"command": "echo once >> log"})
    second = ("shell", {"command": "test -e again || { echo > began; sleep 20; }"})
    reviewer(calls(first), calls(second), "Both done.", more="tools: Bash\n")
    model = project.model(calls(TASK), "{{last}}", follow=True)
    null = os.open(os.devnull, os.O_RDWR)
    arguments = ("run", "x", "--approve", "all", "--model", model)
    command = Command(arguments, cwd=project.folder, env=project.environment, streams=(null, null, null), session=True)
    with (project.folder / "began").open():
        command.kill()
        command.wait(120)
    project.write("again", "")
    process = project.command("resume", "--approve", "all", "--in-doubt", "repeat")
    assert process.returncode == 0, process.stderr
    assert process.stdout == "Both done.\n"
    assert (project.folder / "log").read_text() == "once\n"


def test_tools_that_do_not_exist_are_named(project):
    place = project.write(".claude/agents/x.md", agent(more="tools: Read, NotebookEdit, reed\n"))
    run = project.run("Done.")
    assert run.code == 0
    assert f"{place}: tools: the agent goes without 'NotebookEdit'" in run.errors
    assert "the agent goes without 'reed': there is no tool 'reed'. Did you mean 'read'?" in run.errors
    assert project.command("agents").returncode == 1


@pytest.mark.parametrize("model", ["sonnet", "openai:gpt-5", "scripted:/etc/passwd"])
def test_a_projects_file_cannot_choose_who_gets_the_conversation(project, model):
    place = project.write(".agents/agents/x.md", agent(more=f"model: {model}\n"))
    run = project.run("Done.")
    assert run.code == 0
    assert f"{place}: model: '{model}' is not an alias of your configuration" in run.errors


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (agent(name="Re Viewer"), "must consist of lowercase letters, digits, `-` and `_`"),
        (agent(name="../../x"), "must consist of lowercase letters, digits, `-` and `_`"),
        (agent(body=""), "there are no instructions; write them below the fields"),
        (agent(body="x" * 70_000), "and at most 65,536 are read"),
        (agent(more="tools: {a: b}\n"), "tools must be names with commas between them, or a list of names"),
        (agent(more="tools: [1]\n"), "tools must be names with commas between them, or a list of names"),
        ("---\nname: x\n---\nx\n", "the field `description` is missing"),
    ],
)
def test_an_invalid_file_is_named_and_the_run_goes_on(project, text, problem):
    project.write(".agents/agents/good.md", agent("good"))
    place = project.write(".agents/agents/bad.md", text)
    run = project.run("Done.")
    assert run.code == 0
    assert f"toolspeak: {place}: " in run.errors
    assert problem in run.errors
    listing = project.command("agents")
    assert listing.returncode == 1
    assert "good" in listing.stdout


def test_an_unknown_agent_gets_an_error_that_names_the_others(project, reviewer):
    reviewer("Hm.")
    run = project.run(calls(("task", {"agent": "reviever", "task": "x"})), "Done.")
    assert "reviewer" in run.results[0]


def test_without_files_there_is_no_tool(project):
    assert "task" not in project.run(calls(("list", {})), "Done.").tools
    assert "There are no sub-agents" in project.command("agents").stdout


def test_at_a_terminal_the_person_answers_its_questions(project, reviewer):
    reviewer(calls(("write", {"path": "b.txt", "content": "x"})), "Written.", more="tools: write\n")
    arguments = ("run", "x", "--model", project.model(calls(TASK), "{{last}}"))
    with TerminalProcess(*arguments, cwd=project.folder, env=project.environment) as process:
        process.read_until("task")
        process.read_until("(q)uit the run: ")
        process.type("y\r")
        process.read_until("reviewer: writes")
        process.read_until("(q)uit the run: ")
        process.type("y\r")
        code, screen = process.finish()
    assert code == 0, screen
    assert (project.folder / "b.txt").read_text() == "x"
