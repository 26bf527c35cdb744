"""`write` and `append`."""

from __future__ import annotations

import os

import pytest

from toolspeak.data.messages import ToolCall
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext


def test_a_new_file_with_its_folders(call, root):
    assert call("write", path="notes/new.md", content="# New\n\né") == {"bytes": 9}
    assert (root / "notes/new.md").read_bytes() == "# New\n\né".encode()
    assert call("write", file="crlf.txt", content="a\r\nb") == {"bytes": 4}
    assert (root / "crlf.txt").read_bytes() == b"a\r\nb"


def test_an_unread_file_is_only_replaced_when_asked_to(call, root):
    (root / "a.txt").write_text("old")
    with pytest.raises(ToolError, match="not read: read it first, or pass overwrite: true"):
        call("write", path="a.txt", content="new")
    assert (root / "a.txt").read_text() == "old"
    assert call("write", path="a.txt", content="new", overwrite=True) == {"bytes": 3}
    assert call("write", path="a.txt", content="newer") == {"bytes": 5}


def test_a_read_file_may_be_replaced_until_it_changes(call, root):
    (root / "a.txt").write_text("old")
    call("read", path="a.txt")
    call("write", path="a.txt", content="new")
    (root / "a.txt").write_text("somebody else's")
    with pytest.raises(ToolError, match="changed since it was read"):
        call("write", path="a.txt", content="mine")
    assert (root / "a.txt").read_text() == "somebody else's"


def test_own_edits_do_not_count_as_changes(call, root):
    (root / "a.txt").write_text("one\n")
    call("read", path="a.txt")
    call("edit", path="a.txt", old="one", new="two")
    call("line_edit", path="a.txt", startLine=2, endLine=1, newContent="three")
    call("append", path="a.txt", content="four")
    assert call("write", path="a.txt", content="five") == {"bytes": 4}


def test_an_edit_of_an_unread_file_does_not_count_as_reading(call, root):
    (root / "a.txt").write_text("one\n")
    call("edit", path="a.txt", old="one", new="two")
    call("append", path="a.txt", content="three")
    with pytest.raises(ToolError, match="not read"):
        call("write", path="a.txt", content="x")


def test_the_same_content_is_no_write(call, root):
    (root / "a.txt").write_text("same")
    before = (root / "a.txt").stat().st_ino
    assert call("write", path="a.txt", content="same") == {"bytes": 4, "unchanged": True}
    assert (root / "a.txt").stat().st_ino == before


def test_binary_content_in_the_way_needs_overwrite(call, root):
    (root / "a.bin").write_bytes(b"\0\xff")
    with pytest.raises(ToolError, match="overwrite"):
        call("write", path="a.bin", content="x")
    assert "not UTF-8" in call.preview("write", path="a.bin", content="x")
    assert call("write", path="a.bin", content="x", overwrite=True) == {"bytes": 1}


@pytest.mark.parametrize("name", ["write", "append", "edit", "line_edit"])
def test_a_lone_surrogate_is_refused_before_the_disk_is_touched(call, root, name):
    (root / "a.txt").write_text("one\n")
    function = call.tool(name).function
    arguments = {
        "write": {"content": "\ud800", "overwrite": True},
        "append": {"content": "x\udcff"},
        "edit": {"old": "one", "new": "\ud800"},
        "line_edit": {"startLine": 1, "endLine": 1, "newContent": "\ud800"},
    }[name]
    with pytest.raises(ToolError, match="lone surrogate"):
        function(path="a.txt", ctx=_context(call), **arguments)
    assert (root / "a.txt").read_text() == "one\n"
    assert os.listdir(root) == ["a.txt"]


def _context(call):
    return RunContext(None, ToolCall("c", "x", {}), memory=call.memory)


def test_append_adds_exactly(call, root):
    assert call("append", path="sub/a.txt", content="a") == {"bytes": 1, "size": 1}
    assert call("append", file="sub/a.txt", content="é\r\n") == {"bytes": 4, "size": 5}
    assert (root / "sub/a.txt").read_bytes() == "aé\r\n".encode()


def test_previews_show_the_change_and_make_none(call, root):
    (root / "a.txt").write_text("one\ntwo\n")
    assert call.preview("write", path="new.txt", content="x\n") == "--- new.txt\n+++ new.txt\n@@ -0,0 +1 @@\n+x\n"
    assert call.preview("write", path="a.txt", content="one\n2\n").endswith("@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
    assert "+three\n\\ No newline" in call.preview("append", path="a.txt", content="three")
    assert "-two\n+2\n" in call.preview("edit", path="a.txt", old="two", new="2")
    assert "-one\n" in call.preview("line_edit", path="a.txt", startLine=1, endLine=1, newContent="")
    assert "would fail: 'old' occurs 0 times" in call.preview("edit", path="a.txt", old="three", new="2")
    assert "would fail: " in call.preview("write", path="../x", content="")
    assert "nothing would be changed" in call.preview("write", path="a.txt", content="one\ntwo\n")
    assert os.listdir(root) == ["a.txt"]
    assert (root / "a.txt").read_text() == "one\ntwo\n"


def test_a_long_preview_is_shortened_and_hides_nothing(call, root):
    text = call.preview("write", path="a.txt", content="x\n" * 100_000)
    assert len(text.splitlines()) < 210
    assert "99801 more lines" in text
    shown = call.preview("write", path="a.txt", content="\x1b[2Jgone\u202e\n" + "y" * 5_000)
    assert "\\x1b[2Jgone\\u202e" in shown
    assert "4000 more characters" in shown


def test_effects_are_truthful(call, root):
    for name, arguments, idempotent in (
        ("write", {"content": ""}, True),
        ("append", {"content": ""}, False),
        ("edit", {"old": "", "new": ""}, False),
        ("line_edit", {"startLine": 1, "endLine": 1, "newContent": ""}, False),
    ):
        effects = call.effects(name, file="a/./b.txt", **arguments)
        assert effects.writes == effects.reads == {f"file:{root.resolve()}/a/b.txt"}
        assert effects.idempotent is idempotent
        assert effects.declared
        assert not effects.external
        assert effects.destructive is (name != "append")
        assert call.tool(name).spec.effects.writes == {f"file:{root.resolve()}"}
