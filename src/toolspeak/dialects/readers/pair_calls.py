"""Reads calls that are a name and elements for keys and values, in the format of GLM and models that learned from it.

A call is `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>`, with or without white space around
the tags. Some models write an outer element around all calls, or a separator after the name. `tagged_calls` finds
where a value ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.body import skip_space
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.json_calls import JsonCalls
from toolspeak.dialects.readers.open_value import OpenValue, ValueEvent
from toolspeak.dialects.readers.pair_tags import BREAK, KINDS, LOST_KEY, NAME, PairTags, written_tags
from toolspeak.dialects.readers.tagged_calls import MayFollow, TaggedCalls, no_call_end
from toolspeak.dialects.readers.tagged_values import is_text, read_value
from toolspeak.dialects.text.block_delimiters import begins, stands
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer, Caps, Problem, shorten
from toolspeak.dialects.text.typed_text import argument_schemas, has_argument

_GAP = re.compile(r"(?:\s|\\n)*")
# A beginning of the text from a key to its value, after the first tag.
_PAIR_START = re.compile(r"[^<]*+(?:<[^<>]*+(?:>(?:\s|\\n)*+(?:\\|<[^<>]*+)?)?)?")
_JSON_SHAPE = CallShape(arguments_key="arguments", array=False, arguments_required=False)


def has_known(spec: ToolSpec | None, name: str) -> bool:
    return spec is not None and has_argument(spec, name)


def _answer(text: str, position: int, tags: tuple[str, ...]) -> MayFollow:
    tag = stands(text, position, tags)
    return "undecided" if tag is None else "yes" if tag else "no"


def _skip_gap(text: str, position: int) -> int:
    """The position after white space and escaped line breaks; `stands` waits for the rest of a cut escape."""
    match = _GAP.match(text, position)
    return match.end() if match else position


class PairCalls(TaggedCalls):
    """Implements `Body`. It sends string values as they arrive. `wrapped`: the block holds several calls."""

    _tag_text = Buffer(0)  # the text of the open key or type
    _key = ""
    _json: JsonCalls | None = None
    _breaks: tuple[str, ...] = ()

    def __init__(
        self,
        tags: PairTags,
        wrapped: bool,
        tools: Mapping[str, ToolSpec],
        first_index: int,
        caps: Caps,
        *,
        nameless: bool = False,
    ) -> None:
        """`nameless`: the body begins in the first key, because the text before it was lost."""
        super().__init__(tools, first_index, caps)
        self._json_calls, self._types, self._call_follows = tags.json, tags.types, tags.call_follows
        self._is_wrapped = wrapped
        self._gap = skip_space
        self._tags, self._value_tags = written_tags(tags, wrapped), tags.value
        if wrapped:
            self.signs = {
                self._tags.key: "argument",
                self._tags.call: "call",
                self._tags.call_end: "call_end",
                self._tags.block_end: "block_end",
            }
        else:
            self._state = self._name
        if nameless:
            self._start_call("", 0, [])
            self._tag_text, self._state = Buffer(caps.characters), self._in_key

    def _event(self, value: OpenValue, rest: str, literal: str) -> ValueEvent:
        tags = self._tags
        if literal == tags.value_end:
            return "argument_end"
        if literal == tags.call_end:
            return "call_end"
        if literal == tags.call:
            follows = self._call_follows(rest[len(tags.call) :])
            return "undecided" if follows is None else "call" if follows else "content"
        inside = value.following_end != "" or value.inside.calls > 0
        if literal == tags.value:
            return "argument" if inside else "content"
        pair = tags.pair.match(rest)
        if pair is None:
            return "undecided" if _PAIR_START.fullmatch(rest, len(tags.key)) else "content"
        return "argument" if inside or self._is_missing(value, self._schema_key(pair[1])) else "content"

    def _may_follow(self, rest: str, position: int) -> MayFollow:
        # Another call's start may follow by mistake: this call probably has no end. Two calls must not run as one.
        return _answer(rest, self._gap(rest, position), (*self._tags.follow, self._tags.call, *self._breaks))

    def _call_ends(self, rest: str) -> MayFollow:
        stop, tags = self._gap(rest, len(self._tags.call_end)), self._tags
        answer = _answer(rest, stop, tags.between)
        if answer == "yes" and rest.startswith(tags.call, stop):
            follows = self._call_follows(rest[stop + len(tags.call) :])
            return "undecided" if follows is None else "yes" if follows else "no"
        return answer

    # States, as in `StateBody`.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        tags = self._tags
        tag, stop = self._expect(text, position, (*tags.between, *self._breaks))
        if tag is None:
            return stop
        if tag == tags.call:
            self._state = self._name
            return stop + len(tag)
        if tag:
            self._end_block(stop, f"{tags.call}name…{tags.call_end}")
        else:
            self._no_call(f"expected {tags.call} or {tags.block_end}", text, stop)
        return stop

    def _name(self, text: str, position: int, out: list[Delta]) -> int:
        """The tool's name, up to the first tag. The name is short, so it waits for the tag."""
        if (stop := self._take_whole(self._tags.whole, text, position, out)) > position:
            self._gap, self._breaks, self._state, self.is_complete = skip_space, (), self._between, not self._is_wrapped
            return stop
        match = NAME.match(text, position, position + MAX_CANDIDATE)
        stop = match.end() if match else position
        if stop == len(text) or begins(text, stop, BREAK):
            self._wait = True
            return position
        name = match[1] if match else ""
        has_break = match is not None and BREAK in text[match.end(1) : stop]
        self._gap, self._breaks = (_skip_gap, (BREAK,)) if has_break else (skip_space, ())
        if self._json_calls and not name and text[stop] == "{":
            self._json = JsonCalls(_JSON_SHAPE, self._index, self.caps)
            self._json.start = self.start + self._base + stop
            self._state = self._json_object
            return stop
        after = self._lost_tags(name, text, position, stop, out)
        if after is not None:
            return after
        if text[stop] != "<":
            self._fail("invalid_call", f"expected the tool's name, then its arguments, found {text[stop]!r}", stop)
            return stop
        if self._tags.name_end:
            tag = stands(text, stop, (self._tags.name_end,))
            if tag is None:
                self._wait = True
                return position
            stop += len(tag)
        self._start_call(name, position, out)
        self._state = self._in_call
        return stop

    def _lost_tags(self, name: str, text: str, position: int, stop: int, out: list[Delta]) -> int | None:
        """Reads a call that lost the tags after the name; None for another call.

        Such calls are `fkey</arg_key>`, `f key</arg_key>`, or `f</arg_value>` for a call without arguments. The call
        is malformed unless it has exactly one meaning with the known tools.
        """
        tags, key = self._tags, LOST_KEY.match(text, stop)
        at = key.end() if key else stop
        if not name or at == len(text):
            self._wait = self._wait or (bool(name) and key is not None)
            return position if self._wait else None
        tag = stands(text, at, (tags.key_end, tags.value_end, *((tags.key,) if not key else ())))
        if tag is None:
            self._wait = True
            return position
        if tag == "" or tag == tags.key or (key and tag != tags.key_end):
            return None
        reason = f"expected {tags.key} or {tags.call_end} after the name in {shorten(name)!r}"
        if tag == tags.key_end:
            splits = [(name, key[0])] if key else [(name[:i], name[i:]) for i in range(1, len(name))]
            splits = [] if name in self._tools and not key else splits
            matches = [(tool, each) for tool, each in splits if has_known(self._tools.get(tool), each)]
            call, self._key = self._start_call(matches[0][0] if len(matches) == 1 else "", position, out), name
            if len(matches) == 1:
                self._key = matches[0][1]
                call.notes.append("missing_opener")
            else:
                call.problem = Problem("invalid_call", reason)
            self._state = self._after_key
            return at + len(tag)
        spec = self._tools.get(name)
        call = self._start_call(name, position, out)
        if spec is None or argument_schemas(spec):
            call.problem = Problem("invalid_call", reason)
        call.notes.append("missing_opener")
        self._state = self._in_call
        return at + len(tag)

    def _whole_value(self, spec: ToolSpec | None, name: str, type_text: str, text: str) -> JSON | Problem:
        types = (KINDS.get(type_text) if type_text else None) or self._types(spec, name)
        return text if is_text(types) else read_value(text, types, "", self.caps, "exact")

    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        call, tags = self._open_call(), self._tags
        tag, stop = self._expect(text, position, (*tags.follow, tags.call, *self._breaks))
        if tag is None:
            return stop
        if tag == tags.call_end:
            self._end_call(text, stop, out)
            self.is_complete = not self._is_wrapped
            return stop + len(tag) if self._is_wrapped else stop
        if tag == tags.call:
            call.problem = call.problem or no_call_end(call, tags.call_end)
            self._end_call(text, stop, out)
            self.is_complete = not self._is_wrapped
        elif tag == tags.block_end and tag:
            call.notes.append("missing_closer")
            self._end_call(text, stop, out)
        elif tag:
            self._tag_text, self._state = Buffer(self.caps.characters), self._in_key
            return stop + len(tag)
        else:
            reason = f"expected {tags.key} or {tags.call_end} in the call of {shorten(call.name)!r}"
            self._fail("invalid_call", reason, stop)
        return stop

    def _in_key(self, text: str, position: int, out: list[Delta]) -> int:
        """Reads a key, which ends at any tag: without its end tag it would swallow the following text."""
        stop, tag = self._until(self._tags.in_key, text, position)
        if not tag:
            return stop
        if tag == self._tags.key and not self._tag_text.value().strip():
            self._tag_text = Buffer(self.caps.characters)
            return stop  # the key's start tag appears twice
        self._key, self._state = self._schema_key(self._tag_text.value()), self._after_key
        if tag == self._tags.key_end:
            return stop
        call = self._open_call()
        reason = f"the key {shorten(self._key)!r} does not end; write {self._tags.key_end} after it"
        call.problem = call.problem or Problem("unclosed", reason)
        return stop if tag == self._tags.value_end else stop - len(tag)

    def _schema_key(self, key: str) -> str:
        """The key in the schema: a model may write white space around it."""
        spec = self._open_call().spec
        return key if spec is not None and key in spec.properties else key.strip()

    def _after_key(self, text: str, position: int, out: list[Delta]) -> int:
        tags = self._tags
        kind = (tags.kind,) if tags.kind else ()
        tag, stop = self._expect(text, position, (tags.value, tags.key_end, *kind, *self._breaks))
        if tag is None:
            return stop
        if tag:
            if tag == tags.value:
                self._start_value(self._key, self._value_tags, self._types(self._open_call().spec, self._key))
            elif tag != tags.key_end:  # the key's end tag may be repeated
                self._tag_text, self._state = Buffer(self.caps.characters), self._in_kind
            return stop + len(tag)
        # A call with a lost value never runs as `{}`: it fails alone.
        answer = self._may_follow(text, stop)
        if answer == "no":
            return self._fail("invalid_call", f"expected {tags.value} after the key {shorten(self._key)!r}", stop)
        self._wait = answer == "undecided"
        if answer == "yes":
            call = self._open_call()
            reason = f"the argument {shorten(self._key)!r} has no value; write {tags.value}"
            call.problem = call.problem or Problem("no_value", reason)
            self._state = self._in_call
        return stop

    def _in_kind(self, text: str, position: int, out: list[Delta]) -> int:
        stop, tag = self._until((self._tags.kind_end,), text, position)
        if tag:
            self._state = self._after_kind
        return stop

    def _after_kind(self, text: str, position: int, out: list[Delta]) -> int:
        tag, stop = self._expect(text, position, (self._tags.value, *self._breaks))
        if tag is None:
            return stop
        if tag:
            kinds = KINDS.get(self._tag_text.value().strip()) or self._types(self._open_call().spec, self._key)
            self._start_value(self._key, self._value_tags, kinds)
            return stop + len(tag)
        return self._fail("invalid_call", f"expected {self._tags.value} after the type", stop)

    def _json_object(self, text: str, position: int, out: list[Delta]) -> int:
        assert self._json is not None, "a JSON state without its reader is our bug"
        stop = self._json.feed(text, position, out)
        if self._json.problem is not None:
            self.problem = self._json.problem
            self.problem_offset = self._json.start - self.start + self._json.problem_offset
        elif self._json.is_complete:
            self.calls += self._json.calls
            self._index += len(self._json.calls)
            self._json, self._state = None, self._after_json
        return stop

    def _after_json(self, text: str, position: int, out: list[Delta]) -> int:
        tag, stop = self._expect(text, position, (self._tags.call_end, *self._breaks))
        if tag is None:
            return stop
        if tag:
            self._state, self.is_complete = self._between, not self._is_wrapped
            return stop + len(tag) if self._is_wrapped else stop
        return self._fail("invalid_call", f"expected {self._tags.call_end} after the JSON object", stop)

    def _until(self, tags: tuple[str, ...], text: str, position: int) -> tuple[int, str]:
        """Collects text up to the first of these tags. Returns where to continue, and the tag; empty if no tag came
        yet."""
        at = text.find("<", position)
        while at >= 0:
            tag = stands(text, at, tags)
            if tag != "":
                self._tag_text.add(text[position:at])
                self._wait = tag is None
                return (at, "") if tag is None else (at + len(tag), tag)
            at = text.find("<", at + 1)
        self._tag_text.add(text[position:])
        return len(text), ""
