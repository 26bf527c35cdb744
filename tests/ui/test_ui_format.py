from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from toolspeak.data.messages import FilePart, ImagePart, JsonPart, TextPart, ToolResult
from toolspeak.ui.format import (
    argument_lines,
    command_failure,
    count,
    diff_style,
    fit,
    fold,
    fold_result,
    is_diff,
    printable,
    result_lines,
    value_text,
)

DIFF = "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, größer, 日本, 👩\u200d💻\ttab\nline", "plain, größer, 日本, 👩\u200d💻\ttab\nline"),
        ("\x1b[2J\x1b]0;t\x07", "␛[2J␛]0;t␇"),
        ("\x00\x08\x7f", "␀␈␡"),
        ("a\r\nb\rc", "a\nb␍c"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202etxt\u2066\u200b\ufeff", "\\u202etxt\\u2066\\u200b\\ufeff"),
        ("\ud800", "\\ud800"),
        ("a\U000e0041b", "a\\U000e0041b"),
        ("[bold]:smile:[/bold]", "[bold]:smile:[/bold]"),
    ],
)
def test_printable(text: str, expected: str):
    assert printable(text) == expected


@given(st.text(st.characters()))
def test_printable_text_holds_no_control_and_stays_as_it_is(text: str):
    output = printable(text)
    assert not any((ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) <= 0x9F for char in output)
    output.encode()
    assert printable(output) == output


@given(st.text(), st.integers(1, 50))
def test_fitting_lines_are_no_wider_than_asked(text: str, width: int):
    line = printable(text).replace("\n", "").replace("\t", "")
    short_line = fit(line, width)
    assert cell_len(short_line) <= max(width, 2)
    assert short_line == line or short_line.endswith("…")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({}, [""]),
        (
            {"path": "a.py", "start": 3, "deep": {"x": [None, True]}},
            ['path: "a.py", start: 3, deep: {"x": [null, true]}'],
        ),
        ({"a": "two\nlines \x1b"}, ['a: "two\\nlines \\u001b"']),
        ({"a": "x" * 60, "b": "y" * 60}, [f'a: "{"x" * 60}"', f'b: "{"y" * 60}"']),
        ({"content": "x" * 1234567}, [f'content: "{"x" * 200}"… (+1,234,367 characters)']),
        ({"rows": ["x" * 300]}, [f'rows: ["{"x" * 198}… (+104 characters)']),
        ({"na\x1bme\n": 1}, ["na␛me⏎: 1"]),
    ],
)
def test_arguments(arguments: dict[str, object], lines: list[str]):
    assert argument_lines(arguments) == lines


def test_the_beginning_of_a_long_value_costs_no_more_than_a_short_one():
    def cost(size: int) -> float:
        text = "x" * size
        start = time.process_time()
        for _ in range(200):
            value_text(text, 200)
        return time.process_time() - start

    assert min(cost(20_000_000) for _ in range(3)) < 20 * min(cost(2_000) for _ in range(3)) + 0.01


@pytest.mark.parametrize(
    ("part", "lines"),
    [
        (TextPart(""), []),
        (TextPart("a\n\n b\n"), ["a", "", " b"]),
        (TextPart("a\u2028b\x0cc\x1b"), ["a\\u2028b␌c␛"]),
        (JsonPart({"exit_code": 0, "output": "a\nb\n"}), ["exit_code: 0", "output:", "  a", "  b"]),
        (JsonPart(["a", {"b": 1}, "c\nd"]), ["a", '{"b": 1}', "c⏎d"]),
        (JsonPart("a\nb"), ["a", "b"]),
        (JsonPart(None), ["null"]),
        (ImagePart("image/png", b"123"), ["[image image/png, 3 bytes]"]),
        (ImagePart("image/png", url="http://x/\x1b"), ["[image image/png, http://x/␛]"]),
        (FilePart("f\x1b", "a/b", b"12"), ["[file f␛, a/b, 2 bytes]"]),
    ],
)
def test_result_lines(part, lines: list[str]):
    assert result_lines(ToolResult("c", "t", "success", (part,))) == lines


@pytest.mark.parametrize(
    ("value", "failure", "lines"),
    [
        ({"exit_code": 0, "output": "a\nb\n"}, "", ["a", "b"]),
        ({"exit_code": 0, "output": ""}, "", ["(no output)"]),
        (
            {"exit_code": 1, "output": "".join(f"{i}\n" for i in range(20))},
            "exit 1",
            ["0", "1", "… 12 more lines", "14", "15", "16", "17", "18", "19"],
        ),
        ({"exit_code": 7, "output": "no\n", "sandbox": "No network.\x1b"}, "exit 7", ["no", "No network.␛"]),
        ({"exit_code": None, "output": "", "timed_out": "ended"}, "timed out", ["(no output)", "ended"]),
        ([{"path": "a.py", "line": 3, "text": "x = 1"}], "", ["a.py:3: x = 1"]),
        ([], "", ["(nothing)"]),
        ("".join(f"{i}\n" for i in range(20)), "", [*(str(i) for i in range(8)), "… 12 more lines"]),
    ],
)
def test_what_is_shown_of_a_result(value, failure: str, lines: list[str]):
    result = ToolResult("c", "t", "success", (JsonPart(value),))
    assert command_failure(result) == failure
    assert [line for line, _ in fold_result(result)] == lines


def test_the_end_of_a_command_s_output_is_shown_of_a_result_that_was_shortened_too():
    output = "".join(f"{i}\n" for i in range(20))
    content = JsonPart({"exit_code": 1, "output": output}), TextPart("[Shortened: 9 of 99 bytes are left out.]")
    result = ToolResult("c", "shell", "success", content)
    assert command_failure(result) == "exit 1"
    assert [line for line, _ in fold_result(result)] == [
        *("0", "1", "… 12 more lines", "14", "15", "16", "17", "18", "19"),
        "[Shortened: 9 of 99 bytes are left out.]",
    ]


def test_folding():
    lines = [str(i) for i in range(20)]
    assert fold(lines, 8) == (lines[:8], 12)
    assert fold(lines[:9], 8) == (lines[:9], 0)
    assert fold([], 8) == ([], 0)


def test_diffs_are_told_by_their_head():
    assert is_diff(DIFF)
    assert not is_diff("--- a rule\nsome text\n")
    styles = [diff_style(line, number) for number, line in enumerate([*DIFF.splitlines(), "--- gone", " same", ""])]
    assert styles == ["bold", "bold", "cyan", "red", "green", "red", "", ""]


def test_counts():
    assert [count(1, "step"), count(0, "step"), count(1234, "call")] == ["1 step", "0 steps", "1,234 calls"]
