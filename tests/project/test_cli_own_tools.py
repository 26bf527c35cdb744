"""`--tools`: a user's own Python tools, in a file or a module, and in the configuration."""

import json
import os
import subprocess
import sys

import pytest
from scripted_project import calls

SOURCE = '''
"""Tools."""
from toolspeak import Tool, Toolset, tool


def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


@tool(read_only=True)
def half(number: int) -> float:
    """Halves a number."""
    return number / 2


both = [half, double]
a_set = Toolset([half])


def made() -> list[Tool]:
    return [half]


def now() -> str:
    """Says the time."""
    return "noon"


number, table, nothing = 7, {"half": half}, []
'''
HALF = ("half", {"number": 7})


@pytest.mark.parametrize(
    ("name", "tools"),
    [("double", ["double"]), ("half", ["half"]), ("both", ["half", "double"]), ("a_set", ["half"]), ("made", ["half"])],
)
def test_a_place_names_a_function_a_tool_several_or_what_makes_them(project, name, tools):
    project.write("mine.py", SOURCE)
    run = project.run(calls(("list", {})), "Done.", options=("--tools", f"mine.py:{name}"))
    assert run.code == 0
    assert [each for each in run.tools if each in ("half", "double", "made")] == tools


def test_tools_of_several_places_and_of_a_module_are_called(project):
    project.write("shop/mine.py", SOURCE)
    options = ("--tools", "shop.mine:half", "--tools", "shop/mine.py:now", "--approve", "all")
    run = project.run(calls(HALF, ("now", {})), "Done.", options=options)
    assert run.results == ["3.5", "noon"]


@pytest.mark.parametrize(
    ("source", "place", "problem"),
    [
        (SOURCE, "mine.py", "write MODULE:NAME or FILE.py:NAME"),
        (SOURCE, "mine.py:", "write MODULE:NAME or FILE.py:NAME"),
        (SOURCE, "other.py:half", "there is no file "),
        (SOURCE, "no_such_module:half", "there is no module no_such_module here: name one, or the path of a file"),
        (SOURCE, "mine.py:haf", "mine has no 'haf'. Did you mean 'half'?"),
        (SOURCE, "mine.py:number", "it is a int; name a function, a Tool, a Toolset or a list of them"),
        (SOURCE, "mine.py:table", "it is a dict; name a function"),
        ("import no_such_library\ndef f(): ...", "mine.py:f", "No module named 'no_such_library'"),
        ("1 / 0", "mine.py:f", "fails: ZeroDivisionError: division by zero; run it alone to see where"),
        ("def f(:", "mine.py:f", "SyntaxError"),
        ("import sys; sys.exit(7)", "mine.py:f", "SystemExit"),
        ("def f(x): ...", "mine.py:f", "'x'"),
        ("f = [1]", "mine.py:f", "is not a function"),
    ],
)
def test_an_error_names_the_place_and_the_remedy(project, source, place, problem):
    project.write("mine.py", source)
    run = project.run("Done.", options=("--tools", place))
    assert run.code == 2, run.errors
    assert "Traceback" not in run.errors
    assert place.split(":")[0] in run.errors
    assert problem in run.errors


def test_a_name_of_a_built_in_tool_is_refused(project):
    project.write("mine.py", 'def read() -> str:\n    """Reads."""\n    return ""\n')
    run = project.run("Done.", options=("--tools", "mine.py:read"))
    assert run.code == 2
    assert "two tools are named 'read'" in run.errors


def test_a_resumed_run_finds_its_tools_from_another_folder(project):
    project.write("shop/mine.py", SOURCE)
    model = project.model(calls(("double", {"number": 7})), "{{last}}", follow=True)
    assert project.command("run", "x", "--model", model, "--tools", "shop.mine:both").returncode == 3
    process = project.command("resume", "--approve", "all", cwd=project.home)
    assert process.stdout == "14\n", process.stderr


def test_the_users_configuration_names_tools_beside_it(project):
    project.write_home(".config/toolspeak/mine.py", SOURCE)
    project.write_home(".config/toolspeak/config.toml", 'tools = ["mine.py:half"]\n')
    assert project.run(calls(HALF), "Done.").results == ["3.5"]


def test_a_projects_tools_are_imported_only_if_they_are_trusted(project):
    project.write("mine.py", f"{SOURCE}\nopen('imported', 'w')\n")
    project.write(".toolspeak/config.toml", 'tools = ["mine.py:half"]\n')
    run = project.run(calls(HALF), "Done.")
    assert "no tool is called 'half'" in run.results[0]
    assert not (project.folder / "imported").exists()
    assert project.command("config", "trust", "--yes").returncode == 0
    assert project.run(calls(HALF), "Done.").results == ["3.5"]


@pytest.mark.over_a_second
def test_a_projects_file_takes_the_place_of_no_installed_module(project):
    project.write("mine.py", SOURCE)
    project.write("yaml.py", "open('imported', 'w')")
    project.write(".agents/skills/x/SKILL.md", "---\nname: x\ndescription: X.\n---\n")
    # As the installed command: without the working folder on Python's path.
    command = [sys.executable, "-P", "-m", "toolspeak", "run", "x", "--tools", "mine:half", "--model"]
    environment = {**project.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run(
        [*command, project.model("Done.")],
        cwd=project.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "imported" not in os.listdir(project.folder)


def test_exec_has_them_too(project):
    project.write("mine.py", SOURCE)
    reply = f"<tool_call>\n{json.dumps({'name': 'half', 'arguments': {'number': 7}})}\n</tool_call>"
    project.write("reply.txt", reply)
    process = project.command("exec", "reply.txt", "--dialect", "hermes", "--tools", "mine.py:half")
    assert "3.5" in process.stdout, process.stderr
