"""`--code-mode`: the model of a run on the command line writes programs."""

import pytest
from scripted_project import calls
from terminal_harness import DEADLINE

from forked_commands import completed_text

PROGRAM = """\
names = await find("*.txt")
await write("names.txt", " ".join(names))
print(await read("names.txt"))"""


def program(code=PROGRAM):
    return calls(("run_code", {"code": code}))


@pytest.mark.over_a_second
def test_the_model_writes_programs_that_work_in_the_folder(project):
    project.write("a.txt", "a")
    run = project.run(program(), "Done.", options=("--code-mode", "--approve", "all"))
    assert run.code == 0, run.errors
    assert run.tools == ["run_code", "read_result", "todo"]
    assert run.results[0] == "a.txt"
    assert (project.folder / "names.txt").read_text() == "a.txt"
    assert '▸ run_code\n    names = await find("*.txt")\n    await write("names.txt", " ".join(names))\n' in run.errors
    assert 'run_code: write {"path": "names.txt", "content": "a.txt"}' in run.errors


def test_the_configuration_may_say_it(project):
    project.write_home(".config/toolspeak/config.toml", "code_mode = true\n")
    run = project.run(program("await list_()"), "Done.")
    assert run.tools == ["run_code", "read_result", "todo"]


def test_a_program_waits_for_a_yes_and_goes_on_in_another_process(project):
    project.write("a.txt", "a")
    run = project.command("run", "go", "--model", project.model(program(), "{{last}}", follow=True), "--code-mode")
    assert "waiting for approval: write" in run.stderr
    assert not (project.folder / "names.txt").exists()
    process = project.command("resume", "--approve", "all")
    assert process.stdout == "a.txt\n", process.stderr
    assert (project.folder / "names.txt").read_text() == "a.txt"


def test_what_a_program_changed_is_undone_with_its_run(project):
    project.write("a.txt", "a")
    project.run(program(), "Done.", options=("--code-mode", "--approve", "all"))
    process = project.command("undo", "--yes")
    assert process.returncode == 0, process.stderr
    assert not (project.folder / "names.txt").exists()


def test_a_recorded_program_is_replayed_without_its_tools(project):
    project.write("a.txt", "a")
    project.run(program(), "{{last}}", options=("--code-mode", "--approve", "all"))
    (project.folder / "names.txt").unlink()
    process = project.command("run", "the task", "--replay", str(project.home / "cassette.jsonl"), "--code-mode")
    assert process.stdout == "a.txt\n", process.stderr
    assert not (project.folder / "names.txt").exists()


def test_without_the_extra_the_command_says_what_to_install(project):
    project.write("pydantic_monty.py", "raise ImportError('No module', name='pydantic_monty')")
    environment = project.environment
    environment["PYTHONPATH"] = f"{project.folder}:{environment.get('PYTHONPATH', '')}"
    process = completed_text(
        ["run", "go", "--model", project.model(program(), "Done."), "--code-mode"],
        cwd=project.folder,
        env=environment,
        session=True,
        seconds=DEADLINE,
    )
    assert "pip install 'toolspeak[code]'" in process.stderr
