"""The dialect `auto`: a turn's own dialect decides how it is read."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from dialect_strategies import TOOLS, cuts
from family_checks import examples, parse_growth, soup
from hypothesis import given
from hypothesis import strategies as st

from growth import LINEAR
from toolspeak.data.deltas import BatchEnded, CallCompleted, CallIgnored, ReasoningDelta, TextDelta
from toolspeak.data.messages import MalformedCall, Message, TextPart, ToolCall, ToolResult
from toolspeak.dialects import (
    DIALECTS,
    AutoDialect,
    Dialect,
    ParsedTurn,
    Section,
    TurnCollector,
    get_dialect,
    open_parser,
    read_turn,
)
from toolspeak.testing import check_splits, chunks, parse_pieces

AUTO = AutoDialect()
MARKERS = re.compile(r"<[^<>\n]*>|\[/?[A-Z_]+\]|[\[{(]\W*|[^\s<\[{]+")
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
CALLS = (
    ToolCall("c1", "write", {"file": "a.txt", "content": "<b>\n'é' [1]"}, provider_id="callid001"),
    ToolCall("c2", "ping", {}, provider_id="callid002"),
    ToolCall("c3", "set", {"n": 5, "flag": True, "tags": ["x", "y"]}, provider_id="callid003"),
)


def reply_text(dialect: Dialect, calls: tuple[ToolCall, ...], text: str = "I look.") -> str:
    message = Message("assistant", (TextPart(text), *calls[: dialect.batch.max_calls]))
    return "\n".join(entry.text for entry in dialect.render([message], TOOLS))


def answer_and_calls(turn: ParsedTurn) -> tuple[str, str, Sequence[object]]:
    calls = [call.code if isinstance(call, MalformedCall) else (call.name, call.arguments) for call in turn.calls]
    return turn.text, turn.reasoning, calls


def check_cuts(auto: AutoDialect, text: str, starts_in: Section = "text") -> None:
    """A parser of all dialects takes longer to make: only these cuts."""
    halves = [(text[:at], text[at:]) for at in range(1, len(text), 29)]
    check_splits(
        auto, text, TOOLS, starts_in=starts_in, splits=[tuple(chunks(text, 1)), tuple(chunks(text, 5)), *halves]
    )


@each_dialect
def test_a_turn_of_an_unknown_model_is_read_in_the_dialect_it_is_written_in(dialect: Dialect):
    text = reply_text(dialect, CALLS)
    turn = read_turn(AUTO, text, TOOLS)
    assert answer_and_calls(turn) == answer_and_calls(read_turn(dialect, text, TOOLS))
    check_cuts(AUTO, text)


@each_dialect
def test_a_turn_of_a_known_model_is_read_as_its_dialect_reads_it(dialect: Dialect):
    auto = AutoDialect(dialect)
    text = reply_text(dialect, CALLS)
    assert read_turn(auto, text, TOOLS) == read_turn(dialect, text, TOOLS)
    for part in range(3, len(text), 31):
        assert read_turn(auto, text[:part], TOOLS, finish="length") == read_turn(
            dialect, text[:part], TOOLS, finish="length"
        )
    check_cuts(auto, text)


DRIFTS = [
    ("qwen3-coder", "hermes"),
    ("hermes", "qwen3-coder"),
    ("hermes", "deepseek-v3"),
    ("glm45", "hermes"),
    ("llama3-json", "hermes"),
    ("kimi-k2", "minimax-m2"),
    ("cogency-json", "cogency-xml"),
    ("gemma4", "mistral-args"),
    ("qwen3-coder", "harmony"),
    ("hermes", "lfm2"),
    ("deepseek-v4", "llama3-json"),
    ("harmony", "hermes"),
    ("muse", "qwen3-coder"),
    ("muse", "harmony"),
    ("inkling", "mistral-args"),
    ("functionary-v32", "glm45"),
]


@pytest.mark.parametrize(("own", "other"), DRIFTS)
def test_a_model_that_drifts_into_another_dialect_is_followed_and_reported(own: str, other: str):
    auto, dialect = AutoDialect(get_dialect(own)), get_dialect(other)
    text = reply_text(dialect, CALLS[:1])
    turn = read_turn(auto, text, TOOLS)
    assert answer_and_calls(turn) == answer_and_calls(read_turn(dialect, text, TOOLS))
    assert (turn.notes, turn.dialect) == ((f"dialect:{other}",), other)
    check_cuts(auto, text)


@pytest.mark.parametrize("own", ["harmony", "muse"])
def test_what_a_message_tells_the_user_is_no_call_in_another_dialect(own: str):
    auto, call = AutoDialect(get_dialect(own)), reply_text(get_dialect("hermes"), CALLS[:1], "")
    head = {"harmony": "<|channel|>final<|message|>", "muse": " to=user<|message|>"}[own]
    assert answer_and_calls(read_turn(auto, head + call, TOOLS)) == (call, "", [])
    turn = read_turn(auto, call + "<|start|>assistant" + head + "Done.", TOOLS)
    assert [entry.name for entry in turn.calls] == ["write"]
    assert "Done." in turn.text


def test_a_model_told_another_dialect_than_its_own_is_read_in_both():
    auto = AutoDialect(get_dialect("qwen3-coder"), prompt_dialect=get_dialect("cogency-json"))
    assert (auto.name, auto.renderer.name) == ("cogency-json", "cogency-json")
    for name in ("cogency-json", "qwen3-coder", "hermes"):
        turn = read_turn(auto, reply_text(get_dialect(name), CALLS[:1]), TOOLS)
        assert [call.name for call in turn.calls] == ["write"]
        assert turn.notes == (("dialect:hermes",) if name == "hermes" else ())


@pytest.mark.parametrize("own", ["harmony", "muse", "qwen3-coder"])
def test_what_a_model_was_told_is_read_in_any_message_of_its_own(own: str):
    auto = AutoDialect(get_dialect(own), prompt_dialect=get_dialect("cogency-json"))
    call, native = reply_text(auto.renderer, CALLS[:1], ""), reply_text(get_dialect("harmony"), CALLS[2:], "")
    for text in (
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>",
        " to=user<|message|>",
    ):
        turn = read_turn(auto, text + call, TOOLS)
        assert answer_and_calls(turn) == (text, "", [("write", CALLS[0].arguments)])
        check_cuts(auto, text + call)
    assert [entry.name for entry in read_turn(auto, native, TOOLS).calls] == ["set"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("text", "remaining"),
    [
        ("<think>a <tool_call> b</think>Hi", None),
        ("<|channel|>analysis<|message|>a<|end|>", None),
        (" to=self<|message|>a<|eom|>", None),
        ('<think>a</think><tool_call>{"name": "ping", "arguments": {}}</tool_call>', "<think>a</think>"),
    ],
)
def test_reasoning_stays_in_the_text_where_it_is_off(text: str, remaining: str | None, strict: bool):
    for cut in (len(text), 1):
        parser = open_parser(get_dialect("auto", strict_detection=strict), TOOLS, keep_reasoning=True)
        deltas = [delta for piece in chunks(text, cut) for delta in parser.feed(piece)]
        deltas += parser.close("stop")
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == (remaining or text)
        assert not [delta for delta in deltas if isinstance(delta, ReasoningDelta)]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("model", [None, "Qwen/Qwen3-8B"])
@pytest.mark.parametrize(
    ("tail", "text", "expected"),
    [
        ("<|im_start|>assistant\n<think>\n", "a</think>b", ("b", "a", [])),
        ("<think>\n\n</think>\n\n", "b", ("b", "", [])),
        ('<tool_call>\n{"name": "ping", "arguments": ', "{}}\n</tool_call>b", ("b", "", [("ping", {})])),
    ],
)
def test_a_turn_starts_where_the_prompt_ended(
    tail: str, text: str, expected: tuple[str, str, list[object]], model: str | None, strict: bool
):
    dialect = get_dialect("auto", model=model, strict_detection=strict)
    for cut in (len(text), 1):
        parser = open_parser(dialect, TOOLS, prompt_tail=tail)
        collector = TurnCollector(lambda index: f"call_{index}")
        for delta in [d for piece in chunks(text, cut) for d in parser.feed(piece)] + list(parser.close("stop")):
            collector.add(delta)
        assert answer_and_calls(collector.turn()) == expected


def test_two_dialects_in_one_turn_are_both_read():
    text = reply_text(get_dialect("hermes"), CALLS[:1]) + "\nthen\n" + reply_text(get_dialect("harmony"), CALLS[2:], "")
    turn = read_turn(AUTO, text, TOOLS)
    assert [call.name for call in turn.calls] == ["write", "set"]
    assert turn.notes == ("dialect:hermes", "dialect:harmony")
    assert turn.dialect == "harmony"
    check_cuts(AUTO, text)


def test_a_malformed_call_of_harmony_after_a_batch_that_has_ended_does_not_count():
    text = "<execute>\n<ping></ping>\n</execute><|start|>assistant to=ping<|channel|>commentary"
    check_splits(AUTO, text, TOOLS, "length")
    deltas = parse_pieces(AUTO, [text], TOOLS, "length")
    assert [delta.index for delta in deltas if isinstance(delta, CallIgnored)] == [1]


def test_the_first_block_says_which_calls_count():
    one = reply_text(get_dialect("cogency-json"), CALLS[:1], "")
    turn = read_turn(AUTO, one + "\n" + reply_text(get_dialect("hermes"), CALLS[1:2], ""), TOOLS)
    assert [call.name for call in turn.calls] == ["write"]
    assert [entry.reason for entry in turn.ignored_calls] == ["the turn's batch had ended already"]


MENTIONS = [
    "The marker `<tool_call>` opens a call, `[TOOL_CALLS]` too.",
    "Write <tool_call> and then the JSON; <execute> is for others.",
    "In C, `a<b` and a<b>c; x = [f(1), g(2)] and {'name': 1}.",
    '{"name": "read", "size": 3} and [{"name": "x"}] are data.',
    "<function=f> is Qwen's, <invoke name=x> MiniMax's, <|channel|> Harmony's, <｜DSML｜ DeepSeek's.",
    "```html\n<div><invoke></div>\n```\n```json\n[1, 2]\n```",
    ">>> f(1)\n{2}",
    "to=user is an addressee, and\n to=self<|message is half of one",
    "Action: run it. Here is my thought process: none. functools.partial(f) [f(x)](y) <|tool_call",
    "  to",
    "`",
]


@pytest.mark.parametrize("text", MENTIONS)
@pytest.mark.parametrize("own", [None, "qwen3-coder", "hermes"])
def test_what_is_only_mentioned_stays_text(text: str, own: str | None):
    auto = AutoDialect(get_dialect(own) if own else None)
    assert answer_and_calls(read_turn(auto, text, TOOLS)) == (text, "", [])
    check_cuts(auto, text)


@pytest.mark.parametrize(
    ("text", "starts_in", "expected"),
    [
        ("<think>hm</think>yes", "text", ("yes", "hm")),
        ("[THINK]hm[/THINK]yes", "text", ("yes", "hm")),
        ("hm</think>yes", "reasoning", ("yes", "hm")),
        ("<|channel>thought\nhm<channel|>yes", "text", ("yes", "hm")),
        ("<think>\nhm</think>yes", "reasoning", ("yes", "\nhm")),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes",
            "text",
            ("yes", "hm"),
        ),
        (" to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>yes", "text", ("yes", "hm")),
    ],
)
def test_reasoning_is_read_before_any_dialect_is_known(text: str, starts_in: Section, expected: tuple[str, str]):
    turn = read_turn(AUTO, text, TOOLS, starts_in=starts_in)
    assert (turn.text, turn.reasoning) == expected
    check_cuts(AUTO, text, starts_in)


@pytest.mark.parametrize("own", [None, "qwen3-coder", "kimi-k2"])
@given(
    text=soup([piece for dialect in DIALECTS for piece in MARKERS.findall(reply_text(dialect, CALLS))]), cut=st.data()
)
@examples(30)
def test_splits_do_not_matter(own: str | None, text: str, cut: st.DataObject):
    auto = AutoDialect(get_dialect(own) if own else None)
    for starts_in in ("text", "reasoning"):
        pieces = cut.draw(cuts(text))
        check_splits(auto, text, TOOLS, starts_in=starts_in, splits=[tuple(chunks(text, 1)), pieces])


@pytest.mark.over_a_second
def test_the_time_grows_with_the_text():
    for unit in ("a<b ", "<tool_call> ", "[{(<|`"):
        assert parse_growth(AUTO, "", unit, 40) < LINEAR


def _ends_early(dialect: Dialect, text: str) -> tuple[int, Sequence[int]] | None:
    """After how many characters the batch ended, and what it selected; None if that was only at the turn's end."""
    parser = dialect.parser(TOOLS)
    for at, char in enumerate(text, 1):
        for delta in parser.feed(char):
            if isinstance(delta, BatchEnded):
                return at, delta.selected
    return None


@each_dialect
def test_results_that_the_model_makes_up_end_the_batch_as_they_do_in_their_dialect(dialect: Dialect):
    call = reply_text(dialect, CALLS[:1], "")
    made_up = dialect.render_results([ToolResult("c1", "write", "success", (TextPart("x"),))])
    text = f"{call}\n{made_up}\n{reply_text(dialect, CALLS[1:2], '')}"
    alone = _ends_early(dialect, text)
    assert _ends_early(AutoDialect(dialect), text) == alone
    if alone is None:
        return  # its results have no marker of their own, or stand in messages
    assert alone[1] == (0,)
    assert alone[0] < len(call) + len(made_up), "before what was made up is there to its end"
    turn = read_turn(AutoDialect(dialect), text, TOOLS)
    assert [getattr(each, "name", "") for each in turn.calls] == [CALLS[0].name]


@pytest.mark.parametrize("strict", [False, True])
def test_a_block_of_two_families_ends_as_either_does(strict: bool):
    text = '<|tool_call|>[{"name": "read", "arguments": {"path": "a"}}]'
    for end in ("", "<|/tool_call|>", "\n<|/tool_call|>\n"):
        parser = get_dialect("auto", strict_detection=strict).parser(TOOLS)
        deltas = [*parser.feed(text + end), *parser.close("stop")]
        assert [delta.name for delta in deltas if isinstance(delta, CallCompleted)] == ["read"]
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)).strip() == ""
