"""Control groups as trees of plain files: where groups may be made, and what is written, in both versions. Commands in
groups of the kernel are in `test_sandbox_contract.py`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toolspeak.sandbox.base import GIBIBYTE, ProcessLimits
from toolspeak.sandbox.control_groups import ControlGroup, limit_files, places_for_groups

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="control groups are Linux's")


def tree(root: Path, *folders: str, is_second: bool = True) -> Path:
    """A tree of groups, as plain folders with the files that the code looks for."""
    for folder in ("", *folders):
        group = root / folder
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.procs").write_text("")
        if is_second:
            (group / "cgroup.controllers").write_text("cpu memory pids\n")
    return root


def test_in_the_second_version_a_group_is_made_below_ones_own_or_beside_it(tmp_path):
    root = tree(tmp_path, "user.slice/app.slice/app-1.scope")
    own = root / "user.slice/app.slice/app-1.scope"
    assert places_for_groups("0::/user.slice/app.slice/app-1.scope\n", root) == [
        {"pids": own, "memory": own},
        {"pids": own.parent, "memory": own.parent},
    ]


def test_in_the_second_versions_root_there_is_no_beside(tmp_path):
    root = tree(tmp_path)
    assert places_for_groups("0::/\n", root) == [{"pids": root, "memory": root}]


def test_a_system_with_both_versions_has_the_controllers_in_the_first(tmp_path):
    root = tree(tmp_path, "pids/user", "memory/user", "unified", is_second=False)
    own_groups = "9:pids:/user\n5:cpu,cpuacct:/\n4:memory:/user\n1:name=systemd:/a:b\n0::/a:b\n"
    assert places_for_groups(own_groups, root) == [{"pids": root / "pids/user", "memory": root / "memory/user"}]


@pytest.mark.parametrize("own_groups", ["", "1:name=systemd:/\n", "0::/\n", "3:pids:/\n"])
def test_without_both_controllers_there_is_no_place(own_groups, tmp_path):
    assert places_for_groups(own_groups, tree(tmp_path, is_second=False)) == []


@pytest.mark.parametrize(
    ("is_second", "names"),
    [
        (True, ["pids.max", "memory.max", "memory.swap.max"]),
        (False, ["pids.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
    ],
)
def test_limits_stand_in_the_files_of_their_version(is_second, names):
    files = limit_files(ProcessLimits(processes=7, memory=GIBIBYTE), is_second=is_second)
    assert [each.file for each in files] == names
    assert [each.number for each in files] == [7, GIBIBYTE, 0 if is_second else GIBIBYTE]
    assert [each.is_optional for each in files] == [False, False, True]  # not every kernel counts swap
    assert {each.controller for each in files} == {"pids", "memory"}
    assert limit_files(ProcessLimits(processes=None, memory=None), is_second=is_second) == []


@pytest.mark.over_a_second
def test_a_process_is_moved_by_its_number_and_what_is_left_is_killed(tmp_path):
    folder = tree(tmp_path) / "toolspeak-1-1"
    tree(folder)
    group = ControlGroup((folder,), takes_threads=False)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        group.add(process.pid)
        assert (folder / "cgroup.procs").read_text() == str(process.pid)
        asyncio.run(group.remove())
        assert process.wait() == -signal.SIGKILL
    assert os.path.isdir(folder)  # plain files are in it, and only the kernel's vanish with the folder


def test_a_plain_folder_is_no_group(tmp_path):
    group = ControlGroup((tmp_path,), takes_threads=False)
    with pytest.raises(FileNotFoundError):
        group.add(os.getpid())
    assert os.listdir(tmp_path) == []


REMOVE = """
import asyncio, sys
from pathlib import Path
from toolspeak.sandbox.control_groups import ControlGroup

asyncio.run(ControlGroup((Path(sys.argv[1]),), takes_threads=False).remove())
print("alive")
"""


@pytest.mark.over_a_second
def test_processes_of_another_namespace_in_a_group_are_not_taken_for_ones_own(tmp_path):
    """The kernel lists them as 0, which `kill` takes for the caller's own process group."""
    (tree(tmp_path) / "cgroup.procs").write_text("0\n0\n")
    process = subprocess.run(
        [sys.executable, "-c", REMOVE, str(tmp_path)],
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert (process.returncode, process.stdout) == (0, "alive\n"), process.stderr
