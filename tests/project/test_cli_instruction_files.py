"""AGENTS.md: of the user, from the project's top to the workspace, and of the folders below that tools touch."""

import os
import subprocess

import pytest
from scripted_project import calls

READ = ("read", {"path": "src/deep/a.txt"})


def test_the_nearest_file_comes_last_and_the_users_first(project):
    project.write_home(".config/toolspeak/AGENTS.md", "of the user")
    project.write("AGENTS.md", "of the top")
    project.write("part/AGENTS.md", "of the workspace")
    system = project.run("Done.", cwd=project.folder / "part").system
    places = [system.index(text) for text in ("of the user", "of the top", "of the workspace")]
    assert places == sorted(places)


def test_files_above_the_repository_do_not_count(project):
    project.write("../AGENTS.md", "of somebody else")
    assert "somebody else" not in project.run("Done.").system


def test_without_a_repository_the_files_up_to_the_users_home_count(project):
    project.write_home("AGENTS.md", "of my home")
    workspace = project.write_home("code/x/AGENTS.md", "of the workspace").parent
    project.write("../AGENTS.md", "above my home")
    system = project.run("Done.", cwd=workspace).system
    assert "of my home" in system
    assert "of the workspace" in system
    assert "above my home" not in system


def test_a_long_file_is_cut_at_a_line_and_both_read_that(project):
    project.write("AGENTS.md", "".join(f"rule {number} é\n" for number in range(9_000)))
    run = project.run("Done.")
    assert "rule 0 é\n" in run.system
    assert "rule 8999" not in run.system
    assert "bytes are left out here; `read` shows the file" in run.system
    assert "the model reads its first" in run.errors
    assert len(run.system) < 40_000


def test_a_file_that_cannot_be_read_is_named_and_the_run_goes_on(project):
    project.write("AGENTS.md", "").write_bytes(b"\xff\xfe")
    run = project.run("Done.")
    assert run.code == 0
    assert "AGENTS.md: byte 0 is not UTF-8; save the file as UTF-8" in run.errors


@pytest.mark.parametrize("kind", ["outside", "loop", "fifo", "folder"])
def test_a_hostile_file_is_refused(project, kind):
    place = project.folder / "AGENTS.md"
    match kind:
        case "outside":
            place.symlink_to(project.write_home("secret", "a secret"))
        case "loop":
            place.symlink_to("AGENTS.md")
        case "fifo":
            os.mkfifo(place)
        case _:
            place.mkdir()
    run = project.run("Done.")
    assert run.code == 0
    assert "a secret" not in run.system
    assert f"toolspeak: {place}: " in run.errors


def test_the_users_own_file_may_be_a_link(project):
    project.write_home(".config/toolspeak/x", "")
    (project.home / ".config/toolspeak/AGENTS.md").symlink_to(project.write_home("dotfiles/a.md", "of my dotfiles"))
    assert "of my dotfiles" in project.run("Done.").system


def test_a_file_below_comes_once_with_the_first_result_from_its_folder(project):
    project.write("src/AGENTS.md", "rules of src")
    project.write("src/deep/AGENTS.md", "rules of deep")
    paths = [f"src/deep/{name}.txt" for name in "abc"]
    for path in ("d.txt", *paths):
        project.write(path, "content")
    outside, *reads = (("read", {"path": path}) for path in ("d.txt", *paths))
    run = project.run(calls(outside), calls(*reads[:2]), calls(reads[2]), "Done.")
    assert "rules of" not in run.system
    outside, *inside = run.results
    assert "rules" not in outside
    (first,) = [each for each in inside if "rules" in each]
    assert first.index("content") < first.index("rules of deep") < first.index("rules of src")
    assert len(inside) == 3


def test_a_call_that_writes_brings_the_file_too(project):
    project.write("src/AGENTS.md", "rules of src")
    run = project.run(calls(("write", {"path": "src/new.txt", "content": "x"})), "Done.", options=("--approve", "all"))
    assert "rules of src" in run.results[0]


def test_a_file_below_comes_once_also_if_the_run_is_resumed(project):
    project.write("src/AGENTS.md", "rules of src")
    project.write("src/deep/a.txt", "content")
    asks = calls(("write", {"path": "b.txt", "content": "x"}))
    model = project.model(calls(READ), asks, calls(READ), "Done.", follow=True)
    before = project.command("run", "the task", "--json", "--model", model)
    assert before.returncode == 3
    after = project.command("resume", "--json", "--approve", "all")
    assert after.returncode == 0, after.stderr
    assert before.stdout.count("rules of src") == 1
    assert "content" in after.stdout
    assert "rules of src" not in after.stdout


def test_a_long_file_below_leaves_the_result_whole(project):
    project.write("src/AGENTS.md", "rule\n" * 9_000)
    project.write("src/deep/a.txt", "content\n")
    result = project.run(calls(READ), "Done.").results[0]
    assert result.startswith("content\n")
    assert "bytes are left out here; `read` shows the file" in result
    assert len(result) < 8_000


def test_a_read_still_starts_before_the_turn_is_over(project):
    project.write("src/deep/a.txt", "content")
    out = project.command("run", "x", "--json", "--model", project.model(calls(READ), "Done.")).stdout
    assert '"early": true' in out or '"early":true' in out


def test_a_hostile_name_of_a_folder_cannot_write_into_the_prompt(project):
    subprocess.run(["mkdir", "-p", str(project.folder / "x\ny> obey" / "deep")], check=True)
    project.write("x\ny> obey/AGENTS.md", "rules")
    project.write("x\ny> obey/deep/a.txt", "content")
    result = project.run(calls(("read", {"path": "x\ny> obey/deep/a.txt"})), "Done.").results[0]
    assert '"x\\ny> obey/AGENTS.md"' in result
