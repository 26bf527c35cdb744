"""Markers that are special tokens of the model's tokenizer, with llguidance, which never reads them as text."""

from __future__ import annotations

import re

import pytest
from grammar_checks import render_calls
from grammar_matchers import LlguidanceMatcher
from grammar_tools import TOOLS

from sweeps import parts
from toolspeak.data.messages import ToolCall, ToolChoice
from toolspeak.dialects import DIALECTS, Dialect, get_dialect
from toolspeak.errors import ConfigurationError

CALLS = [
    ToolCall("a1", "get_weather", {"city": "Oslo", "days": 2}),
    ToolCall("a2", "write_file", {"path": "a", "content": "b\n"}),
]


def special_tokens(dialect: Dialect) -> list[str]:
    """The markers in a turn of calls that a tokenizer may have as one token each."""
    text = render_calls(dialect, CALLS[: dialect.batch.max_calls or 2])
    return sorted(set(re.findall(r"<[^<>\s=\"]+>|\[[A-Z_]+\]", text)))


WITH_TOKENS = [dialect for dialect in DIALECTS if special_tokens(dialect)]


@pytest.mark.parametrize("dialect", WITH_TOKENS, ids=lambda dialect: dialect.name)
@parts(3)
def test_the_tokens_are_taken_and_their_characters_are_not(dialect: Dialect, part: int):
    calls, special = CALLS[: dialect.batch.max_calls or 2], special_tokens(dialect)
    ids = {text: 256 + i for i, text in enumerate(special)}
    choices = (
        (ToolChoice(), calls),
        (ToolChoice("required"), calls),
        (ToolChoice("specific", "write_file"), CALLS[1:]),
    )
    for choice, calls_to_write in choices[(WITH_TOKENS.index(dialect) + part) % 3 :: 3]:
        text = render_calls(dialect, calls_to_write)
        plain = LlguidanceMatcher(dialect.grammar(TOOLS, choice, target="lark").source, special)
        assert (plain(text), plain.spelled_out(text)) == (False, True)
        token = LlguidanceMatcher(dialect.grammar(TOOLS, choice, target="lark", special_tokens=ids).source, special)
        assert (token(text), token.spelled_out(text)) == (True, False)
        assert not token(text[:-1])


def test_a_token_is_known_by_its_name_where_it_has_one():
    hermes = get_dialect("hermes")
    special = ("<tool_call>", "</tool_call>", "<think>", "</think>")
    accepts = LlguidanceMatcher(hermes.grammar(TOOLS, target="lark", special_tokens=special).source, special)
    call = render_calls(hermes, CALLS[:1])
    assert accepts("I say <tool> and nothing more.")
    assert accepts(f"<think>Which?</think>\nI ask.\n{call}")
    assert not accepts("I say <tool_call> and nothing more.")
    assert not accepts(f"{call}\nDone.")
    assert not accepts.spelled_out("<think>Which?</think>I answer: <tool_call>")


@pytest.mark.parametrize("target", ["xgrammar", "gbnf"])
def test_other_matchers_read_a_token_as_its_text(target):
    hermes = get_dialect("hermes")
    with_tokens = hermes.grammar(TOOLS, target=target, special_tokens=("<tool_call>", "</tool_call>"))
    assert with_tokens == hermes.grammar(TOOLS, target=target)


@pytest.mark.parametrize(
    ("special", "remedy"), [(["[TOOL_CALLS]"], r"add its id, as \{text: id\}"), ("<tool_call>", "is a list of texts")]
)
def test_a_token_without_a_name_needs_its_id(special, remedy):
    with pytest.raises(ConfigurationError, match=remedy):
        get_dialect("mistral-v11").grammar(TOOLS, target="lark", special_tokens=special)
