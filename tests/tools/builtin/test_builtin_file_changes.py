"""What stays of a file when it is changed, and of a change that did not come to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from toolspeak import Agent
from toolspeak.errors import ToolError
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools.builtin import Workspace, workspace_tools

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs limits and attributes as Linux has them")


def append_result(root, path, content):
    """What a model is told of one `append`."""
    call = f'<execute>[{{"name": "append", "args": {{"path": "{path}", "content": "{content}"}}}}]</execute>'
    result = Agent(ScriptedProvider([call, "ok"]), workspace_tools(root), approve="all").run_sync("go")
    return result.messages[2].results[0].text


@LINUX
@pytest.mark.parametrize("before", ["", "begun\n", None])
def test_of_an_append_that_does_not_fit_on_the_disk_nothing_stays(root, before):
    """The model is told that it failed, and does it again."""
    if before is not None:
        (root / "log.txt").write_text(before)
    program = (
        "import resource, sys; from test_builtin_file_changes import append_result;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000));"
        f"print(append_result({str(root)!r}, 'log.txt', 'x' * 100_000))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=os.path.dirname(__file__), capture_output=True, text=True, check=True
    )
    assert "'log.txt'" in result.stdout
    assert "'log.txt' was replaced" not in result.stdout
    assert os.listdir(root) == ([] if before is None else ["log.txt"])
    assert before is None or (root / "log.txt").read_text() == before
    assert '"size"' in append_result(root, "log.txt", "more")


def as_another(groups, work):
    """Has a process of another user, who is in these groups, do the work."""
    pid = os.fork()
    if not pid:
        try:
            os.setgroups(groups)
            os.setgid(54322)
            os.setuid(54322)
            work()
        except BaseException:  # noqa: BLE001 - this process must not go on with the tests
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs the right to be somebody else")
@pytest.mark.parametrize(
    ("groups", "mode", "expected"), [([54333], 0o660, (54333, 0o660)), ([], 0o676, (54322, 0o666))]
)
def test_a_file_of_another_user_keeps_its_group_or_gives_no_right_to_a_new_one(groups, mode, expected):
    with tempfile.TemporaryDirectory() as root:  # that of pytest is nobody else's
        os.chmod(root, 0o777)
        path = Path(root, "a.txt")
        path.write_text("one")
        os.chown(path, 54321, 54333)
        path.chmod(mode)
        as_another(groups, lambda: Workspace(root).replace("a.txt", b"two", b"one"))
        status = path.stat()
        assert path.read_text() == "two"
        assert (status.st_gid, status.st_mode & 0o777) == expected


@LINUX
def test_attributes_of_a_file_stay(root):
    path = root / "a.txt"
    path.write_text("one")
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no attributes")
    Workspace(root).replace("a.txt", b"two", b"one")
    assert os.getxattr(path, "user.note") == b"kept"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes as Unix has them")
def test_what_a_killed_process_left_of_a_change_is_taken_away_by_the_next(root):
    (root / "a.txt").write_text("one")
    for _ in range(2):
        pid = os.fork()
        if not pid:
            # Killed where the new content is on the disk, and not in its place yet.
            os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
            Workspace(root).replace("a.txt", b"two", b"one")
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        assert len(os.listdir(root)) == 2
    workspace = Workspace(root)
    workspace.replace("b.txt", b"new", None)
    assert sorted(os.listdir(root)) == ["a.txt", "b.txt"]
    assert (root / "a.txt").read_text() == "one"
    with pytest.raises(ToolError, match="choose another"):
        workspace.replace(".toolspeak-change.tmp", b"1", None)
