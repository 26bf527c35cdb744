"""MiniMax M3: nested elements, every tag after the token `]<]minimax[>[`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import cast

from toolspeak.data.deltas import CallCompleted
from toolspeak.data.messages import JSON, MalformedCall, ToolCall, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import Calls, DeclaredDialect, ResultLayout, Tools
from toolspeak.dialects.grammar.avoid import texts
from toolspeak.dialects.grammar.ir import EMPTY, Literal, Node, Repeat, Rules, Text, Token, choice, optional, series
from toolspeak.dialects.grammar.schema_rules import SchemaNodes, json_notation, merge_all_of, only, split
from toolspeak.dialects.grammar.text_frames import STARTS_CDATA, cdata, in_order
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompt import EarlierThoughts
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.readers.foreign_formats import form_body, with_forms
from toolspeak.dialects.readers.nested_elements import ITEM, NestedCalls
from toolspeak.dialects.readers.tagged_values import CDATA, as_cdata, escape_name, write_json
from toolspeak.dialects.text.block_delimiters import NEVER, FirstTag, Texts
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Caps
from toolspeak.dialects.text.typed_text import argument_schemas, json_type, schema_types

_PREFIX = "]<]minimax[>["
_START, _END = f"{_PREFIX}<tool_call>", f"{_PREFIX}</tool_call>"
_LIVE = re.compile(r"<(?=\]minimax\[>\[|\s*+(?:/\s*+)?(?ai:response|mm:think|minimax:tool_call|tool_call))")


def _new_body(marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
    if marker.form:
        return form_body(marker, tools, first_index, caps)
    return NestedCalls(_PREFIX, _END, tools, first_index, caps)


def _write_calls(calls: Calls, tools: Tools) -> str:
    whole = next((call for call in calls if isinstance(call, MalformedCall) and call.whole_block), None)
    if whole is not None:
        return f"{_START}{whole.raw}{_END}"
    body = "".join(f"{_call(call, tools)}\n" for call in calls)
    return f"{_START}\n{body}{_END}"


def _call(call: ToolCall | MalformedCall, tools: Tools) -> str:
    if isinstance(call, MalformedCall):
        return call.raw
    spec = tools.get(call.name)
    arguments = "".join(_argument(name, value, spec) for name, value in call.arguments.items())
    return f"{_open(call.name)}{arguments}{_PREFIX}</invoke>"


def _open(name: str) -> str:
    return f'{_PREFIX}<invoke name="{escape_name(name)}">'


def _argument(name: str, value: JSON, spec: ToolSpec | None) -> str:
    """An argument as elements if these read back as the same value; else text as CDATA, other values as JSON."""
    has_plain_names = spec is None or _is_named(value, argument_schemas(spec).get(name), spec)
    tries = [_elements(name, value)] if has_plain_names else []
    if isinstance(value, str):
        tries.append(_element(name, as_cdata(value)))
    for text in tries:
        if _read(text, spec) == json.dumps({name: value}, sort_keys=True):
            return text
    return _element(name, write_json(value), ' type="json"')


def _is_named(value: JSON, schema: JSON, spec: ToolSpec) -> bool:
    """Whether the schema names every key in a value, at any depth. Grammars write other keys in JSON only."""
    if not value or json_type(value) not in _CONTAINERS:
        return True
    branches = [merge_all_of(as_mapping(each), spec.parameters) for each in split(schema, spec.parameters).others]
    return any(_is_named_in(value, each, spec) for each in branches)


def _is_named_in(value: JSON, schema: Mapping[str, JSON], spec: ToolSpec) -> bool:
    if json_type(value) == "array":
        items = schema.get("items")
        return isinstance(items, Mapping) and all(
            _is_named(each, cast("JSON", items), spec) for each in cast("list[JSON]", value)
        )
    properties = as_mapping(schema.get("properties"))
    return all(
        name in properties and _is_named(each, properties[name], spec) for name, each in as_mapping(value).items()
    )


def _read(text: str, spec: ToolSpec | None) -> str:
    name = spec.name if spec else "f"
    body = NestedCalls(_PREFIX, _END, {name: spec} if spec else {}, 0, Caps())
    body.feed(f"{_open(name)}{text}{_PREFIX}</invoke>", 0, [])
    call = body.calls[0] if body.calls else None
    body.release()
    return json.dumps(call.arguments, sort_keys=True) if isinstance(call, CallCompleted) else ""


def _elements(name: str, value: JSON) -> str:
    if value and json_type(value) == "object":
        return _element(name, "".join(_elements(key, each) for key, each in as_mapping(value).items()))
    if value and json_type(value) == "array":
        return _element(name, "".join(_elements(ITEM, each) for each in cast("list[JSON]", value)))
    if isinstance(value, str):
        safe = _PREFIX not in value and not _LIVE.search(value) and not value.lstrip().startswith(CDATA)
        return _element(name, value if safe else as_cdata(value))
    return _element(name, write_json(value))


def _element(name: str, text: str, attribute: str = "") -> str:
    name = escape_name(name)
    name = "&#47;" + name[1:] if name.startswith("/") else name
    return f"{_PREFIX}<{name}{attribute}>{text}{_PREFIX}</{name}>"


def _call_node(spec: ToolSpec, rules: Rules) -> Node:
    """The layout of `_call` for grammars. Objects with free keys are JSON."""

    def argument(name: str, schema: JSON) -> Node:
        return _element_node(name, schema, spec, rules)

    return series(_open(spec.name), *in_order(spec, argument), f"{_PREFIX}</invoke>\n")


def _element_node(name: str, schema: JSON, spec: ToolSpec, rules: Rules, outer: bool = True) -> Node:
    values_by_kind = split(schema, spec.parameters)
    start, _, end = _element(name, "\0").partition("\0")
    fixed_texts = (_argument(name, value, spec) if outer else _elements(name, value) for value in values_by_kind.values)
    options: list[Node] = [series(text) for text in fixed_texts]
    contents: list[Node] = []  # with the end tag
    if values_by_kind.text:
        plain = series(Text((*texts(_PREFIX), *STARTS_CDATA), _PREFIX), end.removeprefix(_PREFIX))
        contents.append(Token(choice(plain, series(cdata(), end))))
    for other in values_by_kind.others:
        nodes = SchemaNodes(json_notation(texts(_PREFIX)), spec.parameters, rules, f"{spec.name}-{name}")
        if outer:
            start_tag = _element(name, "\0", ' type="json"').partition("\0")[0]
            options.append(series(start_tag, nodes.value(other), end))
        inner = [*_in_elements(other, spec, rules), *([] if values_by_kind.text else _plain(other, spec, nodes))]
        contents += [series(each, end) for each in inner]
    # The start tag is a separate literal: a lexer that has begun text would not go back to an element after the tag.
    return choice(*options, series(start, choice(*contents)))


def _plain(schema: JSON, spec: ToolSpec, nodes: SchemaNodes) -> list[Node]:
    """The contents of the element of a value that is neither text nor has elements: one for each type."""
    mapping, kinds = merge_all_of(as_mapping(schema), spec.parameters), schema_types(schema, spec.parameters)
    options: list[Node] = [nodes.value(only(schema, kind, spec.parameters)) for kind in sorted(kinds - _CONTAINERS)]
    if "object" in kinds and not mapping.get("required", ()):
        options.append(Literal("{}"))
    if "array" in kinds and not mapping.get("minItems"):
        options.append(Literal("[]"))
    return options


def _in_elements(schema: JSON, spec: ToolSpec, rules: Rules) -> list[Node]:
    """The contents of the element of an object or array that is not empty."""
    mapping, kinds = merge_all_of(as_mapping(schema), spec.parameters), schema_types(schema, spec.parameters)
    options: list[Node] = []
    properties, items = as_mapping(mapping.get("properties")), mapping.get("items")
    if "object" in kinds and properties:
        key = (spec.name, json.dumps(schema), "element")
        required_names = frozenset(mapping.get("required", ()))
        options.append(
            rules.once(key, f"{spec.name}-object", lambda: _entries(key, properties, required_names, spec, rules))
        )
    if "array" in kinds and isinstance(items, Mapping) and "prefixItems" not in mapping:
        item = rules.once(
            (spec.name, json.dumps(items), "item"),
            f"{spec.name}-item",
            lambda: _element_node(ITEM, cast("JSON", items), spec, rules, False),
        )
        options.append(Repeat(item, max(mapping.get("minItems", 0), 1), mapping.get("maxItems")))
    return options


def _entries(
    key: object, properties: Mapping[str, JSON], required_names: AbstractSet[str], spec: ToolSpec, rules: Rules
) -> Node:
    """One element or more. The empty object is {}, because an empty element may be a text."""
    each = {name: _element_node(name, sub, spec, rules, False) for name, sub in properties.items()}
    nodes = [node if name in required_names else optional(node) for name, node in each.items()]
    if required_names:
        return series(*nodes)

    def after(i: int) -> Node:
        rest = nodes[i + 1 :]
        return rules.once((key, i), f"{spec.name}-more", lambda: series(*rest)) if rest else EMPTY

    return choice(*(series(node, after(i)) for i, node in enumerate(each.values())))


_CONTAINERS = frozenset({"object", "array"})


MINIMAX_M3 = DeclaredDialect(
    info=DialectInfo(
        "minimax-m3",
        f'{_START} {_PREFIX}<invoke name="f"> {_PREFIX}<key>value{_PREFIX}</key>, nested',
        "chat template of MiniMaxAI/MiniMax-M3",
        aliases=("minimax-m3-reasoning",),
        models=("minimax-m3",),
        arguments="elements, typed by the tool's schema",
        results="<response> in a tool turn",
        earlier=EarlierThoughts("<mm:think>", "</mm:think>", "always"),
        reasoning="<mm:think>",
        stop=("[e~[",),
        text_aside=True,
    ),
    table=MarkerTable(
        [
            with_forms(Marker("calls", _START, _END, Texts((f"{_PREFIX}<invoke", _END))), ("json", "invoke")),
            # A call without the block around it, and M2's block, which the model knows too.
            Marker("calls", f"{_PREFIX}<invoke", _END, FirstTag((f"{_PREFIX}<",))),
            *(
                with_forms(Marker("calls", f"<{name}>", f"</{name}>", NEVER), ("invoke", "json"))
                for name in ("minimax:tool_call", "tool_call")
            ),
            Marker("reasoning", "<mm:think>", "</mm:think>"),
        ],
        specials=("[e~[",),
    ),
    new_body=_new_body,
    write_calls=_write_calls,
    results=ResultLayout("<response>", "</response>"),
    live=_LIVE,
    frame=Frame(call=_call_node, start=f"{_START}\n", end=_END, triggers=lambda _: [_START]),
    rules=f"""\
- One element for each argument, with the argument's name; {_PREFIX} stands before every tag. Objects are elements in
  elements, the entries of an array are <{ITEM}> elements. Texts stand as they are: no quotes, no escapes.
- One block for all calls of a turn.""",
)
