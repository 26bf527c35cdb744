"""Argument values written as text become what the tool's schema says, in every dialect that leaves types to it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect, read_turn
from toolspeak.testing import check_splits

_M3 = "]<]minimax[>["
_PAIR = "<arg_key>v</arg_key><arg_value>{}</arg_value>"
FRAMES = {
    "qwen3-coder": "<tool_call>\n<function=do>\n<parameter=v>\n{}\n</parameter>\n</function>\n</tool_call>",
    "step3p5": "<tool_call>\n<function=do>\n<parameter=v>\n{}\n</parameter>\n</function>\n</tool_call>",
    "mimo": "<tool_call><function=do><parameter=v>{}</parameter></function></tool_call>",
    "seed-oss": "<seed:tool_call><function=do><parameter=v>{}</parameter></function></seed:tool_call>",
    "minimax-m2": (
        '<minimax:tool_call><invoke name="do"><parameter name="v">{}</parameter></invoke></minimax:tool_call>'
    ),
    "minicpm5": '<function name="do"><param name="v">{}</param></function>',
    "step3": (
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="do">'
        '<steptml:parameter name="v">{}</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>'
    ),
    "minimax-m3": (f'{_M3}<tool_call>{_M3}<invoke name="do">{_M3}<v>{{}}{_M3}</v>{_M3}</invoke>{_M3}</tool_call>'),
    "muse": (
        ' to=do<|message|><atem:function_calls><atem:invoke name="do"><atem:parameter name="v">{}</atem:parameter>'
        "</atem:invoke></atem:function_calls>"
    ),
    "glm45": f"<tool_call>do\n{_PAIR}\n</tool_call>",
    "glm47": f"<tool_call>do{_PAIR}</tool_call>",
    "spark25": f"<tool_call>do{_PAIR}</tool_call>",
    "ling3": f"<tool_call>do\n{_PAIR}\n</tool_call>",
    "poolside-v1": f"<tool_call>do\n{_PAIR}\n</tool_call>",
    "laguna-s": f"<tool_call>do{_PAIR}</tool_call>",
    "hy-v3": f"<tool_calls><tool_call>do<tool_sep>{_PAIR}</tool_call></tool_calls>",
    "k2-horizon": (
        "<ifm|tool_calls><ifm|tool_call>do<ifm|arg_key>v</ifm|arg_key><ifm|arg_value>{}</ifm|arg_value>"
        "</ifm|tool_call></ifm|tool_calls>"
    ),
}
GUESSING = {"muse", "glm45", "glm47", "spark25", "ling3", "poolside-v1", "laguna-s", "k2-horizon"}
"""Their templates write JSON for all but strings, so text that is JSON is that JSON where nothing else is said."""
TEXT, INTEGER, NUMBER, BOOLEAN, NULL = ({"type": kind} for kind in ("string", "integer", "number", "boolean", "null"))
ARRAY, OBJECT = {"type": "array"}, {"type": "object"}

# schema, text, value
VALUES: list[tuple[Any, str, Any]] = [
    *((TEXT, text, text) for text in ("7", "1_000", "true", "null", "None", "", '{"a": 1}', '"q"', "\\d+", " a \n b ")),
    (INTEGER, "7", 7),
    (INTEGER, "7.5", "7.5"),
    (INTEGER, "seven", "seven"),
    (INTEGER, "", ""),
    (NUMBER, "2.5", 2.5),
    (NUMBER, "-12", -12),
    (NUMBER, "1e3", 1000.0),
    (NUMBER, "NaN", "NaN"),
    (BOOLEAN, "true", True),
    (BOOLEAN, "False", False),
    (BOOLEAN, "1", True),
    (BOOLEAN, "yes", "yes"),
    (NULL, "null", None),
    (NULL, "None", None),
    (INTEGER, "null", None),
    (ARRAY, "null", None),
    (INTEGER, "+5", 5),
    ({"type": ["number", "null"]}, "+0.5", 0.5),
    (INTEGER, "+x", "+x"),
    (ARRAY, '[1, "a", {"b": null}]', [1, "a", {"b": None}]),
    (ARRAY, "a, b", "a, b"),
    (OBJECT, '{"a": {"b": [1]}}', {"a": {"b": [1]}}),
    # A value in quotes, or escaped once too often, where no string is admitted.
    (INTEGER, '"5"', 5),
    (INTEGER, '\\"5\\"', 5),
    (ARRAY, '[{\\"a\\": \\"b\\\\\\\\c\\"}]', [{"a": "b\\c"}]),
    (OBJECT, "{'a': True, 'b': None}", {"a": True, "b": None}),
    (OBJECT, "\"{'a': 'b', 'n': 1}\"", {"a": "b", "n": 1}),
    (ARRAY, "['a', (1, 2)]", ["a", [1, 2]]),
    (OBJECT, "{'a': 1}, b=2", "{'a': 1}, b=2"),
    (OBJECT, "{'a': f()}", "{'a': f()}"),
    ({"type": ["string", "object"]}, "{'a': 1}", "{'a': 1}"),
    # Several types: what fits of the others, else the text.
    ({"type": ["integer", "null"]}, "7", 7),
    ({"type": ["integer", "null"]}, "null", None),
    ({"type": ["string", "integer"]}, "7", 7),
    ({"type": ["string", "integer"]}, "007", "007"),
    ({"type": ["string", "integer"]}, "true", "true"),
    ({"type": ["string", "null"]}, "null", None),
    ({"type": ["string", "null"]}, "nullable", "nullable"),
    ({"type": ["string", "boolean"]}, "false", False),
    ({"type": ["string", "object"]}, '{"ok": false}', {"ok": False}),
    ({"type": ["string", "object"]}, "7", "7"),
    ({"type": ["string", "array"]}, "[1, 2]", [1, 2]),
    ({"type": ["string", "array"]}, "[draft] x", "[draft] x"),
    # Listed values: such a text is that string.
    ({"enum": ["low", "high"]}, "low", "low"),
    ({"enum": ["7", 8]}, "7", "7"),
    ({"enum": ["7", 8]}, "8", 8),
    ({"enum": ["true", None]}, "true", "true"),
    ({"enum": ["ok", None]}, "null", None),
    ({"enum": ["null", 7]}, "null", "null"),
    ({"enum": [1, 2]}, "2", 2),
    ({"type": ["string", "null"], "enum": ["ok", None]}, "null", None),
    ({"const": 5}, "5", 5),
    ({"const": "5"}, "5", "5"),
    ({"const": {"ok": False}}, '{"ok": false}', {"ok": False}),
    # Schemas put together.
    ({"anyOf": [INTEGER, NULL]}, "null", None),
    ({"anyOf": [{"type": "string", "enum": ["auto"]}, INTEGER]}, "7", 7),
    ({"anyOf": [{"type": "string", "enum": ["auto"]}, INTEGER]}, "auto", "auto"),
    ({"oneOf": [NULL, {"type": "array", "items": INTEGER}]}, "[1, 2]", [1, 2]),
    ({"allOf": [{"type": ["integer", "string"]}, INTEGER]}, "7", 7),
    ({"allOf": [{"$ref": "#/$defs/n"}]}, "5", 5),
    ({"$ref": "#/$defs/n"}, "5", 5),
    ({"$ref": "#/$defs/a~1b~0c"}, "5", 5),
    ({"$ref": "#/$defs/text"}, "5", "5"),
    ({"$ref": "#/$defs/cycle"}, "text", "text"),
    ({"$ref": "#/$defs/nothing"}, "text", "text"),
    # As people write types by hand.
    ({"type": "int"}, "7", 7),
    ({"type": "float"}, "7.5", 7.5),
    ({"type": "bool"}, "True", True),
    ({"type": "dict"}, '{"a": 1}', {"a": 1}),
    ({"type": "list"}, "[1]", [1]),
    ({"type": "str"}, "7", "7"),
]
DEFINITIONS = {"n": INTEGER, "a/b~c": INTEGER, "text": TEXT, "cycle": {"$ref": "#/$defs/cycle"}}


def read(name: str, text: str, parameters: dict[str, Any]) -> dict[str, Any]:
    tools = [ToolSpec("do", "", {**parameters, "$defs": DEFINITIONS})]
    reply = FRAMES[name].replace("{}", text)
    (call,) = read_turn(get_dialect(name), reply, tools).calls
    assert isinstance(call, ToolCall)
    check_splits(get_dialect(name), reply, tools, splits=[tuple(reply)])
    return dict(call.arguments)


@pytest.mark.parametrize("name", FRAMES)
def test_a_value_is_what_its_schema_says(name: str) -> None:
    for schema, text, value in VALUES:
        value_read = read(name, text, {"type": "object", "properties": {"v": schema}})
        assert json.dumps(value_read) == json.dumps({"v": value}), (schema, text)


@pytest.mark.parametrize("name", FRAMES)
def test_without_a_schema_the_dialects_own_rule_says_what_a_value_is(name: str) -> None:
    for text, value in (("7", 7), ("true", True), ("null", None), ("[1]", [1]), ("word", "word"), ("7 up", "7 up")):
        assert read(name, text, {"type": "object"}) == {"v": value if name in GUESSING else text}


COUNT = {"properties": {"kind": {"const": "count"}, "v": INTEGER}}
SIZE = {"properties": {"kind": {"const": "size"}, "v": {"type": "boolean"}}}


@pytest.mark.parametrize(
    "parameters",
    [
        {"anyOf": [COUNT, SIZE]},
        {"oneOf": [{"allOf": [SIZE]}, COUNT]},
        {"allOf": [COUNT, {"required": ["v"]}]},
        {"$ref": "#/$defs/arguments", "$defs": {"arguments": COUNT}},
        {"type": "object", "properties": {"kind": TEXT}, "allOf": [COUNT]},
    ],
)
@pytest.mark.parametrize("name", ["qwen3-coder", "glm47", "minimax-m3"])
def test_the_tools_own_schema_may_be_a_reference_or_a_choice(name: str, parameters: dict[str, Any]) -> None:
    spec = ToolSpec("do", "", parameters)
    (call,) = read_turn(get_dialect(name), FRAMES[name].replace("{}", "7"), [spec]).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"v": 7}
