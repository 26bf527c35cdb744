"""The workspace: what is inside works, nothing outside is reached, by name or by race."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.errors import ConfigurationError, ToolError
from toolspeak.tools.builtin import Workspace

CANARY = "the canary sings outside"

REFUSALS = [
    ("../outside/canary.txt", "only files inside"),
    ("a/../../outside/canary.txt", "only files inside"),
    ("a/../b.txt", "write 'b.txt'"),
    ("..", "only files inside"),
    ("/etc/passwd", "only files inside"),
    ("//etc/passwd", "only files inside"),
    ("C:/Windows/x", "drive letter"),
    ("c:x", "drive letter"),
    ("..\\outside\\canary.txt", "'../outside/canary.txt'"),
    ("a\\b", "'a/b'"),
    ("a\0b", "NUL"),
    ("\ud800", "lone surrogate"),
    ("~/x", "not expanded"),
]


@pytest.mark.parametrize(("path", "remedy"), REFUSALS)
def test_a_path_that_is_not_plain_and_relative_is_refused_with_the_remedy(workspace, path, remedy):
    with pytest.raises(ToolError) as read:
        workspace.read(path)
    with pytest.raises(ToolError) as raised_error:
        workspace.replace(path, b"x")
    with pytest.raises(ToolError):
        workspace.append(path, b"x")
    assert remedy in str(read.value)
    assert repr(path) in str(raised_error.value)
    str(read.value).encode()
    assert os.listdir(workspace.root) == []


def test_an_absolute_path_inside_is_the_same_path_under_any_name_of_the_folder(workspace, root, tmp_path):
    workspace.replace("sub/a.txt", b"1")
    other_name = tmp_path / "other-name"
    other_name.symlink_to(root)
    for top in (root, os.path.realpath(root), f"/{root}", other_name):
        for path in (f"{top}/sub/a.txt", f"{top}//sub/./a.txt"):
            assert workspace.read(path) == b"1"
            assert workspace.key(path) == workspace.key("sub/a.txt")
        assert workspace.key(f"{top}") == workspace.key(f"{top}/") == workspace.key("")
    workspace.replace(f"{other_name}/new.txt", b"2")
    assert (root / "new.txt").read_bytes() == b"2"


def test_an_absolute_path_that_only_begins_like_the_folder_is_refused(workspace, root, outside):
    (root / "link").symlink_to(outside)
    for path in (f"{root}x/a", f"{root}/../outside/canary.txt", f"{root}/link/canary.txt", f"{root}/../{root.name}/a"):
        with pytest.raises(ToolError):
            workspace.read(path)
        assert workspace.scope(path) == workspace.key("")


def test_plain_ways_of_writing_one_path_are_one_file(workspace, root):
    workspace.replace("a/b.txt", b"1")
    for path in ("a/b.txt", "./a/b.txt", "a//b.txt", "a/./b.txt"):
        assert workspace.read(path) == b"1"
        assert workspace.key(path) == f"file:{os.path.realpath(root)}/a/b.txt"
    assert workspace.key("") == workspace.key(".") == f"file:{os.path.realpath(root)}"


def test_symbolic_links_that_stay_inside_work_and_give_the_real_key(workspace, root):
    (root / "real").mkdir()
    (root / "real/a.txt").write_text("1")
    (root / "file").symlink_to("real/a.txt")
    (root / "folder").symlink_to(root / "real")
    (root / "real/back").symlink_to("../real/../file")
    (root / "roundabout").symlink_to(f"../{root.name}/real/a.txt")
    for path in ("file", "folder/a.txt", "real/back", "roundabout"):
        assert workspace.read(path) == b"1"
        assert workspace.key(path) == workspace.key("real/a.txt")
    workspace.replace("file", b"2")
    workspace.append("folder/a.txt", b"3")
    assert (root / "file").is_symlink()
    assert (root / "real/a.txt").read_bytes() == b"23"


def test_a_dangling_link_inside_creates_its_target(workspace, root):
    (root / "new").symlink_to("sub/target.txt")
    workspace.replace("new", b"x")
    assert (root / "new").is_symlink()
    assert (root / "sub/target.txt").read_bytes() == b"x"


@pytest.mark.parametrize("absolute", [True, False])
def test_symbolic_links_that_lead_outside_are_refused(workspace, root, outside, absolute):
    start = str(outside) if absolute else "../outside"
    (root / "file").symlink_to(f"{start}/canary.txt")
    (root / "folder").symlink_to(start)
    (root / "dangling").symlink_to(f"{start}/new.txt")
    (root / "chain").symlink_to("folder")
    (root / "up").symlink_to("..")
    (root / "upper").symlink_to("/")
    paths = ["file", "folder/canary.txt", "folder/new.txt", "dangling", "chain/canary.txt", "chain/sub/new.txt"]
    for path in [*paths, "up/outside/canary.txt", f"upper{outside}/canary.txt"]:
        for act in (workspace.read, workspace.key, lambda p: workspace.replace(p, b"x"), workspace.entries):
            with pytest.raises(ToolError, match="leads outside"):
                act(path)
        with pytest.raises(ToolError, match="leads outside"):
            workspace.append(path, b"x")
        assert workspace.scope(path) == workspace.key("")


def test_a_loop_of_links_is_an_error(workspace, root):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(ToolError, match="loop"):
        workspace.read("a")


def test_a_link_swapped_in_after_the_name_was_resolved_is_refused(workspace, root, outside):
    (root / "sub").mkdir()
    (root / "sub/canary.txt").write_text("inside")
    parts = workspace.resolve("sub/canary.txt")
    (root / "sub").rename(root / "gone")
    (root / "sub").symlink_to(outside)
    with pytest.raises(OSError, match=r"(?i)not a directory|link"):
        workspace.open_parts(parts, "sub/canary.txt")
    with pytest.raises(OSError, match=r"(?i)not a directory|link"), workspace.folder(("sub", "deep"), create=True):
        pass
    (root / "sub").unlink()
    (root / "gone").rename(root / "sub")
    (root / "sub/canary.txt").unlink()
    (root / "sub/canary.txt").symlink_to(outside / "canary.txt")
    with pytest.raises(ToolError, match="replaced by a symbolic link"):
        workspace.open_parts(parts, "sub/canary.txt")
    with workspace.folder(("sub",)) as folder, pytest.raises(OSError, match=r"(?i)not a directory|link"):
        folder.open("canary.txt", os.O_RDONLY)


def test_an_open_folder_stays_the_folder_that_was_opened(root, outside):
    workspace = Workspace(root)
    (root / "sub").mkdir()
    with workspace.folder(("sub",)) as folder:
        (root / "sub").rename(root / "moved")
        (root / "sub").symlink_to(outside)
        os.close(folder.open("new.txt", os.O_WRONLY | os.O_CREAT))
    assert (root / "moved/new.txt").exists()


def test_what_is_no_regular_file_is_refused_at_once(workspace, root):
    os.mkfifo(root / "fifo")
    (root / "folder").mkdir()
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)  # a socket's path may not be long
    try:
        server.bind("socket")
    finally:
        os.chdir(here)
        server.close()
    for path, kind in (("fifo", "FIFO"), ("folder", "folder"), ("socket", "socket"), (".", "workspace folder")):
        for act in (workspace.read, lambda p: workspace.replace(p, b"x"), lambda p: workspace.append(p, b"x")):
            with pytest.raises(ToolError, match=kind):
                act(path)


def test_a_device_is_refused():
    with pytest.raises(ToolError, match="device"):
        Workspace("/dev").read("null")


def test_the_workspace_must_be_a_folder(tmp_path):
    with pytest.raises(ConfigurationError, match="not a folder"):
        Workspace(tmp_path / "missing")


def test_a_workspace_reached_by_a_link_takes_its_own_name(tmp_path, root):
    (tmp_path / "alias").symlink_to(root)
    workspace = Workspace(tmp_path / "alias")
    (root / "a.txt").write_text("1")
    (root / "link").symlink_to(tmp_path / "alias/a.txt")
    assert workspace.read("link") == b"1"
    assert workspace.read(f"{tmp_path}/alias/a.txt") == b"1"
    assert workspace.key("a.txt") == Workspace(root).key("a.txt")


def test_replacing_keeps_the_mode_and_new_files_get_the_umask(workspace, root):
    (root / "run.sh").write_text("x")
    (root / "run.sh").chmod(0o751)
    workspace.replace("run.sh", b"y")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o751
    old = os.umask(0o027)
    try:
        workspace.replace("new.txt", b"y")
        workspace.append("other.txt", b"y")
    finally:
        os.umask(old)
    assert stat.S_IMODE((root / "new.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE((root / "other.txt").stat().st_mode) == 0o640


def test_a_read_only_file_is_not_replaced_even_by_root(workspace, root):
    (root / "a.txt").write_text("x")
    (root / "a.txt").chmod(0o444)
    for act in (workspace.replace, workspace.append):
        with pytest.raises(ToolError, match="read-only"):
            act("a.txt", b"y")
    assert (root / "a.txt").read_text() == "x"


def test_a_hard_link_is_split_off_by_writing(workspace, root, outside):
    os.link(outside / "canary.txt", root / "a.txt")
    os.link(outside / "canary.txt", root / "b.txt")
    workspace.replace("a.txt", b"new")
    assert workspace.append("b.txt", b"!") == len(CANARY) + 1
    assert (root / "b.txt").read_text() == CANARY + "!"


def test_replacing_is_by_a_new_file_and_leaves_nothing_behind(workspace, root):
    (root / "a.txt").write_text("old")
    with open(root / "a.txt") as reader:
        workspace.replace("a.txt", b"new")
        assert reader.read() == "old"
    (root / "folder").mkdir()
    with pytest.raises(ToolError):
        workspace.replace("folder", b"x")
    assert sorted(os.listdir(root)) == ["a.txt", "folder"]


def test_what_another_program_has_changed_meanwhile_is_left_as_it_is(workspace, root):
    """Such a program knows nothing of the lock; whoever wanted to replace what it changed is told."""
    (root / "a.txt").write_text("another's")
    for before in (b"ours", b"another", None):
        with pytest.raises(ToolError, match=r"'a\.txt' was (changed|made) by another program"):
            workspace.replace("a.txt", b"new", before)
    with pytest.raises(ToolError, match=r"'b\.txt' was changed by another program"):
        workspace.replace("b.txt", b"new", b"deleted meanwhile")
    assert (root / "a.txt").read_text() == "another's"
    assert os.listdir(root) == ["a.txt"]
    workspace.replace("a.txt", b"new", b"another's")
    workspace.replace("b.txt", b"new", None)
    assert [(root / name).read_text() for name in ("a.txt", "b.txt")] == ["new", "new"]


@pytest.mark.parametrize("descriptors", [True, False])
def test_a_folder_that_another_process_holds_is_waited_for_and_then_named(root, descriptors):
    workspace = Workspace(root, descriptors=descriptors, lock_seconds=0)
    (root / "sub").mkdir()
    holder = os.open(root / "sub", os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(ToolError, match=r"'sub/a\.txt' was not changed: another process"), workspace.alone("sub/a.txt"):
        pass
    with workspace.alone("a.txt"):
        os.close(holder)
    with workspace.alone("sub/a.txt"):
        pass


@pytest.mark.parametrize("path", ["n" * 300, "a.txt/b", "missing/b"])
def test_errors_of_the_system_name_the_path(workspace, root, path):
    (root / "a.txt").write_text("x")
    with pytest.raises(ToolError) as raised_error:
        workspace.read(path)
    assert repr(path) in str(raised_error.value)


def test_no_descriptor_leaks(workspace, root, outside):
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/c.txt").write_text("x")
    (root / "out").symlink_to(outside)
    os.mkfifo(root / "fifo")
    before = set(os.listdir("/dev/fd"))
    for path in ("a/b/c.txt", "a/b", "a/b/missing", "a/b/c.txt/d", "out/canary.txt", "fifo", "n" * 300, "link"):
        for act in (
            workspace.read,
            workspace.entries,
            workspace.is_folder,
            workspace.key,
            lambda p: workspace.replace(p, b"y"),
            lambda p: workspace.append(p, b"y"),
        ):
            try:
                act(path)
            except ToolError:
                continue
    assert set(os.listdir("/dev/fd")) == before


NAMES = st.sampled_from(
    ["..", ".", "", "a", "b", "out", "up", "abs", "canary.txt", "outside", "~", "C:", "\\", "\0", "work", "é", "\udc80"]
)
PATHS = st.one_of(
    st.lists(NAMES, max_size=6).map("/".join),
    st.lists(NAMES, max_size=6).map("\\".join),
    st.text(max_size=20),
)


@settings(max_examples=fewer(150), deadline=None)
@given(path=PATHS, descriptors=st.booleans())
def test_no_path_escapes(path, descriptors):
    with tempfile.TemporaryDirectory() as top:
        outside, root = Path(top, "outside"), Path(top, "work")
        outside.mkdir()
        (outside / "canary.txt").write_text(CANARY)
        root.mkdir()
        (root / "a").mkdir()
        (root / "out").symlink_to(outside)
        (root / "a/up").symlink_to("../..")
        (root / "abs").symlink_to(top)
        workspace = Workspace(root, descriptors=descriptors)
        for act in (
            lambda: workspace.read(path),
            lambda: workspace.entries(path),
            lambda: workspace.append(path, b"x"),
            lambda: workspace.replace(path, b"x"),
        ):
            try:
                outcome = act()
            except ToolError:
                continue
            if isinstance(outcome, bytes):
                assert CANARY.encode() not in outcome
            elif isinstance(outcome, list):
                assert "canary.txt" not in [entry.name for entry in outcome]
        assert (outside / "canary.txt").read_text() == CANARY
        assert os.listdir(outside) == ["canary.txt"]
        assert sorted(os.listdir(top)) == ["outside", "work"]
        real = os.path.realpath(root)
        scope = workspace.scope(path)
        assert scope == f"file:{real}" or scope.startswith(f"file:{real}/")
