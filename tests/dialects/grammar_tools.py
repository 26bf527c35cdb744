"""The tools that grammars are tested with, and calls of them."""

from __future__ import annotations

from typing import Any

from dialect_strategies import spec
from hypothesis import strategies as st

from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import ToolSpec

S, I = {"type": "string"}, {"type": "integer"}  # noqa: E741
TREE = {
    "type": "object",
    "properties": {"name": S, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["name"],
    "additionalProperties": False,
}
TOOLS = (
    spec("get_weather", {"city": S, "days": I}, ["city"]),
    spec("ping", {}),
    spec(
        "write_file",
        {"path": S, "content": S, "mode": {"enum": ["w", "a", "x y"]}, "size": {"type": "number"}},
        ["path", "content"],
    ),
    spec(
        "set_flags",
        {
            "on": {"type": "boolean"},
            "none": {"type": "null"},
            "maybe": {"type": ["string", "null"]},
            "fixed": {"const": 7},
        },
        [],
    ),
    spec(
        "any-shape",
        {
            "any": {},
            "list": {"type": "array"},
            "map": {"type": "object"},
            "more": {"type": "object", "additionalProperties": I},
        },
        [],
    ),
    spec(
        "pick",
        {
            "either": {"anyOf": [I, {"type": "array", "items": S}]},
            "level": {"oneOf": [{"const": 1}, {"const": "one"}]},
            "two": {"type": "array", "items": I, "minItems": 2, "maxItems": 3},
            "how": {"oneOf": [{"const": "auto"}, {"type": "object", "properties": {"n": I, "m": S}}]},
            "note": {"anyOf": [S, {"type": "object", "properties": {"n": I, "m": S}}]},
        },
        ["either"],
    ),
    ToolSpec(
        "grow",
        "",
        {
            "type": "object",
            "properties": {
                "tree": {"$ref": "#/$defs/tree"},
                "point": {
                    "allOf": [
                        {"type": "object", "properties": {"x": I}, "required": ["x"]},
                        {"type": "object", "properties": {"y": I}},
                    ]
                },
                "pair": {"type": "array", "prefixItems": [S, {"type": "boolean"}], "items": False},
            },
            "required": ["tree"],
            "$defs": {"tree": TREE},
        },
    ),
)
"""Tools that show every feature of a schema that grammars know."""

# Left out is what cannot reach a tokenizer (lone surrogates), and DEL, which llguidance does not take in JSON.
_TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "\n", "</x>", "a < b", "</parameter>", "]]>", "<![CDATA[x]]>", '"', "\\", "null", "5", "</arg_value>"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=8),
)
_INTEGERS = st.integers(-(10**20), 10**20)
_NUMBERS = st.one_of(_INTEGERS, st.floats(-1e300, 1e300, allow_nan=False).map(lambda number: number + 0.0))
_TREES = st.recursive(
    st.fixed_dictionaries({"name": _TEXTS}),
    lambda inner: st.builds(
        lambda name, inside: {"name": name, "children": inside}, _TEXTS, st.lists(inner, max_size=2)
    ),
    max_leaves=3,
)


def _calls(
    name: str, required_arguments: dict[str, Any], others: dict[str, Any] | None = None
) -> st.SearchStrategy[ToolCall]:
    """Arguments in the schema's order, as grammars have them."""
    arguments_strategy = st.fixed_dictionaries(required_arguments, optional=others or {})
    order = next(list(tool.properties) for tool in TOOLS if tool.name == name)
    return arguments_strategy.map(
        lambda arguments: ToolCall("id1", name, {key: arguments[key] for key in order if key in arguments})
    )


CALLS = st.one_of(
    _calls("ping", {}),
    _calls("get_weather", {"city": _TEXTS}, {"days": _INTEGERS}),
    _calls(
        "write_file",
        {"path": _TEXTS, "content": _TEXTS},
        {"mode": st.sampled_from(["w", "a", "x y"]), "size": _NUMBERS},
    ),
    _calls("set_flags", {}, {"on": st.booleans(), "none": st.none(), "maybe": st.none() | _TEXTS, "fixed": st.just(7)}),
    _calls("any-shape", {}, {"list": st.lists(_INTEGERS | _TEXTS, max_size=2)}),
    _calls(
        "pick",
        {"either": _INTEGERS | st.lists(_TEXTS, max_size=2)},
        {
            "level": st.sampled_from([1, "one"]),
            "two": st.lists(_INTEGERS, min_size=2, max_size=3),
            "how": st.sampled_from(["auto", {}, {"n": 5}, {"m": "a"}, {"n": 5, "m": "a"}]),
            "note": _TEXTS | st.sampled_from([{}, {"n": 5}, {"m": "a"}]),
        },
    ),
    _calls(
        "grow",
        {"tree": _TREES},
        {
            "point": st.builds(lambda x, y: {"x": x, "y": y}, _INTEGERS, _INTEGERS),
            "pair": st.tuples(_TEXTS, st.booleans()).map(list),
        },
    ),
)
