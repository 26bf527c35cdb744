"""What is read again is answered from memory only if nobody, the run or anything else, has changed it."""

import asyncio
import os

import pytest

from toolspeak import ToolCall
from toolspeak.data.tools import NO_VERSION
from toolspeak.execute import BatchContext, Executor, approve_all
from toolspeak.execute.batch_context import ANSWERED_FROM
from toolspeak.tools import Toolset
from toolspeak.tools.builtin import Workspace, workspace_tools


async def nowhere(_event):
    return None


class Run:
    """Batches of one call each, of one run."""

    def __init__(self, root):
        self.workspace = Workspace(root)
        self.executor = Executor(Toolset(workspace_tools(root)))
        self.context = BatchContext("run")
        self.count = 0

    def __call__(self, name, **arguments):
        """What the model reads, and whether it came from memory."""
        self.count += 1
        calls = [ToolCall(f"c{self.count}", name, arguments)]
        batch = asyncio.run(self.executor.run(calls, emit=nowhere, context=self.context, approver=approve_all))
        (result,) = batch.results
        return result.content[-1], ANSWERED_FROM in result.extra

    def settle(self, *paths):
        """Goes on once a change can be told from the one before."""
        while any(self.workspace.version(path) == NO_VERSION for path in paths):
            pass


@pytest.fixture
def root(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("one\n")
    return tmp_path


@pytest.mark.parametrize("change", ["add", "remove", "rename", "replace"])
def test_a_folder_is_listed_anew_once_anybody_has_changed_its_names(root, change):
    run = Run(root)
    run.settle("docs")
    first, is_remembered = run("list", prefix="docs")
    assert (run("list", prefix="docs"), is_remembered) == ((first, True), False)
    file = root / "docs" / "a.txt"
    match change:
        case "add":
            (root / "docs" / "b.txt").write_text("")
        case "remove":
            file.unlink()
        case "rename":
            file.rename(root / "docs" / "b.txt")
        case _:
            file.unlink()
            file.mkdir()
    again, is_remembered = run("list", prefix="docs")
    assert (again != first, is_remembered) == (True, False)


def test_a_file_whose_time_was_set_back_is_read_anew(root):
    run, file = Run(root), root / "docs" / "a.txt"
    run.settle("docs/a.txt")
    assert run("read", path="docs/a.txt")[0].text == "one\n"
    assert run("read", path="docs/a.txt")[1]
    before = file.stat()
    file.write_text("two\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (run("read", path="docs/a.txt")[0].text, run("read", path="docs/a.txt")[0].text) == ("two\n", "two\n")


@pytest.mark.parametrize(
    ("name", "arguments"), [("list", {"recursive": True}), ("find", {"content": "one"}), ("find", {"pattern": "*.txt"})]
)
def test_what_would_have_to_look_through_a_whole_tree_runs_again(root, name, arguments):
    run = Run(root)
    run.settle("", "docs", "docs/a.txt")
    assert not run(name, **arguments)[1]
    assert not run(name, **arguments)[1]
    (root / "docs" / "a.txt").write_text("gone\n")
    (root / "docs" / "b.md").write_text("one\n")
    assert not run(name, **arguments)[1]


def test_what_was_changed_a_moment_ago_is_not_remembered(root):
    run = Run(root)
    for number in range(200):
        (root / "docs" / "a.txt").write_text(f"{number}\n")
        run("list", prefix="docs")
        file = root / "docs" / f"{number}.txt"
        file.write_text("")
        (names, is_remembered) = run("list", prefix="docs")
        assert not is_remembered, number
        assert f"docs/{number}.txt" in names.value
