"""Values of the XML protocol: text typed by the tool's schema, and where a value ends."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_strategies import INTEGER, TEXT, TOOLS, canonical, spec
from seed_examples import calls_of_turn, read_checked

from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect, read_turn
from toolspeak.dialects.readers.xml_calls import XmlCalls
from toolspeak.dialects.text.scan import Caps

DIALECT = get_dialect("cogency-xml")
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}
NULLABLE = {"anyOf": [{"type": "integer"}, {"type": "null"}]}

# schema, text, value
TYPED_VALUES: list[tuple[Any, str, Any]] = [
    (TEXT, "007", "007"),
    (TEXT, "3.10", "3.10"),
    (TEXT, "1_000", "1_000"),
    (TEXT, "true", "true"),
    (TEXT, "null", "null"),
    (TEXT, '{"a": 1}', '{"a": 1}'),
    (TEXT, " \n x \n", " \n x \n"),
    (TEXT, "", ""),
    (TEXT, "<b>&lt;</b>", "<b>&lt;</b>"),
    (INTEGER, "7", 7),
    (INTEGER, " \n-7\n", -7),
    (INTEGER, "7.0", 7.0),
    (INTEGER, "007", "007"),
    (INTEGER, "1_000", "1_000"),
    (INTEGER, "7.5", "7.5"),
    (INTEGER, "true", "true"),
    (INTEGER, "", ""),
    ({"type": "number"}, "7", 7),
    ({"type": "number"}, "3.10", 3.1),
    ({"type": "number"}, "1e3", 1000.0),
    ({"type": "number"}, "NaN", "NaN"),
    ({"type": "boolean"}, "true", True),
    ({"type": "boolean"}, "True", "True"),
    ({"type": "boolean"}, "1", "1"),
    ({"type": "null"}, "null", None),
    (NULLABLE, "null", None),
    (NULLABLE, "7", 7),
    (NULLABLE, "none", "none"),
    ({"type": "array"}, '[1, "a", {"b": null}]', [1, "a", {"b": None}]),
    ({"type": "array"}, "a, b", "a, b"),
    ({"type": "array"}, '{"a": 1}', '{"a": 1}'),
    (POINT, '{"x": 1}', {"x": 1}),
    ({"type": ["string", "integer"]}, "7", "7"),
    ({"anyOf": [TEXT, {"type": "null"}]}, "null", "null"),
    ({"enum": ["7", "a"]}, "7", "7"),
    ({"enum": [1, 2]}, "2", 2),
    ({"const": 5}, "5", 5),
    ({"$ref": "#/$defs/n"}, "5", 5),
    ({"allOf": [{"$ref": "#/$defs/n"}]}, "5", 5),
    ({}, "5", "5"),
    (True, "5", "5"),
]


def one_tool(schema: Any) -> list[ToolSpec]:
    plain_spec = spec("do", {"v": schema, "w": TEXT}, [])
    return [ToolSpec("do", "", {**plain_spec.parameters, "$defs": {"n": INTEGER}}, aliases={"value": "v"})]


@pytest.mark.parametrize(("schema", "text", "value"), TYPED_VALUES)
def test_a_value_has_the_type_its_schema_says(schema: Any, text: str, value: Any):
    """What does not fit stays text, for the tool's validation to explain; nothing is changed on the way."""
    for element in ("v", "value"):
        turn = read_checked(DIALECT, f"<execute><do><{element}>{text}</{element}></do></execute>", one_tool(schema))
        ((_, arguments),) = calls_of_turn(turn)
        assert canonical(arguments) == canonical({element: value})


@pytest.mark.parametrize("value", [7, 7.5, True, None, [1], {"a": "</v>"}, "text", "</v>"])
def test_type_json_says_that_a_value_is_json_where_text_is_admitted(value: Any):
    text = canonical(value)
    for tools in (one_tool(TEXT), one_tool({}), []):
        turn = read_checked(DIALECT, f'<execute><do><v type="json"> {text} </v><w>x</w></do></execute>', tools)
        if text.endswith('</v>"'):  # the tag does not end the value: a quote follows it
            assert calls_of_turn(turn)
        ((_, arguments),) = calls_of_turn(turn)
        assert canonical(arguments["v"]) == text


@pytest.mark.parametrize("text", ["7.", "{", "'a'", "NaN", "", '{"a": 1, "a": 2}'])
def test_type_json_that_holds_no_json_fails_its_call_alone(text: str):
    turn = read_checked(DIALECT, f'<execute><do><v type="json">{text}</v></do><do/></execute>', one_tool(TEXT))
    first, second = turn.calls
    assert isinstance(first, MalformedCall)
    assert first.code in ("invalid_json", "duplicate_key")
    assert "'v'" in first.reason
    assert not first.whole_block
    assert isinstance(second, ToolCall)


def test_duplicate_keys_in_a_value_fail_the_call():
    text = '<execute><set><map>{"a": 1, "a": 2}</map></set></execute>'
    (call,) = read_checked(DIALECT, text, TOOLS).calls
    assert isinstance(call, MalformedCall)
    assert call.code == "duplicate_key"


# --- where a value ends -------------------------------------------------------------------------

ENDS = [
    ("a</content> b", "a closing tag that text follows"),
    ("a</content></b>", "that a foreign closing tag follows"),
    ("a</content><b>", "that an unknown element follows"),
    ("a</content>\n\n</div>", "that white space and a foreign tag follow"),
    ("</write>", "the call's end tag alone"),
    ("</execute>", "the block's end tag alone"),
    ("<content>a", "the value's own start tag"),
    ("</contents></Content></ content>", "tags that are not its own"),
    ("a</content", "an end tag that is cut"),
    ("if a < b </ c", "stray '<'"),
]


@pytest.mark.parametrize(("value", "why"), ENDS, ids=[why for _, why in ENDS])
def test_a_closing_tag_counts_only_if_a_sibling_or_an_end_follows(value: str, why: str):
    text = f"<execute><write><content>{value}</content> \n<file>f</file>\n</write></execute>"
    assert calls_of_turn(read_checked(DIALECT, text, TOOLS)) == [("write", {"content": value, "file": "f"})]


@pytest.mark.parametrize(
    "after", ["</write>", "\n\t</write >", "<file>f</file></write>", " <path>p</path></write>", ""]
)
def test_what_may_follow_a_value(after: str):
    turn = read_checked(DIALECT, f"<execute><write><content>x</content>{after}</execute>", TOOLS)
    assert calls_of_turn(turn)[0][1]["content"] == "x"


CDATA = [
    ("<![CDATA[x]]>", "x"),
    (" \n<![CDATA[ x ]]>\n ", " x "),
    ("<![CDATA[]]>", ""),
    ("<![CDATA[</content></write></execute>]]>", "</content></write></execute>"),
    ("<![CDATA[a]]]]><![CDATA[>b]]>", "a]]>b"),
    ("<![CDATA[a]]><![CDATA[b]]>", "ab"),
    ("<![CDATA[a]]> b]]>", "a]]> b"),
    ("<![CDATA[x]]]>", "x]"),
    ("<![CDATA[&lt;<!-- -->]]>", "&lt;<!-- -->"),
    ("<![CDATA[a]]></content> <b>]]>", "a]]></content> <b>"),
    ("x<![CDATA[y]]>", "x<![CDATA[y]]>"),
    ("\u2028<![CDATA[y", "\u2028<![CDATA[y"),  # XML's white space alone may stand before a section
    ("<![cdata[x]]>", "<![cdata[x]]>"),
]


@pytest.mark.parametrize(("text", "value"), CDATA)
def test_cdata_is_the_value(text: str, value: str):
    turn = read_checked(DIALECT, f"<execute><write><content>{text}</content></write></execute>", TOOLS)
    assert calls_of_turn(turn) == [("write", {"content": value})]


def test_cdata_around_a_number():
    turn = read_checked(DIALECT, "<execute><set><n><![CDATA[7]]></n></set></execute>", TOOLS)
    assert calls_of_turn(turn) == [("set", {"n": 7})]


# --- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["<file>a</file><x>b</x>", "<file>a</file><x>b</x><content>c</content>"])
@pytest.mark.parametrize("after", ["", "\n<read><file>c</file></read>", "<ping/>"])
def test_an_unknown_argument_fails_its_call_alone(where: str, after: str):
    turn = read_checked(DIALECT, f"<execute><ping/><write>{where}</write>{after}</execute>", TOOLS)
    calls = turn.calls
    assert [type(call) for call in calls] == [ToolCall, MalformedCall] + [ToolCall] * bool(after)
    assert isinstance(calls[1], MalformedCall)
    assert calls[1].code == "unknown_argument"
    assert "<x>" in calls[1].reason
    assert "file, content, path" in calls[1].reason
    assert calls[1].raw == f"<write>{where}</write>"


def test_an_unknown_argument_in_front_is_left_to_the_tool_s_validation():
    turn = read_checked(DIALECT, "<execute><write><x>b</x><content>c</content></write></execute>", TOOLS)
    assert calls_of_turn(turn) == [("write", {"x": "b", "content": "c"})]


def test_a_duplicate_argument_fails_its_call_alone():
    text = "<execute><write><file>a</file><file>b</file><content>c</content></write><ping/></execute>"
    first, second = read_checked(DIALECT, text, TOOLS).calls
    assert isinstance(first, MalformedCall)
    assert (first.code, first.whole_block) == ("duplicate_argument", False)
    assert isinstance(second, ToolCall)


@pytest.mark.parametrize(
    ("inner", "arguments"),
    [
        ("<write/>", {}),
        ("<write />", {}),
        ("<write></write>", {}),
        ("<write><content/></write>", {"content": ""}),
        ("<write><content /><file>f</file></write>", {"content": "", "file": "f"}),
        ("<write><content></content></write>", {"content": ""}),
        ('<call name="write"/>', {}),
    ],
)
def test_self_closing_elements(inner: str, arguments: dict[str, str]):
    assert calls_of_turn(read_checked(DIALECT, f"<execute>{inner}</execute>", TOOLS)) == [("write", arguments)]


def test_an_unknown_tool_is_read_with_text_values():
    turn = read_checked(DIALECT, "<execute><nope><n>7</n><m>[1]</m></nope></execute>", TOOLS)
    assert calls_of_turn(turn) == [("nope", {"n": "7", "m": "[1]"})]


def test_a_greater_than_sign_in_an_attribute_ends_the_tag_wherever_the_text_is_cut():
    (call,) = read_checked(DIALECT, '<execute><read><file a="x>y">z</file></read></execute>', TOOLS).calls
    assert isinstance(call, MalformedCall)


@pytest.mark.parametrize("white", [1, 240, 300])
def test_a_call_given_up_is_given_up_wherever_the_text_is_cut(white: int):
    """The next call's tag must end within the 256 characters of the candidate."""
    text = f'<execute><read><file>a</file><x>b</x></read><write a="{" " * white}"/></execute>'
    calls = read_checked(DIALECT, text, TOOLS).calls
    assert isinstance(calls[0], MalformedCall)
    assert (len(calls) == 2) == (white < 200)


def test_string_values_stream_and_others_come_when_they_are_closed():
    parser = DIALECT.parser(TOOLS)
    start = list(parser.feed("<execute><write><content>one two"))
    assert "".join(getattr(delta, "text", "") for delta in start) == '{"content": "one two'
    assert list(parser.feed(" three"))
    parser = DIALECT.parser(TOOLS)
    list(parser.feed("<execute><set><tags>[1"))
    assert not list(parser.feed(", 2]"))
    assert "".join(getattr(delta, "text", "") for delta in parser.feed("</tags></set>")).startswith("[1, 2]")


def test_an_open_schema_takes_any_argument_as_a_sibling():
    spec = ToolSpec("put", "", {"properties": {"a": {"type": "string"}}, "additionalProperties": True})
    turn = read_turn(get_dialect("cogency-xml"), "<execute><put><a>1</a><b>2</b></put></execute>", [spec])
    assert [call.arguments for call in turn.calls] == [{"a": "1", "b": "2"}]


def test_a_value_of_white_space_past_the_cap_fails_and_is_not_cut():
    def new_body(first_index, caps):
        return XmlCalls("execute", {}, first_index, caps)

    text = f"<w><a>{' ' * 60}</a></w></execute>"
    body = new_body(0, Caps(characters=50))
    body.feed(text, 0, [])
    assert (body.problem.code, body.problem_offset, body.is_complete) == ("too_large", 56, False)
