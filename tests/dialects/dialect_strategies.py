"""Tools, calls, replies and results for the dialect tests: made up by hypothesis, and the nasty ones by hand."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import strategies as st

from toolspeak.data.messages import (
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.data.tools import READ_ANYTHING, ToolSpec
from toolspeak.dialects import PROTOCOLS, Dialect


def spec(name: str, properties: dict[str, Any], required: list[str] | None = None, **fields: Any) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }
    return ToolSpec(name, f"The tool {name}.", schema, **fields)


TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS = (
    spec("read", {"file": TEXT, "path": TEXT}, [], effects=READ_ANYTHING),
    spec("write", {"file": TEXT, "content": TEXT, "path": TEXT}, ["content"]),
    spec("shell", {"cmd": TEXT}),
    spec("list", {"prefix": TEXT}, [], effects=READ_ANYTHING),
    spec("line_edit", {"path": TEXT, "startLine": INTEGER, "endLine": INTEGER, "newContent": TEXT}),
    spec("set", {"n": INTEGER, "flag": {"type": "boolean"}, "tags": {"type": "array"}, "map": {"type": "object"}}, []),
    spec("ping", {}, effects=READ_ANYTHING),
)
"""The tools that the seeds' examples use, and one with every type."""

MARKERS = {
    "cogency-json": ("execute", "results", "think"),
    "cogency-xml": ("execute", "results", "think"),
    "tool-call": ("tool_call", "tool_result", "think"),
}
"""The names of each dialect's elements."""

BLOCK = {name: names[0] for name, names in MARKERS.items()}
DIALECT_IDS = [dialect.name for dialect in PROTOCOLS]


def block(dialect: Dialect, *calls: tuple[str, dict[str, Any]]) -> str:
    """The block, or the blocks, in which the dialect writes these calls."""
    made = tuple(ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    return "\n".join(entry.text for entry in dialect.render([Message("assistant", made)], TOOLS))


# --- replies made of pieces ---------------------------------------------------------------------

FRAGMENTS = [
    *("<execute>", "</execute>", "<Execute >", "< / EXECUTE >", "<execute a='b'>", "</ execute", "<execut", "<"),
    *("<results>", "</results>", "<tool_call>", "</tool_call>", "</tool_call >", "<tool_result>", "</tool_result>"),
    *("<think>", "</think>", "<think x>", "</ think >", "<thinking>", "</", ">", "/>", "&lt;", "<thınk>", "<reſults>"),
    *("```", "```json\n", "`", "``", "\n", " ", "\r\n", "\t", "  \n  ", "\u00a0", "prose ", "é😀", "\ud800", "\x00"),
    *("[", "]", "{", "}", ",", ":", '"', "\\", "\\n", "\\u12", "\\u00e9", "'", "//", "0", "-1.5e3", "true", "nul"),
    *('{"name": "read", "args": {"file": "a"}}', '{"name": "read", "arguments": {"path": "a"}}', '{"name": "ping"}'),
    *('"name": "write"', '"args": {"content": "x"}', '{"id": 7, ', '"id": null, ', "[]", "{}", "[1]", "NaN", "1e999"),
    *("<read>", "</read>", "<file>", "</file>", "<write>", "</write>", "<content>", "</content>", "<read/>", "<x>"),
    *("<file>a</file>", "<read><file>a.txt</file></read>", "<set><n>1</n></set>", "<n>", "</n>", "<n>[1", "</x>"),
    *(
        "<![CDATA[",
        "]]>",
        "]]",
        "]]]]><![CDATA[>",
        "<![CDATA[a]]>",
        '<call name="read">',
        "</call>",
        "<call name='s'/>",
    ),
    *('<argument name="file">', "</argument>", '<n type="json">', '<file type="json">"a"', "<file a='<", '<file a=">'),
]
PIECES = st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3))
SOUP = st.lists(PIECES, max_size=24).map("".join)
"""Texts in which markers, JSON, XML, code fences and prose meet without any order."""

NASTY_VALUES = [
    *("", " ", "  x ", "\n", "\nline\n", "007", "3.10", "1_000", "true", "null", "[1]", '{"a": 1}', '"', "\\", "\\n"),
    *("</content>", "</execute>", "<execute>", "</tool_call>", "<tool_call>", "<think>", "</think>", "<results>[", "<"),
    *("]]>", "<![CDATA[", " <![CDATA[x]]>", "]]></content>", "]]]]><![CDATA[>", "]", "x]]", "<![CDAT", "</file>"),
    *("</content ></write></execute>", "</content>\n</write>", "</content><file>b</file>", "&lt;", "&amp;", "&#60;"),
    *("```", "```json\n[]\n```", "\x00", "\ud800", "\udfff\ud800", "\r\n", "é", "😀", "\u2028", "\ufeff", "'", "`"),
    *("</", "</c", "</content", "</content\n", "<content>", "a<b", "a < b", "x\\u003c", "<tool_result>", "</argument>"),
]


def joined_surrogates(text: str) -> str:
    """Side by side, two halves of a character are that character: JSON cannot tell them apart."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


STRINGS = st.one_of(
    st.sampled_from(NASTY_VALUES),
    st.lists(st.one_of(st.sampled_from(NASTY_VALUES), st.text(max_size=4)), max_size=4).map("".join),
    st.text(st.characters(), max_size=20),
    st.text(st.sampled_from("\ud800\udc00\udfffa<]"), max_size=4),
).map(joined_surrogates)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.one_of(st.integers(), st.sampled_from([10**20, 10**4299, -(10**4298)]))
LEAVES = st.one_of(st.none(), st.booleans(), INTEGERS, FINITE, STRINGS)
JSON_VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(STRINGS, inner, max_size=3)),
    max_leaves=5,
)

# Each kind of parameter: its JSON Schema, and the values it takes.
PARAMETERS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ({"type": "string"}, STRINGS),
    ({"type": "integer"}, st.one_of(INTEGERS, st.integers(-9, 9).map(float))),
    ({"type": "number"}, st.one_of(INTEGERS, FINITE)),
    ({"type": "boolean"}, st.booleans()),
    ({"type": "array"}, st.lists(JSON_VALUES, max_size=3)),
    ({"type": "object"}, st.dictionaries(STRINGS, JSON_VALUES, max_size=3)),
    ({"type": "null"}, st.none()),
    ({"type": ["string", "null"]}, st.one_of(st.none(), STRINGS)),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, st.one_of(st.none(), INTEGERS)),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, st.one_of(STRINGS, INTEGERS)),
    ({"enum": ["007", "a", "</e>"]}, st.sampled_from(["007", "a", "</e>"])),
    ({"enum": [1, "1", None, True]}, st.sampled_from([1, "1", None, True])),
    ({"type": "integer", "enum": [1, 2]}, st.sampled_from([1, 2])),
    ({"$ref": "#/$defs/n"}, INTEGERS),
    ({}, JSON_VALUES),
    (True, JSON_VALUES),
]
ODD_NAMES = [
    *("read", "a.b-c/d", "execute", "results", "think", "tool_call", "call", "argument", "name", "type", "_", "x:y"),
    *("Execute", "a-b", "a.b", "n" * 128, "/".join("n" * 64), "args"),
]
TOOL_NAMES = st.one_of(st.sampled_from(ODD_NAMES), st.from_regex(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,20}", fullmatch=True))
ARGUMENT_NAMES = st.one_of(
    st.sampled_from(
        [*ODD_NAMES, "a b", "ä", "aé", "<", "]]>", "$ref", "日本", "", "a\nb", '"', "&#60;", "\ud800", "a=b"]
    ),
    st.text(max_size=8),
).map(joined_surrogates)


@st.composite
def tools_and_calls(draw: st.DrawFn, max_calls: int = 3) -> tuple[list[ToolSpec], list[ToolCall]]:
    """Tools of any shape, and calls whose arguments lie within their schemas."""
    tools, makers = [], []
    for name in draw(st.lists(TOOL_NAMES, min_size=1, max_size=3, unique=True)):
        names = draw(st.lists(ARGUMENT_NAMES, max_size=4, unique=True))
        kinds = {each: draw(st.sampled_from(PARAMETERS)) for each in names}
        made = spec(name, {each: schema for each, (schema, _) in kinds.items()}, [])
        tools.append(ToolSpec(name, "", {**made.parameters, "$defs": {"n": INTEGER}}))
        makers.append((name, st.fixed_dictionaries({}, optional={each: values for each, (_, values) in kinds.items()})))
    calls = []
    for i in range(draw(st.integers(1, max_calls))):
        name, arguments = draw(st.sampled_from(makers))
        calls.append(ToolCall(f"c{i}", name, draw(arguments)))
    return tools, calls


@st.composite
def replies(draw: st.DrawFn, dialect: Dialect) -> tuple[str, list[ToolSpec]]:
    """A rendered reply, or a soup, or a rendered reply that was damaged; with the tools it may be about."""
    if draw(st.booleans()):
        return draw(SOUP), list(TOOLS)
    tools, calls = draw(tools_and_calls())
    if draw(st.booleans()):
        tools, calls = list(TOOLS), [ToolCall("c", "write", {"file": draw(STRINGS), "content": draw(STRINGS)})]
    rendered = [entry.text for entry in dialect.render([Message("assistant", tuple(calls))], tools)]
    text = draw(SOUP) + draw(st.sampled_from(["", "\n", "```xml\n"])) + "\n".join(rendered) + draw(SOUP)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.one_of(st.just(""), PIECES)) + text[at + draw(st.integers(0, 5)) :]
    return text, tools


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    """The text in random pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *places, len(text)]
    return [text[start:stop] for start, stop in itertools.pairwise(edges)]


FINISHES = st.sampled_from(
    ["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "closed_by_us", "cancelled", "error"]
)

# --- results ------------------------------------------------------------------------------------

RESULT_TEXTS = st.lists(
    st.one_of(
        st.sampled_from(["<", "</", "< / ", "&", "&lt;", "&amp;", "amp;", "lt;", "LT;", " ", "\n", "/", "ERROR: "]),
        st.sampled_from(["execute", "EXECUTE", "results", "think", "tool_call", "tool_result", "Tool_Result", ">"]),
        st.sampled_from(['[{"name": "read", "args": {}}]', '{"name": "read"}', "```", "b>", '"', "\\", "]"]),
        st.text(max_size=3),
    ),
    max_size=12,
).map(lambda pieces: joined_surrogates("".join(pieces)))
RESULT_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), FINITE, RESULT_TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(RESULT_TEXTS, inner, max_size=3)),
    max_leaves=4,
)
CONTENT = st.one_of(
    st.builds(TextPart, RESULT_TEXTS),
    st.builds(JsonPart, RESULT_JSON),
    st.builds(FilePart, RESULT_TEXTS, RESULT_TEXTS, st.just(b"1234")),
    st.builds(ImagePart, RESULT_TEXTS, st.none(), RESULT_TEXTS),
)
RESULTS = st.lists(
    st.builds(
        ToolResult,
        st.integers().map(str),
        st.one_of(st.just("read"), RESULT_TEXTS),
        st.sampled_from(["success", "failure"]),
        st.lists(CONTENT, max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=3,
)


def canonical(value: Any) -> str:
    """JSON text in which 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)
