"""`--defer`: tools of which the model reads the names alone."""

import pytest
from scripted_project import calls

SOURCE = """
from toolspeak import Effects, Toolset, tool


def service(number):
    @tool(name=f"shop__find_{number}", description=f"Finds article {number}. " + "Long. " * 40, read_only=True)
    def find(name: str) -> str:
        return f"{name} {number}"

    return find


few, many = [service(number) for number in range(2)], [service(number) for number in range(150)]


@tool(effects=Effects(writes={"orders"}), name="shop__order", description="Orders.")
def order(name: str) -> str:
    return name


mixed = [*few, order]
"""
FIND = ("find_tools", {"query": "article 1"})


def of_shop(names):
    return [name for name in names if name.startswith("shop__")]


@pytest.mark.parametrize(
    ("place", "options", "is_deferred"),
    [
        ("few", (), False),
        ("many", (), True),
        ("few", ("--window", "1000"), True),
        ("many", ("--defer", "none"), False),
        ("few", ("--defer", "shop__*"), True),
        ("few", ("--defer", "jira__*, shop__find_?"), True),
    ],
)
def test_added_tools_are_deferred_once_they_would_fill_the_window(project, place, options, is_deferred):
    project.write("mine.py", SOURCE)
    run = project.run(calls(("list", {})), "Done.", options=("--tools", f"mine.py:{place}", *options))
    assert run.code == 0, run.errors
    assert (of_shop(run.tools) == []) == is_deferred
    assert ("find_tools" in run.tools) == is_deferred
    assert "read" in run.tools


def test_a_pattern_may_name_built_in_tools_too(project):
    run = project.run(calls(("list", {})), "Done.", options=("--defer", "*"))
    assert run.tools == ["find_tools"]


def test_the_configuration_may_say_it(project):
    project.write("mine.py", SOURCE)
    project.write_home(".config/toolspeak/config.toml", 'defer = "shop__*"\n')
    assert "find_tools" in project.run(calls(("list", {})), "Done.", options=("--tools", "mine.py:few")).tools


def test_a_run_that_waits_goes_on_in_another_process_with_what_it_found(project):
    project.write("mine.py", SOURCE)
    turns = (calls(("find_tools", {"query": "orders"})), calls(("shop__order", {"name": "pear"})), "{{last}}")
    model = project.model(*turns, follow=True)
    options = ("--tools", "mine.py:mixed", "--defer", "shop__*")
    assert project.command("run", "x", "--model", model, *options).returncode == 3
    process = project.command("resume", "--approve", "all", cwd=project.home)
    assert process.stdout == "pear\n", process.stderr
    assert project.command("tools").returncode == 0


def test_a_sub_agent_defers_them_too(project):
    project.write("mine.py", SOURCE)
    project.write(".agents/agents/buyer.md", "---\nname: buyer\ndescription: Buys.\n---\nBuy.\n")
    turns = (calls(("task", {"agent": "buyer", "task": "Find it."})), calls(FIND), "Found it.", "Done.")
    run = project.run(*turns, options=("--tools", "mine.py:few", "--defer", "shop__*", "--approve", "all"))
    assert run.code == 0, run.errors
    assert "Found it." in run.results[0]
