"""`edit` and `line_edit`."""

from __future__ import annotations

import asyncio
import re
import stat
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.data.messages import ToolCall
from toolspeak.errors import ToolError
from toolspeak.execute import BatchContext, Executor, approve_all
from toolspeak.tools.builtin import workspace_tools
from toolspeak.tools.builtin.edit import edit_text
from toolspeak.tools.builtin.line_edit import lines_edited
from toolspeak.tools.files.diff import shorten_diff, unified_diff

EDITS = [
    # text, old, new, result
    ("a b c", "b", "x", "a x c"),
    ("a\nb\n", "b\n", "", "a\n"),
    ("a\r\nb\r\nc\r\n", "a\nb", "x\ny", "x\r\ny\r\nc\r\n"),
    ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
    ("a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n"),
    ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),
    ("a\r\nb\r\nc\nd\n", "c\nd", "x\ny", "a\r\nb\r\nx\ny\n"),
    ("a\r\nb\nc\r\nd", "b\nc\nd", "x", "a\r\nx"),
    ("\ufeffa\nb", "\ufeffa", "x", "\ufeffx\nb"),
    ("\ufeffa\nb", "a", "\ufeffx", "\ufeffx\nb"),
    ("no newline", "line", "\nline", "no new\nline"),
]


@pytest.mark.parametrize(("text", "old", "new", "result"), EDITS)
def test_edit_replaces_one_place_and_keeps_the_rest(call, root, text, old, new, result):
    path = root / "a.txt"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    diff = call("edit", file="a.txt", old=old, new=new)
    assert path.read_bytes() == result.encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert diff == unified_diff("a.txt", text, result)


@pytest.mark.parametrize(
    ("text", "old", "message"),
    [
        ("a\nb\na\n", "a", r"occurs 2 times in 'a.txt' \(lines 1, 3\)"),
        ("aaa", "aa", r"occurs 2 times"),
        ("a\r\nb\r\na\r\nb\r\n", "a\nb", r"occurs 2 times in 'a.txt' \(lines 1, 3\)"),
        ("a\n" * 20, "a\n", r"occurs 20 times in 'a.txt' \(lines 1, 2, .* 20\)"),
        ("a\n" * 30, "a\n", r"occurs more than 20 times in 'a.txt' \(lines 1, 2, .* 20, \.\.\.\)"),
        ("a\n", "b", "occurs 0 times"),
        ("  a\n", "\ta\n\t", "0 times.*Without its outer white space it occurs once, at line 1"),
        ("a", "", "'old' is empty"),
        ("a", "x", "the same"),
    ],
)
def test_edit_without_exactly_one_match_changes_nothing(call, root, text, old, message):
    (root / "a.txt").write_bytes(text.encode())
    with pytest.raises(ToolError, match=message):
        call("edit", path="a.txt", old=old, new="x")
    assert (root / "a.txt").read_bytes() == text.encode()


@pytest.mark.parametrize(("text", "old"), [("a" * 2_000_000, "a" * 1_000_000), ("a\r\n" * 600_000, "a\n" * 300_000)])
def test_many_overlapping_matches_cost_little(text, old):
    """All of them would be 10^11 characters to compare and more, and a list of as many places."""
    tracemalloc.start()
    try:
        with pytest.raises(ToolError, match="occurs more than 20 times"):
            edit_text(text, old, "x", "f")
        assert tracemalloc.get_traced_memory()[1] < 3 * len(text)
    finally:
        tracemalloc.stop()


def test_binary_files_are_not_edited(call, root):
    (root / "a.bin").write_bytes(b"a\xff")
    with pytest.raises(ToolError, match="not UTF-8"):
        call("edit", path="a.bin", old="a", new="b")
    with pytest.raises(ToolError, match="not UTF-8"):
        call("line_edit", path="a.bin", startLine=1, endLine=1, newContent="b")


PIECES = st.text(st.sampled_from("ab\r\n"), max_size=12)


@given(before=PIECES, old=PIECES, after=PIECES, new=PIECES)
def test_edit_changes_only_the_place(before, old, after, new):
    text = before + old + after
    try:
        result = edit_text(text, old, new, "f")
    except ToolError:
        assert old in ("", new) or len(re.findall(f"(?={re.escape(old)})", text)) != 1
        return
    assert result.startswith(before)
    assert result.endswith(after)
    middle = result[len(before) : len(result) - len(after)]
    assert re.sub("\r*\n", "\n", middle) == re.sub("\r*\n", "\n", new)


LINE_EDITS = [
    # text, start, end, content, result
    ("a\nb\nc\n", 2, 2, "x", "a\nx\nc\n"),
    ("a\nb\nc\n", 2, 2, "x\n", "a\nx\nc\n"),
    ("a\nb\nc\n", 2, 2, "x\n\n", "a\nx\n\nc\n"),
    ("a\nb\nc\n", 1, 3, "x", "x\n"),
    ("a\nb\nc\n", 2, 3, "", "a\n"),
    ("a\nb\nc\n", 2, 1, "x", "a\nx\nb\nc\n"),
    ("a\nb\n", 3, 2, "x", "a\nb\nx\n"),
    ("a\nb", 3, 2, "x", "a\nb\nx"),
    ("a\nb", 2, 2, "x\n", "a\nx"),
    ("a\nb", 2, 2, "", "a"),
    ("a\nb", 1, 2, "", ""),
    ("a\r\nb\r\n", 1, 1, "x\ny", "x\r\ny\r\nb\r\n"),
    ("a\r\nb", 3, 2, "x", "a\r\nb\r\nx"),
    ("a\r\nb\r\n", 3, 2, "x\r\n", "a\r\nb\r\nx\r\n"),
    ("", 1, 0, "x", "x\n"),
    ("", 1, 0, "x\r\ny", "x\r\ny\r\n"),
    ("\ufeffa\nb\n", 1, 1, "x", "\ufeffx\nb\n"),
    ("\ufeffa\nb\n", 1, 1, "\ufeffx", "\ufeffx\nb\n"),
    ("a\nb\r", 1, 1, "x", "x\nb\r"),
    ("a\nb", 3, 2, "\n", "a\nb\n\n"),
    ("\n\nx", 3, 3, "", "\n\n"),
]


@pytest.mark.parametrize(("text", "start", "end", "content", "result"), LINE_EDITS)
def test_line_edit(call, root, text, start, end, content, result):
    path = root / "a.txt"
    path.write_bytes(text.encode())
    diff = call("line_edit", path="a.txt", startLine=start, endLine=end, newContent=content)
    assert path.read_bytes() == result.encode()
    assert diff == unified_diff("a.txt", text, result)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (-1, -1), (2, 0), (3, 4), (4, 3), (1, 3), (5, 9)])
def test_line_edit_outside_the_file_says_how_many_lines_there_are(call, root, start, end):
    (root / "a.txt").write_text("a\nb\n")
    with pytest.raises(ToolError, match="has 2 lines"):
        call("line_edit", path="a.txt", startLine=start, endLine=end, newContent="x")
    assert (root / "a.txt").read_text() == "a\nb\n"


LINES = st.lists(st.tuples(st.text("xyz", max_size=3), st.sampled_from(["\n", "\r\n"])), max_size=8)


@given(
    lines=LINES, final=st.booleans(), new=st.lists(st.text("uvw", min_size=1, max_size=3), max_size=4), data=st.data()
)
def test_line_edit_is_a_list_operation(lines, final, new, data):
    text = "".join(body + end for body, end in lines)
    if not final:
        text = text.removesuffix("\n").removesuffix("\r")
    bodies = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
    start = data.draw(st.integers(1, len(bodies) + 1))
    end = data.draw(st.integers(start - 1, len(bodies)))
    result = lines_edited(text, start, end, "\n".join(new), "f")
    plain = [line.rstrip("\r\n") for line in bodies]
    plain[start - 1 : end] = new
    assert [line.rstrip("\r\n") for line in re.findall(r"[^\n]*\n|[^\n]+\Z", result)] == plain
    if text and result:
        assert result.endswith("\n") == text.endswith("\n") or plain[-1] == ""
    lines_before = "".join(bodies[: start - 1])
    assert result.startswith(lines_before.rstrip("\r\n"))
    tail = "".join(bodies[end:])
    assert result.endswith(tail)


TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d\r\n"]), max_size=25).map("".join)


@given(before=TEXTS, after=TEXTS, cut=st.booleans())
def test_a_diff_can_be_applied(before, after, cut):
    if cut:
        after = after.removesuffix("\n")
    diff = unified_diff("f", before, after)
    if before == after:
        assert diff == ""
        return
    old, result, at = before.split("\n"), [], 0
    for line in diff.split("\n")[2:-1]:
        if header := re.match(r"@@ -(\d+)(?:,(\d+))? ", line):
            first = int(header[1]) - (header[2] != "0")
            result += old[at:first]
            at = first
        elif line[0] in " -":
            at += 1
        if line[0] in " +":
            result.append(line[1:])
    result += old[at:]
    plain = [line.removesuffix("\\r").removesuffix("\r") for line in result]
    assert "\n".join(plain).rstrip("\n") == after.replace("\r", "").rstrip("\n")


def test_a_large_change_is_compared_quickly():
    before = "".join(f"{n % 7}\n" for n in range(100_000))
    after = before[:100_000] + "x\n" * 50_000
    diff = unified_diff("f", before, after)
    assert diff.count("\n+x") == 50_000
    assert len(shorten_diff(diff).splitlines()) < 210


def test_edits_at_the_same_time_undo_nothing(tmp_path):
    """`parallel` runs them at once; each reads, changes and replaces the whole file."""
    words = [f"w{i:03}" for i in range(24)]
    (tmp_path / "a.txt").write_text("\n".join(words))
    calls = [ToolCall(w, "edit", {"path": "a.txt", "old": w, "new": w.upper()}) for w in words]

    async def emit(_event):
        pass

    executor = Executor(workspace_tools(tmp_path), schedule="parallel")
    context = BatchContext(run_id="r", memory={})
    batch = asyncio.run(executor.run(calls, emit=emit, context=context, approver=approve_all))
    assert {result.status for result in batch.results} == {"success"}
    assert (tmp_path / "a.txt").read_text() == "\n".join(words).upper()
