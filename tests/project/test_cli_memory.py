"""`--memory` and `toolspeak memory`."""

import json

from scripted_project import calls

from toolspeak.tools.builtin import FactFiles

SAVE = calls(("memory", {"action": "save", "fact": "Likes tea."}))


def test_a_fact_of_one_run_is_in_the_prompt_of_the_next(project):
    first = project.run(SAVE, "Done.", options=("--memory", "--approve", "all"))
    assert first.code == 0, first.errors
    assert "Likes tea." not in first.system
    second = project.run("Done.", options=("--memory",))
    assert "] Likes tea." in second.system
    without = project.run(calls(("list", {})), "Done.")
    assert "memory" not in without.tools
    assert "Likes tea." not in without.system


def test_without_a_yes_nothing_is_kept(project):
    run = project.run(SAVE, "Done.", options=("--memory", "--approve", "none"))
    assert "rejected" in run.results[0]
    assert project.command("memory", "list").stdout == ""


def test_the_user_lists_shows_edits_and_deletes(project):
    project.run(SAVE, "Done.", options=("--memory", "--approve", "all"))
    (line,) = project.command("memory", "list", "--json").stdout.splitlines()
    fact = json.loads(line)
    shown_text = project.command("memory", "show", fact["id"]).stdout
    assert "Likes tea." in shown_text
    assert fact["run_id"] in shown_text
    assert project.command("memory", "edit", fact["id"], "Likes green tea.").returncode == 0
    listing = project.command("memory", "list")
    assert "Likes green tea." in listing.stdout
    assert "user.jsonl" in listing.stderr
    wrong = project.command("memory", "delete", fact["id"], "nothing")
    assert (wrong.returncode, "There is no fact 'nothing'" in wrong.stderr) == (2, True)
    assert project.command("memory", "delete", fact["id"]).stdout == "deleted: Likes green tea.\n"
    assert project.command("memory", "list").stdout == ""
    assert project.command("memory", "delete").returncode == 2
    assert project.command("memory", "delete", "--all").stdout == "0 facts deleted\n"


def test_the_configuration_of_the_user_may_say_it_and_a_projects_may_not(project):
    project.write_home(".config/toolspeak/config.toml", "memory = true\n")
    assert "memory" in project.run(calls(("list", {})), "Done.").tools
    project.write_home(".config/toolspeak/config.toml", "")
    project.write(".toolspeak/config.toml", "memory = true\n")
    assert "memory" not in project.run(calls(("list", {})), "Done.").tools


def test_the_tools_for_files_may_not_change_it(project):
    project.run(SAVE, "Done.", options=("--memory", "--approve", "all"))
    (path,) = project.home.rglob("user.jsonl")
    edit = calls(("append", {"path": path.name, "content": "x"}))
    run = project.run(edit, "Done.", options=("--memory", "--approve", "all", "--workspace", str(path.parent)))
    assert "what models remember" in run.results[0]


def test_erasing_a_principal_erases_its_facts(project):
    project.run(SAVE, "Done.", options=("--memory", "--approve", "all"))
    (path,) = project.home.rglob("user.jsonl")
    entry = {"id": "a1", "text": "Likes coffee.", "principal": "bob"}
    other = FactFiles(path.parent).path("bob")
    other.write_text(json.dumps(entry) + "\n")
    assert "Likes coffee." in project.command("memory", "list", "--principal", "bob").stdout
    process = project.command("journal", "erase", "--principal", "bob", "--yes")
    assert "1 fact of the memory erased" in process.stdout, process.stderr
    assert not other.exists()
    assert path.exists()
