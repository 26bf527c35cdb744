"""The special tokens that frame a turn: an engine that passes them to a parser gives them no meaning."""

from __future__ import annotations

import re

import pytest
from dialect_strategies import TOOLS

from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.testing import check_splits

# dialect, the token that ends its turns, another
TOKENS = [
    ("qwen3-coder", "<|im_end|>", "<|im_end|>"),
    ("minimax-m2", "[e~[", "[e~["),
    ("deepseek-v4", "<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    ("deepseek-v31", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"),
    ("kimi-k2", "<|im_end|>", "<|im_end|>"),
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
def test_special_tokens_are_dropped_around_text_and_calls(name: str, end: str, other: str):
    dialect = get_dialect(name)
    call_text = dialect.render([Message("assistant", (ToolCall("c", "read", {"file": f"a{end}"}),))], TOOLS)[0].text
    text = f"{other}I{end} read, not `{end}`.\n{call_text}\n{end}"
    turn = read_turn(dialect, text, TOOLS)
    (call,) = turn.calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"file": f"a{end}"}, "what an argument holds is content"
    assert turn.text.strip() == f"I read, not `{end}`."
    check_splits(dialect, text, TOOLS, "stop")


GEMMA = {"gemma4", "functiongemma"}
"""The dialects whose vocabulary holds `<bos>` and `<eos>` themselves."""


@pytest.mark.parametrize("dialect", [each for each in DIALECTS if each.name not in GEMMA], ids=lambda each: each.name)
def test_a_token_of_another_vocabulary_is_a_word(dialect: Dialect):
    text = "The <eos> token ends what <bos> began.<eos>"
    assert read_turn(dialect, text, TOOLS).text == text
    check_splits(dialect, text, TOOLS, "stop")


STOPS = [(dialect, stop) for dialect in DIALECTS for stop in dialect.info.stop]


WITHOUT_END = {"mistral-args", "mistral-ids", "mistral-v11", "functionary-v32", "muse"}
"""The dialects in which nothing ends a call: a line break after it is no text, as it may stand between two calls."""


@pytest.mark.parametrize(("dialect", "stop"), STOPS, ids=[f"{dialect.name} {stop}" for dialect, stop in STOPS])
def test_what_ends_a_turn_is_no_part_of_it(dialect: Dialect, stop: str):
    call_text = dialect.render([Message("assistant", (ToolCall("callid000", "read", {"file": "a"}),))], TOOLS)[0].text
    lead = "\n" if dialect.name == "apriel" else ""  # as its template writes before calls
    assert call_text.startswith(lead)
    gap = "" if dialect.name in WITHOUT_END else "\n"
    after = ("", gap) if dialect.info.text_aside else (gap, "")
    for text, answer, aside, calls in (
        (f"Hello.{stop}", "Hello.", "", 0),
        (call_text + stop, lead, "", 1),
        (f"{call_text}\n{stop}", lead + after[0], after[1], 1),
    ):
        turn = read_turn(dialect, text, TOOLS)
        assert (turn.text, turn.aside, len(turn.calls)) == (answer, aside, calls), text
        assert all(isinstance(call, ToolCall) for call in turn.calls), turn.calls
        check_splits(dialect, text, TOOLS, "stop")


def _cuts(call_text: str) -> list[str]:
    """What there is of a call up to each place where a tag, a bracket or a brace ends."""
    return [
        call_text[: bracket.end()] for bracket in re.finditer(r"(?<!minimax\[)(?<!close\|)>|}|\](?![<m])", call_text)
    ]


@pytest.mark.parametrize(("dialect", "stop"), STOPS, ids=[f"{dialect.name} {stop}" for dialect, stop in STOPS])
def test_a_call_without_its_end_is_read_in_the_same_way_before_the_token_that_ends_the_turn(
    dialect: Dialect, stop: str
):
    call_text = dialect.render([Message("assistant", (ToolCall("callid000", "read", {"file": "a"}),))], TOOLS)[0].text
    for text in _cuts(call_text):
        alone, turn_with_stop = read_turn(dialect, text, TOOLS), read_turn(dialect, text + stop, TOOLS)
        # An element would begin so after `<TOOLCALL>`: it is reported.
        is_reported = not alone.calls and stop.startswith("<S")
        if (
            all(isinstance(call, ToolCall) for call in alone.calls)
            and stop not in dialect.info.results
            and not is_reported
        ):
            assert (turn_with_stop.text, turn_with_stop.calls) == (alone.text, alone.calls), text
        check_splits(dialect, text + stop, TOOLS, "stop")


@pytest.mark.parametrize("text", ["<|plamo:", "Well. <|plamo:begin_tool_req", "<|plamo:end_think:plamo|"])
def test_half_a_marker_of_several_tokens_at_the_end_of_a_turn_is_no_text(text: str):
    dialect = get_dialect("plamo3")
    answer, _, marker = text.partition("<|")
    for starts_in in ("text", "reasoning"):
        turn = read_turn(dialect, text, TOOLS, starts_in=starts_in)
        assert (turn.text + turn.reasoning, turn.aside) == (answer, f"<|{marker}")
    check_splits(dialect, text, TOOLS, "stop")
    assert read_turn(dialect, f"{text} is how it begins", TOOLS).text.endswith("is how it begins")
    assert read_turn(dialect, "a <|pla", TOOLS).text == "a <|pla", "too little to be told from prose"


LEFT_OVER = [
    ("llama3-json", "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|end_of_text|>", "Hello."),
    ("functionary-v31", "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|end_of_text|>", "Hello."),
    ("llama4-pythonic", "<|header_start|>assistant<|header_end|>\n\nHello.<|eot|>", "Hello."),
    ("kimi-k2", "`<|tool_calls_section_begin|>` begins it.", "`<|tool_calls_section_begin|>` begins it."),
    ("kimi-k2", "Hello<|tool_calls_section_begin|> there.", "Hello there."),
    ("kimi-k2", "Hello.[EOS]", "Hello."),
    ("harmony", "<|channel|>final<|message|>Hello.<|endoftext|>", "Hello."),
    ("gemma4", "<|channel>thought<channel|>Hello.", "Hello."),
    ("gemma4", "<|channel>thought\n<channel|>Hello.", "Hello."),
    ("gemma4", "<|channel><channel|>Hello.", "Hello."),
    ("cogency-json", "Hello.\n<end>", "Hello."),
    ("cogency-json", "Hello.<end> \n", "Hello."),
    ("cogency-xml", "<think>x</think>Hello.<end>", "Hello."),
    ("cogency-json", "The <end> tag, `<end>`", "The <end> tag, `<end>`"),
    ("mistral-args", "It was <s>old</s>, now new.</s>\n", "It was <s>old</s>, now new."),
    ("minicpm5", "<b>Hello</b> <s>old</s> there</s>", "<b>Hello</b> <s>old</s> there"),
]


@pytest.mark.parametrize(("name", "text", "answer"), LEFT_OVER)
def test_what_frames_an_answer_is_none_of_it(name: str, text: str, answer: str):
    dialect = get_dialect(name)
    turn = read_turn(dialect, text, TOOLS)
    assert (turn.message.text, turn.reasoning.strip() in ("", "x"), turn.calls, turn.forged_results) == (
        answer,
        True,
        (),
        (),
    )
    check_splits(dialect, text, TOOLS, "stop")
    check_splits(dialect, text, TOOLS, "length")


@pytest.mark.parametrize("name", ["gemma4", "functiongemma"])
def test_the_marker_of_results_that_ends_a_turn_is_no_forgery(name: str):
    dialect = get_dialect(name)
    call = dialect.render([Message("assistant", (ToolCall("c", "read", {"file": "a"}),))], TOOLS)[0].text
    marker = next(each.text for each in dialect.parser(TOOLS).format.table.markers if each.kind == "results")
    for text, forged_results in (
        (f"{call}{marker}", ()),
        (f"{call}{marker}\n", ()),
        (f"{call}{marker}lies", ("lies",)),
    ):
        turn = read_turn(dialect, text, TOOLS)
        assert (len(turn.calls), turn.forged_results, turn.text.strip()) == (1, forged_results, "")
        check_splits(dialect, text, TOOLS, "stop")


def test_what_follows_the_end_of_a_turn_is_set_aside():
    text = 'Hello.<end>\nUser: and now?\n<execute>[{"name": "read", "args": {"file": "a"}}]</execute>'
    turn = read_turn(get_dialect("cogency-json"), text, TOOLS)
    assert (turn.message.text, turn.calls, turn.aside.strip()[:5]) == ("Hello.", (), "User:")
    check_splits(get_dialect("cogency-json"), text, TOOLS, "stop")


def test_a_call_in_the_form_of_its_definition_leaves_nothing_over():
    dialect = get_dialect("llama3-json")
    call = '{"type": "function", "function": {"name": "read", "parameters": {"file": "a"}}}'
    for text, calls, answer in ((call, 1, ""), (f"{call}; {call}<|eot_id|>", 2, ""), (f"{call} Done.", 1, "Done.")):
        turn = read_turn(dialect, text, TOOLS)
        assert (len(turn.calls), turn.text.strip()) == (calls, answer)
        assert all(isinstance(each, ToolCall) for each in turn.calls)
        check_splits(dialect, text, TOOLS, "stop")


def test_the_channel_after_a_call_is_no_text():
    call = '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"file": "a"}<|call|>'
    turn = read_turn(get_dialect("harmony"), f"{call}commentary", TOOLS)
    assert (len(turn.calls), turn.text) == (1, "")
    assert read_turn(get_dialect("harmony"), "final", TOOLS).text == "final"
    check_splits(get_dialect("harmony"), f"{call}commentary", TOOLS, "stop")
