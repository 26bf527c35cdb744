"""Past a cap a call is malformed and nothing more of it is kept, wherever the text is cut."""

from __future__ import annotations

import tracemalloc

import pytest

from toolspeak.data.deltas import ArgumentsDelta, BatchEnded, CallCompleted, CallMalformed, ForgedResults, TextDelta
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.parser.block_format import BlockFormat
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.protocols.cogency import marker_table
from toolspeak.dialects.protocols.cogency_json import CogencyJson
from toolspeak.dialects.protocols.cogency_xml import CogencyXml
from toolspeak.dialects.protocols.tool_call import ToolCallDialect
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.readers.xml_calls import XmlCalls
from toolspeak.dialects.text.block_delimiters import Starts
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Buffer, Caps, JsonScanner
from toolspeak.dialects.turn_rules import BatchRule
from toolspeak.testing import check_splits, every_split

EXECUTE = marker_table("[{<")
TOOL_CALL = MarkerTable(
    [
        Marker("calls", "<tool_call>", "</tool_call>", Starts("{[<")),
        Marker("results", "<tool_result>", "</tool_result>", Starts('\n[{"'), plain=True),
        Marker("reasoning", "<think>", "</think>"),
    ]
)


class SmallJson(CogencyJson):
    """The dialect with caps that a test can reach; the next two likewise."""

    def __init__(self, caps):
        self.caps = caps

    def parser(self, tools=(), starts_in="text"):
        shape = CallShape("args", array=True, arguments_required=True)
        format_ = BlockFormat(
            EXECUTE, self.batch, lambda _marker, first, caps, _tools: JsonCalls(shape, first, caps), caps=self.caps
        )
        return BlockParser(format_, starts_in)


class SmallXml(CogencyXml):
    def __init__(self, caps):
        self.caps = caps

    def parser(self, tools=(), starts_in="text"):
        tools_by_name = {spec.name: spec for spec in tools}
        format_ = BlockFormat(
            EXECUTE,
            self.batch,
            lambda _marker, first, caps, tools: XmlCalls("execute", tools, first, caps),
            tools_by_name,
            self.caps,
        )
        return BlockParser(format_, starts_in)


class SmallToolCall(ToolCallDialect):
    def __init__(self, caps):
        self.caps = caps

    def parser(self, tools=(), starts_in="text"):
        shape, rule = CallShape("arguments", array=False, arguments_required=False), BatchRule("last_call", max_calls=1)
        format_ = BlockFormat(
            TOOL_CALL, rule, lambda _marker, first, caps, _tools: JsonCalls(shape, first, caps), caps=self.caps
        )
        return BlockParser(format_, starts_in)


TEXT, ARRAY = {"type": "string"}, {"type": "array"}
TOOLS = (
    ToolSpec(
        "write", "", {"type": "object", "properties": {"text": TEXT, "more": TEXT}, "additionalProperties": False}
    ),
    ToolSpec("set", "", {"type": "object", "properties": {"tags": ARRAY}, "additionalProperties": False}),
)


def json_call(arguments):
    return f'<execute>[{{"name": "write", "args": {arguments}}}]</execute>.'


def tool_call(arguments):
    return f'<tool_call>{{"name": "write", "arguments": {arguments}}}</tool_call>.'


def xml_call(value):
    return f"<execute><write><text>{value}</text></write></execute>."


# Per dialect: what surrounds a value, and how a text value of so many characters is written.
DIALECT_CASES = {
    "cogency-json": (SmallJson, json_call, lambda size: '{"a": "' + "x" * (size - 9) + '"}'),
    "tool-call": (SmallToolCall, tool_call, lambda size: '{"a": "' + "x" * (size - 9) + '"}'),
    "cogency-xml": (SmallXml, xml_call, lambda size: "x" * size),
}
each = pytest.mark.parametrize("name", DIALECT_CASES)
LIMIT = 40


def read(dialect, text, **options):
    """The deltas, the same for every cut."""
    return check_splits(dialect, text, TOOLS, **options)


def of(kind, deltas):
    return [delta for delta in deltas if isinstance(delta, kind)]


@each
def test_a_value_of_as_many_characters_as_allowed_is_read(name):
    make, call, value = DIALECT_CASES[name]
    deltas = read(make(Caps(characters=LIMIT)), call(value(LIMIT)))
    (complete_call,) = of(CallCompleted, deltas)
    assert list(complete_call.arguments.values()) == ["x" * (LIMIT if name == "cogency-xml" else LIMIT - 9)]
    assert of(BatchEnded, deltas) == [BatchEnded((0,), True)]


@each
@pytest.mark.parametrize("size", [LIMIT + 1, LIMIT + 2, 3 * LIMIT])
def test_a_longer_value_is_too_large_and_its_call_does_not_count(name, size):
    make, call, value = DIALECT_CASES[name]
    deltas = read(make(Caps(characters=LIMIT)), call(value(size)))
    (malformed_call,) = of(CallMalformed, deltas)
    assert (malformed_call.code, malformed_call.whole_block) == ("too_large", True)
    assert f"{LIMIT} characters" in malformed_call.reason
    assert malformed_call.offset == call(value(size)).index(value(size)) + LIMIT
    assert len(malformed_call.raw) <= LIMIT
    assert of(BatchEnded, deltas) == [BatchEnded((), False)]
    arguments_text = "".join(delta.text for delta in of(ArgumentsDelta, deltas))
    assert len(arguments_text) <= LIMIT + len('{"text": "')
    assert of(TextDelta, deltas) == [TextDelta(".")]


@each
def test_the_cut_at_the_cap_may_be_anywhere(name):
    make, call, value = DIALECT_CASES[name]
    text = call(value(LIMIT + 1))
    read(make(Caps(characters=LIMIT)), text, splits=every_split(text, 3))
    read(make(Caps(characters=LIMIT)), text[: -len("</execute>.")], finish="length")


@pytest.mark.parametrize(
    "body",
    [
        "<![CDATA[" + "x" * 41 + "]]></text></write>",
        "<![CDATA[" + "x" * 30 + "]]><![CDATA[" + "x" * 11 + "]]></text></write>",
        " " * 41 + "x</text></write>",
        "x" * 30 + "</text>" + "x" * 10 + "</text></write>",
        "</text>" + " " * 60 + "x</text></write>",
    ],
    ids=["cdata", "cdata sections", "white space", "an end tag inside", "white space after an end tag"],
)
def test_every_way_into_an_xml_value_is_capped(body):
    text = f"<execute><write><text>{body}</execute>."
    deltas = read(SmallXml(Caps(characters=LIMIT)), text)
    (malformed_call,) = of(CallMalformed, deltas)
    assert malformed_call.code == "too_large"
    assert len(malformed_call.raw) <= LIMIT


@each
@pytest.mark.parametrize(
    ("caps", "value", "code"),
    [
        (Caps(depth=5), "[[[[[1]]]]]", "too_deep"),
        (Caps(depth=5), "[[1]]", None),
        (Caps(digits=5), "[123456]", "too_large"),
        (Caps(digits=5), "[12345]", None),
    ],
)
def test_depth_and_digits_are_capped_too(name, caps, value, code):
    make = DIALECT_CASES[name][0]
    text = {
        "cogency-json": f'<execute>[{{"name": "set", "args": {{"tags": {value}}}}}]</execute>.',
        "tool-call": f'<tool_call>{{"name": "set", "arguments": {{"tags": {value}}}}}</tool_call>.',
        "cogency-xml": f"<execute><set><tags>{value}</tags></set></execute>.",
    }[name]
    deltas = read(make(caps), text)
    assert [malformed_call.code for malformed_call in of(CallMalformed, deltas)] == ([code] if code else [])


@each
def test_other_calls_of_the_block_do_not_count_either(name):
    make, call, value = DIALECT_CASES[name]
    one, large = call(value(12)), call(value(LIMIT + 1))
    deltas = read(make(Caps(characters=LIMIT)), large + one)
    assert of(CallMalformed, deltas)[0].code == "too_large"
    # Only the tool-call protocol asks for the last call of the turn; the others end with their first block.
    expected = [BatchEnded((1,), True)] if name == "tool-call" else [BatchEnded((), False)]
    assert of(BatchEnded, deltas) == expected


@each
def test_forged_results_are_kept_up_to_the_cap(name):
    make = DIALECT_CASES[name][0]
    block = "tool_result" if name == "tool-call" else "results"
    deltas = read(make(Caps(characters=LIMIT)), f'<{block}>["{"x" * 100}"]</{block}>.')
    assert of(ForgedResults, deltas) == [ForgedResults('["' + "x" * (LIMIT - 2))]


ENDLESS_STARTS = {
    "a value": {"cogency-json": '{"a": "', "tool-call": '{"a": "', "cogency-xml": ""},
    "after a problem": {"cogency-json": "[1,,", "tool-call": "[1,,", "cogency-xml": "</write><"},
}


@each
@pytest.mark.parametrize("case", ENDLESS_STARTS)
def test_what_a_model_never_ends_takes_no_more_memory_than_the_cap(name, case):
    make, call, _ = DIALECT_CASES[name]
    start = call("#").split("#")[0] + ENDLESS_STARTS[case][name]
    parser = make(Caps(characters=10_000)).parser(TOOLS)
    piece = "some more text " * 20
    tracemalloc.start()
    try:
        parser.feed(start)
        for _ in range(100):  # 30,000 characters: past the cap
            parser.feed(piece)
        full, _ = tracemalloc.get_traced_memory()
        for _ in range(2_000):  # 600,000 characters more
            parser.feed(piece)
        later, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert later - full < 10_000
    (malformed_call,) = of(CallMalformed, parser.close("length"))
    assert len(malformed_call.raw) <= 10_000


def test_a_buffer_keeps_its_limit_and_counts_on():
    buffer = Buffer(5)
    for piece in ("abc", "", "def", "ghi"):
        buffer.add(piece)
    assert (buffer.value(), buffer.length, buffer.overflown) == ("abcde", 9, True)
    exact = Buffer(3)
    exact.add("abc")
    assert (exact.value(), exact.length, exact.overflown) == ("abc", 3, False)


@pytest.mark.parametrize("depth", [1, 3])
def test_the_depth_above_a_value_counts(depth):
    scanner = JsonScanner(Caps(depth=4), depth=depth)
    scanner.feed("[" * (4 - depth), 0)
    assert scanner.problem is None
    scanner.feed("[", 0)
    assert scanner.problem is not None
    assert scanner.problem.code == "too_deep"
