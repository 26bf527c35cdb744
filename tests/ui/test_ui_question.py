"""A request on a screen: all of it, a screen at a time, and nothing in it hides the rest."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import chop_cells

from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.execute import ApprovalRequest
from toolspeak.tools.files.diff import unified_diff
from toolspeak.tools.files.text_format import quote_path, visible
from toolspeak.ui import Question, make_console

DIFF = "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def request(arguments: dict[str, object], preview: str, argument_names: Iterable[str] | None = None) -> ApprovalRequest:
    call, made_of = ToolCall("c", "t", arguments), frozenset(arguments if argument_names is None else argument_names)
    return ApprovalRequest(call, ToolSpec("t", "", {}), Effects(), preview, "writes x", preview_parameters=made_of)


def screens(approval: ApprovalRequest, width: int, rows: int) -> list[str]:
    """What is written for each screen, as plain text."""
    question, pages = Question(approval), []
    while True:
        stream = Terminal()
        console = make_console(stream)
        console.width, console.height = width, rows
        question.show(console, rows)
        pages.append(re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()))
        if not question.characters_left:
            return pages


def whole(approval: ApprovalRequest) -> str:
    stream = io.StringIO()
    Question(approval).show(make_console(stream))
    return stream.getvalue()


@given(st.text("ab \n\t字é\u00ad\u202e\x1b+-", max_size=600), st.sampled_from([40, 80]), st.integers(6, 30))
def test_the_screens_together_are_the_whole_and_none_is_longer_than_a_screen(text: str, width: int, rows: int):
    approval = request({"command": text}, visible(text))
    pages = screens(approval, width, rows)
    for screen in pages:
        lines = screen.removesuffix("\n").split("\n")
        assert sum(max(1, len(chop_cells(line, width))) for line in lines) <= rows
    assert "".join(pages).replace("\n", "") == whole(approval).replace("\n", "")
    assert pages[0].startswith("? t  writes x\n")


def test_arguments_are_shown_in_full_unless_the_preview_shows_them():
    long = "x" * 100_000
    assert f'a: "{long}"' in whole(request({"a": long}, ""))
    assert f'a: "{long}"' in whole(request({"a": long}, "(no preview: it failed)"))
    beside = whole(request({"a": long}, DIFF))
    assert f'a: "{"x" * 60}"… (+99,940 characters)' in beside
    assert "+y" in beside
    command = whole(request({"command": "rm\nx", "timeout": 5}, "rm\nx"))
    assert (command.count("rm"), "timeout: 5" in command) == (1, True)


def test_a_change_is_shown_once_and_what_the_diff_does_not_say_beside_it():
    diff = unified_diff("a.txt", "one\ntwo\nthree\nfour\n", "one\n2\n3\nfour\n")
    edit = {"path": "a.txt", "old": "two\nthree", "new": "2\n3"}
    text = whole(request(edit, diff))
    assert text == "? t  writes x\n" + "".join(f"    {line}\n" for line in diff.splitlines())
    assert 'old: "t.o\\nthree"' in whole(request({**edit, "old": "t.o\nthree"}, diff))  # a pattern
    assert 'new: "2\\n4\\n3"' in whole(request({**edit, "new": "2\n4\n3"}, diff))
    assert 'path: "./a.txt"' in whole(request({**edit, "path": "./a.txt"}, diff))
    assert 'mode: "2"' in whole(request({**edit, "mode": "2"}, diff, ["path", "old", "new"]))
    assert 'old: ""' in whole(request({**edit, "old": ""}, diff))


def test_a_command_stands_once_also_with_a_note_below_it():
    note = "# may change: the workspace; network: none"
    text = whole(request({"command": "make check", "timeout": 9}, f"make check\n{note}", ["command"]))
    assert text.count("make check") == 1
    assert note in text
    assert "timeout: 9" in text
    assert "command:" in whole(request({"command": "make check"}, f"make checks\n{note}"))  # another command


def test_what_a_preview_was_not_made_of_is_shown_in_full():
    message = "m" * 70 + " --force"
    text = whole(request({"path": "a", "message": message, "hooks": ["x" * 70, "rm"]}, DIFF, ["path"]))
    assert f'message: "{message}"' in text
    assert '"rm"]' in text
    text = whole(request({"from": "same", "to": "same"}, "same", ["from"]))
    assert 'to: "same"' in text


def test_an_argument_that_is_empty_is_shown():
    assert whole(request({"path": "", "recursive": True}, "")) == '? t  writes x\n    path: ""\n    recursive: true\n'


def test_a_name_that_could_be_taken_for_something_else_is_quoted():
    text = whole(request({'a: "safe"': 1, " ": 2, "": 3, "b\nc": 4, "plain_name-1": 5}, ""))
    assert text.split("\n")[1:] == [
        '    "a: \\"safe\\"": 1', '    " ": 2', '    "": 3', '    "b\\nc": 4', "    plain_name-1: 5", "",
    ]  # fmt: skip


INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u17b4\u180e\u200b\u202e\u2066\u2800\u3164\ue000\ufe0f\ufeff\uffa0\U000e0041\U000e0100"
    "\u00a0\u2003\x07\x1b\x9b\r"
)


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_what_nobody_sees_is_spelled_out(character: str):
    escape = re.compile(rf"\\(?:[xuU]0*{ord(character):x}|r)")
    for approval in (
        request({"command": f"rm{character}x"}, visible(f"rm{character}x")),
        request({"path": f"a{character}b"}, ""),
        request({"path": f"a{character}b"}, unified_diff(f"a{character}b", "", f"x{character}y\n")),
    ):
        text = whole(approval)
        assert character not in text
        assert escape.search(text)


def test_long_white_space_is_counted_and_an_indentation_stays():
    command = "echo hello" + " " * 9000 + "; rm -rf ~" + "\n" * 300 + "rm -rf /"
    text = whole(request({"command": command}, command))
    assert "echo hello⟨9,000 spaces⟩; rm -rf ~" in text
    assert "⋯ 299 empty lines" in text
    assert text.endswith("    rm -rf /\n")
    code = "def f():\n" + " " * 20 + "return  1\n"
    assert " " * 20 + "return  1" in whole(request({"text": code}, code))
    diff = unified_diff("a", "", "x\n" + "\n" * 300 + "y\n")
    assert "⋯ 300 added empty lines" in whole(request({"path": "a"}, diff))


def test_a_path_cannot_forge_a_diff():
    path = "a.txt\n+++ b.txt\n@@ -1 +1 @@\n-x"
    diff = unified_diff(path, "", "real\n")
    assert diff.count("\n") == 4
    assert diff.startswith('--- "a.txt\\n+++ b.txt')
    for plain in ("a.txt", "dir/b c.md", "ü.txt", "--- x"):
        assert quote_path(plain) == plain
    for odd in (" a", "a ", "a  b", 'a"b', "a\\b", "a\tb", "", "a\u202eb"):
        assert quote_path(odd).startswith('"'), odd


def test_marks_that_are_heaped_on_a_letter_are_spelled_out():
    assert visible("a\u0301\u0323b") == "a\u0301\u0323b"
    heap = visible("a" + "\u0301" * 300 + "b")
    assert heap == "a" + "\u0301" * 4 + r"\u0301" * 296 + "b"
