"""Reads calls whose arguments are elements named after them, nested like their values (MiniMax M3).

Every tag has a prefix that is a token, `]<]minimax[>[<city>`, so a value ends at its own end tag, and other tags in it
are text. One exception is a value without an end tag: the call's end, followed by a text that only follows a call, ends
that call, unless it ends a call that began in the value. The items of an array are elements `<item>`. The schema gives
the type of an element.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.body import skip_space
from toolspeak.dialects.readers.open_value import OpenValue, ValueEvent, ValueRules, ValueTags
from toolspeak.dialects.readers.tagged_calls import MayFollow, TaggedCalls, ValueEnd
from toolspeak.dialects.readers.tagged_values import CDATA, NO_SCHEMA_TYPES, TEXT, is_text, read_value, unescape_name
from toolspeak.dialects.readers.whole_call import GAP, WholeCall, text_without, whole_call
from toolspeak.dialects.text.block_delimiters import begins, stands
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer, Caps, Problem, shorten
from toolspeak.dialects.text.typed_text import Types, argument_schemas, resolve, schema_types

ITEM = "item"
_PARAMETER = re.compile(r'parameter\s+name="([^"<>]+)"')


@dataclass(slots=True)
class _Node:
    """An open element. Without `children` it holds text."""

    name: str
    end: str
    tags: ValueTags
    schema: JSON
    types: Types
    is_json: bool
    children: list[tuple[str, JSON]] | None = None


class NestedCalls(TaggedCalls):
    """Implements `Body`. `prefix` precedes every tag; `block_end` is the block's end tag with the prefix."""

    rules = ValueRules(reading="lenient", tears="never")

    def __init__(
        self, prefix: str, block_end: str, tools: Mapping[str, ToolSpec], first_index: int, caps: Caps
    ) -> None:
        super().__init__(tools, first_index, caps)
        start = re.escape(prefix)
        self._prefix = prefix
        self._block_end, self._call_end = block_end, f"{prefix}</invoke>"
        self._call_tag = re.compile(rf"""{start}<invoke\s+name\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)')\s*(/?)>""")
        self._tag = re.compile(rf'{start}<([^<>/\s][^<>]*?|)(\s+type="json")?>')
        self._open: list[_Node] = []
        self.signs = {self._call_end: "call_end", block_end: "block_end", f"{prefix}<invoke": "call"}
        self._whole = _whole(prefix)

    def recover(self) -> bool:
        recovers = super().recover()
        if recovers:
            self._open.clear()
            self._state = self._skip_lost  # the call's end may be here
        return recovers

    # Tags in a value.

    def _event(self, value: OpenValue, rest: str, literal: str) -> ValueEvent:
        if literal == value.tags.end:
            return "argument_end"
        if literal == value.tags.start:
            return "argument" if value.inside.calls else "content"
        if literal.endswith("<invoke"):
            after = rest[len(literal) : len(literal) + 1]
            if after == "" or begins(rest, 0, value.tags.start):
                return "undecided"
            return "call" if after.isspace() else "content"
        return "call" if literal.endswith("<tool_call>") else "call_end"

    def _may_follow(self, rest: str, position: int) -> MayFollow:
        return "yes"

    def _value_ends(self, value: OpenValue, rest: str) -> ValueEnd:
        """The value ends, regardless of what follows: no text in a value looks like its end tag."""
        return "closed"

    def _call_ends(self, rest: str) -> MayFollow:
        end = self._call_end if rest.startswith(self._call_end) else self._block_end
        follow = (f"{self._prefix}<tool_call>", f"{self._prefix}<invoke", self._block_end)
        tag = stands(rest, skip_space(rest, len(end)), follow)
        return "undecided" if tag is None else "yes" if tag else "no"

    def _close_value(self, value: OpenValue, outcome: ValueEnd) -> None:
        super()._close_value(value, outcome)
        if outcome == "broken":
            self._open.clear()
            self._state = self._in_call

    # States, as in `StateBody`.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        position = self._take_whole(self._whole, text, position, out)
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text.startswith(self._block_end, position):
            self._end_block(position)
            return position
        tag = self._call_tag.match(text, position, position + MAX_CANDIDATE)
        if tag:
            self._start_call(unescape_name(tag[1] if tag[1] is not None else tag[2]), position, out)
            self._state = self._in_call
            if tag[3]:
                self._end_call(text, tag.end(), out)
            return tag.end()
        self._wait_or_fail(f'{self._prefix}<invoke name="…">', text, position)
        return position

    def _whole_value(self, spec: ToolSpec | None, name: str, type_text: str, text: str) -> JSON | Problem:
        types = _types(_argument_schema(spec, name), spec.parameters if spec else {})
        empty = _empty(text, types)
        return text if is_text(types) else read_value(text, types, "", self.caps) if empty is None else empty

    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        call = self._open_call()
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text.startswith(self._call_end, position):
            self._end_call(text, position + len(self._call_end), out)
            return position + len(self._call_end)
        if text.startswith(self._block_end, position):
            call.notes.append("missing_closer")
            self._end_call(text, position, out)
            return position
        tag = self._tag.match(text, position, position + MAX_CANDIDATE)
        if tag is None:
            self._wait_or_fail(f"{self._prefix}<argument> or {self._call_end}", text, position)
            return position
        self._start_node(tag)
        return tag.end()

    def _start_node(self, tag: re.Match[str]) -> None:
        call, tag_text = self._open_call(), tag[1].strip()
        parameter = None if self._open else _PARAMETER.fullmatch(tag_text)  # as M2 writes an argument
        name, element = (parameter[1], "parameter") if parameter else (unescape_name(tag_text), tag_text)
        if self._open:
            schema = _inner_schema(self._open[-1].schema, name, call.root)
        else:
            schema = _argument_schema(call.spec, name)
            self._start_argument(name)
        types = _types(schema, call.root)
        end = f"{self._prefix}</{element}>"
        tags = _value_tags(self._prefix, element, self._block_end)
        self._open.append(_Node(name, end, tags, schema, types, bool(tag[2])))
        if len(self._open) > self.caps.depth - 2:
            self._fail("too_deep", f"the elements are nested deeper than {self.caps.depth} levels", tag.end())
        self._state = self._node_start

    def _node_start(self, text: str, position: int, out: list[Delta]) -> int:
        """Decides whether the element holds elements or text."""
        node = self._open[-1]
        stop = skip_space(text, position)
        rest = text[stop : position + MAX_CANDIDATE]
        if not node.is_json and node.types != TEXT and not rest.startswith(node.end):
            if stop - position < MAX_CANDIDATE and self._tag.match(text, stop, stop + MAX_CANDIDATE):
                node.children = []
                self._state = self._in_container
                return stop
            opener = f"{self._prefix}<"
            is_incomplete = (
                rest.startswith(opener) and not rest.startswith(f"{opener}/") and ">" not in rest[len(opener) :]
            )
            if len(text) - position < MAX_CANDIDATE and (is_incomplete or begins(rest, 0, opener, node.end)):
                self._wait = True
                return position
        self._text = Buffer(self.caps.characters)
        is_inner = len(self._open) > 1
        self._begin_text(OpenValue(node.name, node.tags, node.types, "json" if node.is_json else "", is_inner))
        return self._value_start(text, position, out)

    def _in_container(self, text: str, position: int, out: list[Delta]) -> int:
        node = self._open[-1]
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text.startswith(node.end, position):
            self._end_node(_container(node.children or [], node.types))
            return position + len(node.end)
        tag = self._tag.match(text, position, position + MAX_CANDIDATE)
        if tag:
            self._start_node(tag)
            return tag.end()
        if begins(text, position, node.end):
            self._wait = True
        else:
            self._wait_or_fail(f"an element or {node.end}", text, position)
        return position

    def _store(self, value: OpenValue, text: str) -> None:
        empty = None if value.cdata or value.explicit else _empty(text, value.types)
        if value.streams or (value.cdata and "string" in value.types and not value.explicit):
            self._end_node(text, streamed=value.streams)
        elif empty is not None:
            self._end_node(empty)
        else:
            self._end_node(read_value(text, value.types, value.explicit, self.caps), text)

    def _end_node(self, value: JSON | Problem, text: str = "", *, streamed: bool = False) -> None:
        node, call = self._open.pop(), self._open_call()
        if not self._open:
            self._keep(node.name, text, value, streamed=streamed)
            self._state = self._in_call
            return
        children = self._open[-1].children
        assert children is not None, "an element in one that holds text is our bug"
        if isinstance(value, Problem):
            reason = f"the value of {shorten(node.name)!r} cannot be read: {value.reason}"
            call.problem = call.problem or Problem(value.code, reason)
            value = text
        children.append((node.name, value))
        self._state = self._in_container

    def _wait_or_fail(self, what: str, text: str, position: int) -> None:
        rest, opener = text[position : position + MAX_CANDIDATE], f"{self._prefix}<"
        tag = rest[len(opener) :]
        may_begin = opener.startswith(rest) or (rest.startswith(opener) and "<" not in tag and ">" not in tag)
        if may_begin and len(rest) < MAX_CANDIDATE:
            self._wait = True
        else:
            self._fail("invalid_xml", f"expected {what}, found {rest[0]!r}", position)


@cache
def _whole(prefix: str) -> WholeCall:
    start = re.escape(prefix)
    value = rf"(?!\s*+{re.escape(CDATA)})(?P<value>{text_without(prefix)})"
    argument = rf"{start}<(?P<key>[^<>/&\s]{{1,100}})(?P<type>)>{value}{start}</(?P=key)>"
    return whole_call(rf'{GAP}{start}<invoke name="([^<>&"]{{1,100}})">', argument, f"{start}</invoke>")


def _argument_schema(spec: ToolSpec | None, name: str) -> JSON:
    return argument_schemas(spec).get(spec.aliases.get(name, name)) if spec else None


def _types(schema: JSON, root: Mapping[str, JSON]) -> Types:
    return schema_types(schema if schema is not None else {}, root)


def _container(children: list[tuple[str, JSON]], types: Types) -> JSON:
    """The array or object of these elements. A repeated name means an array."""
    has_types = types != NO_SCHEMA_TYPES
    if has_types and "array" in types and ("object" not in types or all(name == ITEM for name, _ in children)):
        return [value for _, value in children]
    values: dict[str, list[JSON]] = {}
    for name, value in children:
        values.setdefault(name, []).append(value)
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


def _empty(text: str, types: Types) -> JSON:
    """The empty array or object of an element without content, if the types admit no other value; else None."""
    kinds = types & {"array", "object", "string", "null"}
    if text.strip() or len(kinds) != 1:
        return None
    return [] if "array" in kinds else {} if "object" in kinds else None


def _inner_schema(schema: JSON, name: str, root: Mapping[str, JSON], depth: int = 0) -> JSON:
    """The schema of the element `name` in a value of this schema; None without one."""
    mapping = as_mapping(schema)
    if depth > 32 or not mapping:
        return None
    reference = mapping.get("$ref")
    if isinstance(reference, str):
        return _inner_schema(resolve(reference, root), name, root, depth + 1)
    properties = as_mapping(mapping.get("properties"))
    if name in properties:
        return properties[name]
    if name == ITEM and "items" in mapping:
        return mapping["items"]
    for key in ("anyOf", "oneOf", "allOf"):
        for branch in mapping.get(key, ()):
            inner = _inner_schema(branch, name, root, depth + 1)
            if inner is not None:
                return inner
    extra = mapping.get("additionalProperties")
    return as_mapping(extra) or None


@lru_cache(256)
def _value_tags(prefix: str, name: str, block_end: str) -> ValueTags:
    start = f"{prefix}<{name}>"
    around = (start, f"{prefix}<invoke", f"{prefix}<tool_call>", f"{prefix}</invoke>", block_end)
    return ValueTags(f"{prefix}</{name}>", around, start=start)
