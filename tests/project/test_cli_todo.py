"""The list of `todo` as a person sees it, at a terminal and without one, and after a resumption."""

from scripted_project import calls
from terminal_harness import TerminalProcess

ITEMS = [
    {"text": "Read the code", "state": "completed"},
    {"text": "Fix \x1b[31mit", "state": "in_progress"},
    {"text": "A word " * 40, "state": "pending"},
    *({"text": f"Step {number}", "state": "pending"} for number in range(12)),
]
TODO = ("todo", {"items": ITEMS})


def test_the_list_is_whole_and_has_marks(project):
    run = project.run(calls(TODO), "Done.")
    assert run.code == 0
    lines = run.errors.splitlines()
    start = lines.index("  ✓ todo")
    assert lines[start + 1 : start + 3] == ["    ☑ Read the code", "    ▶ Fix ␛[31mit"]
    assert lines[start + 15] == "    ☐ Step 11"
    assert lines[start - 1] == "▸ todo"


def test_a_list_that_is_refused_shows_why(project):
    run = project.run(calls(("todo", {"items": [{"text": "x", "state": "done"}]})), "Done.")
    assert "  ✗ todo (invalid_arguments)" in run.errors
    assert "items[0].state" in run.errors


def test_at_a_terminal_a_line_is_as_wide_as_the_terminal(project):
    arguments = ("run", "x", "--model", project.model(calls(TODO), "Done."))
    environment = {**project.environment, "COLUMNS": "40"}
    with TerminalProcess(*arguments, cwd=project.folder, env=environment, size=(24, 40)) as process:
        code, screen = process.finish()
    assert code == 0
    assert "☐ A word A word" in screen
    assert all(len(line) < 60 for line in screen.splitlines() if "A word" in line)
    assert "\x1b[31mit" not in screen


def test_the_list_is_in_the_journal_and_the_resumed_model_reads_it(project):
    ask = ("write", {"path": "a.txt", "content": "x"})
    model = project.model(calls(TODO), calls(ask), "{{find:\\d+ pending}}", follow=True)
    assert project.command("run", "x", "--model", model).returncode == 3
    process = project.command("resume", "--approve", "all")
    assert process.stdout == "13 pending\n", process.stderr
