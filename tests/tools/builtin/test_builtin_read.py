"""`read`: exact text, pages, and what the run then counts as read."""

from __future__ import annotations

import hashlib
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.data.messages import ToolCall
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext
from toolspeak.tools.builtin import Workspace, read_tool


@pytest.mark.parametrize("text", ["", "a", "a\n", "a\r\nb\r\n", "\ufeffa\n", "é\n\n\nx", "lone\rcr\n"])
def test_a_small_file_comes_exactly(call, root, text):
    (root / "a.txt").write_bytes(text.encode())
    assert call("read", path="a.txt") == text
    assert call("read", file="a.txt", start=1) == text


@settings(max_examples=fewer(60), deadline=None)
@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_text_written_is_read_back(text):
    with tempfile.TemporaryDirectory() as top:
        workspace = Workspace(top)
        workspace.replace("a", text.encode())
        assert read_tool(workspace)("a", RunContext(None, ToolCall("c", "read", {}))) == text
        assert Path(top, "a").read_bytes() == text.encode()


def test_pages_say_where_they_are_and_how_to_go_on(call, root):
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 4502)))
    first = call("read", path="a.txt")
    assert first.startswith("line 1\n")
    assert first.endswith("line 1339\n[lines 1-1339 of 4501; continue with start=1340]")
    last = call("read", path="a.txt", start=4001)
    assert last.endswith("line 4501\n[lines 4001-4501 of 4501; this is the end of the file]")
    (root / "short.txt").write_text("\n" * 4501)
    assert call("read", path="short.txt").endswith("\n[lines 1-2000 of 4501; continue with start=2001]")
    assert call("read", path="a.txt", start=3, lines=1) == "line 3\n[lines 3-3 of 4501; continue with start=4]"


def test_a_page_ends_before_12_kib(call, root):
    (root / "a.txt").write_text("x" * 4_999 + "\n" + "y" * 4_999 + "\n" + "z" * 4_999)
    assert call("read", path="a.txt").endswith("y\n[lines 1-2 of 3; continue with start=3]")
    assert call("read", path="a.txt", start=3).endswith("z\n[lines 3-3 of 3; this is the end of the file]")


def test_an_endless_line_is_cut_in_bounded_memory(call, root):
    (root / "a.txt").write_text("é" * 15_000_000 + "\nb\n")
    tracemalloc.start()
    try:
        text = call("read", path="a.txt")
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()
    assert len(text.encode()) < 12_500
    assert text.endswith("[lines 1-1 of 2; line 1 is longer than 12,288 bytes and was cut; continue with start=2]")


def test_numbered(call, root):
    (root / "a.txt").write_text("a\nb")
    assert call("read", path="a.txt", numbered=True) == "     1\ta\n     2\tb"


@pytest.mark.parametrize(("start", "lines"), [(0, None), (-1, None), (4, None), (None, 0)])
def test_a_wrong_page_is_an_error(call, root, start, lines):
    (root / "a.txt").write_text("a\nb\nc\n")
    with pytest.raises(ToolError, match=r"3 lines|first line is 1|at least 1"):
        call("read", path="a.txt", start=start, lines=lines)


@pytest.mark.parametrize("data", [b"a\0b", b"\xff\xfe", b"caf\xe9", b"ok\n" * 600_000 + b"\xc3"])
def test_binary_is_refused_wherever_it_starts(call, root, data):
    (root / "a.bin").write_bytes(data)
    with pytest.raises(ToolError, match=r"binary|not UTF-8"):
        call("read", path="a.bin")
    assert call.memory.get("files_read", {}) == {}


def test_a_folder_and_a_missing_file_name_the_remedy(call, root):
    (root / "sub").mkdir()
    for path in ("sub", "", "missing.txt"):
        with pytest.raises(ToolError, match="`list`"):
            call("read", path=path)


def test_the_run_remembers_what_it_read(call, root):
    (root / "a.txt").write_text("x")
    (root / "link").symlink_to("a.txt")
    call("read", path="link")
    real = str((root / "a.txt").resolve())
    assert call.memory == {"files_read": {real: hashlib.sha256(b"x").hexdigest()}}


def test_reading_is_declared(call, root):
    effects = call.effects("read", path="a.txt")
    assert effects.reads == {f"file:{root.resolve()}/a.txt"}
    assert effects.read_only
    assert effects.idempotent
    refused_effects = call.effects("read", path="../x")
    assert refused_effects.read_only
    assert refused_effects.reads == {f"file:{root.resolve()}"}


def test_reading_stops_when_cancelled(call, root):
    (root / "a.txt").write_text("x")
    call.is_cancelled = lambda: True
    with pytest.raises(ToolError, match="ancelled"):
        call("read", path="a.txt")
