"""`write` and `append`."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolspeak.data.messages import ToolCall
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext
from toolspeak.tools.files.diff import shorten_diff, unified_diff
from toolspeak.tools.files.workspace import MAX_EDIT


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


def test_a_file_read_in_part_is_only_replaced_when_asked_to(call, root):
    (root / "a.txt").write_text("1\n2\n3\n4\n")
    call("read", path="a.txt", lines=1)
    with pytest.raises(
        ToolError, match=r"only in part: read the rest \(continue with start=2\), or pass overwrite: true"
    ):
        call("write", path="a.txt", content="new")
    call("read", path="a.txt", start=3)
    with pytest.raises(ToolError, match="start=2"):
        call("write", path="a.txt", content="new")
    call("read", path="a.txt", start=2, lines=1)
    assert call("write", path="a.txt", content="new") == {"bytes": 3}


def test_pages_of_different_contents_do_not_add_up(call, root):
    (root / "a.txt").write_text("1\n2\n")
    call("read", path="a.txt", start=2)
    with pytest.raises(ToolError, match=r"continue with start=1\b"):
        call("write", path="a.txt", content="new")
    (root / "a.txt").write_text("1\nsomebody else's\n")
    call("read", path="a.txt", lines=1)
    with pytest.raises(ToolError, match=r"continue with start=2\b"):
        call("write", path="a.txt", content="new")
    call("edit", path="a.txt", old="1", new="one")
    with pytest.raises(ToolError, match="was not read"):
        call("write", path="a.txt", content="new")


def test_a_page_of_a_known_file_takes_nothing_away(call, root):
    (root / "a.txt").write_text("1\n2\n")
    call("read", path="a.txt")
    call("read", path="a.txt", lines=1)
    assert call("write", path="a.txt", content="new") == {"bytes": 3}


def test_after_a_page_of_a_changed_file_it_still_counts_as_changed(call, root):
    (root / "a.txt").write_text("1\n2\n")
    call("read", path="a.txt")
    (root / "a.txt").write_text("3\n4\n")
    with pytest.raises(ToolError, match="changed since"):
        call("write", path="a.txt", content="new")
    call("read", path="a.txt", lines=1)
    with pytest.raises(ToolError, match="only in part"):
        call("write", path="a.txt", content="new")


def test_a_line_that_was_cut_was_not_seen(call, root):
    (root / "a.txt").write_text("x" * 300_000)
    call("read", path="a.txt")
    with pytest.raises(ToolError, match="was not read"):
        call("write", path="a.txt", content="new")


def test_an_empty_file_is_known_when_it_was_read(call, root):
    (root / "a.txt").write_text("")
    call("read", path="a.txt")
    assert call("write", path="a.txt", content="new") == {"bytes": 3}


def test_pages_read_at_the_same_time_add_up(call, root):
    (root / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 41)))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda start: call("read", path="a.txt", start=start, lines=1), range(1, 41)))
    assert call("write", path="a.txt", content="new") == {"bytes": 3}


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


@pytest.mark.parametrize("data", [b"a\0b", b"caf\xe9", b"cut off \xc3"])
def test_append_to_what_is_no_text_is_refused_and_the_preview_says_so(call, root, data):
    (root / "a.bin").write_bytes(data)
    with pytest.raises(ToolError, match=r"only UTF-8 text.*`shell` can .*overwrite: true") as failure:
        call("append", path="a.bin", content="x")
    assert (root / "a.bin").read_bytes() == data
    with pytest.raises(ToolError) as preview_failure:
        call.preview("append", path="a.bin", content="x")
    assert str(preview_failure.value) == str(failure.value)


def test_append_to_a_large_file_is_shown_and_done(call, root):
    line = "é" * 511 + "\n"
    (root / "a.log").write_text(line * (MAX_EDIT // len(line.encode()) + 1))
    size = (root / "a.log").stat().st_size
    preview = call.preview("append", path="a.log", content="new\x1b\n")
    assert preview == "a.log is too large for a diff. This would be added at its end:\nnew\\x1b\n"
    assert call("append", path="a.log", content="new\x1b\n") == {"bytes": 5, "size": size + 5}
    with (root / "a.log").open("ab") as file:
        file.write(b"\xff")
    with pytest.raises(ToolError, match=f"not UTF-8 text .byte {size + 5}"):
        call("append", path="a.log", content="x")


def test_the_preview_of_a_write_knows_what_the_run_has_read(call, root):
    (root / "a.txt").write_text("old\n")
    diff = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old\n+new\n"
    with pytest.raises(ToolError) as failure:
        call("write", path="a.txt", content="new\n")
    with pytest.raises(ToolError) as preview_failure:
        call.preview_in_run("write", path="a.txt", content="new\n")
    assert str(preview_failure.value) == str(failure.value)
    assert call.preview_in_run("write", path="a.txt", content="new\n", overwrite=True) == diff
    assert call.preview_in_run("write", path="b.txt", content="new\n").startswith("--- b.txt\n")
    assert call.preview("write", path="a.txt", content="new\n") == diff
    call("read", path="a.txt")
    assert call.preview_in_run("write", path="a.txt", content="new\n") == diff
    assert call("write", path="a.txt", content="new\n") == {"bytes": 4}


def test_previews_show_the_change_and_make_none(call, root):
    (root / "a.txt").write_text("one\ntwo\n")
    assert call.preview("write", path="new.txt", content="x\n") == "--- new.txt\n+++ new.txt\n@@ -0,0 +1 @@\n+x\n"
    assert call.preview("write", path="a.txt", content="one\n2\n").endswith("@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
    assert "+three\n\\ No newline" in call.preview("append", path="a.txt", content="three")
    assert "-two\n+2\n" in call.preview("edit", path="a.txt", old="two", new="2")
    assert "-one\n" in call.preview("line_edit", path="a.txt", startLine=1, endLine=1, newContent="")
    with pytest.raises(ToolError, match="'old' occurs 0 times"):
        call.preview("edit", path="a.txt", old="three", new="2")
    with pytest.raises(ToolError, match="x"):
        call.preview("write", path="../x", content="")
    assert "nothing would be changed" in call.preview("write", path="a.txt", content="one\ntwo\n")
    assert os.listdir(root) == ["a.txt"]
    assert (root / "a.txt").read_text() == "one\ntwo\n"


def test_a_long_preview_hides_nothing(call, root):
    text = call.preview("write", path="a.txt", content="x\n" * 100_000)
    assert text.count("\n+x") == 100_000
    preview = call.preview("write", path="a.txt", content="\x1b[2Jgone\u202e\n" + "y" * 5_000)
    assert "\\x1b[2Jgone\\u202e" in preview
    assert "y" * 5_000 in preview


def test_the_model_reads_a_long_diff_shortened():
    diff = shorten_diff(unified_diff("a.txt", "", "x\n" * 100_000 + "y" * 5_000))
    assert len(diff.splitlines()) == 203
    assert diff.endswith("... 99803 more lines of this diff left out ...\n")
    assert "... 4000 more characters ..." in shorten_diff(unified_diff("a.txt", "", "y" * 5_000))


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
