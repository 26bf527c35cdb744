"""Each fast lane of the parsers gives the same result as the plain way.

Text that is read in one step if it is complete (calls, JSON objects, headers) is compared with the same text in single
characters, where no step has all of it. A chunk that holds only content is compared with the same chunk
after an empty one, which ends a `Run`, and with the same text in one piece, which `_plain` leaves to the states.
`test_json_scanner.py` compares `whole_object` with the scanner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from dialect_strategies import FINISHES, JSON_VALUES, STRINGS, TOOLS
from hypothesis import given
from hypothesis import strategies as st
from test_contract import each_dialect, examples, reply, soup

from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.values import evolve
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.dialects.parser.attempts import lone_end, unmarked
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.parser.damaged_calls import nearly_called
from toolspeak.dialects.parser.running_text import may_end_in_call
from toolspeak.dialects.text.block_delimiters import Follows, Opening, Signature, Starts, Texts
from toolspeak.dialects.text.markdown import Markdown
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.testing import chunks, join_deltas, parse_pieces

BLOCKS = [each for each in DIALECTS if isinstance(each.parser(TOOLS), BlockParser)]
each_of_blocks = pytest.mark.parametrize("dialect", BLOCKS, ids=lambda dialect: dialect.name)


def format_of(dialect: Dialect) -> Any:
    parser = dialect.parser(TOOLS)
    assert isinstance(parser, BlockParser)
    return parser.format


def calls(data: st.DataObject, dialect: Dialect) -> str:
    """Calls as the dialect writes them, and maybe something after them."""
    calls_written = [("read", {"file": "a"}), ("write", {"content": data.draw(soup(dialect))})]
    drawn_calls = data.draw(st.lists(st.sampled_from(calls_written), min_size=1, max_size=2))
    message = Message("assistant", tuple(ToolCall(f"callid00{i}", *each) for i, each in enumerate(drawn_calls)))
    return dialect.render([message], TOOLS)[0].text + data.draw(st.sampled_from(["", "\n", " Done.", "```", ")."]))


@each_of_blocks
@given(data=st.data())
@examples(25)
def test_a_turn_that_begins_with_its_calls_is_read_as_after_a_line_break(dialect: Dialect, data: st.DataObject):
    text = calls(data, dialect) if data.draw(st.booleans()) else reply(data, dialect)
    first, after = read_turn(dialect, text, TOOLS), read_turn(dialect, f"\n{text}", TOOLS)
    assert after.calls == first.calls
    assert (after.ignored_calls, after.forged_results, after.notes) == (
        first.ignored_calls,
        first.forged_results,
        first.notes,
    )
    assert after.text.lstrip() == first.text.lstrip()


@each_of_blocks
@given(data=st.data())
@examples(25)
def test_nothing_begins_where_the_search_finds_no_candidate(dialect: Dialect, data: st.DataObject):
    table = format_of(dialect).table
    text = reply(data, dialect)
    for at, char in enumerate(text):
        # For a word, the text before it matters too, and `decide` does not see that.
        if table.candidate.match(text[at:]) is None and not (char.isalnum() or char in "_./-"):
            assert table.decide(text[at : at + 256]) == "text", text[at : at + 40]


@dataclass(frozen=True, slots=True)
class Slowly:
    """An opening that is never told in one step."""

    opening: Opening
    usual: str = ""

    def decide(self, candidate: str, start: int, stop: int) -> Any:
        return self.opening.decide(candidate, start, stop)


class SlowSignature(Signature):
    usual = property(lambda _: "")  # pyright: ignore


def slowly(marker: Marker) -> Marker:
    opening = marker.opening
    if isinstance(opening, Starts | Texts | Follows):
        return evolve(marker, opening=Slowly(opening))
    if isinstance(opening, Signature):
        fields = {name: getattr(opening, name) for name in Signature.__dataclass_fields__}
        return evolve(marker, opening=SlowSignature(**fields))
    return marker


@each_of_blocks
@given(data=st.data())
@examples(25)
def test_a_marker_decided_in_one_step_is_decided_the_same_step_by_step(dialect: Dialect, data: st.DataObject):
    table = format_of(dialect).table
    plain = MarkerTable([slowly(marker) for marker in table.markers])
    text = calls(data, dialect) if data.draw(st.booleans()) else reply(data, dialect)
    for at in range(len(text)):
        if table.candidate.match(text[at:]) is not None:
            fast, plain_verdict = table.decide(text[at : at + 256]), plain.decide(text[at : at + 256])
            assert getattr(fast, "length", fast) == getattr(plain_verdict, "length", plain_verdict)
            assert getattr(fast, "notes", ()) == getattr(plain_verdict, "notes", ())


@each_of_blocks
@given(data=st.data())
@examples(25)
def test_what_ends_in_a_call_has_an_end_that_may_be_one(dialect: Dialect, data: st.DataObject):
    format_ = format_of(dialect)
    ends = format_.table.markup.call_ends
    text = reply(data, dialect) + data.draw(st.sampled_from(["", "`", "\n```", " ,", "\u2003", "</tool"]))
    here = Markdown()
    here.add(text)
    stripped_text = text.rstrip()
    reports = [
        lone_end(here, ends),
        *(unmarked(each, format_.tools, ends) for each in (stripped_text, stripped_text.rstrip("`\n"))),
        *(nearly_called(each, TOOLS, format_.writes, ends) for each in (stripped_text, stripped_text.rstrip("`\n"))),
    ]
    assert may_end_in_call(text, ends) or not any(reports)


def same(dialect: Dialect, data: st.DataObject, *ways: list[str], starts_in: Any = "text") -> None:
    """All these ways to cut a text say the same."""
    finish = data.draw(FINISHES)
    first, *others = (join_deltas(parse_pieces(dialect, way, TOOLS, finish, starts_in=starts_in)) for way in ways)
    for other in others:
        assert other == first


@each_dialect
@given(data=st.data())
@examples(25)
def test_calls_that_are_there_to_their_end_are_read_as_in_single_characters(dialect: Dialect, data: st.DataObject):
    calls_written = [
        ("write", {"file": data.draw(STRINGS), "content": data.draw(st.one_of(STRINGS, soup(dialect)))}),
        (
            "set",
            {"n": data.draw(st.integers()), "flag": data.draw(st.booleans()), "map": {"k": data.draw(JSON_VALUES)}},
        ),
        ("ping", {}),
    ]
    calls = [ToolCall(f"callid00{i}", *each) for i, each in enumerate(data.draw(st.permutations(calls_written))[:2])]
    text = dialect.render([Message("assistant", tuple(calls))], TOOLS)[0].text
    text = data.draw(st.sampled_from(["", "Well.\n"])) + text + data.draw(st.sampled_from(["", "\n", "\nDone."]))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(['"', "}", "<", "\\", ",", " ", ""])) + text[at + 1 :]
    same(dialect, data, [text], list(text))


@each_dialect
@given(data=st.data())
@examples(25)
def test_a_chunk_that_is_content_is_taken_as_after_an_empty_one(dialect: Dialect, data: st.DataObject):
    content = "".join(data.draw(st.lists(st.sampled_from(CONTENT), max_size=20)))
    call = ToolCall("callid000", "write", {"content": content})
    text = dialect.render([Message("assistant", (call,))], TOOLS)[0].text + data.draw(soup(dialect))
    pieces = list(chunks(text, data.draw(st.integers(1, 6))))
    same(dialect, data, pieces, [each for piece in pieces for each in (piece, "")])


CONTENT = [
    *("fox ", "jumps", "é", "\ud800", "\x7f", "\u2028", "\x00", "\n", "\t", '"', "\\", "'", "`", "<", "</", "]]>"),
    *("]", "}", "{", ")", "&lt;", "\\n", "\\u00", "/", "</content>", "to=functions.", "0", " ", "<|"),
]


@each_dialect
@given(data=st.data())
@examples(25)
def test_text_that_leaves_chunk_by_chunk_is_read_as_in_one_piece(dialect: Dialect, data: st.DataObject):
    fragment = st.sampled_from(
        ["The fox", " jumps", "\n", " ", "`", "```", "~~~", "- ", "> ", "é", "to", "t", "f", "{", "<", "[."]
    )
    lead, after = ("".join(data.draw(st.lists(fragment, max_size=12))) for _ in range(2))
    text = lead + data.draw(soup(dialect)) + after
    pieces = list(chunks(text, data.draw(st.integers(1, 6))))
    same(dialect, data, pieces, [text], starts_in=data.draw(st.sampled_from(["text", "reasoning"])))


HEADERS = [
    *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>", "<|start", "<|"),
    *("assistant", "assistan", "user", "functions.read", "commentary", "analysis", "final", "json", " to=assistant"),
    *(" to=functions.read", "to=functions.", "{}", '{"file": "a"}', " ", "\n", "a", "t", "f", "S", "é", "`", "<"),
    "x" * 99,
]


@given(data=st.data())
@examples(600)
def test_a_harmony_header_is_read_at_once_as_character_by_character(data: st.DataObject):
    usual = st.sampled_from(
        [
            "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>",
            '<|start|>assistant to=functions.read<|channel|>commentary json<|message|>{"file": "a"}<|call|>',
            "<|channel|>commentary to=functions.read <|constrain|>json<|message|>",
            'commentary to=functions.read json{"file": "a"}',
        ]
    )
    text = "".join(data.draw(st.lists(st.one_of(usual, st.sampled_from(HEADERS)), max_size=9)))
    starts_in = data.draw(st.sampled_from(["text", "reasoning"]))
    same(get_dialect("harmony"), data, [text], list(text), list(chunks(text, 5)), starts_in=starts_in)
