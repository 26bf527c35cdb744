"""The special tokens that frame a turn: an engine that shows them to a parser means nothing by them."""

from __future__ import annotations

import re

import pytest
from dialect_strategies import TOOLS

from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.testing import check_splits

# dialect, the token that ends its turns, another
TOKENS = [
    ("qwen3-coder", "<|im_end|>", "<bos>"),
    ("minimax-m2", "[e~[", "<eos>"),
    ("deepseek-v4", "<｜end▁of▁sentence｜>", "<bos>"),
    ("deepseek-v31", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"),
    ("kimi-k2", "<|im_end|>", "<eos>"),
    ("hermes", "<|im_end|>", "<|im_end|>"),
    ("llama3-json", "<|eot_id|>", "<|eom_id|>"),
    ("granite3", "<|end_of_text|>", "<|end_of_text|>"),
    ("phi4-mini", "<|end|>", "<|endoftext|>"),
    ("gemma4", "<turn|>", "<bos>"),
    ("functiongemma", "<end_of_turn>", "<eos>"),
    ("lfm2", "<|im_end|>", "<|im_end|>"),
    ("glm45", "<|observation|>", "<|user|>"),
    ("inkling", "<|content_model_end_sampling|>", "<|audio_end|>"),
]


@pytest.mark.parametrize(("name", "end", "other"), TOKENS, ids=lambda each: each)
def test_special_tokens_are_dropped_around_text_and_calls_and_behind_a_marker(name: str, end: str, other: str):
    dialect = get_dialect(name)
    written = dialect.render([Message("assistant", (ToolCall("c", "read", {"file": f"a{end}"}),))], TOOLS)[0].text
    text = f"{other}I{end} read, not `{end}`.\n{written}\n{end}"
    turn = read_turn(dialect, text, TOOLS)
    (call,) = turn.calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"file": f"a{end}"}, "what an argument holds is content"
    assert turn.text.strip() == f"I read, not `{end}`."
    check_splits(dialect, text, TOOLS, "stop")


@pytest.mark.parametrize("name", ["qwen3-coder", "mimo", "seed-oss", "deepseek-v4", "kimi-k2", "minimax-m2"])
def test_a_special_token_between_a_marker_and_its_body_is_dropped(name: str):
    dialect = get_dialect(name)
    written = dialect.render([Message("assistant", (ToolCall("c", "read", {"file": "a"}),))], TOOLS)[0].text
    text = "<bos>" + written.replace(">", "><eos>", 1)
    turn = read_turn(dialect, text, TOOLS)
    assert [getattr(call, "arguments", call) for call in turn.calls] == [{"file": "a"}]
    assert turn.text == ""
    check_splits(dialect, text, TOOLS, "stop")


STOPS = [(dialect, stop) for dialect in DIALECTS for stop in dialect.info.stop]


@pytest.mark.parametrize(("dialect", "stop"), STOPS, ids=[f"{dialect.name} {stop}" for dialect, stop in STOPS])
def test_what_ends_a_turn_is_no_part_of_it(dialect: Dialect, stop: str):
    written = dialect.render([Message("assistant", (ToolCall("callid000", "read", {"file": "a"}),))], TOOLS)[0].text
    for text, said, calls in ((f"Hello.{stop}", "Hello.", 0), (written + stop, "", 1), (f"{written}\n{stop}", "\n", 1)):
        turn = read_turn(dialect, text, TOOLS)
        assert (turn.text.removesuffix("\n"), len(turn.calls)) == (said.removesuffix("\n"), calls), text
        assert all(isinstance(call, ToolCall) for call in turn.calls), turn.calls
        check_splits(dialect, text, TOOLS, "stop")


def _cuts(written: str) -> list[str]:
    """What there is of a call up to each place where a tag, a bracket or a brace ends."""
    return [written[: found.end()] for found in re.finditer(r"(?<!minimax\[)(?<!close\|)>|}|\](?![<m])", written)]


@pytest.mark.parametrize(("dialect", "stop"), STOPS, ids=[f"{dialect.name} {stop}" for dialect, stop in STOPS])
def test_a_call_without_its_end_is_read_in_the_same_way_before_the_token_that_ends_the_turn(
    dialect: Dialect, stop: str
):
    written = dialect.render([Message("assistant", (ToolCall("callid000", "read", {"file": "a"}),))], TOOLS)[0].text
    for text in _cuts(written):
        alone, stopped = read_turn(dialect, text, TOOLS), read_turn(dialect, text + stop, TOOLS)
        if all(isinstance(call, ToolCall) for call in alone.calls) and stop not in dialect.info.results:
            assert (stopped.text, stopped.calls) == (alone.text, alone.calls), text
        check_splits(dialect, text + stop, TOOLS, "stop")


@pytest.mark.parametrize("text", ["<|plamo:", "Well. <|plamo:begin_tool_req", "<|plamo:end_think:plamo|"])
def test_half_a_marker_of_several_tokens_at_the_end_of_a_turn_is_no_text(text: str):
    dialect = get_dialect("plamo3")
    said, _, marker = text.partition("<|")
    for starts_in in ("text", "reasoning"):
        turn = read_turn(dialect, text, TOOLS, starts_in=starts_in)
        assert (turn.text + turn.reasoning, turn.aside) == (said, f"<|{marker}")
    check_splits(dialect, text, TOOLS, "stop")
    assert read_turn(dialect, f"{text} is how it begins", TOOLS).text.endswith("is how it begins")
    assert read_turn(dialect, "a <|pla", TOOLS).text == "a <|pla", "too little to be told from prose"
