"""The search for what may be a marker: what it holds back, how long it takes, and what a parser leaves behind."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import pytest
from family_checks import parse_growth

from growth import LINEAR
from toolspeak.data.deltas import TextDelta
from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect

TOOLS = [ToolSpec("write", "", {"type": "object", "properties": {"path": {"type": "string"}}})]


@pytest.mark.parametrize("name", ["hermes", "mistral-v3", "deepseek-v3", "kimi-k2", "lfm2"])
def test_what_only_begins_a_turn_or_a_word_is_not_held_back_elsewhere(name: str) -> None:
    parser = get_dialect(name).parser(TOOLS)
    for chunk in ("Of that", " allow", " f(x", "){", "a[0", "][the", " raw", "\nend"):
        assert parser.feed(chunk) == [TextDelta(chunk)]


@pytest.mark.parametrize("name", ["hermes", "kimi-k2", "auto"])
def test_a_call_is_found_after_every_beginning_of_its_marker(name: str) -> None:
    dialect = get_dialect(name)
    (message,) = dialect.render([Message("assistant", (ToolCall("1", "write", {"path": "a"}),))], TOOLS)
    for before in ("", "if a < b: {\n", "[the list][0]\n", "< /t>\n", "fu wr\n", "a[\n"):
        for cut in range(len(before), len(before) + 24):
            text = before + message.text
            parser = dialect.parser(TOOLS)
            deltas = [*parser.feed(text[:cut]), *parser.feed(text[cut:]), *parser.close("stop")]
            text_out = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
            assert (text_out, [type(delta).__name__ for delta in deltas].count("CallCompleted")) == (before, 1)


@pytest.mark.over_a_second
def test_many_messages_at_once_take_linear_time() -> None:
    """In every one of them a call may stand whose special tokens a server dropped."""
    for unit in ("a<|end|>", "<|channel|>final<|message|>a<|end|>"):
        assert parse_growth(get_dialect("harmony"), "", unit, 10_000_000, 400_000) < LINEAR


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_parser_that_was_closed_is_freed_at_once(dialect: Dialect) -> None:
    """The garbage collector counts objects, not what they hold."""
    (message,) = dialect.render([Message("assistant", (ToolCall("1", "write", {"path": "a"}),))], TOOLS)
    parser = dialect.parser(TOOLS)
    for text in ("Now: ", message.text):
        parser.feed(text)
    parser.close("stop")
    collecting = gc.isenabled()
    gc.disable()
    try:
        reference = weakref.ref(parser)
        del parser
        assert reference() is None
    finally:
        if collecting:
            gc.enable()


@pytest.mark.parametrize("name", ["hermes", "kimi-k2", "auto"])
@pytest.mark.parametrize("size", [5, 200, 100_000])
@pytest.mark.parametrize("letter", ["w", "\U000b5915"], ids=["one byte", "four bytes"])
def test_of_long_prose_little_stays_in_memory(name: str, size: int, letter: str) -> None:
    parser = get_dialect(name).parser(TOOLS)
    parser.feed("It begins. ")
    tracemalloc.start()
    try:
        for _ in range(500_000 // size):
            parser.feed(str(bytearray(letter.encode() * size), "utf-8"))  # a text of its own, as from a server
        memory = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert memory < 160_000
