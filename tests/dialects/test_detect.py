"""The dialect `auto`: what a turn is written in decides how it is read."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from dialect_strategies import TOOLS, cuts
from family_checks import examples, growth, soup
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.data.messages import MalformedCall, Message, TextPart, ToolCall
from toolspeak.dialects import DIALECTS, AutoDialect, Dialect, ParsedTurn, Section, get_dialect, read_turn
from toolspeak.testing import check_splits, chunks

AUTO = AutoDialect()
MARKERS = re.compile(r"<[^<>\n]*>|\[/?[A-Z_]+\]|[\[{(]\W*|[^\s<\[{]+")
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
CALLS = (
    ToolCall("c1", "write", {"file": "a.txt", "content": "<b>\n'é' [1]"}, provider_id="callid001"),
    ToolCall("c2", "ping", {}, provider_id="callid002"),
    ToolCall("c3", "set", {"n": 5, "flag": True, "tags": ["x", "y"]}, provider_id="callid003"),
)


def written(dialect: Dialect, calls: tuple[ToolCall, ...], text: str = "I look.") -> str:
    message = Message("assistant", (TextPart(text), *calls[: dialect.batch.max_calls]))
    return "\n".join(entry.text for entry in dialect.render([message], TOOLS))


def said(turn: ParsedTurn) -> tuple[str, str, Sequence[object]]:
    calls = [call.code if isinstance(call, MalformedCall) else (call.name, call.arguments) for call in turn.calls]
    return turn.text, turn.reasoning, calls


def check_cuts(auto: AutoDialect, text: str, starts_in: Section = "text") -> None:
    """A parser of all dialects is not made as quickly as one: these cuts and no more."""
    halves = [(text[:at], text[at:]) for at in range(1, len(text), 29)]
    check_splits(
        auto, text, TOOLS, starts_in=starts_in, splits=[tuple(chunks(text, 1)), tuple(chunks(text, 5)), *halves]
    )


@each_dialect
def test_a_turn_of_an_unknown_model_is_read_in_the_dialect_it_is_written_in(dialect: Dialect):
    text = written(dialect, CALLS)
    turn = read_turn(AUTO, text, TOOLS)
    assert said(turn) == said(read_turn(dialect, text, TOOLS))
    check_cuts(AUTO, text)


@each_dialect
def test_a_turn_of_a_known_model_is_read_as_its_dialect_reads_it(dialect: Dialect):
    auto = AutoDialect(dialect)
    text = written(dialect, CALLS)
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
]


@pytest.mark.parametrize(("own", "other"), DRIFTS)
def test_a_model_that_drifts_into_another_dialect_is_followed_and_reported(own: str, other: str):
    auto, dialect = AutoDialect(get_dialect(own)), get_dialect(other)
    text = written(dialect, CALLS[:1])
    turn = read_turn(auto, text, TOOLS)
    assert said(turn) == said(read_turn(dialect, text, TOOLS))
    assert (turn.notes, turn.dialect) == ((f"dialect:{other}",), other)
    check_cuts(auto, text)


def test_two_dialects_in_one_turn_are_both_read():
    text = written(get_dialect("hermes"), CALLS[:1]) + "\nthen\n" + written(get_dialect("harmony"), CALLS[2:], "")
    turn = read_turn(AUTO, text, TOOLS)
    assert [call.name for call in turn.calls] == ["write", "set"]
    assert turn.notes == ("dialect:hermes", "dialect:harmony")
    assert turn.dialect == "harmony"
    check_cuts(AUTO, text)


def test_the_first_block_says_which_calls_count():
    one = written(get_dialect("cogency-json"), CALLS[:1], "")
    turn = read_turn(AUTO, one + "\n" + written(get_dialect("hermes"), CALLS[1:2], ""), TOOLS)
    assert [call.name for call in turn.calls] == ["write"]
    assert [entry.reason for entry in turn.ignored] == ["the turn's batch had ended already"]


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
    assert said(read_turn(auto, text, TOOLS)) == (text, "", [])
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
@given(text=soup([piece for dialect in DIALECTS for piece in MARKERS.findall(written(dialect, CALLS))]), cut=st.data())
@examples(30)
def test_splits_do_not_matter(own: str | None, text: str, cut: st.DataObject):
    auto = AutoDialect(get_dialect(own) if own else None)
    for starts_in in ("text", "reasoning"):
        pieces = cut.draw(cuts(text))
        check_splits(auto, text, TOOLS, starts_in=starts_in, splits=[tuple(chunks(text, 1)), pieces])


def test_the_time_grows_with_the_text():
    for unit in ("a<b ", "<tool_call> ", "[{(<|`"):
        assert growth(AUTO, "", unit, 40) < 3.2
