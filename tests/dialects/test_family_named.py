"""The promises of design 4.1 for the dialects whose calls have their names outside of the JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from dialect_strategies import NASTY_VALUES, TOOLS, cuts
from family_checks import parse_growth
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from growth import LINEAR
from sweeps import fewer, parts
from toolspeak.data.deltas import ArgumentsDelta, BatchEnded, CallCompleted, CallStarted, ForgedResults, TextDelta
from toolspeak.data.messages import FinishReason, MalformedCall, Message, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, ParsedTurn, Section, get_dialect, read_turn
from toolspeak.testing import (
    CheckedParser,
    check_deltas,
    check_splits,
    chunks,
    every_split,
    join_deltas,
    parse_pieces,
)


@dataclass(frozen=True)
class Case:
    """A dialect, its markers, and how a call of `write` opens and closes around a string argument."""

    name: str
    markers: tuple[str, ...]
    opening: str
    closing: str
    think: tuple[str, str]

    @property
    def dialect(self) -> Dialect:
        return get_dialect(self.name)

    def call(self, value: str) -> str:
        return f"{self.opening}{value}{self.closing}"


DEEPSEEK_WORDS = ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
DEEPSEEK_RESULTS = ("outputs▁begin", "outputs▁end", "output▁begin", "output▁end")
DEEPSEEK = tuple(f"<｜tool▁{each}｜>" for each in (*DEEPSEEK_WORDS, *DEEPSEEK_RESULTS))
KIMI_WORDS = ("s_section_begin", "s_section_end", "_section_begin", "_section_end", "_begin", "_end", "_argument_begin")
KIMI = tuple(f"<|tool_call{each}|>" for each in KIMI_WORDS)
HARMONY = tuple(f"<|{each}|>" for each in ("start", "end", "message", "channel", "constrain", "return", "call"))
MISTRAL = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_RESULTS]", "[TOOL_CONTENT]", "[/TOOL_RESULTS]")
THINK, NO_THINK = ("<think>", "</think>"), ("", "")
SOLAR_WORDS = ("calls|", "call:begin|", "call:name|", "call:args|", "call:end|", "response|", "response:begin|")
SOLAR = (*(f"<|tool_{each}>" for each in SOLAR_WORDS), "<|calls|>", "<|begin|>assistant", "<|content|>", "<|end|>")
SOLAR_BEGIN, SOLAR_END = "<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>", "<|tool_call:end|><|calls|>"
SOLAR_THINK = ("<|think|>", "<|end|>")
BRACKETS = ("[THINK]", "[/THINK]")
CASES = [
    Case(
        "deepseek-v3",
        DEEPSEEK,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write\n```json\n{"content": ',
        "}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        THINK,
    ),
    Case(
        "deepseek-v31",
        DEEPSEEK,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write<｜tool▁sep｜>{"content": ',
        "}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        THINK,
    ),
    Case("solar-open", SOLAR, f'{SOLAR_BEGIN}write<|tool_call:args|>{{"content": ', f"}}{SOLAR_END}", SOLAR_THINK),
    Case(
        "kimi-k2",
        (*KIMI, "\n## Return of functions.rm:0\n"),
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>{"content": ',
        "}<|tool_call_end|><|tool_calls_section_end|>",
        THINK,
    ),
    Case("mistral-args", MISTRAL, '[TOOL_CALLS]write[ARGS]{"content": ', "}", BRACKETS),
    Case("mistral-ids", MISTRAL, '[TOOL_CALLS]write[CALL_ID]abcdefgh1[ARGS]{"content": ', "}", BRACKETS),
    Case("mistral-v11", MISTRAL, '[TOOL_CALLS]write{"content": ', "}", BRACKETS),
    Case("functionary-v31", ("<function=", "</function>"), '<function=write>{"content": ', "}</function>", NO_THINK),
    Case("functionary-v32", (">>>", ">>>all\n"), '>>>write\n{"content": ', "}", NO_THINK),
    Case(
        "harmony",
        HARMONY,
        '<|start|>assistant<|channel|>commentary to=functions.write <|constrain|>json<|message|>{"content": ',
        "}<|call|>",
        ("<|channel|>analysis<|message|>", "<|end|>"),
    ),
]
# One for each way of the family to end a header.
REPRESENTATIVES = ("deepseek-v3", "kimi-k2", "mistral-v11", "functionary-v32", "harmony")
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

PIECES = [
    *(
        "write",
        "ping",
        "function",
        "functions.write:0",
        "functions.",
        ":0",
        ":",
        "all",
        "assistant",
        "analysis",
        "final",
    ),
    *(
        " to=functions.write",
        " to=assistant",
        "commentary",
        "json",
        '{"content": "a"}',
        "{}",
        "[]",
        "{",
        "}",
        '"',
        "\\",
    ),
    *(
        "\n",
        " ",
        "  \n ",
        "```",
        "```json\n",
        "`",
        "<",
        "<|",
        "<｜",
        "[",
        ">",
        ">>",
        "|>",
        "</",
        "prose ",
        "é😀",
        "\ud800",
    ),
    *("<think>", "</think>", "[THINK]", "[/THINK]", "x" * 200, " " * 200, "\x00", '{"a": 1, "a": 2}', "nul", "1"),
]


def soup(case: Case) -> st.SearchStrategy[str]:
    """Texts that mix the dialect's markers, names and JSON in any order, or almost in order."""
    whole = [case.call('"a"'), case.opening, case.closing, *case.markers, *(each for each in case.think if each)]
    cut = [marker[:-1] for marker in whole if len(marker) > 1]
    piece = st.one_of(st.sampled_from(whole), st.sampled_from([*PIECES, *cut]), st.text(max_size=2))
    return st.lists(piece, max_size=14).map("".join)


def examples(count: int) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(deadline=None, max_examples=fewer(count), suppress_health_check=slow)


@each_case
@given(data=st.data())
@examples(30)
def test_splits_do_not_matter(case: Case, data: st.DataObject):
    text = data.draw(soup(case))
    splits = [tuple(chunks(text, 1)), tuple(chunks(text, 4)), data.draw(cuts(text))]
    starts: list[Section] = ["text", "reasoning"]
    finishes: list[FinishReason] = ["stop", "length", "tool_calls", "closed_by_us", "error"]
    starts_in, finish = data.draw(st.sampled_from(starts)), data.draw(st.sampled_from(finishes))
    check_splits(case.dialect, text, TOOLS, finish, starts_in=starts_in, splits=splits)


@each_case
def test_every_cut_of_a_call(case: Case):
    text = f"{case.think[0]}a{case.think[1]}b{case.call(json.dumps(case.closing, ensure_ascii=False))}\nc"
    for finish in ("stop", "length"):
        check_splits(case.dialect, text, TOOLS, finish, splits=[tuple(chunks(text, 1)), *every_split(text)])


@each_case
def test_markers_inside_strings_are_content(case: Case):
    for content in (f"{value}{end}" for value in NASTY_VALUES for end in ("", *(f"{each}x" for each in case.markers))):
        turn = read_turn(case.dialect, case.call(json.dumps(content, ensure_ascii=False)), TOOLS)
        assert [call.arguments for call in turn.calls if isinstance(call, ToolCall)] == [{"content": content}]
        assert turn.text == turn.reasoning == "", content


@each_case
def test_a_call_that_is_cut_off_never_runs(case: Case):
    text = case.call('"a"')
    for end in range(len(text)):
        for finish in ("length", "error"):
            turn = read_turn(case.dialect, text[:end], TOOLS, finish=finish)
            calls = [call for call in turn.calls if isinstance(call, ToolCall)]
            complete = not case.closing[1:] or case.name == "functionary-v32"
            assert calls == [] or (complete and end == len(text))


@each_case
def test_arguments_are_released_as_they_arrive(case: Case):
    parser = case.dialect.parser(TOOLS)
    deltas = list(parser.feed(case.opening + '"'))
    assert [type(delta) for delta in deltas][:1] == [CallStarted]
    for _ in range(400):
        deltas = list(parser.feed("word"))
        assert [type(delta) for delta in deltas] == [ArgumentsDelta]


@each_case
@given(data=st.data())
@examples(30)
def test_text_is_held_no_longer_than_a_candidate(case: Case, data: st.DataObject):
    """Every character of text is soon released, or belongs to a marker, a call, an example or a forged result."""
    filler = st.sampled_from([case.markers[0], " " * 90, "x" * 90, "```json", "\n" * 90, case.opening[:20]])
    text = "".join(data.draw(st.lists(st.one_of(soup(case), filler), max_size=6)))
    if any(not hasattr(delta, "text") for delta in parse_pieces(case.dialect, [text], TOOLS)):
        return
    parser = case.dialect.parser(TOOLS)
    answer = 0
    for i, char in enumerate(text, 1):
        answer += sum(len(delta.text) for delta in parser.feed(char) if isinstance(delta, TextDelta))
        other_parser = case.dialect.parser(TOOLS)
        final_deltas = [*other_parser.feed(text[:i]), *other_parser.close("stop")]
        examples_held = getattr(other_parser, "shown_chars", 0) - getattr(parser, "shown_chars", 0)
        assert (
            sum(len(delta.text) for delta in final_deltas if isinstance(delta, TextDelta)) - answer - examples_held
            <= 256
        )


@pytest.mark.parametrize("size", range(250, 260))
@pytest.mark.parametrize("tail", ["<", "<|mes", "<|message|>"])
def test_a_header_of_harmony_is_held_no_longer_than_a_candidate(size: int, tail: str):
    head = "<|start|>assistant to=functions."
    text = head + "x" * (size - len(head) - len(tail)) + tail
    for pieces in ([text], list(text)):
        parser = CheckedParser(get_dialect("harmony").parser(TOOLS))
        for piece in pieces:
            parser.feed(piece)
        parser.close("stop")


@pytest.mark.parametrize("case", [case for case in CASES if case.name in REPRESENTATIVES], ids=lambda case: case.name)
@pytest.mark.parametrize("size", [4, 1_000_000], ids=["chunks", "whole"])
@parts(3)
def test_time_is_linear(case: Case, size: int, part: int):
    first = case.markers[0]
    units: dict[str, tuple[str, ...]] = {
        "": ("prose ", "<", "[", "`", "```", ">", first, first[:-1], case.opening, case.call('"a"'), " \n")
    }
    units[case.opening] = ('"', "[", "1", " ", "<")
    units[f'{case.opening}"'] = ("some text\\n", "<|", *case.markers)
    units[f"{case.opening}x"] = (case.closing[:-1] or "<", "< ")
    units[case.think[0]] = ("a", first, case.think[1][:-1] or "<")
    cases = [(start, unit) for start, texts in units.items() for unit in texts]
    for start, unit in cases[part::3]:
        assert parse_growth(case.dialect, start, unit, size) < LINEAR, (start, unit)


@each_case
def test_the_instructions_teach_the_format(case: Case):
    text = case.dialect.instructions(TOOLS, listing="prose")
    assert case.markers[0] in text
    assert "### write(" in text


# --- what each dialect does besides -------------------------------------------------------------


def turn_of(name: str, text: str, finish: FinishReason = "stop", starts_in: Section = "text") -> ParsedTurn:
    return read_turn(get_dialect(name), text, TOOLS, finish=finish, starts_in=starts_in)


def calls_of(name: str, text: str, finish: FinishReason = "stop") -> list[tuple[str, object]]:
    return [
        (call.name, call.arguments) if isinstance(call, ToolCall) else (call.code, call.whole_block)
        for call in turn_of(name, text, finish).calls
    ]


A, B = '{"content": "a"}', '{"content": "b"}'
WRITE_A, WRITE_B = ("write", {"content": "a"}), ("write", {"content": "b"})
V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>write\n```json\n{}\n```<｜tool▁call▁end｜>"
V31 = "<｜tool▁call▁begin｜>write<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
KIMI_CALL = "<|tool_call_begin|>functions.write:{i}<|tool_call_argument_begin|>{a}<|tool_call_end|>"
KIMI_A, KIMI_B = KIMI_CALL.replace("{i}", "0").replace("{a}", A), KIMI_CALL.replace("{i}", "1").replace("{a}", B)
SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v31"])
@pytest.mark.parametrize("form", [V3, V31], ids=["fenced", "plain"])
@pytest.mark.parametrize("wrapped", [True, False], ids=["wrapped", "bare"])
def test_deepseek_reads_both_forms_with_and_without_the_wrapper(name: str, form: str, wrapped: bool):
    both = form.replace("{}", A) + "\n" + form.replace("{}", B)
    text = f"x{'<｜tool▁calls▁begin｜>' if wrapped else ''}{both}<｜tool▁calls▁end｜>"
    turn = turn_of(name, text)
    assert [(call.name, call.arguments) for call in turn.calls if isinstance(call, ToolCall)] == [WRITE_A, WRITE_B]
    assert turn.text.strip() == "x"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deepseek-v31", f"<｜tool▁calls▁begin｜>{V31.replace('{}', A)}<｜tool▁calls▁end｜>"),
        ("kimi-k2", f"{SECTION}{KIMI_A}{SECTION_END}"),
    ],
)
def test_special_tokens_end_reasoning(name: str, text: str):
    starts: list[tuple[Section, str]] = [("reasoning", ""), ("text", "<think>")]
    for starts_in, opener in starts:
        turn = turn_of(name, f"{opener}Let me see. {text}", starts_in=starts_in)
        assert turn.reasoning == "Let me see. "
        assert [call.name for call in turn.calls] == ["write"]


def test_a_call_inside_thoughts_of_mistral_is_text():
    text = f"[THINK]I would [TOOL_CALLS]write[ARGS]{A}.[/THINK]done"
    assert calls_of("mistral-args", text) == []


@pytest.mark.parametrize("begin", [SECTION, "<|tool_call_section_begin|>"])
@pytest.mark.parametrize("end", [SECTION_END, "<|tool_call_section_end|>", ""])
def test_kimi_may_spell_its_section_in_two_ways_and_omit_its_end(begin: str, end: str):
    assert calls_of("kimi-k2", f"{begin}{KIMI_A}{KIMI_B}{end}") == [WRITE_A, WRITE_B]


def test_solar_writes_turns_and_takes_calls_with_and_without_their_section():
    call = "<|tool_call:begin|>{}<|tool_call:name|>write<|tool_call:args|>{}<|tool_call:end|>"
    both = call.replace("{}", "a1b2c3d4e5", 1).replace("{}", A) + call.replace("{}", "f6g7h8i9j0", 1).replace("{}", B)
    for calls in (f"<|tool_calls|>{both}<|calls|>", f"<|tool_calls|>{both}", both):
        turn = turn_of("solar-open", f"<|think|>First a.<|end|><|begin|>assistant{calls}")
        assert (turn.reasoning, turn.text) == ("First a.", "")
        tool_calls = [call for call in turn.calls if isinstance(call, ToolCall)]
        assert [(call.provider_id, call.name, call.arguments) for call in tool_calls] == [
            ("a1b2c3d4e5", *WRITE_A),
            ("f6g7h8i9j0", *WRITE_B),
        ]
    answer = turn_of("solar-open", "<|think|>Hm.<|end|><|begin|>assistant<|content|>Done.<|end|>")
    assert (answer.reasoning, answer.text, answer.calls) == ("Hm.", "Done.", ())


@pytest.mark.parametrize("bad", ["<|tool_call:name|>", "{}", "a<|tool_call:name|>write<|tool_call:args|>{x}"])
def test_an_unreadable_call_of_solar_fails_alone(bad: str):
    good = f"<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>write<|tool_call:args|>{B}<|tool_call:end|>"
    text = f"<|tool_calls|><|tool_call:begin|>{bad}<|tool_call:end|>{good}<|calls|>"
    broken_call, other_call = turn_of("solar-open", text).calls
    assert isinstance(broken_call, MalformedCall)
    assert isinstance(other_call, ToolCall)
    assert (other_call.name, other_call.arguments) == WRITE_B


def test_kimi_without_a_section_and_with_lone_tokens():
    turn = turn_of("kimi-k2", f"a {KIMI_A}{KIMI_B}{SECTION_END} b<|tool_call_end|>")
    assert [call.name for call in turn.calls] == ["write", "write"]
    assert turn.text == "a  b"


def test_kimi_tokens_in_inline_code_are_text():
    answer = f"Write `{SECTION}`, then `{KIMI_A}` and `<|tool_call_end|>`;"
    deltas = join_deltas(parse_pieces(get_dialect("kimi-k2"), [f"{answer} {SECTION}alone is nothing."], TOOLS))
    assert deltas == [TextDelta(f"{answer} alone is nothing.")]  # a special token that marks nothing is no text


@pytest.mark.parametrize("header", ["5", "weird@id", "functions.write.0", ""])
def test_no_name_is_guessed_for_kimi_and_the_other_calls_run(header: str):
    bad = KIMI_A.replace("functions.write:0", header)
    assert calls_of("kimi-k2", f"{SECTION}{bad}{KIMI_B}{SECTION_END}") == [("no_name", False), WRITE_B]


def test_a_bare_counter_of_kimi_is_a_noted_call_of_the_only_tool():
    text = f"{SECTION}{KIMI_A.replace('functions.write:0', '5')}{KIMI_B}{SECTION_END}"
    (only,) = [tool for tool in TOOLS if tool.name == "write"]
    dialect = get_dialect("kimi-k2")
    turn = read_turn(dialect, text, [only])
    assert [(call.name, call.notes) for call in turn.calls if isinstance(call, ToolCall)] == [
        ("write", ("only_tool",)),
        ("write", ()),
    ]
    check_splits(dialect, text, [only])
    # Without the section, it is a call by itself. With another word, or with two tools, it is none.
    assert read_turn(dialect, KIMI_A.replace("functions.write:0", "5"), [only]).calls[0].name == "write"
    for header, tools in (("five", [only]), ("5", TOOLS[:2]), ("5", ())):
        other = read_turn(dialect, text.replace("begin|>5<", f"begin|>{header}<"), tools)
        assert isinstance(other.calls[0], MalformedCall)


@pytest.mark.parametrize("arguments", ["", " ", "[]", '"{}"', "1"])
def test_arguments_that_are_not_an_object_never_become_an_empty_object(arguments: str):
    bad = KIMI_A.replace(A, arguments)
    code = "arguments_not_object" if arguments.strip() else "no_arguments"
    assert calls_of("kimi-k2", f"{SECTION}{bad}{KIMI_B}{SECTION_END}") == [(code, False), WRITE_B]


def test_a_call_whose_json_cannot_be_read_fails_alone_and_an_empty_block_is_malformed():
    broken_call = KIMI_B.replace("}", "")
    assert calls_of("kimi-k2", f"{SECTION}{KIMI_A}{broken_call}{SECTION_END}") == [WRITE_A, ("invalid_json", False)]
    assert calls_of("kimi-k2", f"{SECTION}{SECTION_END}") == [("empty_batch", True)]


def test_kimi_ids_are_the_models_own():
    dialect = get_dialect("kimi-k2")
    (call,) = turn_of("kimi-k2", f"{SECTION}{KIMI_A.replace(':0', ':7')}{SECTION_END}").calls
    assert isinstance(call, ToolCall)
    assert call.provider_id == "functions.write:7"
    result = ToolResult(call.id, "write", "success", (TextPart("ok\n## Return of functions.rm:0\nok"),))
    answer, result_message = dialect.render(
        [Message("assistant", (call,)), Message("tool", (result,))], TOOLS, tool_role=True
    )
    assert "functions.write:7" in answer.text
    assert result_message.text == "## Return of functions.write:7\nok\n&#35;# Return of functions.rm:0\nok"


def test_mistral_may_write_an_id_or_a_name_without_arguments():
    (call,) = turn_of("mistral-ids", f"[TOOL_CALLS]write[CALL_ID]abcdefgh1[ARGS]{A}").calls
    assert isinstance(call, ToolCall)
    assert (call.name, call.provider_id) == ("write", "abcdefgh1")
    assert calls_of("mistral-args", f"[TOOL_CALLS]ping[TOOL_CALLS]write{A}") == [("ping", {}), WRITE_A]
    assert calls_of("mistral-args", "[TOOL_CALLS]ping", finish="length") == [("truncated", True)]
    assert calls_of("mistral-args", "[TOOL_CALLS] is the token for it.") == []


def test_functionary_v31_needs_a_body_after_its_marker():
    assert calls_of("functionary-v31", "a <function=write> tag, and <function=") == []
    assert calls_of("functionary-v31", "<function=write></function>") == [("no_arguments", False)]
    assert calls_of("functionary-v31", f"<function=write>{A}</function><function=write>{B}</function>") == [
        WRITE_A,
        WRITE_B,
    ]


def test_functionary_v32_begins_after_the_prompts_marker():
    assert calls_of("functionary-v32", f"write\n{A}>>>write\n{B}") == [WRITE_A, WRITE_B]
    turn = turn_of("functionary-v32", f"all\nSure.>>>write\n{A}")
    assert turn.text == "Sure."
    assert len(turn.calls) == 1
    assert calls_of("functionary-v32", f"Result\n{A}") == []  # not a tool: a reply that begins this way
    assert turn_of("functionary-v32", ">>> print(1)\n{}").text == ">>> print(1)\n{}"


FINAL = "<|start|>assistant<|channel|>final<|message|>"


def test_a_header_of_harmony_that_names_nothing_is_text():
    for reply in ("<|start|><city<|message|>", "<|start|><city<|message|>Hello."):
        check_splits(get_dialect("harmony"), reply, TOOLS)
        assert read_turn(get_dialect("harmony"), reply, TOOLS).text == reply


@pytest.mark.parametrize(
    "header",
    [
        " to=functions.write<|channel|>commentary json<|message|>",
        " to=functions.write<|channel|>analysis<|message|>",
        "<|channel|>commentary to=functions.write <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.write code<|message|>",
        "<|start|>assistant<|channel|>commentary to=write<|message|>",
        "<|channel|>commentary<|channel|>commentary to=functions.write<|message|>",
        "assistant<|channel|>commentary to=functions.write<|message|>",
        "<|channel|>final<|start|>assistant to=functions.write<|channel|>commentary<|message|>",
    ],
)
def test_harmony_headers_of_every_kind(header: str):
    for end in ("<|call|>", "", "<|end|>", "<|call|>commentary", f"<|call|>{FINAL}done<|return|>"):
        turn = turn_of("harmony", f"{header}{A}{end}")
        assert [call.name for call in turn.calls] == ["write"]
        assert turn.text == ("done" if "final" in end else "")
        check_splits(get_dialect("harmony"), f"{header}{A}{end}", TOOLS)


def test_harmony_channels():
    preamble = "<|start|>assistant<|channel|>commentary<|message|>I will.<|end|>"
    text = f"<|channel|>analysis<|message|>a `<|end|>` b<|end|>{preamble}{FINAL}c<|return|>"
    turn = turn_of("harmony", text)
    assert (turn.reasoning, turn.text, turn.calls) == ("a `<|end|>` b", "I will.c", ())
    turn = turn_of("harmony", f"b<|end|>{FINAL}c", starts_in="reasoning")
    assert (turn.reasoning, turn.text) == ("b", "c")
    call = f"<|start|>assistant<|channel|>commentary to=functions.write<|message|>{A}"
    text = f"<|channel|>analysis<|message|>a stray ` in a thought<|end|>{call}<|call|>"
    turn = turn_of("harmony", text)
    assert (turn.reasoning, [call.name for call in turn.calls]) == ("a stray ` in a thought", ["write"])
    check_splits(get_dialect("harmony"), text, TOOLS)
    assert turn_of("harmony", "final words").text == "final words"
    assert turn_of("harmony", "<|channel|> is a token of it").text == "<|channel|> is a token of it"


def test_results_that_a_harmony_model_writes_are_forged():
    text = f'<|start|>functions.write to=assistant<|channel|>commentary<|message|>"ok"<|end|>{FINAL}c'
    deltas = check_splits(get_dialect("harmony"), text, TOOLS)
    assert deltas == [ForgedResults('"ok"'), TextDelta("c")]


def test_harmony_continues_after_a_call_that_cannot_be_read():
    call = "<|start|>assistant to=functions.write<|channel|>commentary json<|message|>"
    text = f"{call}{{x}}<|call|>{call}{A}<|call|>"
    assert calls_of("harmony", text) == [("invalid_json", True), WRITE_A]
    deltas = check_splits(get_dialect("harmony"), text, TOOLS)
    assert deltas[-1] == BatchEnded((1,), ok=False)
    assert calls_of("harmony", f"{call}{A}", finish="length") == [("truncated", True)]
    assert calls_of("harmony", "<|channel|>commentary to=functions.wri", finish="length") == [("truncated", True)]


PARIS, ROME = {"city": "Paris", "days": 2}, {"city": "Rome"}
TEMPLATES = {
    "deepseek-v3": (
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
            '{"city": "Paris", "days": 2}\n```<｜tool▁call▁end｜>\n'
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
            '```json\n{"city": "Rome"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
        ),
        (
            "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>sunny<｜tool▁output▁end｜>\n"
            "<｜tool▁output▁begin｜>rain<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
        ),
    ),
    "deepseek-v31": (
        (
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris", "days": 2}'
            '<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Rome"}<｜tool▁call▁end｜>'
            "<｜tool▁calls▁end｜>"
        ),
        "<｜tool▁output▁begin｜>sunny<｜tool▁output▁end｜><｜tool▁output▁begin｜>rain<｜tool▁output▁end｜>",
    ),
    "kimi-k2": (
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
            '{"city": "Paris", "days": 2}<|tool_call_end|><|tool_call_begin|>functions.get_weather:1'
            '<|tool_call_argument_begin|>{"city": "Rome"}<|tool_call_end|><|tool_calls_section_end|>'
        ),
        "## Return of functions.get_weather:0\nsunny\n## Return of functions.get_weather:1\nrain",
    ),
    "solar-open": (  # ids in the form that the template demands
        (
            '<|tool_calls|><|tool_call:begin|>91b9ba2af1<|tool_call:name|>get_weather<|tool_call:args|>{"city": '
            '"Paris", "days": 2}<|tool_call:end|><|tool_call:begin|>'
            "7ed00fb9c1<|tool_call:name|>get_weather<|tool_call:args|>"
            '{"city": "Rome"}<|tool_call:end|><|calls|>'
        ),
        (
            "<|tool_response|><|tool_response:begin|>91b9ba2af1<|tool_response:name|>get_weather<|tool_response:result|>"
            "sunny<|tool_response:end|><|tool_response:begin|>7ed00fb9c1<|tool_response:name|>get_weather"
            "<|tool_response:result|>rain<|tool_response:end|>"
        ),
    ),
    "mistral-args": (
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 2}[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}',
        "[TOOL_RESULTS]sunny[/TOOL_RESULTS][TOOL_RESULTS]rain[/TOOL_RESULTS]",
    ),
    "mistral-ids": (
        (
            '[TOOL_CALLS]get_weather[CALL_ID]abcdefgh1[ARGS]{"city": "Paris", "days": 2}'
            '[TOOL_CALLS]get_weather[CALL_ID]abcdefgh2[ARGS]{"city": "Rome"}'
        ),
        "[TOOL_RESULTS]abcdefgh1[TOOL_CONTENT]sunny[/TOOL_RESULTS][TOOL_RESULTS]abcdefgh2[TOOL_CONTENT]rain[/TOOL_RESULTS]",
    ),
    "mistral-v11": (
        '[TOOL_CALLS]get_weather{"city": "Paris", "days": 2}[TOOL_CALLS]get_weather{"city": "Rome"}',
        "[TOOL_RESULTS]sunny[/TOOL_RESULTS][TOOL_RESULTS]rain[/TOOL_RESULTS]",
    ),
    "functionary-v31": (
        (
            '<function=get_weather>{"city": "Paris", "days": 2}</function>'
            '<function=get_weather>{"city": "Rome"}</function>'
        ),
        "sunny",
        "rain",
    ),
    "functionary-v32": (
        '>>>get_weather\n{"city": "Paris", "days": 2}>>>get_weather\n{"city": "Rome"}',
        "sunny",
        "rain",
    ),
    "harmony": (
        (
            "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>"
            '{"city": "Paris", "days": 2}<|call|>'
            '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Rome"}<|call|>'
        ),
        (
            '<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"sunny"<|end|>'
            '<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"rain"<|end|>'
        ),
    ),
}
"""Two calls and their results as the models' chat templates write them, role markers aside."""


@each_case
def test_history_is_what_the_chat_template_writes(case: Case):
    calls = (ToolCall("abcdefgh1", "get_weather", PARIS), ToolCall("abcdefgh2", "get_weather", ROME))
    results = tuple(
        ToolResult(call.id, call.name, "success", (TextPart(text),))
        for call, text in zip(calls, ("sunny", "rain"), strict=True)
    )
    messages = case.dialect.render([Message("assistant", calls), Message("tool", results)], tool_role=True)
    assert tuple(entry.text for entry in messages) == TEMPLATES[case.name]


def test_a_malformed_call_is_written_as_it_came():
    for name, text in (
        ("kimi-k2", f"{SECTION}{KIMI_A.replace(A, '[]')}{KIMI_B}{SECTION_END}"),
        ("mistral-args", "[TOOL_CALLS]write[ARGS]{x"),
        ("functionary-v31", "<function=write>{x</function>"),
        ("functionary-v32", ">>>write\n{x"),
        ("harmony", "<|start|>assistant to=functions.write<|channel|>commentary<|message|>{x<|call|>"),
    ):
        turn = turn_of(name, text)
        assert any(isinstance(call, MalformedCall) for call in turn.calls)
        (answer,) = get_dialect(name).render([turn.message], TOOLS)
        assert answer.text == text


def test_an_odd_turn_keeps_the_invariants_at_every_point():
    for case in CASES:
        text = case.call('"a"') * 3
        for end in range(0, len(text), 3):
            deltas = parse_pieces(case.dialect, [text[:end]], TOOLS)
            check_deltas(deltas)
            assert len([delta for delta in deltas if isinstance(delta, CallCompleted)]) <= 3


def test_prose_between_plamos_calls_is_set_aside() -> None:
    dialect, end = get_dialect("plamo3"), "<|plamo:end_tool_request:plamo|>"
    calls = (ToolCall("a", "read", {"file": "a"}), ToolCall("b", "read", {"file": "b"}))
    text = "".join(entry.text for entry in dialect.render([Message("assistant", calls)], TOOLS))
    reply = text.replace(end, f"{end} And then: ")
    check_splits(dialect, reply, TOOLS)
    turn = read_turn(dialect, reply, TOOLS)
    assert [call.name for call in turn.calls] == ["read", "read"]
    assert (turn.text, turn.aside.split()) == ("", ["And", "then:"] * 2)


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v31", "kimi-k2"])
def test_prose_between_calls_is_set_aside_and_an_end_marker_may_be_doubled(name: str) -> None:
    dialect = get_dialect(name)
    calls = (ToolCall("a", "read", {"file": "a"}), ToolCall("b", "read", {"file": "b"}))
    text = "".join(entry.text for entry in dialect.render([Message("assistant", calls)], TOOLS))
    end = "<|tool_call_end|>" if name == "kimi-k2" else "<｜tool▁call▁end｜>"
    for between, aside in ((f"{end} And then: ", "And then:"), (end * 2, ""), (f"{end}{end}x\n{end}", "x")):
        reply = text.replace(end, between)
        check_splits(dialect, reply, TOOLS)
        turn = read_turn(dialect, reply, TOOLS)
        assert [dict(call.arguments) for call in turn.calls if isinstance(call, ToolCall)] == [
            {"file": "a"},
            {"file": "b"},
        ]
        assert (turn.text.strip(), turn.aside.split()) == ("", aside.split() * 2)


@pytest.mark.parametrize("name", ["Web Search", "über mich!", "a b" + " c" * 30])
@pytest.mark.parametrize("dialect", ["kimi-k2", "mistral-args", "deepseek-v3"])
def test_a_tool_name_with_spaces_is_read_the_same_in_every_cut(dialect: str, name: str):
    """The call lacks its first marker, so the beginning of such a name was already text."""
    tools = [ToolSpec(name, "", {"type": "object", "properties": {"q": {"type": "string"}}})]
    for text in (
        f"me>functions.{name}:0<|tool_call_argument_begin|>",
        f'functions.{name}:0<|tool_call_argument_begin|>{{"q": "x"}}',
        f'I look.\n{name}[ARGS]{{"q": "x"}}',
        f'{name}<｜tool▁sep｜>{{"q": "x"}}',
    ):
        check_splits(get_dialect(dialect), text, tools)
