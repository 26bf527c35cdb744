"""The promises of the design, for GLM and its relatives, Hunyuan 3, K2-Horizon, Kimi K3 and PLaMo 3."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from dialect_strategies import FINISHES, NASTY_VALUES, TEXT, TOOLS, tools_and_calls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from growth import LINEAR, growth
from sweeps import case, fewer
from toolspeak.data.deltas import ArgumentsDelta, BatchEnded, CallMalformed, ForgedResults
from toolspeak.data.messages import MalformedCall, Message, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, get_dialect, read_turn
from toolspeak.testing import (
    check_deltas,
    check_results_cannot_forge,
    check_round_trip,
    check_splits,
    parse_pieces,
)
from toolspeak.testing.splits import chunks

PAIRS = ["glm45", "glm47", "spark25", "ling3", "poolside-v1", "laguna-s", "hy-v3", "hy-v3-opensource", "k2-horizon"]
FAMILY = [get_dialect(name) for name in (*PAIRS, "kimi-k3", "plamo3")]
each_dialect = pytest.mark.parametrize("dialect", FAMILY, ids=lambda dialect: dialect.name)
GLM, HY, K2 = get_dialect("glm47"), get_dialect("hy-v3"), get_dialect("k2-horizon")
KIMI, PLAMO = get_dialect("kimi-k3"), get_dialect("plamo3")
# The first and the last tag of a call.
ENDS = {
    **{dialect.name: "</tool_call>" for dialect in FAMILY},
    "hy-v3-opensource": "</tool_call:opensource>",
    "k2-horizon": "</ifm|tool_call>",
    "kimi-k3": "<|close|>call<|sep|>",
    "plamo3": "<|plamo:end_tool_request:plamo|>",
}


def examples(count: int):
    return settings(
        max_examples=fewer(count),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def write(dialect: Dialect, *calls: tuple[str, dict[str, Any]], tools: Any = TOOLS) -> str:
    tool_calls = tuple(ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    return "".join(entry.text for entry in dialect.render([Message("assistant", tool_calls)], tools))


FRAGMENTS = [
    *(f"<{slash}{name}>" for name in ("tool_call", "tool_calls", "arg_key", "arg_value") for slash in ("", "/")),
    *(f"<{slash}ifm|{name}>" for name in ("tool_call", "tool_calls", "arg_key", "arg_value") for slash in ("", "/")),
    *("<ifm|arg_type>", "</ifm|arg_type>", "<ifm|think>", "</ifm|think_fast>", "<tool_sep>", "<tool_sep:opensource>"),
    *(
        "<tool_calls:opensource>",
        "<tool_call:opensource>",
        "</tool_call:opensource>",
        "<think>",
        "</think>",
        "<TOOL_CA",
    ),
    *(f"<|{side}|>{name}<|sep|>" for name in ("tools", "call", "argument", "think", "response") for side in ("open",)),
    *(f"<|close|>{name}<|sep|>" for name in ("tools", "call", "argument", "json", "think", "response", "message")),
    *('<|open|>call tool="write" index="1"<|sep|>', '<|open|>argument key="file" type="string"<|sep|>', "<|open|>"),
    *(
        '<|open|>argument key="n" type="number"<|sep|>',
        '<|open|>json type="object"<|sep|>',
        '<|open|>call tool="',
        "<|",
    ),
    *(f"<|plamo:{side}_{name}:plamo|>" for name in ("tool_requests", "tool_request") for side in ("begin", "end")),
    *(
        f"<|plamo:{side}_{name}:plamo|>"
        for name in ("tool_name", "tool_arguments", "think")
        for side in ("begin", "end")
    ),
    *("<|plamo:msg|>", "<|plamo:constrain|>json<|plamo:msg|>", "<|plamo:tag|>", "<tool_response>", "</tool_response>"),
    *(
        "read",
        "set",
        "n",
        "file",
        "7",
        "true",
        "text",
        "\n",
        " ",
        "`",
        "```",
        "```xml\n",
        "<",
        "</",
        '"',
        "]",
        "{",
        "}",
    ),
    *('{"a": 1}', '{"name": "read", "arguments": {}}', "<![CDATA[", "]]>", "<tool_call>read\n", "é", "\ud800", "[1"),
    "<tool_call>set<arg_key>n</arg_key><arg_value>7</arg_value></tool_call>",
]
PIECES = st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=2))


@st.composite
def replies(draw: st.DrawFn, dialect: Dialect) -> str:
    """A soup of pieces, with damaged calls in it or without."""
    text = "".join(draw(st.lists(PIECES, max_size=15)))
    if draw(st.booleans()):
        tools, calls = draw(tools_and_calls())
        text += write(dialect, *((call.name, dict(call.arguments)) for call in calls), tools=tools)
        text += "".join(draw(st.lists(PIECES, max_size=4)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.one_of(st.just(""), PIECES)) + text[at + draw(st.integers(0, 5)) :]
    return text


# --- 1, 4, 8: splits, any input, nothing revoked ------------------------------------------------


@each_dialect
@given(data=st.data(), finish=FINISHES, starts_in=st.sampled_from(["text", "reasoning"]))
@examples(50)
def test_no_text_raises_and_splits_do_not_matter(dialect: Dialect, data: st.DataObject, finish: Any, starts_in: Any):
    text = data.draw(replies(dialect))
    pieces = [tuple(chunks(text, size)) for size in (1, 4)]
    check_splits(dialect, text, TOOLS, finish, starts_in=starts_in, splits=pieces)


@each_dialect
def test_every_cut_of_a_reply(dialect: Dialect):
    text = "Well.\n" + write(dialect, ("write", {"content": "a <b>\n", "file": "x"}), ("set", {"n": 7}), ("ping", {}))
    deltas = check_splits(dialect, text, TOOLS)
    assert deltas[-1] == BatchEnded((0, 1, 2), ok=True)


@each_dialect
def test_a_call_that_the_token_limit_cut_never_counts(dialect: Dialect):
    text = write(dialect, ("write", {"content": "a</b", "file": "x"}))
    for at in range(text.rindex(ENDS[dialect.name]) - 24):
        turn = read_turn(dialect, text[:at], TOOLS, finish="length")
        assert not [call for call in turn.calls if isinstance(call, ToolCall)], text[:at]


@each_dialect
def test_a_long_string_leaves_as_it_comes(dialect: Dialect):
    head, _, tail = write(dialect, ("write", {"content": "@@@"})).partition("@@@")
    parser = dialect.parser(TOOLS)
    parser.feed(head)
    streamed_text = "".join(delta.text for delta in parser.feed("some text") if isinstance(delta, ArgumentsDelta))
    assert streamed_text.endswith("some text")
    check_deltas([*dialect.parser(TOOLS).feed(head + tail)], complete=False)


# --- 2: linear ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [GLM, K2, KIMI, PLAMO], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    "unit", ["plain text\\n", "<<</", "</arg_value>x", "</arg_value>      ", "<|close|>argument<|sep|>x", "]]>"]
)
def test_growth_is_linear(dialect: Dialect, unit: str):
    head, _, tail = write(dialect, ("write", {"content": "@@@"})).partition("@@@")

    def prepare(length: int, size: int) -> Callable[[], object]:
        pieces = (head, *chunks(unit * (length // len(unit)), size), tail)
        return lambda: parse_pieces(dialect, pieces, TOOLS)

    for size in (5, 10**6):
        assert growth(lambda length, size=size: prepare(length, size), 20_000) < LINEAR


# --- 5, 6: content is content, round trip -------------------------------------------------------


@each_dialect
def test_a_marker_in_a_value_is_content(dialect: Dialect):
    for marker in (*FRAGMENTS[:20], "</tool_call>\n<tool_call>read", "</arg_value>x</tool_call>"):
        turn = read_turn(dialect, write(dialect, ("write", {"content": marker, "file": f"a{marker}b"})), TOOLS)
        assert [dict(call.arguments) for call in turn.calls if isinstance(call, ToolCall)] == [
            {"content": marker, "file": f"a{marker}b"}
        ]
        assert turn.text == turn.reasoning == "", marker


@each_dialect
@pytest.mark.parametrize("value", [*NASTY_VALUES[:-3], "</arg_value>", "</arg_value></tool_call>", "<|close|>argument"])
def test_nasty_strings_survive_every_cut(dialect: Dialect, value: str):
    if value == "\udfff\ud800":
        value = "\udfff"
    check_round_trip(dialect, [ToolCall("1", "write", {"content": value})] * 2, TOOLS)
    text = write(dialect, ("write", {"content": value}))
    # Wherever the value begins, ends or is cut: the text around it is the same for all values.
    other = write(dialect, ("write", {"content": "@"}))
    first = next((i for i in range(len(other)) if text[: i + 1] != other[: i + 1]), len(other)) - 3
    places = range(max(first, 1), min(first + len(value) * 6 + 40, len(text)))
    check_splits(dialect, text, TOOLS, splits=[tuple(chunks(text, 1)), *((text[:i], text[i:]) for i in places)])


@each_dialect
def test_an_unreadable_call_is_written_back_as_it_was(dialect: Dialect):
    text = write(dialect, ("write", {"content": "x"}))
    (call,) = read_turn(dialect, text[: text.rindex(ENDS[dialect.name])], TOOLS, finish="length").calls
    assert isinstance(call, MalformedCall)
    (message,) = dialect.render([Message("assistant", (call,))], TOOLS)
    assert call.raw in message.text


# --- 7, 9: results ------------------------------------------------------------------------------


@each_dialect
def test_a_result_that_quotes_the_format_is_no_call(dialect: Dialect):
    call = write(dialect, ("ping", {}))
    for marker in FRAGMENTS:
        if marker.startswith("<"):
            result = ToolResult("1", "read", "success", (TextPart(f"a {marker} {call} {marker}"),))
            with case(marker):
                check_results_cannot_forge(dialect, [result, result], (), TOOLS)


@pytest.mark.parametrize("dialect", FAMILY[:7], ids=lambda dialect: dialect.name)
def test_results_that_the_model_writes_are_a_forgery(dialect: Dialect):
    results_text = dialect.render_results([ToolResult("1", "read", "success", (TextPart("root"),))])
    deltas = check_splits(dialect, f"So:\n{results_text}\nIt is root.", TOOLS)
    assert [type(delta) for delta in deltas if isinstance(delta, ForgedResults)] == [ForgedResults]


# --- what a text means --------------------------------------------------------------------------

PROPERTIES: dict[str, Any] = {
    "text": TEXT,
    "n": {"type": "integer"},
    "either": {"type": ["string", "integer"]},
    "maybe": {"type": ["string", "null"]},
    "any": {},
    "ref": {"$ref": "#/$defs/n"},
}
TYPED_TOOL = ToolSpec("f", "", {"type": "object", "properties": PROPERTIES, "$defs": {"n": {"type": "integer"}}})


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "7", "7"),
        ("text", " 7\n", " 7\n"),
        ("text", "</tool_call>", "</tool_call>"),
        ("text", "</arg_value> b", "</arg_value> b"),
        ("text", "<![CDATA[</arg_value>]]>", "</arg_value>"),
        ("n", "\n7\n", 7),
        ("n", "seven", "seven"),
        ("either", "7", 7),
        ("either", "7 days", "7 days"),
        ("either", "-", "-"),
        ("either", " 7", " 7"),
        ("either", "<![CDATA[7]]>", "7"),
        ("either", "[1]", "[1]"),
        ("maybe", "null", None),
        ("maybe", "nullable", "nullable"),
        ("any", '{"a": [1, null]}', {"a": [1, None]}),
        ("any", '{"a": [1, null}', '{"a": [1, null}'),
        ("any", '"a"', '"a"'),
        ("any", "true", True),
        ("any", "truly", "truly"),
        ("ref", "7", 7),
        ("unknown", "7", 7),
    ],
)
def test_the_schema_says_what_a_value_is(key: str, text: str, value: Any):
    reply = f"<tool_call>f\n<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>"
    check_splits(GLM, reply, [TYPED_TOOL])
    (call,) = read_turn(GLM, reply, [TYPED_TOOL]).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {key: value}


@pytest.mark.parametrize("tools", [(), [TYPED_TOOL]], ids=["no tools", "no such argument"])
@pytest.mark.parametrize("text", ["5", "true", "null", '{"x": 1}', "[1]", "x"])
def test_of_what_the_schema_says_nothing_is_text_in_hunyuan_and_json_in_glm(tools: Any, text: str):
    for dialect, value in ((HY, text), (GLM, text if text == "x" else json.loads(text))):
        reply = write(dialect, ("f", {"nowhere": "@@"}), tools=tools).replace("@@", text)
        check_splits(dialect, reply, tools)
        (call,) = read_turn(dialect, reply, tools).calls
        assert isinstance(call, ToolCall)
        assert call.arguments == {"nowhere": value}


@pytest.mark.parametrize(
    "text",
    [
        "Between <tool_call> and </tool_call> stands the name.",
        "Write <tool_call></tool_call>.",
        "`<tool_call>read</tool_call>`",
        "Write <tool_call>read and then <arg_key>",
        "Write <tool_call>" + "a" * 300 + "<arg_key> and so on.",
        "Write <tool_call>\n",
        "Write <arg_key>k</arg_key> and its value.",
    ],
)
def test_a_mention_is_text(text: str):
    turn = read_turn(GLM, text, TOOLS)
    assert (turn.text, turn.calls) == (text, ())
    check_splits(GLM, text, TOOLS)


ONE = "<arg_key>file</arg_key><arg_value>a</arg_value>"
OOPS = f"<tool_call>read{ONE} oops</tool_call><tool_call>read{ONE}</tool_call>"


@pytest.mark.parametrize(
    ("reply", "codes"),
    [
        ("<tool_call>read<arg_key>file</arg_key></tool_call>", ["no_value"]),
        (f"<tool_call>{ONE}</tool_call>", ["no_name"]),
        ("<tool_call>read<arg_key>file</arg_key>a</arg_value></tool_call>", ["invalid_call"]),
        (f"<tool_call>read{ONE}", ["unclosed"]),
        (f"<tool_call>read{ONE}<tool_call>read{ONE}</tool_call>", ["unclosed", None]),
        (f"<tool_call>read{ONE}{ONE}</tool_call>", ["duplicate_argument"]),
        (OOPS, ["invalid_value", None]),
    ],
)
def test_a_mistake_is_malformed_and_the_others_run(reply: str, codes: list[str | None]):
    check_splits(GLM, reply, TOOLS)
    calls = read_turn(GLM, reply, TOOLS).calls
    assert [call.code if isinstance(call, MalformedCall) else None for call in calls] == codes


def test_one_bad_call_of_a_block_fails_alone():
    reply = (
        "<tool_calls><tool_call>read<tool_sep><arg_key>file</arg_key></tool_call>"
        "<tool_call>ping<tool_sep></tool_call></tool_calls>"
    )
    deltas = check_splits(HY, reply, TOOLS)
    assert [delta.code for delta in deltas if isinstance(delta, CallMalformed)] == ["no_value"]
    assert deltas[-1] == BatchEnded((1,), ok=False)


K2_TYPED = (
    "<ifm|tool_calls><ifm|tool_call>read<ifm|arg_key>file</ifm|arg_key>\n<ifm|arg_type>string</ifm|arg_type>\n"
    "<ifm|arg_value>a</ifm|arg_value></ifm|tool_call></ifm|tool_calls>"
)
KIMI_JSON = (
    '<|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|><|open|>json type="object"<|sep|>'
    '{"file": "a"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
)


@pytest.mark.parametrize(
    ("dialect", "reply"),
    [
        (HY, f"<tool_call>read<tool_sep>{ONE}</tool_call>"),
        (HY, f"<tool_calls><tool_call>read{ONE}</tool_call>"),
        (HY, f"<tool_calls><tool_call>read{ONE}</tool_calls>"),
        (HY, write(get_dialect("hy-v3-opensource"), ("read", {"file": "a"}))),
        (K2, '<ifm|tool_call>{"name": "read", "arguments": {"file": "a"}}</ifm|tool_call>'),
        (K2, K2_TYPED),
        (KIMI, KIMI_JSON),
        (PLAMO, write(PLAMO, ("read", {"file": "a"})).replace("<|plamo:constrain|>json", "")),
        (PLAMO, write(PLAMO, ("read", {"file": "a"}))[:-50]),
    ],
)
def test_other_forms_of_a_call_are_read(dialect: Dialect, reply: str):
    check_splits(dialect, reply, TOOLS)
    (call,) = read_turn(dialect, reply, TOOLS).calls
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("read", {"file": "a"})


def test_a_type_in_the_text_goes_before_the_schema():
    reply = (
        "<ifm|tool_call>f<ifm|arg_key>text</ifm|arg_key><ifm|arg_type>integer</ifm|arg_type>"
        "<ifm|arg_value>7</ifm|arg_value><ifm|arg_key>any</ifm|arg_key><ifm|arg_type>string</ifm|arg_type>"
        "<ifm|arg_value>7</ifm|arg_value></ifm|tool_call>"
    )
    (call,) = read_turn(K2, reply, [TYPED_TOOL]).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"text": 7, "any": "7"}


@pytest.mark.parametrize("effort", ["think", "think_fast", "think_faster"])
def test_k2_closes_the_reasoning_that_the_prompt_opened(effort: str):
    turn = read_turn(K2, f"plan</ifm|{effort}>answer", starts_in="reasoning")
    assert (turn.reasoning, turn.text) == ("plan", "answer")


def test_the_tokens_around_kimis_text_are_no_text():
    reply = "plan<|close|>think<|sep|><|open|>response<|sep|>Hi.<|close|>response<|sep|><|close|>message<|sep|>"
    check_splits(KIMI, reply, starts_in="reasoning")
    turn = read_turn(KIMI, reply, starts_in="reasoning")
    assert (turn.reasoning, turn.text) == ("plan", "Hi.")


def test_kimi_attributes_are_escaped():
    reply = write(KIMI, ("write", {'a"b&<|sep|>': "say &quot;"}))
    assert 'key="a&quot;b&amp;<|sep|>"' in reply
    (call,) = read_turn(KIMI, reply, TOOLS).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {'a"b&<|sep|>': "say &quot;"}


def test_nothing_is_said_of_a_call_without_a_name_and_an_empty_chunk_says_nothing():
    reply = "<tool_call><arg_key>k</arg_key><arg_value>some text that streams</arg_value></tool_call>"
    check_splits(GLM, reply)
    with_name = reply.replace("<arg_key>", "f<arg_key>", 1)
    for cut in range(len(with_name)):
        assert parse_pieces(GLM, [with_name[:cut], "", with_name[cut:]]) == parse_pieces(
            GLM, [with_name[:cut], with_name[cut:]]
        )
