"""Skills: their names in the prompt, their instructions by the tool `skill`, their files by `read`."""

import pytest
from scripted_project import calls


def skill(name="pdf", description="Fill PDF forms.", more="", body="Do it."):
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n{body}\n"


def test_a_skill_comes_at_three_levels(project):
    project.write(".agents/skills/pdf/SKILL.md", skill(body="Read references/forms.md first."))
    project.write(".agents/skills/pdf/references/forms.md", "All about forms")
    use, read = ("skill", {"name": "pdf"}), ("read", {"path": ".agents/skills/pdf/references/forms.md"})
    run = project.run(calls(use), calls(read), "Done.")
    assert run.code == 0
    assert "- pdf: Fill PDF forms." in run.system
    assert "Read references" not in run.system
    body, file = run.results
    assert "Read references/forms.md first." in body
    assert "references/forms.md" in body.split("\n\n")[0]
    assert file == "All about forms"


def test_a_skill_of_the_user_is_read_outside_of_the_workspace(project):
    body = project.write_home(".claude/skills/pdf/SKILL.md", skill(more="allowed-tools: Bash(git:*) Read\n"))
    file = project.write_home(".claude/skills/pdf/assets/x.txt", "an asset")
    other = project.write_home(".claude/secret", "a secret")
    paths = [str(file), str(other), f"{body.parent}/../../secret"]
    run = project.run(calls(("skill", {"name": "pdf"})), calls(*(("read", {"path": each}) for each in paths)), "Done.")
    assert run.code == 0, "a read of a skill asks for no approval"
    instructions, asset, *refusals = run.results
    assert str(body.parent) in instructions
    assert "It suggests these tools: Bash(git:*) Read" in instructions
    assert asset == "an asset"
    assert not any("a secret" in each for each in refusals)


def test_allowed_tools_allow_nothing(project):
    project.write(".agents/skills/pdf/SKILL.md", skill(more="allowed-tools: shell write\n"))
    run = project.run(calls(("skill", {"name": "pdf"})), calls(("shell", {"command": "echo x"})), "Done.")
    assert run.code == 3


def test_the_nearest_of_two_with_one_name_counts(project):
    project.write("part/.toolspeak/skills/pdf/SKILL.md", skill(description="of the part"))
    project.write(".agents/skills/pdf/SKILL.md", skill(description="of the top"))
    project.write_home(".config/toolspeak/skills/pdf/SKILL.md", skill(description="mine"))
    run = project.run("Done.", cwd=project.folder / "part")
    assert "of the part" in run.system
    assert "of the top" not in run.system
    assert "mine" not in run.system


@pytest.mark.parametrize(
    ("folder", "text", "problem"),
    [
        ("pdf", skill(name="Pdf"), "must consist of lowercase letters, digits and single hyphens"),
        ("a--b", skill(name="a--b"), "must consist of lowercase letters, digits and single hyphens"),
        ("pdf", skill(name="../../x"), "must consist of lowercase letters, digits and single hyphens"),
        ("pdf", skill(name="other"), "is not the name of its folder, 'pdf'; rename one of them"),
        ("a" * 65, skill(name="a" * 65), "name has 65 characters, and must have 1 to 64"),
        ("pdf", skill(description="x" * 1025), "description has 1,025 characters, and must have 1 to 1,024"),
        ("pdf", skill(description="''"), "description has 0 characters"),
        ("pdf", "---\nname: pdf\n---\n", "the field `description` is missing; add a line `description: …`"),
        ("pdf", skill(description="[1, 2]"), "description must be a text, not '[1, 2]'; put it in quotes"),
        ("pdf", skill(more=f"compatibility: {'x' * 501}\n"), "compatibility has 501 characters"),
        ("pdf", skill(more="metadata: text\n"), "metadata must be lines `name: value`"),
        ("pdf", "no fields", "must begin with its fields between two lines `---`"),
        ("pdf", "---\nname: pdf\ndescription: never closed", "must begin with its fields between two lines"),
        ("pdf", "---\n- a list\n---\n", "the fields must be lines `name: value`"),
        ("pdf", skill(description="a: b: c"), "SKILL.md (line 3): the fields are not YAML"),
        ("pdf", skill(more="a: &a [x, x]\nb: *a\n"), "(line 4): anchors and aliases (`&`, `*`) are not allowed"),
        ("pdf", skill(more="a: !!python/object/apply:os.system [x]\n"), "the fields are not YAML"),
        ("pdf", skill(more=f"a: {'[' * 30}{']' * 30}\n"), "16 levels; leave some out"),
        ("pdf", skill(more=f"a: {'[' * 10000}{']' * 10000}\n"), "SKILL.md (line 4): the fields"),
        ("pdf", skill(more=f"a: [{'x,' * 3000}]\n"), "more than 2,000 values"),
        ("pdf", skill(more=f"a: {'9' * 5000}\n"), "the fields cannot be read"),
        ("pdf", skill(more=f"a: {'x' * 70_000}\n"), "at most 65,536 are read; move what is long below them"),
        ("pdf", skill(body="x" * 10_000_000), "and at most 1,048,576 are read; move details into other files"),
        ("pdf", skill(description="\x1b]0;evil\x07 x"), "the fields are not YAML"),
    ],
    ids=lambda value: value[:20] if len(value) < 60 else "…",
)
def test_an_invalid_skill_is_named_and_the_run_goes_on(project, folder, text, problem):
    place = project.write(f".agents/skills/{folder}/SKILL.md", text)
    project.write(".agents/skills/good/SKILL.md", skill(name="good"))
    listing = project.command("skills")
    assert listing.returncode == 1
    assert problem in listing.stderr
    assert str(place) in listing.stderr
    assert "\x1b" not in listing.stderr
    assert "good" in listing.stdout


def test_a_run_names_an_invalid_skill_and_goes_on(project):
    place = project.write(".agents/skills/pdf/SKILL.md", skill(name="other"))
    run = project.run("Done.")
    assert run.code == 0
    assert f"toolspeak: {place}: name: 'other' is not the name of its folder" in run.errors


def test_an_unknown_skill_gets_an_error_that_names_the_others(project):
    project.write(".agents/skills/pdf/SKILL.md", skill())
    run = project.run(calls(("skill", {"name": "../../x"}), ("skill", {"name": "pdff"})), "Done.")
    assert run.code == 0
    assert all("there is no skill" in each for each in run.results)
    assert "pdf" in run.results[1]


def test_links_of_a_project_lead_nowhere_else(project):
    project.write_home("elsewhere/pdf/SKILL.md", skill(description="from elsewhere"))
    project.write(".agents/skills/loop/x", "")
    folder = project.folder / ".agents/skills"
    (folder / "pdf").symlink_to(project.home / "elsewhere/pdf")
    (folder / "again").symlink_to(folder)
    (folder / "loop/SKILL.md").symlink_to("SKILL.md")
    run = project.run("Done.")
    assert run.code == 0
    assert "from elsewhere" not in run.system
    assert "leads outside" in run.errors
    assert "loop of symbolic links" in run.errors


def test_a_folder_of_skills_that_is_a_loop_is_not_there(project):
    project.write(".agents/x", "")
    (project.folder / ".agents/skills").symlink_to("skills")
    assert project.run("Done.").code == 0


def test_many_skills_keep_their_names_and_lose_descriptions(project):
    for number in range(150):
        project.write(f".agents/skills/s{number:03}/SKILL.md", skill(f"s{number:03}", "long words " * 60))
    system = project.run("Done.").system
    assert "- s149\n" in system + "\n"
    assert "- s000: long words" in system
    assert len(system) < 26_000


def test_the_list_says_where_each_comes_from(project):
    project.write(".agents/skills/pdf/SKILL.md", skill())
    project.write_home(".claude/skills/mine/SKILL.md", skill("mine", "My own."))
    listing = project.command("skills")
    assert listing.returncode == 0
    lines = listing.stdout.splitlines()
    assert any("pdf" in line and "project" in line for line in lines)
    assert any("mine" in line and "user" in line for line in lines)
