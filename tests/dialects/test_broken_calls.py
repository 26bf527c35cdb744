"""A call that cannot be read fails alone where its end is certain: the calls beside it run, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sweeps import grid
from toolspeak import Agent, tool
from toolspeak.data.messages import FinishReason, MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import ParsedTurn, get_dialect, read_turn
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import check_splits


def spec(name: str, required_names: Sequence[str] = (), **types: str) -> ToolSpec:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return ToolSpec(name, "", {"type": "object", "properties": properties, "required": [*required_names]})


TOOLS = [
    spec("read", ("file",), file="string"),
    spec("write", ("file", "content"), file="string", content="string"),
    spec("stop"),
    spec("find", text="string"),
    spec("define", type="string", properties="object"),
]
FIRST, LAST = ("read", {"file": "a"}), ("read", {"file": "b"})
BROKEN_JSON = {  # the arguments of a call of `write`
    "line break": '{"file": "x", "content": "a\nb"}',
    "tab and bad escape": '{"file": "x", "content": "\t\\d"}',
    "no word of JSON": '{"file": "x", "content": None}',
    "leading zero": '{"file": "x", "content": 07}',
    "comma after the last": '{"file": "x", "content": ["a",],}',
    "bracket too many": '{"file": "x", "content": "a"}}',
    "null": "null",
    "no object": '["x"]',
    "two of a key": '{"file": "x", "file": "y"}',
}
AT_THE_MARKER = {  # only the next marker shows where these end
    "single quotes": "{'file': 'x', 'content': 'y'}",
    "quotes in a string": '{"file": "x", "content": "say "hi" to it"}',
    "cut": '{"file": "x", "content": "a',
    "no key": "{file}",
}


def as_json(name: str, arguments: str, key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {arguments}}}'


def cohere(name: str, arguments: str) -> str:
    return f'{{"tool_name": "{name}", "parameters": {arguments}}}'


def calls_text(dialect: str, calls: Sequence[tuple[str, str]]) -> str:
    """The calls as the dialect writes them, their arguments as they are given."""
    writers = {
        "kimi-k2": lambda name, value, i: (
            f"<|tool_call_begin|>functions.{name}:{i}<|tool_call_argument_begin|>{value}<|tool_call_end|>"
        ),
        "deepseek-v3": lambda name, value, i: (
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{value}\n```<｜tool▁call▁end｜>"
        ),
        "deepseek-v31": lambda name, value, i: f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{value}<｜tool▁call▁end｜>",
        "mistral-args": lambda name, value, i: f"[TOOL_CALLS]{name}[ARGS]{value}",
        "mistral-ids": lambda name, value, i: f"[TOOL_CALLS]{name}[CALL_ID]abcdefg{i:02}[ARGS]{value}",
        "mistral-v11": lambda name, value, i: f"[TOOL_CALLS]{name}{value}",
        "functionary-v31": lambda name, value, i: f"<function={name}>{value}</function>",
        "functionary-v32": lambda name, value, i: f">>>{name}\n{value}",
        "harmony": lambda name, value, i: (
            f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{value}<|call|>"
        ),
        "plamo3": lambda name, value, i: (
            "<|plamo:begin_tool_request:plamo|>"
            f"<|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
            f"<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{value}"
            "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
        ),
        "hermes": lambda name, value, i: f"<tool_call>\n{as_json(name, value)}\n</tool_call>\n",
        "longcat": lambda name, value, i: f"<longcat_tool_call>{as_json(name, value)}</longcat_tool_call>\n",
        "dots": lambda name, value, i: f"<dots_function_call>{as_json(name, value)}</dots_function_call>\n",
    }
    around = {
        "kimi-k2": ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        "deepseek-v3": ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        "deepseek-v31": ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        "plamo3": ("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
    }
    if dialect in writers:
        start, end = around.get(dialect, ("", ""))
        return start + "".join(writers[dialect](name, value, i) for i, (name, value) in enumerate(calls)) + end
    start, end, joint = JSON_BLOCKS[dialect]
    call = cohere if dialect.startswith("co") else as_json
    return start + joint.join(call(name, value) for name, value in calls) + end


JSON_BLOCKS = {
    "hermes in one block": ("<tool_call>\n", "\n</tool_call>", "\n"),
    "jamba": ("<tool_calls>[", "]</tool_calls>", ", "),
    "nemotron-v2": ("<TOOLCALL>[", "]</TOOLCALL>", ", "),
    "granite3": ("<|tool_call|>[", "]", ", "),
    "mistral-v3": ("[TOOL_CALLS][", "]", ", "),
    "xlam": ("[", "]", ", "),
    "phi4-mini": ("functools[", "]", ", "),
    "cohere-command": ("<|START_ACTION|>[", "]<|END_ACTION|>", ",\n"),
    "command-r-plus": ("Action:\n```json\n[", "]\n```", ",\n"),
}
WITH_END_MARKERS = [
    "kimi-k2",
    "deepseek-v3",
    "deepseek-v31",
    "mistral-args",
    "mistral-ids",
    "mistral-v11",
    "functionary-v31",
]
WITH_END_MARKERS += ["functionary-v32", "harmony", "plamo3", "hermes", "longcat", "dots"]


def turn_of(dialect: str, text: str, finish: FinishReason = "stop") -> ParsedTurn:
    dialect_of_name = get_dialect(dialect.partition(" ")[0])
    check_splits(dialect_of_name, text, TOOLS)
    return read_turn(dialect_of_name, text, TOOLS, finish=finish)


def calls_of(turn: ParsedTurn) -> list[Any]:
    return [call.code if isinstance(call, MalformedCall) else (call.name, call.arguments) for call in turn.calls]


WITH_BRACES = ("mistral-v11", "functionary-v32", "deepseek-v31")  # only the bracket of the arguments ends the name


@pytest.mark.parametrize(("dialect", "kind"), grid([*WITH_END_MARKERS, *JSON_BLOCKS], BROKEN_JSON, every=3))
def test_the_calls_beside_a_broken_one_run(dialect: str, kind: str):
    if dialect in WITH_BRACES[:2] and kind in ("null", "no object"):
        return
    text = calls_text(dialect, [("read", '{"file": "a"}'), ("write", BROKEN_JSON[kind]), ("read", '{"file": "b"}')])
    turn = turn_of(dialect, text)
    first, code, last = calls_of(turn)
    assert (first, last) == (FIRST, LAST)
    assert isinstance(code, str)
    assert not turn.text.strip()


@pytest.mark.parametrize("kind", AT_THE_MARKER)
@pytest.mark.parametrize("dialect", WITH_END_MARKERS)
def test_the_next_marker_ends_what_has_no_other_end(dialect: str, kind: str):
    text = calls_text(dialect, [("read", '{"file": "a"}'), ("write", AT_THE_MARKER[kind]), ("read", '{"file": "b"}')])
    turn = turn_of(dialect, text)
    calls = calls_of(turn)
    if kind == "cut":  # the rest is inside its string, the markers too
        assert calls[:1] in ([FIRST], ["truncated"], ["unclosed"])
        assert LAST not in calls or isinstance(calls[1], str)
    else:
        assert calls[0] == FIRST
        assert calls[2:] == [LAST]
        assert isinstance(calls[1], str)
    assert not turn.text.strip()


@pytest.mark.parametrize("dialect", [name for name in JSON_BLOCKS if not name.startswith("hermes")])
@pytest.mark.parametrize("content", ['say "hi", {"name": "stop", "arguments": {}}', "it's 'x', {'name': 'stop'}"])
def test_a_call_in_a_string_that_lost_its_quotes_never_runs(dialect: str, content: str):
    quote = '"' if "it's" not in content else "'"
    value = f'{{"file": "x", "content": {quote}{content}{quote}}}'
    turn = turn_of(dialect, calls_text(dialect, [("write", value), ("read", '{"file": "b"}')]))
    assert [call.code for call in turn.calls if isinstance(call, MalformedCall)] == ["invalid_json"]
    assert len(turn.calls) == 1


@pytest.mark.parametrize("dialect", [name for name in JSON_BLOCKS if name != "hermes in one block"])
def test_a_call_without_its_last_brackets_ends_where_the_next_one_begins(dialect: str):
    whole = calls_text(dialect, [("read", '{"file": "a"}'), ("write", '{"file": "x"}'), ("read", '{"file": "b"}')])
    first, code, last = calls_of(turn_of(dialect, whole.replace('"x"}}', '"x"}')))
    assert (first, code, last) == (FIRST, "invalid_json", LAST)


def test_null_is_no_arguments_for_a_tool_that_needs_none():
    for dialect in (*WITH_END_MARKERS, *JSON_BLOCKS):
        if dialect in ("plamo3", "mistral-args", "mistral-ids", "deepseek-v3", *WITH_BRACES):
            continue  # an object by rule; no other form is known
        (call, needs) = turn_of(dialect, calls_text(dialect, [("stop", "null"), ("read", "null")])).calls
        assert isinstance(call, ToolCall), dialect
        assert (call.name, call.arguments, call.notes) == ("stop", {}, ("arguments_null",)), dialect
        assert isinstance(needs, MalformedCall), dialect
        assert needs.code == "arguments_not_object", dialect
    for call in read_turn(get_dialect("gigachat3"), f"<|function_call|>{as_json('stop', 'null')}", TOOLS).calls:
        assert isinstance(call, MalformedCall)  # where the key itself must be there


@pytest.mark.over_a_second
def test_types_instead_of_values_call_nothing_but_a_tool_that_takes_them():
    schema = json.dumps({"type": "object", "properties": {"file": {"type": "string"}}})
    for dialect in (*WITH_END_MARKERS, *JSON_BLOCKS):
        calls = calls_of(turn_of(dialect, calls_text(dialect, [("read", schema), ("read", '{"file": "b"}')])))
        assert calls == ["arguments_not_values", LAST] or dialect in ("plamo3", "xlam"), dialect
        expected_call = ("define", json.loads(schema))
        assert expected_call in calls_of(turn_of(dialect, calls_text(dialect, [("stop", "{}"), ("define", schema)]))), (
            dialect
        )


def test_an_argument_beside_the_arguments_is_said_and_not_lost():
    text = '<tool_call>{"name": "find", "arguments": {}, "text": "x"}</tool_call>'
    (call,) = turn_of("hermes", text).calls
    assert isinstance(call, MalformedCall)
    assert (call.code, '"text" is an argument' in call.reason) == ("no_arguments", True)
    text_with_key = text.replace('"text"', '"why"')
    assert turn_of("hermes", text_with_key).calls[0].notes == ("extra_key:why",)


def test_the_namespace_of_openai_is_no_part_of_a_name():
    for dialect in (*WITH_END_MARKERS, *JSON_BLOCKS):
        name = "read" if dialect in ("kimi-k2", "harmony") else "functions.read"
        assert calls_of(turn_of(dialect, calls_text(dialect, [(name, '{"file": "a"}')]))) == [FIRST], dialect


PYTHON = ["pythonic", "llama4-pythonic", "lfm2", "olmo3"]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("find(text=07)", "write 7, or '07' for text"),
        ("find(text=007)", "write 7, or '007' for text"),
        ("find(text=1+1)", "not a literal"),
        ("find(text=today)", "not a literal"),
        ("find('x')", "needs its name"),
        ("find(text)", "name=value"),
        (f"find(text={'9' * 400}e999)", "too large"),
    ],
)
@pytest.mark.parametrize("dialect", PYTHON)
def test_a_broken_call_in_python_fails_alone(dialect: str, call: str, reason: str):
    if dialect == "olmo3":
        text = f"<function_calls>read(file='a')\n{call}\nread(file='b')</function_calls>"
    else:
        text = f"[read(file='a'), {call}, read(file='b')]"
        text = f"<|tool_call_start|>{text}<|tool_call_end|>" if dialect == "lfm2" else text
    turn = turn_of(dialect, text)
    first, broken_call, last = turn.calls
    assert isinstance(broken_call, MalformedCall)
    assert reason in broken_call.reason
    assert [(each.name, each.arguments) for each in (first, last) if isinstance(each, ToolCall)] == [FIRST, LAST]
    assert (turn.text.strip(), call in broken_call.raw) == ("", True)


def test_the_model_gets_a_report_of_the_broken_call_and_the_other_one_runs():
    @tool(read_only=True)
    def read(file: str) -> str:
        return f"content of {file}"

    for dialect in ("kimi-k2", "mistral-args", "jamba"):
        reply = calls_text(dialect, [("read", '{"file": "a"}'), ("read", '{"file": "x\n"}')])
        provider = ScriptedProvider([reply, "done"])
        result = Agent(provider, [read], dialect=dialect).run_sync("go")
        assert result.answer == "done"
        feedback = "\n".join(message.text for message in provider.requests[-1].messages)
        assert "content of a" in feedback, dialect
        assert "a line break inside a JSON string" in feedback, dialect


def test_a_round_trip_keeps_what_was_malformed():
    for dialect in ("kimi-k2", "jamba", "mistral-args"):
        dialect_of_name = get_dialect(dialect)
        text = calls_text(dialect, [("read", '{"file": "a"}'), ("write", '{"file": "x\n"}')])
        (message,) = dialect_of_name.render(
            [Message("assistant", read_turn(dialect_of_name, text, TOOLS).calls)], TOOLS
        )
        assert calls_of(read_turn(dialect_of_name, message.text, TOOLS))[0] == FIRST, message.text
