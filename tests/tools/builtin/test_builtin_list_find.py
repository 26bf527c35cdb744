"""`list`, `find` and `active_file`."""

from __future__ import annotations

import os
import threading
import time

import pytest

from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.tools import Toolset
from toolspeak.tools.builtin import Workspace, find_tool, workspace_tools
from toolspeak.tools.files.glob import Glob
from toolspeak.tools.files.search import LineMatches, Searcher


@pytest.fixture
def tree(root, outside):
    for path in ("notes/daily.md", "notes/weekly.md", "src/a.py", "src/deep/b.py", ".git/config", "src/.git/x.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"content of {path}\nsecond line\r\n")
    (root / "top.txt").write_text("top\n")
    (root / "out").symlink_to(outside)
    (root / "in").symlink_to("notes")
    return root


def test_the_specification_s_example(call, tree):
    assert call("list", prefix="notes") == ["notes/daily.md", "notes/weekly.md"]
    assert call("list", prefix="notes/") == ["notes/daily.md", "notes/weekly.md"]
    assert call("list", path="./notes") == ["notes/daily.md", "notes/weekly.md"]


def test_the_top_folder(call, tree):
    top = [".git/", "in/", "notes/", "out", "src/", "top.txt"]
    assert call("list") == call("list", prefix=".") == call("list", file="") == top


def test_the_beginning_of_a_name(call, tree):
    assert call("list", prefix="notes/da") == ["notes/daily.md"]
    assert call("list", prefix="n") == ["notes/"]
    assert call("list", prefix="top.txt") == ["top.txt"]
    assert call("list", prefix="n", recursive=True) == ["notes/", "notes/daily.md", "notes/weekly.md"]


def test_an_absolute_path_inside_is_the_same_path(call, tree):
    assert call("list", prefix=f"{tree}/notes/da") == ["notes/daily.md"]
    assert call("list", prefix=str(tree)) == call("list")
    assert call("list", prefix=f"{tree}/src", recursive=True) == call("list", prefix="src", recursive=True)
    assert call("find", pattern="*.md", path=f"{tree}/notes") == ["notes/daily.md", "notes/weekly.md"]


def test_recursive_leaves_out_git_and_follows_no_link(call, tree):
    assert call("list", recursive=True) == [
        "in/", "notes/", "notes/daily.md", "notes/weekly.md", "out",
        "src/", "src/a.py", "src/deep/", "src/deep/b.py", "top.txt",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "prefix", ["missing/", "missing", "notes/x", "missing/deep", "top.txt/", "out/", "../", "/etc"]
)
@pytest.mark.parametrize("recursive", [True, False])
def test_no_such_folder_is_an_error(call, tree, prefix, recursive):
    with pytest.raises(ToolError):
        call("list", prefix=prefix, recursive=recursive)


def test_many_entries_end_with_how_many_more(call, root):
    for n in range(1_005):
        (root / f"{n:04}").touch()
    entries = call("list")
    assert entries[:2] == ["0000", "0001"]
    assert len(entries) == 1_001
    assert "and 5 more" in entries[-1]
    entries = call("find")
    assert len(entries) == 101
    assert "and 905 more" in entries[-1]


def test_an_empty_folder_is_an_empty_list(call, root):
    assert call("list") == []
    assert call("find") == []


def test_a_name_that_is_no_utf8_is_shown_as_text(call, root):
    (root / os.fsdecode(b"caf\xe9")).touch()
    assert call("list") == ["caf\\xe9"]
    assert call("find") == ["caf\\xe9"]


def test_deep_trees_are_walked(call, root):
    folder = os.open(root, os.O_RDONLY)
    for _ in range(150):
        os.mkdir("d" * 40, dir_fd=folder)
        inner = os.open("d" * 40, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    assert len(call("find", pattern="leaf")) == 1


def test_effects_are_the_folder_that_is_looked_into(call, tree):
    top = f"file:{tree.resolve()}"
    assert call.effects("list", prefix="notes").reads == {f"{top}/notes"}
    assert call.effects("list", prefix="notes/da").reads == {f"{top}/notes"}
    assert call.effects("list").reads == {top}
    assert call.effects("list", prefix="in/").reads == {f"{top}/notes"}
    assert call.effects("find", path="src").reads == {f"{top}/src"}
    assert call.effects("list", prefix="..").reads == {top}
    assert call.effects("list", prefix="notes").read_only


def test_find_by_name(call, tree):
    assert call("find", pattern="*.py") == ["src/a.py", "src/deep/b.py"]
    assert call("find", pattern="src/*.py") == ["src/a.py"]
    assert call("find", pattern="src/**/*.py") == ["src/a.py", "src/deep/b.py"]
    assert call("find", pattern="**/*.py", path="src/deep") == ["src/deep/b.py"]
    assert call("find", pattern="src/*.py", path="src") == ["src/a.py"]
    assert call("find", pattern="*.{md,txt}") == ["notes/daily.md", "notes/weekly.md", "top.txt"]
    assert call("find", pattern="*", file="top.txt") == ["top.txt"]
    assert call("find", path="in") == ["notes/daily.md", "notes/weekly.md"]


def test_find_by_content(call, tree):
    assert call("find", content=r"^content .*daily") == [
        {"path": "notes/daily.md", "line": 1, "text": "content of notes/daily.md"}
    ]
    assert call("find", content="line$", pattern="a.py") == [{"path": "src/a.py", "line": 2, "text": "second line"}]
    assert call("find", content="^$") == []
    assert call("find", content="canary") == []


def test_find_leaves_out_binary_and_notes_what_it_could_not_search(call, root):
    (root / "bin").write_bytes(b"needle\0")
    (root / "latin").write_bytes(b"needle \xe9")
    (root / "long").write_text("x" * 10_000 + "needle\nneedle" + "y" * 1_000)
    os.mkfifo(root / "fifo")
    matches = call("find", content="needle")
    assert [(match["path"], match["line"], len(match["text"])) for match in matches[:1]] == [("long", 2, 503)]
    assert matches[1:] == ["... 1 lines are longer than 10,000 characters: only their beginning was searched"]


def test_find_stops_listing_at_100(call, root):
    (root / "a.txt").write_text("x\n" * 250)
    matches = call("find", content="x")
    assert len(matches) == 101
    assert matches[99] == {"path": "a.txt", "line": 100, "text": "x"}
    assert "and 150 more lines" in matches[100]


@pytest.mark.parametrize("content", ["(", "a{99999999999999}", "[z-a]", "(?P<n"])
def test_a_wrong_expression_is_a_clear_error(call, root, content):
    with pytest.raises(ToolError, match="not a regular expression"):
        call("find", content=content)


@pytest.mark.parametrize("pattern", ["", "/etc/*", "{a,b}" * 10])
def test_a_wrong_pattern_is_a_clear_error(call, root, pattern):
    with pytest.raises(ToolError, match="'pattern'"):
        call("find", pattern=pattern)


def test_find_outside_is_refused(call, tree):
    for path in ("out", "..", "/", "missing"):
        with pytest.raises(ToolError):
            call("find", path=path)


@pytest.mark.parametrize("separate", [True, False])
def test_the_search_is_the_same_in_its_own_process_and_in_this_one(separate):
    with Searcher("b+", seconds=30, is_cancelled=lambda: False, separate=separate) as searcher:
        assert searcher.search(b"a\r\nbb\r\n\nab", 1) == LineMatches([(2, "bb")], 2, 0)
        assert searcher.search(b"\0b", 1) == LineMatches([], 0, 0)
        assert searcher.search(b"", 1) == LineMatches([], 0, 0)
        assert searcher.search("\ufeffb".encode() + b"x" * 20_000, 1).cut == 1
    with pytest.raises(ToolError, match="not a regular"):
        Searcher("(", seconds=30, is_cancelled=lambda: False, separate=separate).__enter__()


def test_a_catastrophic_expression_is_stopped(call, root):
    (root / "a.txt").write_text("a" * 5_000 + "b\n")
    call.tools = Toolset([find_tool(Workspace(root), seconds_per_file=0.8)])
    with pytest.raises(ToolError, match=r"more than 0\.8 seconds"):
        call("find", content="(a+)+$")


def test_a_search_is_cancelled_in_the_middle(call, root):
    (root / "a.txt").write_text("a" * 5_000 + "b\n")
    poll = threading.Event()
    looks: list[None] = []

    def cancelled() -> bool:
        looks.append(None)
        poll.set()
        return len(looks) > 6

    call.is_cancelled = cancelled
    with pytest.raises(ToolError, match="Cancelled"):
        call("find", content="(a+)+$")
    assert poll.is_set()


def test_no_pattern_is_slow():
    start = time.process_time()
    assert not Glob("*a" * 60 + "b").matches("a" * 250)
    assert not Glob("**/" * 60 + "b").matches("a/" * 250 + "c")
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b.py", True), ("*.py", "a.pyc", False), ("a/**", "a/b/c", True), ("a/**/c", "a/c", True),
        ("a/*/c", "a/b/d/c", False), ("./a.py", "x/a.py", True), ("[ab].py", "b.py", True), ("[!ab].py", "b.py", False),
        ("?.py", "ab.py", False), ("*.PY", "a.py", False), ("{a,b/{c,d}}", "b/d", True), ("src/", "src/x/y", True),
        (".*", ".hidden", True), ("a{b}", "a{b}", True),
    ],
)  # fmt: skip
def test_globs(pattern, path, matches):
    assert Glob(pattern).matches(path) is matches


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "~/x", "a\0", "leads-out/x"])
def test_an_active_file_outside_of_the_workspace_is_refused(root, path):
    (root / "leads-out").symlink_to("/etc")
    with pytest.raises(ConfigurationError, match="the active file"):
        workspace_tools(root, active_file=path)


def test_active_file(root):
    tool = workspace_tools(root, active_file="a.txt").get("active_file")
    assert tool is not None
    assert tool() == "a.txt"
    assert not tool.spec.effects.reads | tool.spec.effects.writes
    none = workspace_tools(root).get("active_file")
    assert none is not None
    with pytest.raises(ToolError, match="No file is active"):
        none()


def test_the_toolset_has_every_tool_documented(root):
    tools = workspace_tools(str(root))
    assert [tool.name for tool in tools] == [
        "list", "read", "find", "write", "append", "edit", "line_edit", "replace", "shell", "active_file",
        "read_result",
    ]  # fmt: skip
    for tool in tools:
        assert tool.spec.description
        for name, schema in tool.spec.properties.items():
            assert schema.get("description"), (tool.name, name)
    assert list(tools.get("line_edit").spec.properties) == ["path", "startLine", "endLine", "newContent"]
