"""`replace`: one text in many files, all or none."""

from __future__ import annotations

import os

import pytest

from toolspeak import Agent
from toolspeak.errors import ToolError
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools.builtin import Workspace, replace_tool


def replace_in(root, approve="all", **arguments) -> str:
    turn = ScriptedTurn("", calls=[ScriptedCall("replace", arguments)])
    model = ScriptedProvider([turn, "Done."], tools=True)
    result = Agent(model, [replace_tool(Workspace(root))], approve=approve).run_sync("Go.")
    return result.steps[0].executions[0].result.text


def preview(root, **arguments) -> str:
    turn = ScriptedTurn("", calls=[ScriptedCall("replace", arguments)])
    state = Agent(ScriptedProvider([turn], tools=True), [replace_tool(Workspace(root))]).run_sync("Go.")
    return state.requests[0].preview


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_bytes(b"old_name = 1\r\nprint(old_name)\r\n")
    (tmp_path / "src" / "b.py").write_text("import old_name\n")
    (tmp_path / "src" / "c.txt").write_text("old_name\n")
    (tmp_path / "src" / "d.py").write_text("nothing\n")
    (tmp_path / "src" / "e.py").write_bytes(b"\0old_name")
    return tmp_path


def test_a_text_is_replaced_in_the_files_of_a_pattern(tree):
    diff = preview(tree, old="old_name", new="new_name", files="*.py")
    assert diff.count("+++") == 2
    text = replace_in(tree, old="old_name", new="new_name", files="*.py")
    assert text.startswith("3 places in 2 files.\n")
    assert text.split("\n", 1)[1].strip() == diff.strip()
    assert (tree / "src" / "a.py").read_bytes() == b"new_name = 1\r\nprint(new_name)\r\n"
    assert (tree / "src" / "c.txt").read_text() == "old_name\n"
    assert (tree / "src" / "e.py").read_bytes() == b"\0old_name"


def test_a_pattern_with_groups_is_replaced(tree):
    text = replace_in(tree, old=r"^import (\w+)$", new=r"from x import \1", regex=True)
    assert text.startswith("1 places in 1 files.")
    assert (tree / "src" / "b.py").read_text() == "from x import old_name\n"


def test_a_text_is_no_pattern(tree):
    (tree / "f.py").write_text("a.b axb \\1\n")
    replace_in(tree, old="a.b", new=r"\1\g<0>", path="f.py")
    assert (tree / "f.py").read_text() == "\\1\\g<0> axb \\1\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"old": "", "new": "x"}, "'old' is empty"),
        ({"old": "not there", "new": "x"}, "occurs in none of the 5 files"),
        ({"old": "(", "new": "x", "regex": True}, "'old' is not a regular expression"),
        ({"old": "old", "new": r"\7", "regex": True}, "'new' does not fit the pattern"),
        ({"old": "old", "new": "x", "path": "../elsewhere"}, "elsewhere"),
        ({"old": "old", "new": "x", "files": "/etc/*"}, "'pattern'"),
    ],
)
def test_what_cannot_be_replaced_changes_nothing(tree, arguments, problem):
    before = {path: path.read_bytes() for path in tree.rglob("*.*")}
    assert problem in replace_in(tree, approve=None, **arguments)  # and nobody is asked
    assert problem in replace_in(tree, **arguments)
    assert {path: path.read_bytes() for path in tree.rglob("*.*")} == before


def test_a_pattern_that_takes_for_ever_is_stopped(tree):
    (tree / "slow.py").write_text("a" * 60 + "b")
    tool = replace_tool(Workspace(tree), seconds_per_file=0.3)
    turn = ScriptedTurn("", calls=[ScriptedCall("replace", {"old": "(a+)+$", "new": "", "regex": True})])
    result = Agent(ScriptedProvider([turn, "Done."], tools=True), [tool], approve="all").run_sync("Go.")
    assert "'old' took more than 0.3 seconds" in result.steps[0].executions[0].result.text


def test_if_one_file_cannot_be_written_the_others_get_their_content_back(tree):
    class Refusing(Workspace):
        def replace(self, path, data, before="any"):
            if path.endswith("b.py") and b"new" in data:
                raise ToolError("'src/b.py': the disk is full.")
            super().replace(path, data, before)

    turn = ScriptedTurn("", calls=[ScriptedCall("replace", {"old": "old_name", "new": "new", "files": "*.py"})])
    agent = Agent(ScriptedProvider([turn, "Done."], tools=True), [replace_tool(Refusing(tree))], approve="all")
    text = agent.run_sync("Go.").steps[0].executions[0].result.text
    assert text == "'src/b.py': the disk is full. Nothing else was changed."
    assert (tree / "src" / "a.py").read_bytes() == b"old_name = 1\r\nprint(old_name)\r\n"


def test_links_out_of_the_workspace_are_left_alone(tree, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "x.py"
    other.write_text("old_name\n")
    os.symlink(other, tree / "link.py")
    replace_in(tree, old="old_name", new="new", files="*.py")
    assert other.read_text() == "old_name\n"


def test_too_many_files_are_refused(tmp_path):
    for number in range(201):
        (tmp_path / f"{number}.txt").write_text("old")
    assert "More than 200 files" in replace_in(tmp_path, old="old", new="new")
    assert (tmp_path / "0.txt").read_text() == "old"
