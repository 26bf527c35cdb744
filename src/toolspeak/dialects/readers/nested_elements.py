"""The body of calls whose arguments are elements of their own name, nested as the values are (MiniMax M3).

Every tag stands behind a prefix that is a token of its own, `]<]minimax[>[<city>`, so a value ends at its own end tag
and nothing else in it is markup, but what tells that it has none: the call's end and what can only follow that, unless
the call began in the value. An array's elements are `<item>`; what an element holds, the schema says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.reader_states import CallSteps, OpenCall, skip_space, without
from toolspeak.dialects.readers.tagged_calls import Answer
from toolspeak.dialects.readers.tagged_values import CDATA, CDATA_END, TEXT, UNTYPED, is_text, read_value, unescape_name
from toolspeak.dialects.readers.whole_call import GAP, WholeCall, text_without, whole_call
from toolspeak.dialects.text.end_marker import begins, stands
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer, Caps, Problem, shorten
from toolspeak.dialects.text.typed_text import Types, argument_schemas, as_mapping, resolve, schema_types

ITEM = "item"
_PARAMETER = re.compile(r'parameter\s+name="([^"<>]+)"')


@dataclass(slots=True)
class _Node:
    """An element that is open. `streams`: a text argument, which leaves as it comes. `marks` finds its end, and what
    stands in its text of other calls."""

    name: str
    end: str
    marks: re.Pattern[str]
    schema: JSON
    types: Types
    is_json: bool
    streams: bool = False
    cdata: bool = False
    children: list[tuple[str, JSON]] | None = None
    calls: int = 0  # that began in the text and have not ended
    argument: bool = False  # of such a call, and of this name


class NestedCalls(CallSteps):
    """Implements `Body`; `prefix` stands before every tag, `block_end` is the block's end tag with it."""

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
        self._depth = 0  # calls that began behind what could not be read
        self._whole = _whole(prefix)

    def flow(self) -> Callable[[str], object] | None:
        if not self._open or not self._open[-1].streams:
            return None
        if self._state == self._in_text:
            return without(self._prefix[0], self._prefix[1])
        return without("]") if self._state == self._in_cdata else None

    def recover(self) -> bool:
        """A call in which something cannot be read fails alone, and so does one whose tag cannot be read."""
        if self.problem is None or self.problem.code != "invalid_xml":
            return False
        if self._call is None:
            self._call = OpenCall("", None, self.problem_offset)
        self._call.problem = self._call.problem or self.problem
        self._open.clear()
        self.problem, self._depth, self._state = None, 0, self._skip_lost
        return True

    # States, as in `Steps`.

    def _skip_lost(self, text: str, position: int, out: list[Delta]) -> int:
        """Behind what could not be read: up to the call's own end. A call that begins in between may be part of a value
        whose tags could not be read: it never runs."""
        at = text.find(self._prefix[0], position)
        while at >= 0:
            tag = stands(text, at, (self._call_end, self._block_end, f"{self._prefix}<invoke"))
            if tag is None:
                self._wait = True
                return at
            if tag == self._block_end or (tag == self._call_end and not self._depth):
                stop = at + len(tag) if tag == self._call_end else at
                self._end_call(text, stop, out)
                return stop
            self._depth += (tag != self._call_end) - (tag == self._call_end) if tag else 0
            at = text.find(self._prefix[0], at + 1)
        return len(text)

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        position = self._take_whole(self._whole, text, position, out)
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text.startswith(self._block_end, position):
            self.done = bool(self.calls)
            if not self.done:
                self._fail("empty_batch", "the block holds no call", position)
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

    def _whole_value(self, spec: ToolSpec | None, name: str, said: str, text: str) -> JSON | Problem:
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
        call, written = self._open_call(), tag[1].strip()
        named = None if self._open else _PARAMETER.fullmatch(written)  # as M2 writes an argument
        name, element = (named[1], "parameter") if named else (unescape_name(written), written)
        if self._open:
            schema = _inner_schema(self._open[-1].schema, name, call.root)
        else:
            schema = _argument_schema(call.spec, name)
            self._start_argument(name)
        types = _types(schema, call.root)
        end = f"{self._prefix}</{element}>"
        marks = _marks(self._prefix, element, self._block_end)
        self._open.append(_Node(name, end, marks, schema, types, bool(tag[2])))
        if len(self._open) > self.caps.depth - 2:
            self._fail("too_deep", f"the elements are nested deeper than {self.caps.depth} levels", tag.end())
        self._state = self._node_start

    def _node_start(self, text: str, position: int, out: list[Delta]) -> int:
        """Whether the element holds text, a CDATA section, or elements."""
        node = self._open[-1]
        stop = skip_space(text, position)
        near = stop - position < MAX_CANDIDATE
        if near and text.startswith(CDATA, stop):
            node.cdata = True
            self._be_text(node)
            self._state = self._in_cdata
            return stop + len(CDATA)
        if near and not text.startswith(node.end, stop):
            holds = not node.is_json and node.types != TEXT
            if holds and self._tag.match(text, stop, stop + MAX_CANDIDATE):
                node.children = []
                self._state = self._in_container
                return stop
            if stop == len(text) or any(
                begins(text, stop, each) for each in (CDATA, node.end, *([f"{self._prefix}<"] if holds else ()))
            ):
                self._wait = True
                return position
            cut_tag = text.startswith(f"{self._prefix}<", stop) and not text.startswith(f"{self._prefix}</", stop)
            cut_tag = cut_tag and len(text) - stop < MAX_CANDIDATE
            if holds and cut_tag and ">" not in text[stop + len(self._prefix) : stop + MAX_CANDIDATE]:
                self._wait = True
                return position
        self._be_text(node)
        self._state = self._in_text
        return position

    def _be_text(self, node: _Node) -> None:
        self._text = Buffer(self.caps.characters)
        if (
            len(self._open) == 1
            and not node.is_json
            and (is_text(node.types) or (node.cdata and "string" in node.types))
        ):
            node.streams = True
            self._say('"')

    def _in_text(self, text: str, start: int, out: list[Delta]) -> int:
        node, position = self._open[-1], start
        while (found := node.marks.search(text, position)) is not None:
            at, position = found.start(), found.end()
            if found["end"] and not node.argument:
                if self._grow(node, text, start, at):
                    return at
                self._end_node()
                return position
            verdict = self._ends_call(node, found, text)
            if verdict != "no" and self._grow(node, text, start, at):
                return at
            if verdict == "undecided":
                self._wait = True
            elif verdict == "yes":
                self._give_up(node)
            if verdict != "no":
                return at
        hold = _hold_from(text, max(position, start), self._prefix, MAX_CANDIDATE)
        if not self._grow(node, text, start, hold):
            self._wait = hold < len(text)
        return hold

    def _ends_call(self, node: _Node, found: re.Match[str], text: str) -> Answer:
        """Takes note of what begins and ends in the text; whether the call or the block ends here instead."""
        if found["end"]:
            node.argument = False
        elif found["same"]:
            node.argument = node.calls > 0
        elif found["begin"]:
            node.calls, node.argument = node.calls + 1, False
        elif node.calls:
            node.calls, node.argument = node.calls - 1, False
        else:
            rest = text[found.end() : found.end() + MAX_CANDIDATE]
            stop = skip_space(rest, 0)
            follow = (f"{self._prefix}<tool_call>", f"{self._prefix}<invoke", self._block_end)
            if rest.startswith(follow, stop):
                return "yes"
            more = stop == len(rest) or begins(rest, stop, *follow)
            return "undecided" if more and len(rest) < MAX_CANDIDATE else "no"
        return "no"

    def _give_up(self, node: _Node) -> None:
        call = self._open_call()
        reason = f"the value of {shorten(node.name)!r} has no end; write {node.end} behind it"
        call.problem = call.problem or Problem("unclosed", reason)
        self._open.clear()
        self._state = self._in_call

    def _in_cdata(self, text: str, start: int, out: list[Delta]) -> int:
        node = self._open[-1]
        position = start
        while (at := text.find("]", position)) >= 0:
            rest = text[at : at + 2 * MAX_CANDIDATE]
            ended = rest.startswith(CDATA_END)
            after = skip_space(rest, len(CDATA_END)) if ended else 0
            if rest.startswith(CDATA_END + CDATA):
                return at if self._grow(node, text, start, at) else at + len(CDATA_END + CDATA)
            if ended and after < MAX_CANDIDATE and rest.startswith(node.end, after):
                if not self._grow(node, text, start, at):
                    self._end_node()
                return at + after + len(node.end)
            more = ended and after < MAX_CANDIDATE and (after == len(rest) or begins(rest, after, node.end))
            if more or begins(rest, 0, CDATA_END) or begins(rest, 0, CDATA_END + CDATA):
                self._wait = not self._grow(node, text, start, at)
                return at
            position = at + 1
        self._grow(node, text, start, len(text))
        return len(text)

    def _in_container(self, text: str, position: int, out: list[Delta]) -> int:
        node = self._open[-1]
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text.startswith(node.end, position):
            self._end_node()
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

    def _grow(self, node: _Node, text: str, start: int, stop: int) -> bool:
        """Takes a piece of an element's text; True if it has grown too large."""
        self._content(text, start, stop, said=node.streams)
        return self.problem is not None

    def _end_node(self) -> None:
        node, call = self._open.pop(), self._open_call()
        value = self._value(node, call)
        if self._open:
            children = self._open[-1].children
            assert children is not None, "an element in one that holds text is our bug"
            children.append((node.name, value))
            self._state = self._in_container
            return
        self._keep(node.name, "", value, streamed=node.streams)
        self._state = self._in_call

    def _value(self, node: _Node, call: OpenCall) -> JSON:
        if node.children is not None:
            return _container(node.children, node.types)
        text = self._text.value()
        if node.streams or (node.cdata and "string" in node.types):
            return text
        if not node.cdata and not node.is_json and (empty := _empty(text, node.types)) is not None:
            return empty
        value = read_value(text, node.types, "json" if node.is_json else "", self.caps)
        if isinstance(value, Problem):
            reason = f"the value of {shorten(node.name)!r} cannot be read: {value.reason}"
            call.problem = call.problem or Problem(value.code, reason)
            return text
        return value

    def _wait_or_fail(self, what: str, text: str, position: int) -> None:
        rest, opener = text[position : position + MAX_CANDIDATE], f"{self._prefix}<"
        tag = rest[len(opener) :]
        begun = opener.startswith(rest) or (rest.startswith(opener) and "<" not in tag and ">" not in tag)
        if begun and len(rest) < MAX_CANDIDATE:
            self._wait = True
        else:
            self._fail("invalid_xml", f"expected {what}, found {rest[0]!r}", position)


@cache
def _whole(prefix: str) -> WholeCall:
    start = re.escape(prefix)
    value = rf"(?!\s*+{re.escape(CDATA)})(?P<value>{text_without(prefix)})"
    argument = rf"{start}<(?P<key>[^<>/&\s]{{1,100}})(?P<said>)>{value}{start}</(?P=key)>"
    return whole_call(rf'{GAP}{start}<invoke name="([^<>&"]{{1,100}})">', argument, f"{start}</invoke>")


def _argument_schema(spec: ToolSpec | None, name: str) -> JSON:
    return argument_schemas(spec).get(spec.aliases.get(name, name)) if spec else None


def _types(schema: JSON, root: Mapping[str, JSON]) -> Types:
    return schema_types(schema if schema is not None else {}, root)


def _container(children: list[tuple[str, JSON]], types: Types) -> JSON:
    """The array or object that these elements make up; a name that comes again stands for an array."""
    typed = types != UNTYPED
    if typed and "array" in types and ("object" not in types or all(name == ITEM for name, _ in children)):
        return [value for _, value in children]
    values: dict[str, list[JSON]] = {}
    for name, value in children:
        values.setdefault(name, []).append(value)
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


def _empty(text: str, types: Types) -> JSON:
    """The array or object that an element without any stands for, if it can be nothing else; None for none."""
    kinds = types & {"array", "object", "string", "null"}
    if text.strip() or len(kinds) != 1:
        return None
    return [] if "array" in kinds else {} if "object" in kinds else None


def _inner_schema(schema: JSON, name: str, root: Mapping[str, JSON], depth: int = 0) -> JSON:
    """The schema of the element `name` in a value of this schema; None where nothing is said."""
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
            found = _inner_schema(branch, name, root, depth + 1)
            if found is not None:
                return found
    extra = mapping.get("additionalProperties")
    return as_mapping(extra) or None


@lru_cache(256)
def _marks(prefix: str, name: str, block_end: str) -> re.Pattern[str]:
    tag, last = re.escape(f"{prefix}<"), re.escape(block_end)
    return re.compile(
        rf"(?P<end>{tag}/{re.escape(name)}>)|(?P<same>{tag}{re.escape(name)}>)|(?P<begin>{tag}(?:invoke\s|tool_call>))"
        rf"|{tag}/invoke>|{last}"
    )


def _hold_from(text: str, start: int, prefix: str, length: int) -> int:
    """Where the end of this text may turn out to be the beginning of a tag of at most `length` characters."""
    at = text.find(prefix[0], max(start, len(text) - length + 1))
    while at >= 0:
        rest = text[at : at + length]
        if prefix.startswith(rest) or (rest.startswith(f"{prefix}<") and ">" not in rest[len(prefix) :]):
            return at
        at = text.find(prefix[0], at + 1)
    return len(text)
