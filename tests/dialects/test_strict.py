"""Strict detection: everything except a complete, valid call of a known tool is text, after any marker."""

from __future__ import annotations

import pytest
from dialect_strategies import TOOLS, cuts
from family_checks import examples, parse_growth, soup
from hypothesis import given
from hypothesis import strategies as st
from test_detection import CALLS, MARKERS, MENTIONS, answer_and_calls, reply_text

from growth import LINEAR
from toolspeak.data.deltas import CallMalformed, CallStarted, TextDelta
from toolspeak.data.messages import FinishReason, MalformedCall, ToolCall
from toolspeak.dialects import DIALECTS, Dialect, StrictDialect, get_dialect, read_turn
from toolspeak.errors import ConfigurationError
from toolspeak.testing import check_splits, chunks, parse_pieces

TURNS = ("harmony", "inkling", "muse", "functionary-v32")
NAMES = [*(dialect.name for dialect in DIALECTS if dialect.name not in TURNS), "auto"]
CALL = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


HALF = f'<tool_call>{{"name": "read", "arguments": {{"file": "{CALL}'
"""A call whose argument is the text of another, and that has no end."""


@pytest.mark.parametrize("name", NAMES)
def test_calls_of_known_tools_are_read_as_before(name: str):
    strict, dialect = get_dialect(name, strict_detection=True), get_dialect(name)
    text = reply_text(dialect, CALLS) + "\nDone."
    assert answer_and_calls(read_turn(strict, text, TOOLS)) == answer_and_calls(read_turn(dialect, text, TOOLS))
    splits = [tuple(chunks(text, 1)), tuple(chunks(text, 7))]
    check_splits(strict, text, TOOLS, splits=splits)
    cut = text[: len(text) // 2]
    turn = read_turn(strict, cut, TOOLS, finish="length")
    assert not [call for call in turn.calls if isinstance(call, MalformedCall)], "cut off before its end it is text"


@pytest.mark.parametrize(
    ("text", "names", "remaining"),
    [
        (CALL, ["ping"], ""),
        (f"a{CALL}b", ["ping"], "ab"),
        (CALL.replace("ping", "pong"), [], CALL.replace("ping", "pong")),
        (f"<tool_call> {{tag}} is it: {CALL}", ["ping"], "<tool_call> {tag} is it: "),
        (f"<tool_call> {{ {CALL}", ["ping"], "<tool_call> { "),
        (f'<tool_call>{{"name": "pong", "arguments": {{"x": 1}}}}</tool_call>{CALL}', ["ping"], None),
        (f'<tool_call>{{"name": "read", "arguments": {{"file": "{CALL}', [], HALF),
        (f"{HALF} and more", [], f"{HALF} and more"),
        (CALL[:-20], [], CALL[:-20]),
        (CALL.removesuffix("</tool_call>"), ["ping"], ""),
        ("<tool_call>\n{", [], "<tool_call>\n{"),
        (f"<think>{CALL}</think>{CALL}", ["ping"], ""),
    ],
)
@pytest.mark.parametrize("name", ["hermes", "auto"])
def test_a_marker_without_a_call_of_a_known_tool_is_text(name: str, text: str, names: list[str], remaining: str | None):
    strict = get_dialect(name, strict_detection=True)
    turn = read_turn(strict, text, TOOLS)
    assert [call.name for call in turn.calls] == names
    assert turn.text == (text.replace(CALL, "") if remaining is None else remaining)
    check_splits(strict, text, TOOLS)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
@pytest.mark.parametrize(
    "text",
    [
        HALF,
        "<tool_call>\n<function=write>\n<tool_call>\n<function=ping>\n</function>\n</tool_call>",
        '<|tool_call>call:write{e:<|"|><|tool_call>call:ping{}<tool_call|>',
        "<tool_call>write<arg_key><tool_call>ping</tool_call>",
    ],
)
def test_in_a_turn_that_was_cut_off_no_call_is_read_out_of_an_open_block(text: str, finish: FinishReason):
    """It may be an argument of what was cut: arguments are text in which a call may stand."""
    turn = read_turn(get_dialect("auto", strict_detection=True), text, TOOLS, finish=finish)
    assert answer_and_calls(turn) == (text, "", [])


def test_without_tools_every_name_is_known():
    strict = get_dialect("hermes", strict_detection=True)
    assert [call.name for call in read_turn(strict, CALL.replace("ping", "pong")).calls] == ["pong"]


def test_what_comes_before_a_block_is_not_held_back():
    parser = get_dialect("hermes", strict_detection=True).parser(TOOLS)
    assert list(parser.feed("I look. ")) == [TextDelta("I look. ")]
    assert list(parser.feed("Now. " + CALL[:-5])) == [TextDelta("Now. ")]
    assert CallStarted(0, "ping") in list(parser.feed(CALL[-5:]))


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "auto"])
def test_of_a_call_in_a_sentence_nothing_is_said_beside_one_that_runs(name: str):
    call = reply_text(get_dialect(name), (ToolCall("", "ping", {}),), text="")
    turn = read_turn(get_dialect(name, strict_detection=True), f"I would use {call} and see.\n{call}", TOOLS)
    assert [type(call) for call in turn.calls] == [ToolCall]


@pytest.mark.parametrize("text", MENTIONS)
def test_mentions_stay_text(text: str):
    assert answer_and_calls(read_turn(get_dialect("auto", strict_detection=True), text, TOOLS)) == (text, "", [])


@pytest.mark.parametrize("name", TURNS)
def test_a_dialect_of_marked_messages_has_no_stricter_detection(name: str):
    with pytest.raises(ConfigurationError, match=f"{name} marks every message"):
        get_dialect(name, strict_detection=True)


FRAGMENTS = [
    piece
    for name in ("hermes", "qwen3-coder", "kimi-k2")
    for piece in MARKERS.findall(reply_text(get_dialect(name), CALLS))
]


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "kimi-k2", "auto"])
@given(text=soup([*FRAGMENTS, CALL]), cut=st.data())
@examples(20)
def test_splits_do_not_matter_and_nothing_is_malformed(name: str, text: str, cut: st.DataObject):
    strict = get_dialect(name, strict_detection=True)
    for finish in ("stop", "length"):
        splits = [tuple(chunks(text, 1)), cut.draw(cuts(text))]
        deltas = check_splits(strict, text, TOOLS, finish, splits=splits)
        assert not [delta for delta in deltas if isinstance(delta, CallMalformed)]


def strict_about_broken(name: str) -> Dialect:
    return StrictDialect(get_dialect(name), broken=True)


@pytest.mark.parametrize(
    ("text", "malformed_count", "remaining"),
    [
        (CALL[:-20], 1, ""),
        (f" \n{CALL[:-20]}", 1, " \n"),
        (CALL.replace("{}", "{x}"), 1, ""),
        (f"{CALL.replace('{}', '{x}')}b", 1, "b"),
        (f"<think>Hm.</think>{CALL[:-20]}", 1, ""),
        (f"{CALL.replace('{}', '{x}')}{CALL}", 1, ""),
        (HALF, 1, ""),
        (f"a{CALL[:-20]}", 0, f"a{CALL[:-20]}"),
        (CALL.replace("ping", "pong"), 0, CALL.replace("ping", "pong")),
        (CALL[:-20].replace("ping", "pong"), 0, CALL[:-20].replace("ping", "pong")),
        (f"{CALL.replace('ping', 'pong')}{CALL[:-20]}", 0, f"{CALL.replace('ping', 'pong')}{CALL[:-20]}"),
        ("<tool_call>\n{", 0, "<tool_call>\n{"),
    ],
)
@pytest.mark.parametrize("name", ["hermes", "auto"])
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_turn_may_be_taken_to_mean_the_call_it_begins_with(
    name: str, finish: FinishReason, text: str, malformed_count: int, remaining: str
):
    turn = read_turn(strict_about_broken(name), text, TOOLS, finish=finish)
    assert (sum(isinstance(call, MalformedCall) for call in turn.calls), turn.text) == (malformed_count, remaining)
    check_splits(strict_about_broken(name), text, TOOLS, finish)


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "kimi-k2", "auto"])
@given(text=soup([*FRAGMENTS, CALL]), cut=st.data())
@examples(20)
def test_splits_do_not_matter_and_only_what_begins_the_turn_is_malformed(name: str, text: str, cut: st.DataObject):
    for finish in ("stop", "length"):
        splits = [tuple(chunks(text, 1)), cut.draw(cuts(text))]
        deltas = check_splits(strict_about_broken(name), text, TOOLS, finish, splits=splits)
        for place, delta in enumerate(deltas):
            before = [each.text for each in deltas[:place] if isinstance(each, TextDelta)]
            assert not isinstance(delta, CallMalformed) or not "".join(before).strip()


@pytest.mark.parametrize("size", [40, 1 << 30])
def test_the_time_grows_with_the_text(size: int):
    strict: Dialect = get_dialect("qwen3-coder", strict_detection=True)
    for unit in ("<tool_call>\n<function=x>\n<parameter=a>", "<tool_call> <function=f "):
        assert parse_growth(strict, "", unit, size) < LINEAR
    assert parse_pieces(strict, ["<tool_call>\n<function=x>\n<parameter=a>" * 3000], TOOLS)


def test_a_long_block_in_single_characters_takes_linear_time():
    strict = get_dialect("llama4-pythonic", strict_detection=True)
    assert parse_growth(strict, "<|python_start|>[read(file='", "é </x>", 1) < LINEAR
