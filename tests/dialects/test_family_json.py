"""The promises of docs/design.md 4.1 for the dialects whose calls are JSON, each with its own markers."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

import pytest
from dialect_strategies import FINISHES, NASTY_VALUES, TOOLS, cuts
from family_checks import parse_growth, results_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from growth import LINEAR, growth
from sweeps import fewer
from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, ForgedResults, ReasoningDelta, TextDelta
from toolspeak.data.messages import MalformedCall, Message, TextPart, ToolCall, ToolChoice, ToolResult
from toolspeak.dialects import Dialect, get_dialect, read_turn
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.prompts.rendering import MarkerEscaper
from toolspeak.dialects.text.block_delimiters import Signature
from toolspeak.dialects.text.markers import MarkerTable
from toolspeak.testing import (
    check_deltas,
    check_round_trip,
    check_splits,
    chunks,
    every_split,
    parse_pieces,
)

NAMES = (
    *("hermes", "granite4", "ernie45", "longcat", "jamba", "apriel", "minimax-m1", "hunyuan-a13b", "nemotron-v2"),
    "apertus",
    *("internlm2", "inkling", "dots", "granite3", "granite-20b-fc", "phi4-mini", "mistral-v3", "llama3-json", "xlam"),
    *("gigachat3", "gigachat31", "cohere-command", "command-r-plus"),
)
each_dialect = pytest.mark.parametrize("dialect", [get_dialect(name) for name in NAMES], ids=NAMES)
# One for each way of the family to find a call: markers, an array, keys that are names, no marker at all.
REPRESENTATIVES = ("hermes", "mistral-v3", "apertus", "llama3-json", "xlam")
each_representative = pytest.mark.parametrize("dialect", [get_dialect(name) for name in REPRESENTATIVES])


def examples(count: int) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(deadline=None, max_examples=fewer(count), suppress_health_check=slow)


def table(dialect: Dialect) -> MarkerTable:
    assert isinstance(dialect, DeclaredDialect)
    return dialect.table


def marker_texts(dialect: Dialect) -> list[str]:
    """Every fixed text that the dialect's parser reacts to."""
    texts: list[str] = []
    for marker in table(dialect).markers:
        opening = marker.opening
        parts = opening.parts if isinstance(opening, Signature) else (marker.text,)
        texts += [part for part in parts if isinstance(part, str)]
        texts += [end for end in (marker.end, "".join(marker.tails), *marker.also_ends) if end]
    return sorted(set(texts))


def calls_text(dialect: Dialect, *calls: tuple[str, dict[str, object]]) -> str:
    tool_calls = tuple(ToolCall(f"{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    return "".join(entry.text for entry in dialect.render([Message("assistant", tool_calls)], TOOLS))


COMMON = [
    *("```", "```json\n", "`", "\n", " ", "\n\n", "prose ", "é", "\ud800", "\x00", "<", "</", "[", "]", "{", "}", ","),
    *('"', "\\", ":", ";", '{"name": "read", "arguments": {"file": "a"}}', '{"name": "a", "parameters": {}}', "f"),
    *('[{"name": "b", "arguments": {}}]', '{"read": {}}', '"name"', '"arguments": {', "A", "fu", "functools", "</s>"),
    *('{"tool_name": "a", "parameters": {}}', '{"name":"a","args":{}}', "<|", "|>", '{"name": "', '", "', "H", "He"),
]


@st.composite
def soups(draw: st.DrawFn, dialect: Dialect) -> str:
    """Markers, halves of markers and JSON in any order, or a damaged turn."""
    whole = marker_texts(dialect)
    halves = [text[: len(text) // 2] for text in whole]
    calls = [
        calls_text(dialect, ("read", {"file": "a"})),
        calls_text(dialect, ("ping", {}), ("write", {"content": whole[0]})),
    ]
    pieces = st.one_of(st.sampled_from([*whole, *calls]), st.sampled_from([*halves, *COMMON]), st.text(max_size=2))
    text = draw(st.lists(pieces, max_size=10).map("".join))
    if draw(st.booleans()):
        text += draw(st.sampled_from(calls)) + draw(st.lists(pieces, max_size=3).map("".join))
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", *COMMON])) + text[at + draw(st.integers(0, 4)) :]
    return text


# --- 1. splits, 4. no input raises --------------------------------------------------------------


@each_dialect
@given(data=st.data())
@examples(30)
def test_splits_do_not_matter_and_nothing_raises(dialect: Dialect, data: st.DataObject):
    text = data.draw(soups(dialect))
    splits = [tuple(chunks(text, 1)), tuple(chunks(text, 4)), data.draw(cuts(text))]
    starts_in = data.draw(st.sampled_from(["text", "reasoning"]))
    check_splits(dialect, text, TOOLS, data.draw(FINISHES), starts_in=starts_in, splits=splits)


@each_dialect
def test_every_cut_in_two_of_a_turn_with_everything(dialect: Dialect):
    thought = [marker for marker in table(dialect).markers if marker.kind == "reasoning"]
    inside = f"{thought[0].text}why{thought[0].end}" if thought else ""
    text = f"{inside}\nfn{calls_text(dialect, ('write', {'content': marker_texts(dialect)[0]}), ('ping', {}))}\nHe"
    for finish in ("stop", "length"):
        check_splits(dialect, text, TOOLS, finish, splits=every_split(text))
    turn = read_turn(dialect, text, TOOLS)
    assert [call.name for call in turn.calls] == ["write", "ping"]
    assert turn.reasoning == ("why" if thought else "")


# --- 2. linear time -----------------------------------------------------------------------------


@pytest.mark.over_a_second
@each_representative
@pytest.mark.parametrize("whole", [False, True], ids=["chunks", "whole"])
def test_twice_the_text_takes_about_twice_as_long(dialect: Dialect, whole: bool):
    opening = calls_text(dialect, ("write", {"content": "@"})).partition("@")[0]
    markers = marker_texts(dialect)
    units = [
        (opening, "ab\\n "),
        (opening, markers[0]),
        ("", "prose "),
        ("", '{"name": "'),
        ("", "["),
        ("", "` "),
        ("", "f"),
    ]
    units += [("", text) for text in markers] + [("", text[:-1]) for text in markers if len(text) > 1]
    thoughts = [marker.text for marker in table(dialect).markers if marker.kind == "reasoning"]
    units += [(thought, text[:-1] or text) for thought in thoughts[:1] for text in markers]
    for start, unit in units:
        assert parse_growth(dialect, start, unit, 1_000_000 if whole else 4, 6_000) < LINEAR, (start, unit)


@each_representative
@pytest.mark.parametrize(
    ("start", "unit"),
    [("<", " "), ("", "</"), ("", "&amp;"), ("", "{"), ("", "functools"), ("", '{"name":'), ("", "[")],
)
def test_writing_results_is_linear(dialect: Dialect, start: str, unit: str):
    assert growth(results_of(dialect, start, unit), 100_000) < LINEAR


# --- 3. nothing is held back --------------------------------------------------------------------


@each_dialect
@given(data=st.data())
@examples(25)
def test_prose_is_held_back_at_most_256_characters(dialect: Dialect, data: st.DataObject):
    halves = [text[:-1] for text in marker_texts(dialect)] + ['{"name": "' + "n" * 200, '[{"name": "a"' + " " * 200]
    pieces = st.one_of(st.sampled_from([*halves, " " * 90, "x" * 90, "[ ", "`", "\n"]), st.text(max_size=3))
    text = data.draw(st.lists(pieces, max_size=8).map("".join))
    answer = 0
    if any(not isinstance(delta, TextDelta) for delta in parse_pieces(dialect, [text])):
        return
    total = sum(len(delta.text) for delta in parse_pieces(dialect, [text]) if isinstance(delta, TextDelta))
    dropped_length = len(text) - total  # frame markers, whole ones
    parser = dialect.parser()
    for i, char in enumerate(text, 1):
        answer += sum(len(delta.text) for delta in parser.feed(char) if isinstance(delta, TextDelta))
        assert i - answer - dropped_length <= 256


@each_dialect
def test_a_string_argument_is_released_as_it_arrives(dialect: Dialect):
    text = calls_text(dialect, ("write", {"content": "word " * 300}))
    parser = dialect.parser(TOOLS)
    first = text.index("word")
    streamed_length = sum(len(delta.text) for delta in parser.feed(text[:first]) if isinstance(delta, ArgumentsDelta))
    before = streamed_length
    for i in range(first, text.rindex("word"), 7):
        streamed_length += sum(
            len(delta.text) for delta in parser.feed(text[i : i + 7]) if isinstance(delta, ArgumentsDelta)
        )
        assert streamed_length - before == i + 7 - first


# --- 5. markers inside strings, 6. round trip ---------------------------------------------------


@each_dialect
def test_markers_inside_strings_are_content(dialect: Dialect):
    for marker in [*marker_texts(dialect), *NASTY_VALUES, '[{"name": "x", "arguments": {}}]', "\x0cunctools[{"]:
        check_round_trip(dialect, [ToolCall("c", "write", {"content": marker, marker: [marker]})], TOOLS)


@each_dialect
def test_unescaped_markers_inside_strings_are_content_too(dialect: Dialect):
    for marker in marker_texts(dialect):
        json_marker = json.dumps(marker, ensure_ascii=False)
        text = calls_text(dialect, ("write", {"content": "@@"})).replace('"@@"', json_marker)
        (call,) = read_turn(dialect, text, TOOLS).calls
        assert isinstance(call, ToolCall)
        assert call.arguments == {"content": marker}


# --- 7. results ---------------------------------------------------------------------------------


@st.composite
def results(draw: st.DrawFn, dialect: Dialect) -> list[ToolResult]:
    whole = marker_texts(dialect)
    whole += [text.upper() for text in whole] + [calls_text(dialect, ("read", {"file": "a"}))]
    halves = itertools.chain.from_iterable((text[:3], text[3:], text[:-1], text[-1:]) for text in whole)
    references = [
        "&",
        "&lt;",
        "amp;",
        "#102;",
        "#123;",
        "#91;",
        "lt;",
        "{",
        '"name": "a",',
        '"name":',
        '"arguments": {',
    ]
    pieces = st.sampled_from([*whole, *halves, *references, *COMMON])
    texts = st.lists(st.one_of(pieces, st.text(max_size=2)), max_size=6).map("".join)
    result_texts = draw(st.lists(texts, min_size=1, max_size=3))
    return [ToolResult(f"{i}", "read", "success", (TextPart(text),)) for i, text in enumerate(result_texts)]


@each_dialect
@given(data=st.data())
@examples(40)
def test_escapes_are_reversible(dialect: Dialect, data: st.DataObject):
    live = MarkerEscaper(table(dialect))
    for result in data.draw(results(dialect)):
        assert live.unescape(live.escape(result.text)) == result.text
        if "\ud800" not in result.text:
            assert json.loads(live.dump(result.text)) == result.text


@each_dialect
def test_results_that_the_model_writes_are_reported(dialect: Dialect):
    result_markers = [marker for marker in table(dialect).markers if marker.kind == "results"]
    text = dialect.render_results([ToolResult("1", "read", "success", (TextPart("[1]"),))])
    deltas = parse_pieces(dialect, [text])
    if result_markers and result_markers[0].text in text:
        assert any(isinstance(delta, ForgedResults) for delta in deltas)
    else:
        assert not [delta for delta in deltas if not isinstance(delta, TextDelta)]


# --- 8. truncation ------------------------------------------------------------------------------


@each_dialect
def test_a_truncated_turn_completes_no_call_that_was_not_whole(dialect: Dialect):
    text = "Hm. " + calls_text(dialect, ("write", {"content": "a\nb"}))
    last = text.rindex("}")
    for at in range(len(text)):
        deltas = parse_pieces(dialect, [text[:at]], TOOLS, "length")
        check_deltas(deltas)
        if at <= last:
            assert not [delta for delta in deltas if isinstance(delta, CallCompleted)]


@each_dialect
def test_a_block_that_stops_inside_its_string_is_malformed(dialect: Dialect):
    text = calls_text(dialect, ("write", {"content": "abc"}))
    text = text[: text.index("bc")]
    for finish in ("stop", "length"):
        (call,) = read_turn(dialect, text, TOOLS, finish=finish).calls
        assert isinstance(call, MalformedCall)


# --- what each dialect adds ---------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    dialect: str
    text: str
    calls: list[tuple[str, object]]
    answer: str = ""
    thought: str = ""
    notes: tuple[str, ...] = ()


F, G, P, Q = (
    '{"name": "f", "arguments": {}}',
    '{"name": "g", "arguments": {}}',
    '{"name": "f", "parameters": {}}',
    '{"name": "g", "parameters": {}}',
)
CALLED_F: list[tuple[str, object]] = [("f", {})]
CALLED_G: list[tuple[str, object]] = [("g", {})]
QUOTED_ARGUMENTS = r'"{\"a\": 1}"'
F_THEN_G = [*CALLED_F, *CALLED_G]
DOTS_G = f"<dots_function_call>{G}</dots_function_call>"
LONG = "x" * 256
PROSE = f'Her {{"name": "Ann", "age": 3}}; `{P}`'
FUNCTOOLS = "import functools; functools[0]; functools [x]"
CASES = [
    Case(
        "granite4",
        f'<tool_call>{{"name": "f", "arguments": {QUOTED_ARGUMENTS}}}</tool_call>',
        [("f", {"a": 1})],
        notes=("arguments_text",),
    ),
    Case(
        "granite4",
        f'<tool_call>{{"arguments": {QUOTED_ARGUMENTS}, "name": "f"}}</tool_call>',
        [("f", {"a": 1})],
        notes=("arguments_text",),
    ),
    Case("granite4", '<tool_call>{"name": "f", "arguments": "a"}</tool_call>', []),
    Case("granite4", '<tool_call>{"name": "f", "arguments": "[1]"}</tool_call>', []),
    Case(
        "hermes",
        f'<tool_call>{{"name": "f", "arguments": {QUOTED_ARGUMENTS}}}</tool_call><|im_end|>',
        [("f", {"a": 1})],
        notes=("arguments_text",),
    ),
    Case("ernie45", "<think>a</think>\n\n<response>\nb\n</response>\n", [], "b", "a"),
    Case("apertus", '<|tools_prefix|>[{"f": {"a": 1}, "g": {}}]<|tools_suffix|>', []),
    Case("apertus", '<|tools_prefix|>[{"name": {"id": 1}}]<|tools_suffix|>', [("name", {"id": 1})]),
    Case("apertus", "<|tools_prefix|>[{}]<|tools_suffix|>", []),
    Case(
        "apertus", '<|inner_prefix|>a<|tools_prefix|>[{"f": {}}]<|tools_suffix|><|inner_suffix|>b', CALLED_F, "b", "a"
    ),
    Case("inkling", '<|message_model|>f<|content_invoke_tool_json|>{"name":"f","args":{}}<|end_message|>', CALLED_F),
    Case("inkling", 'f<|content_invoke_tool_json|>{"name":"f","args":{}}<|end_message|>', CALLED_F),
    Case("inkling", "f<|content_invoke", [], "f<|content_invoke"),
    Case("inkling", "<|content_invoke_tool_text|>a<|end_message|>", [], "a"),
    Case("dots", f'a<dots_function_call>\n<invoke name="f">\n</invoke>\n</dots_function_call> {DOTS_G}', F_THEN_G, "a"),
    Case("dots", "<dots_function_call> <invoke>1</dots_function_call>", []),
    Case("dots", '<dots_function_call><invoke name="f"><parameter name="a">1', []),
    Case("inkling", "<|message_model|><|content_text|>a<|end_message|><|message_model|>", [], "a"),
    Case("llama3-json", f"<|python_tag|>{P};{Q}", [*CALLED_F, *CALLED_G]),
    Case("llama3-json", f"{F} ; and", CALLED_F, "and", notes=("arguments_key:arguments",)),
    Case("llama3-json", '{"type": "function", "name": "f", "parameters": {}}', CALLED_F, notes=("extra_key:type",)),
    # the arguments come first: a call if all of it is there, otherwise an object like others
    Case("llama3-json", 'So: {"parameters": {}, "name": "f"}', CALLED_F, "So: "),
    Case("xlam", '[{"arguments": {}, "name": "f"}]', CALLED_F),
    Case("granite3", '[{ "arguments" : {} , "name" : "f" }]', CALLED_F),
    Case(
        "llama3-json",
        '{"parameters": {"a": {"b": "}{"}}, "name": 5}',
        [],
        '{"parameters": {"a": {"b": "}{"}}, "name": 5}',
    ),
    Case("llama3-json", '{"parameters": {}, "name": "f", "in": "q"}', [], '{"parameters": {}, "name": "f", "in": "q"}'),
    Case(
        "xlam",
        f'{{"arguments": {{"a": "{LONG}"}}, "name": "f"}}',
        [],
        f'{{"arguments": {{"a": "{LONG}"}}, "name": "f"}}',
    ),
    Case("llama3-json", PROSE, [], PROSE),
    Case("xlam", f"<think>[{F}]</think>[{G}]", CALLED_G, "", f"[{F}]"),
    Case("xlam", f"So:\n```json\n[{G}]\n```\nok", [], f"So:\n```json\n[{G}]\n```\nok"),
    Case("xlam", f"So.\n```json\n[{G}]\n```\n", CALLED_G, "So.\n\n"),
    Case("granite3", f"<tool_call>[{G}]", CALLED_G),
    Case("granite3", "Here's my thought process: a Here is my response: b", [], "b", "a"),
    Case("phi4-mini", FUNCTOOLS, [], FUNCTOOLS),
    Case("gigachat3", f"a<|message_sep|>\n\nfunction call<|role_sep|>\n{F}</s>", CALLED_F, "a"),
    Case("gigachat3", 'function call<|role_sep|>\n{"name": "f"}', []),
    Case(
        "apriel",
        "Here are my reasoning steps:\na\n[BEGIN FINAL RESPONSE]\n"
        f"<tool_calls>[{F}]</tool_calls>\n[END FINAL RESPONSE]",
        CALLED_F,
        "",
        "a",
    ),
    Case("command-r-plus", 'Plan.\nAction: ```json\n[{"tool_name": "f", "parameters": {}}]\n```', CALLED_F, "Plan."),
    Case("mistral-v3", f"[TOOL_CALLS] {F}", CALLED_F),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dialect}: {case.text[:30]}")
def test_what_a_dialect_adds(case: Case):
    dialect = get_dialect(case.dialect)
    check_splits(dialect, case.text)
    turn = read_turn(dialect, case.text)
    calls = [call for call in turn.calls if isinstance(call, ToolCall)]
    assert [(call.name, call.arguments) for call in calls] == case.calls
    assert not calls or calls[0].notes == case.notes
    if case.answer or not turn.calls:
        assert case.answer in turn.text
    else:
        assert turn.text.strip() == ""
    assert turn.reasoning.strip() == case.thought


def test_arguments_in_a_string_leave_as_the_object_they_hold():
    text = '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"b\\"}"}</tool_call>'
    deltas = parse_pieces(get_dialect("granite4"), chunks(text, 1))
    assert "".join(delta.text for delta in deltas if isinstance(delta, ArgumentsDelta)) == '{"a": "b"}'


def test_ids_go_with_calls_and_results():
    text = '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abc123def"}]'
    dialect = get_dialect("mistral-v3")
    turn = read_turn(dialect, text)
    (call,) = turn.calls
    assert isinstance(call, ToolCall)
    assert call.provider_id == "abc123def"
    result = ToolResult(call.id, "f", "success", (TextPart("1"),))
    history_sent = dialect.render([turn.message, Message("tool", (result,))])
    assert [entry.text for entry in history_sent] == [
        text,
        '[TOOL_RESULTS]{"content": 1, "call_id": "abc123def"}[/TOOL_RESULTS]',
    ]


@each_dialect
def test_a_malformed_call_is_shown_to_the_model_as_it_was(dialect: Dialect):
    text = calls_text(dialect, ("write", {"content": "abc"})).replace('"abc"', "abc")
    turn = read_turn(dialect, text, TOOLS)
    assert [type(call) for call in turn.calls] == [MalformedCall]
    history_sent = "".join(entry.text for entry in dialect.render([turn.message], TOOLS))
    assert turn.calls[0].raw.strip() in history_sent


@each_dialect
def test_the_instructions_show_calls_that_can_be_read(dialect: Dialect):
    text = dialect.instructions(TOOLS, ToolChoice(), "prose")
    calls = [call for call in read_turn(dialect, text, TOOLS).calls if isinstance(call, ToolCall)]
    assert len(calls) == 2


@each_dialect
def test_prose_reasoning_and_unmarked_json_stay_unchanged(dialect: Dialect):
    text = 'Plain `<tool_call>` and {"a": [1]} and functools.partial; a function; He said A.'
    assert all(isinstance(delta, TextDelta | ReasoningDelta) for delta in parse_pieces(dialect, chunks(text, 3)))
    assert read_turn(dialect, text).text == text


def test_a_signature_is_decided_at_its_first_wrong_character():
    decide = table(get_dialect("xlam")).decide
    assert decide('{"name": "f", "') == "undecided"
    assert decide('{"name": "f", "x') == "undecided"
    assert decide('{"name": "f", "x"') == "text"
    assert decide('{"nam', final=True) == "text"


def test_a_code_block_that_ends_within_a_line_is_the_same_in_every_cut():
    action = 'Action:\n```json\n[{"tool_name": "f", "parameters": {}}]\n```'
    check_splits(get_dialect("command-r-plus"), f"```Action:\n```json{action}", TOOLS)


@each_dialect
@pytest.mark.parametrize("text", ["a\n{}", "tool_call>\n{}", "<think>a</think>b\n{}", "Write: [{}]"])
def test_a_call_without_a_marker_that_does_not_begin_the_turn_is_the_same_in_every_cut(dialect: Dialect, text: str):
    check_splits(dialect, text.replace("{}", '{"name": "write", "arguments": {"file": "a", "content": ""}}'), TOOLS)


def test_minimax_m1_writes_all_calls_into_one_block_one_per_line():
    dialect = get_dialect("minimax-m1")
    calls = [ToolCall(f"{i}", "write", {"file": name, "content": ""}) for i, name in enumerate("ab")]
    lines = [f'{{"name": "write", "arguments": {{"file": "{name}", "content": ""}}}}' for name in "ab"]
    block = f"<tool_calls>\n{lines[0]}\n{lines[1]}\n</tool_calls>"
    assert dialect.render([Message("assistant", tuple(calls))])[0].text == block
    read = read_turn(dialect, f"<think>Both.</think>{block}", TOOLS)
    arguments = [call.arguments for call in read.calls if isinstance(call, ToolCall)]
    assert (read.reasoning, arguments) == ("Both.", [call.arguments for call in calls])
    broken_turn = read_turn(dialect, block.replace('"a"', "a"), TOOLS)
    assert [type(call) for call in broken_turn.calls] == [MalformedCall, ToolCall]


def test_minimax_m1_results_are_tool_turns_or_named_as_such():
    dialect = get_dialect("minimax-m1")
    results = Message(
        "tool", tuple(ToolResult(text, "write", "success", (TextPart(text),)) for text in ("done", "done too"))
    )
    assert [entry.text for entry in dialect.render([results], tool_role=True)] == ["done", "done too"]
    (results_sent,) = dialect.render([results])
    assert (results_sent.role, results_sent.text) == ("user", "tool result: done\n\ntool result: done too\n\n")
