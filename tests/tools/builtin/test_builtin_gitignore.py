"""What `.gitignore` files name is left out of searches: as git itself says it."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.tools.files.gitignore import IgnoredPaths


@pytest.fixture
def project(root):
    (root / ".gitignore").write_text("build/\n*.log\n!keep.log\n/only_here.txt\n")
    for name in (
        "src/a.py", "build/lib/a.py", "src/build/a.py", "debug.log", "keep.log", "only_here.txt", "src/only_here.txt",
        "src/gen/a.py", "src/gen/b.py",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("needle\n")
    (root / "src" / ".gitignore").write_text("gen/*\n!gen/b.py\n")
    return root


VISIBLE_FILES = ["keep.log", "src/a.py", "src/gen/b.py", "src/only_here.txt"]


@pytest.mark.parametrize("is_repository", [True, False])
def test_find_leaves_out_what_the_files_name(call, project, is_repository):
    if is_repository:
        (project / ".git").mkdir()
    names = call("find", pattern="*.*")
    assert [name for name in names if "gitignore" not in name] == VISIBLE_FILES
    assert [match["path"] for match in call("find", content="needle")] == VISIBLE_FILES
    assert call("find", pattern="*.py", path="src") == ["src/a.py", "src/gen/b.py"]


def test_a_parameter_and_the_folder_itself_bring_them_back(call, project):
    assert call("find", pattern="*.py", ignored=True) == [
        "build/lib/a.py", "src/a.py", "src/build/a.py", "src/gen/a.py", "src/gen/b.py",
    ]  # fmt: skip
    assert call("find", pattern="*.py", path="build") == ["build/lib/a.py"]
    (note,) = call("find", pattern="debug.log")
    assert "`ignored: true` searches it too" in note
    assert call("find", pattern="missing.log") == call("find", pattern="debug.log")
    assert call("find", pattern="missing.log", ignored=True) == []


def test_a_pipe_and_a_link_by_that_name_are_no_lists(call, project):
    (project / ".gitignore").unlink()
    os.mkfifo(project / ".gitignore")
    (project / "src" / ".gitignore").unlink()
    (project / "src" / ".gitignore").symlink_to(project / "keep.log")
    assert "debug.log" in call("find", pattern="*.log")
    assert "src/gen/a.py" in call("find", pattern="*.py")


NAMES = st.sampled_from(["a", "b", "ab", "a.x", "b.x", "!a", "#b", "a b", "[a]", "a*"])
PIECES = st.sampled_from(["a", "b", "*", "?", "[ab]", "[^a]", "[!a]", ".x", "**", "\\*", "\\!", "\\#", " ", "\\ "])
PATTERNS = st.tuples(
    st.sampled_from(["", "", "!", "/", "!/", "**/"]),
    st.lists(st.lists(PIECES, min_size=1, max_size=3).map("".join), min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "", "/", "/**", " "]),
).map("".join)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is what this compares with")
def test_git_says_the_same_of_any_patterns_and_paths(tmp_path):
    """A path is ignored if git says so of it or of a folder above it."""
    run = {"cwd": tmp_path, "env": {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}}
    subprocess.run(["git", "init", "-q"], check=True, **run)
    folder = tmp_path / "a"
    folder.mkdir()

    @settings(max_examples=fewer(30))
    @given(
        st.lists(PATTERNS, max_size=4),
        st.lists(PATTERNS, max_size=3),
        st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=8),
    )
    def check(top_lines, nested_lines, paths):
        (tmp_path / ".gitignore").write_text("".join(f"{line}\n" for line in top_lines))
        (folder / ".gitignore").write_text("".join(f"{line}\n" for line in nested_lines))
        ours = set()
        for parts in paths:
            ignored_paths = IgnoredPaths(str(tmp_path), str(tmp_path))
            for depth in range(1, len(parts) + 1):  # as a walk enters folder after folder
                is_folder = depth < len(parts)
                if ignored_paths.names(str(tmp_path.joinpath(*parts[:depth])), is_folder):
                    ours.add("/".join(parts))
                    break
        theirs = set()
        for parts in paths:
            for each in tmp_path.iterdir():
                if each.name not in (".git", ".gitignore", "a"):
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            for each in folder.iterdir():
                if each.name != ".gitignore":
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            path = tmp_path.joinpath(*parts)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("")
            is_folder = path.is_dir()
            if is_folder:  # `a` is a folder here
                ours.discard("/".join(parts))
                continue
            line = "/".join(parts)
            result = subprocess.run(["git", "check-ignore", "--no-index", "-q", "--", line], check=False, **run)
            assert result.returncode in (0, 1), (line, result)
            if result.returncode == 0:
                theirs.add(line)
        assert ours == theirs, (top_lines, nested_lines)

    check()
