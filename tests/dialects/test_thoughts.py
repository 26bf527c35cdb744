"""Calls in reasoning: hidden by its end, run if it has no end and they end the turn, and never lost silently."""

from __future__ import annotations

from typing import cast

import pytest
from dialect_strategies import TOOLS
from family_checks import examples, parse_growth
from hypothesis import example, given
from hypothesis import strategies as st

from growth import LINEAR
from sweeps import grid
from toolspeak.data.deltas import BatchEnded, CallCompleted, CallMalformed, ReasoningDelta, TextDelta
from toolspeak.data.messages import FinishReason, MalformedCall, Message, ToolCall
from toolspeak.dialects import (
    DIALECTS,
    PROTOCOLS,
    AutoDialect,
    Dialect,
    ParsedTurn,
    Section,
    StrictDialect,
    get_dialect,
    open_parser,
    read_turn,
    with_repair,
)
from toolspeak.dialects.text.scan import MAX_CANDIDATE
from toolspeak.testing import CheckedParser, check_deltas, check_splits, chunks, every_split, join_deltas, parse_pieces

OPENERS = {
    "harmony": [("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>")],
    "inkling": [("<|content_thinking|>", "<|end_message|>")],
    "muse": [(" to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>")],
}
"""Of the dialects whose turns are messages, in which reasoning is one of them."""


def thoughts_of(dialect: Dialect) -> list[tuple[str, str]]:
    """How reasoning begins and ends."""
    if dialect.name in OPENERS:
        return OPENERS[dialect.name]
    format_ = getattr(dialect.parser(TOOLS), "format", None)
    markers = format_.table.markers if format_ is not None else ()
    return [(f"{each.text}{each.label}", each.end) for each in markers if each.kind == "reasoning"]


NEW_MESSAGE = ("harmony", "inkling", "apertus")
"""A call is a message of its own: one that begins ends the reasoning before it, whatever comes. Apertus's inner part
holds calls beside thoughts."""

CASES = [(dialect, opening, closing) for dialect in DIALECTS for opening, closing in thoughts_of(dialect)]
IDS = [f"{dialect.name} {opening}" for dialect, opening, _ in CASES]
each_thought = pytest.mark.parametrize(("dialect", "opening", "closing"), CASES, ids=IDS)
ENCLOSING = [case for case in CASES if case[0].name not in NEW_MESSAGE]
each_enclosing = pytest.mark.parametrize(
    ("dialect", "opening", "closing"), ENCLOSING, ids=[f"{dialect.name} {opening}" for dialect, opening, _ in ENCLOSING]
)
PROTOCOL_NAMES = [dialect.name for dialect in PROTOCOLS]


def calls_text(dialect: Dialect, *names: str, **arguments: str) -> str:
    calls = tuple(ToolCall("callid000", name, arguments or {"file": "a"}) for name in names)
    text = dialect.render([Message("assistant", calls)], TOOLS)[0].text
    if dialect.name == "muse":
        return text.split("<|message|>")[1]
    return f"<|start|>assistant{text}" if dialect.name == "harmony" else text


def runnable(turn: ParsedTurn) -> list[tuple[str, object]]:
    return [(call.name, dict(call.arguments)) for call in turn.calls if isinstance(call, ToolCall)]


def reports(turn: ParsedTurn) -> list[tuple[str, str]]:
    return [(call.code, call.reason) for call in turn.calls if isinstance(call, MalformedCall)]


def test_every_dialect_that_has_reasoning_is_looked_at():
    assert len({dialect.name for dialect, _, _ in CASES}) >= 47


# --- The rule -----------------------------------------------------------------------------------


@each_thought
def test_a_call_that_ends_a_turn_in_open_thoughts_runs(dialect: Dialect, opening: str, closing: str):
    text = f"{opening}I look.\n{calls_text(dialect, 'read')}"
    for reply in (text, f"{text}\n"):
        turn = read_turn(dialect, reply, TOOLS)
        if dialect.name in PROTOCOL_NAMES:
            ((code, reason),) = reports(turn)
            assert (runnable(turn), code) == ([], "in_thoughts")
            assert "in your thoughts" in reason
        else:
            assert (runnable(turn), reports(turn)) == ([("read", {"file": "a"})], [])
            assert turn.reasoning.strip() == "I look."
        assert turn.text.strip() == ""
    check_splits(dialect, text, TOOLS, "stop")


@each_enclosing
def test_closed_thoughts_hide_their_calls(dialect: Dialect, opening: str, closing: str):
    call = calls_text(dialect, "read")
    text = f"{opening}Maybe {call} no.{closing}Answer"
    turn = read_turn(dialect, text, TOOLS)
    assert (turn.calls, turn.text.strip()) == ((), "Answer")
    assert turn.reasoning == f"Maybe {call} no."
    assert turn.message.text == "Answer"
    draft_then_call = f"{opening}Maybe {call}{closing}{'' if dialect.name == 'muse' else call}"
    if dialect.name != "muse":
        assert (
            len(runnable(read_turn(dialect, draft_then_call, TOOLS))),
            reports(read_turn(dialect, draft_then_call, TOOLS)),
        ) == (1, [])
    check_splits(dialect, text, TOOLS, "stop")


@each_enclosing
def test_one_with_something_after_it_does_not_run_and_is_reported(dialect: Dialect, opening: str, closing: str):
    call = calls_text(dialect, "read")
    for text in (f"{opening}Maybe {call} or not", f"{opening}Maybe {call}{closing}"):
        turn = read_turn(dialect, text, TOOLS)
        ((code, reason),) = reports(turn)
        assert (runnable(turn), code, turn.text.strip()) == ([], "in_thoughts", "")
        assert ("in your thoughts" in reason, turn.message.text) == (True, "")
        check_splits(dialect, text, TOOLS, "stop")


@each_enclosing
def test_an_unknown_tool_in_reasoning_does_not_run_and_is_reported(dialect: Dialect, opening: str, closing: str):
    text = f"{opening}Maybe {calls_text(dialect, 'fetch')}"
    turn = read_turn(dialect, text, TOOLS)
    assert (runnable(turn), [code for code, _ in reports(turn)]) == ([], ["in_thoughts"])
    check_splits(dialect, text, TOOLS, "stop")


@each_enclosing
def test_without_tools_every_name_is_known(dialect: Dialect, opening: str, closing: str):
    if dialect.name in PROTOCOL_NAMES or dialect.name == "xlam":
        pytest.skip("does not run it, or knows bare calls by the tools alone")
    assert len(runnable(read_turn(dialect, f"{opening}Maybe {calls_text(dialect, 'fetch')}"))) == 1


@each_enclosing
def test_nor_does_one_of_a_turn_that_was_cut_off(dialect: Dialect, opening: str, closing: str):
    text = f"{opening}Maybe {calls_text(dialect, 'read')}"
    for finish in cast("list[FinishReason]", ["length", "content_filter", "error"]):
        turn = read_turn(dialect, text, TOOLS, finish=finish)
        assert (runnable(turn), [code for code, _ in reports(turn)]) == ([], ["in_thoughts"])
        assert "cut off" in reports(turn)[0][1]


@each_enclosing
def test_every_cut_of_the_turn_off_runs_nothing_that_is_not_whole(dialect: Dialect, opening: str, closing: str):
    text = f"{opening}Maybe {calls_text(dialect, 'read', file='some text')}"
    for stop in range(len(text)):
        turn = read_turn(dialect, text[:stop], TOOLS)
        assert all(arguments in ({"file": "some text"}, {}) for _, arguments in runnable(turn)), text[:stop]
        parser = dialect.parser(TOOLS)
        check_deltas([*parser.feed(text[:stop]), *parser.close("stop")])


@pytest.mark.parametrize(
    ("enclosing", "reads"),
    grid(
        ENCLOSING,
        ["a dialect", "auto", "auto that knows it", "strict", "repaired"],
        every=5,
        ids=lambda value: value if isinstance(value, str) else f"{value[0].name} {value[1]}",
    ),
)
def test_every_reader_agrees(enclosing: tuple[Dialect, str, str], reads: str):
    dialect, opening, closing = enclosing
    if reads == "a dialect":
        reader: Dialect = dialect
    elif reads == "auto":
        reader = AutoDialect()
    elif reads == "auto that knows it":
        reader = AutoDialect(dialect)
    else:
        try:
            reader = StrictDialect(dialect) if reads == "strict" else with_repair(dialect)
        except Exception as error:  # noqa: BLE001 - a dialect without such a reader says why
            pytest.skip(str(error))
    if reads == "auto" and (opening[0] not in "<[" or dialect.name in ("muse", *PROTOCOL_NAMES)):
        pytest.skip("words that begin reasoning are prose while the dialect is not known")
    call = calls_text(dialect, "read")
    runs = dialect.name not in PROTOCOL_NAMES
    if reads == "strict" and not runs:
        pytest.skip("a published protocol")
    for text, count in ((f"{opening}I look.\n{call}", 1 * runs), (f"{opening}Maybe {call} no.{closing}Answer", 0)):
        turn = read_turn(reader, text, TOOLS)
        assert len(runnable(turn)) == count, text
        check_splits(reader, text, TOOLS, "stop", splits=[tuple(chunks(text, size)) for size in (1, 3, 7)])


@each_enclosing
def test_where_the_prompt_opened_them(dialect: Dialect, opening: str, closing: str):
    call = calls_text(dialect, "read")
    turn = read_turn(dialect, f"I look.\n{call}", TOOLS, starts_in="reasoning")
    assert len(runnable(turn)) == (dialect.name not in PROTOCOL_NAMES)
    after = "" if dialect.name == "muse" else call
    turn = read_turn(dialect, f"Maybe {call}.{closing}{after}", TOOLS, starts_in="reasoning")
    assert len(runnable(turn)) == (dialect.name != "muse")


@each_enclosing
def test_where_reasoning_stays_in_the_text(dialect: Dialect, opening: str, closing: str):
    if dialect.name in PROTOCOL_NAMES:
        pytest.skip("does not run it")
    for text, count in (
        (f"{opening}I look.\n{calls_text(dialect, 'read')}", 1),
        (f"{opening}Maybe {calls_text(dialect, 'read')} no.{closing}Answer", 0),
    ):
        parser = open_parser(dialect, TOOLS, keep_reasoning=True)
        deltas = [*parser.feed(text), *parser.close("stop")]
        assert len([delta for delta in deltas if isinstance(delta, CallCompleted)]) == count
        assert not [delta for delta in deltas if isinstance(delta, CallMalformed | ReasoningDelta)]


@each_enclosing
def test_thoughts_after_calls_that_stay_text_are_all_of_one_kind_in_every_cut(
    dialect: Dialect, opening: str, closing: str
):
    """What was held back until it was no call left as text, where the text beside it is set aside."""
    call = calls_text(dialect, "read")
    text = f"{call}{opening}{call[: len(call) // 2]}no"
    read: list[object] = []
    for pieces in ([text], list(chunks(text, 1)), list(chunks(text, 4)), *every_split(text)):
        parser = open_parser(dialect, TOOLS, keep_reasoning=True)
        deltas = [delta for piece in pieces for delta in parser.feed(piece)]
        read.append(join_deltas([*deltas, *parser.close("stop")]))
        assert read[-1] == read[0], pieces


# --- What a draft is ----------------------------------------------------------------------------

HERMES = get_dialect("hermes")
A, B = (f'<tool_call>{{"name": "read", "arguments": {{"file": "{name}"}}}}</tool_call>' for name in "ab")
TURNS: list[tuple[str, list[str], list[str]]] = [
    (f"<think>x {A}\n{B}\n", ["a", "b"], []),
    (f"<think>x {A} or {B}", ["b"], []),
    (f'<think>x <tool_call>{{"name": "read", "arguments": {{"file": "… {A}', ["a"], []),
    (f'<think>x <tool_call>{{"name": "read", "arguments": {{"file": "a… </tool_call>\n{A}\n{B}', ["a", "b"], []),
    (f"<think>x {A}</think>y", [], []),
    (f"<think>x {A}</think>{B}", ["b"], []),
    (f"x<think>y {A} z", [], []),
    (f"x<think>y {A}", ["a"], []),
    (f"{A}<think>x {B} y</think>", ["a"], []),
    (f"{A}<think>x {B}", ["a", "b"], []),
    (f"<think>x <think>y</think> {A}", ["a"], []),
    (f"<think>x <think>y {A}</think> z</think>", [], ["in_thoughts"]),
    (f"<think>x\n```\n{A}\n```", [], ["in_thoughts"]),
    (f"<think>x `{A}`", [], []),
    ('<think>the format is <tool_call>{"name"', [], ["in_thoughts"]),
    ("<think>the format is <tool_call> and so on", [], []),
    (f"<think>x {A}<tool_response>\n[]</tool_response>", [], ["in_thoughts"]),
    (f"<think>x {A}<|im_end|>", ["a"], []),
    (f"<think>x {A}</think>\n\n", [], ["in_thoughts"]),
    (f"<think>x {A}\n<|im_end|>y<|im_end|>z", [], ["in_thoughts"]),
    ("<think>" + A.replace('"a"', '"</think>"'), [], ["no_start"]),
]


@pytest.mark.parametrize(("text", "files", "codes"), TURNS)
def test_a_draft_is_a_run_of_blocks(text: str, files: list[str], codes: list[str]):
    turn = read_turn(HERMES, text, TOOLS)
    assert [arguments for _, arguments in runnable(turn)] == [{"file": file} for file in files]
    assert [code for code, _ in reports(turn)] == codes
    check_splits(HERMES, text, TOOLS, "stop", splits=every_split(text, 2))
    check_splits(HERMES, text, TOOLS, "length", splits=every_split(text, 2))
    for dialect in (AutoDialect(), AutoDialect(HERMES), StrictDialect(AutoDialect(), broken=True)):
        check_splits(dialect, text, TOOLS, "stop", splits=[tuple(chunks(text, size)) for size in (1, 2, 5)])


def test_a_thought_leaves_again_once_something_follows_a_draft():
    parser = HERMES.parser(TOOLS)
    first = parser.feed(f"<think>x {A}")
    assert join_deltas(first) == [ReasoningDelta("x ")]
    assert join_deltas(parser.feed(" no.")) == [ReasoningDelta(f"{A} no.")]
    assert join_deltas(parser.feed(" So")) == [ReasoningDelta(" So")]


def test_a_call_in_open_thoughts_comes_with_its_batch_when_the_turn_ends():
    parser = HERMES.parser(TOOLS)
    assert not [delta for delta in parser.feed(f"<think>x {A}") if not isinstance(delta, ReasoningDelta)]
    deltas = [*parser.close("stop")]
    assert [type(delta).__name__ for delta in join_deltas(deltas)] == [
        "CallStarted",
        "ArgumentsDelta",
        "CallCompleted",
        "BatchEnded",
    ]
    assert deltas[-1] == BatchEnded((0,), True)


def test_a_call_of_thoughts_is_not_repaired():
    turn = read_turn(with_repair(HERMES), "<think>x <tool_call>{'name': 'read', 'arguments': {}}</tool_call> y", TOOLS)
    assert (runnable(turn), [code for code, _ in reports(turn)]) == ([], ["in_thoughts"])


def test_the_last_call_counts_where_only_one_does():
    """In `auto`, which takes the block for Hermes's; `tool-call` itself runs none in thoughts."""
    protocol = get_dialect("tool-call")
    turn = read_turn(protocol, f"{A}<think>x {B}", TOOLS)
    assert runnable(turn) == []
    assert [code for code, _ in reports(turn)] == ["in_thoughts"]


# --- In every cut, of any text ------------------------------------------------------------------

PIECES = [A, B, "<think>", "</think>", "`", "```\n", "x", " ", '<tool_call>{"', "<tool_call>", "</tool_call>", "{", '"']


@pytest.mark.over_a_second
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=9),
    finish=st.sampled_from(["stop", "length"]),
    starts_in=st.sampled_from(["text", "reasoning"]),
    reads=st.sampled_from(["hermes", "auto", "strict", "tool-call"]),
)
@example(pieces=["<tool_call>", "<think>"], finish="stop", starts_in="text", reads="strict")
@example(pieces=['<tool_call>{"', "<think>"] * 2, finish="stop", starts_in="text", reads="strict")
@example(pieces=[A, "```\n", '<tool_call>{"', A], finish="stop", starts_in="reasoning", reads="hermes")
@examples(400)
def test_any_text_in_any_cut(pieces: list[str], finish: FinishReason, starts_in: Section, reads: str):
    dialect = StrictDialect(AutoDialect(), broken=True) if reads == "strict" else get_dialect(reads)
    text = "".join(pieces)
    splits = [tuple(chunks(text, size)) for size in (1, 2, 3, 11)]
    check_splits(dialect, text, TOOLS, finish, starts_in=starts_in, splits=splits)


@pytest.mark.parametrize("name", ["hermes", "auto", "qwen3-coder", "deepseek-v31", "glm45", "xlam", "muse"])
@pytest.mark.parametrize("piece", ["call", "start", "half"])
def test_time_is_linear(name: str, piece: str):
    dialect = get_dialect(name)
    call = calls_text(HERMES if name == "auto" else dialect, "read")
    opening = " to=self<|message|>" if name == "muse" else "<think>"
    unit = {"call": f"{call} ", "start": call[: len(call) // 3], "half": call[: len(call) // 2]}[piece]
    assert parse_growth(dialect, opening, unit, 16) < LINEAR


@pytest.mark.parametrize("head", ['{"name": "p\x01z', '[{"name": "p\x01z', "p\x01z(", '{"p\x01z'])
@each_thought
def test_what_follows_text_is_looked_at_as_after_text_in_every_cut(
    dialect: Dialect, opening: str, closing: str, head: str
):
    """Where a call without a marker may begin a turn, one chunk held its text beside what cannot begin there."""
    text = f"Well.\nno{head}{opening}\n"
    check_splits(dialect, text, TOOLS)


def test_a_draft_in_reasoning_that_stays_text_is_held_back_and_shown_whole():
    text = '<tool_call>\n{"name": "write", "arguments": {"content": "' + "x" * 600 + '"}}\n</tool_call> no'
    for size in (1, 7, len(text)):
        parser = CheckedParser(HERMES.parser(TOOLS, "reasoning"), MAX_CANDIDATE)
        parser.keep_reasoning()
        deltas = [delta for piece in chunks(text, size) for delta in parser.feed(piece)] + parser.close("stop")
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("hy-v3", "<tool_calls><tool_call></tool_call>\x02</tool_calls>"),
        ("k2-horizon", "<ifm|tool_calls><ifm|tool_call>k<</ifm|tool_call>t</ifm|tool_calls>"),
        ("mimo", "<tool_call><function=read>z</function>\x00</tool_call>"),
        (
            "minimax-m2",
            '<minimax:tool_call><invoke name="read">z</invoke> and <invoke name="read">z</invoke></minimax:tool_call>',
        ),
    ],
)
@pytest.mark.parametrize("after", ["", "\n", " More."])
def test_the_report_of_a_block_in_thoughts_is_the_same_in_every_cut(name: str, block: str, after: str):
    dialect = get_dialect(name)
    whole = join_deltas(parse_pieces(dialect, [block + after], [], starts_in="reasoning"))
    (reports,) = [delta for delta in whole if isinstance(delta, CallMalformed) and delta.code == "in_thoughts"]
    assert reports.raw in block
    assert reports.raw != ""
    for size in range(1, len(block)):
        pieces = list(chunks(block + after, size))
        assert join_deltas(parse_pieces(dialect, pieces, [], starts_in="reasoning")) == whole, size
