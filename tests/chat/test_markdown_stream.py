"""Markdown while it streams: final lines that do not depend on how the text is cut, at any width, in linear time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygments.lexers import get_all_lexers

from growth import LINEAR, growth
from sweeps import case, fewer, parts
from toolspeak.chat.display.markdown_stream import LONGEST_BLOCK, MarkdownStream
from toolspeak.chat.display.styled_text import StyledLine, cells, text_of

BLOCKS = [
    "# A title",
    "Text with **bold**, *emphasis*, `code` and ~~nothing~~.",
    "See [the page](https://a.b/c) and <https://d.e>.",
    "- one\n- two\n  and more of two\n  - below two\n- three",
    "1. First\n\n   ```python\n   def f(x):\n       return x\n   ```\n\n2. Second",
    "> quoted\n> - an item\n>\n> end",
    "| A | Bee |\n|---|:-:|\n| 1 | two words |\n| `x` | 日本語 |",
    "```\nno language\n\n  spaces\n```",
    "~~~rust\nfn main() {}\n~~~",
    "---",
    "Setext\n======",
    "- [ ] open\n- [x] done",
    "日本語のとても長い文章がここにあります。折り返しが必要です。",
    "a  \nhard break",
    "    indented code",
    "* * *",
    "|not|a table",
    "**unclosed `and [more",
]
"""Blocks of all kinds."""


def read(text: str, width: int, cuts: list[int] | None = None) -> list[StyledLine]:
    stream, lines, start = MarkdownStream(width), [], 0
    for cut in cuts or ():
        lines += stream.feed(text[start:cut])
        stream.tail(5)
        start = max(start, cut)
    return [*lines, *stream.feed(text[start:]), *stream.end()]


def plain(text: str, width: int = 40) -> list[str]:
    return [text_of(line) for line in read(text, width)]


@st.composite
def texts_and_cuts(draw: st.DrawFn) -> tuple[str, list[int]]:
    pieces = st.one_of(st.sampled_from(BLOCKS), st.text(alphabet=" \n\t#>*-|`~[]()_!\\1.ab字", max_size=30))
    text = "".join(draw(st.lists(st.tuples(pieces, st.sampled_from(["\n", "\n\n", ""])).map("".join), max_size=8)))
    return text, sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))


@settings(max_examples=fewer(600), deadline=None)
@given(texts_and_cuts(), st.sampled_from([10, 40, 80]))
def test_the_lines_do_not_depend_on_where_the_text_is_cut(sample: tuple[str, list[int]], width: int):
    text, cuts = sample
    assert read(text, width, cuts) == read(text, width)


@settings(max_examples=fewer(300), deadline=None)
@given(st.lists(st.sampled_from(BLOCKS), max_size=6), st.sampled_from([40, 80, 200]))
def test_what_is_final_is_never_taken_back(blocks: list[str], width: int):
    """Each piece adds lines below those that are there, and the tail shows the rest as it ends if nothing follows."""
    text = "\n\n".join(blocks)
    stream, lines = MarkdownStream(width), []
    for start in range(0, len(text), 7):
        lines += stream.feed(text[start : start + 7])
        assert [*lines, *stream.tail(10_000)] == read(text[: start + 7], width)


SIGNS = [
    *(
        "*",
        "_",
        "`",
        "|",
        "\n",
        "\n\n",
        "- ",
        "1. ",
        "> ",
        "# ",
        "    ",
        "```",
        "~~~",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        "!",
    ),
    *(
        "&",
        "\\",
        "---",
        "===",
        "|---|---|\n",
        "|-|\n",
        "  \n",
        ":",
        " ",
        "[x] ",
        "\t",
        "<!--",
        "-->",
        "```py\n",
        "~~",
        "**",
    ),
]
"""What has a meaning in Markdown, at its place or not."""


@settings(max_examples=fewer(800), deadline=None)
@given(st.lists(st.sampled_from(["word", *SIGNS]), max_size=14))
def test_every_word_that_the_model_wrote_is_shown(pieces: list[str]):
    text = "".join(f"w{number}q" if piece == "word" else piece for number, piece in enumerate(pieces))
    screen_text = "".join(plain(text, 80))
    assert [number for number, piece in enumerate(pieces) if piece == "word" and f"w{number}q" not in screen_text] == []


SESSION = [
    "$ python -m ledger.cli add りんご",
    "  output <b>\\x</b> 'a",
    "",
    "C:\\> dir",
    "# prompt %>>> x",
    "=> SELECT 1; --",
    "\x0b e",
]
"""Code of many kinds, with white space that some lexers strip, and prompts."""

LANGUAGES = sorted(aliases[0] for _, aliases, _, _ in get_all_lexers() if aliases)


@pytest.mark.over_a_second
@parts(4)
def test_code_of_every_language_is_shown_as_it_was_written(part: int):
    for language in LANGUAGES[part::4]:
        with case(language):
            assert plain("\n".join([f"```{language}", *SESSION, "```"])) == [
                f"  {line}" if line else "" for line in SESSION
            ]


def test_what_a_fence_says_besides_a_language_is_shown():
    assert plain("```python title=a.py\nx\n```\n\n```src/a.py\ny\n```") == [
        *("  python title=a.py", "  x", "", "  src/a.py", "  y"),
    ]


def test_a_pipe_within_the_last_cell_of_a_table_is_shown():
    assert plain("| a | b |\n|---|---|\n| 1 | x|y |\n")[2:] == ["1 │ x | y"]


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_of_text_is_wider_than_the_terminal(width: int):
    """Code is not wrapped: the terminal wraps it, and whoever copies it gets it whole."""
    for block in BLOCKS:
        if not block.startswith(("```", "~~~", "    ")):
            assert all(cells(line) <= width for line in read(block, width)), block


def test_a_list_is_shown_item_by_item():
    stream = MarkdownStream(40)
    lines = stream.feed("- one\n- two\n- thr")
    assert [text_of(line) for line in lines] == ["• one"]
    assert [text_of(line) for line in stream.tail(5)] == ["• two", "• thr"]


def test_code_is_shown_line_by_line_with_the_colours_of_its_language():
    stream = MarkdownStream(40)
    lines = stream.feed("```python\ndef f():\n    return 'x'\n")
    assert [text_of(line) for line in lines] == ["  def f():", "      return 'x'"]
    assert ("class:code.keyword", "def") in lines[0]
    assert ("class:code.string", "x") in lines[1] or any("'x'" in text for style, text in lines[1] if "string" in style)


def test_a_table_fits_into_forty_columns():
    table = "| name | what it does |\n|---|---|\n| alpha | a long text that must be wrapped into the column |\n"
    assert plain(table, 40) == [
        "name  │ what it does",
        "──────┼─────────────────────────────────",
        "alpha │ a long text that must be wrapped",
        "      │ into the column",
    ]


def test_a_table_with_too_many_columns_becomes_lists():
    columns = [f"column{i}" for i in range(10)]
    rows = [f"| {' | '.join(columns)} |", f"|{'---|' * 10}", f"| {' | '.join('abcdefgh' for _ in columns)} |"]
    assert plain("\n".join(rows), 40)[:2] == ["• column0: abcdefgh", "  column1: abcdefgh"]


def test_wide_characters_are_counted_in_cells():
    assert plain("漢字" * 12, 20) == ["漢字" * 5, "漢字" * 5, "漢字" * 2]


def test_a_link_shows_where_it_leads():
    assert plain("[your bank](https://evil.example)") == ["your bank (https://evil.example)"]


@pytest.mark.parametrize(
    "line",
    ["a ", "*", "[", "`", "| x ", "> ", "- ", "**a ", "![", "<a ", "1. ", "~~~", "# ", "\t", "字", "```\na\n"],
)
def test_the_time_grows_with_the_length_of_the_text(line: str):
    """Of hostile text too, and of a line without an end."""

    def prepare(size: int) -> Callable[[], object]:
        text = line * (size // len(line))
        return lambda: read(text, 40, list(range(0, len(text), 1_000)))

    assert growth(prepare, 4 * LONGEST_BLOCK) < LINEAR
