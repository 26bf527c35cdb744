"""The tags of calls that are a name and elements for keys and values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.readers.open_value import ValueTags
from toolspeak.dialects.readers.tagged_values import CDATA, TEXT, value_types
from toolspeak.dialects.readers.whole_call import GAP, WholeCall, text_without, whole_call
from toolspeak.dialects.text.block_delimiters import begins, stands
from toolspeak.dialects.text.typed_text import Types, admits_argument

BREAK = "\\n"
"""The line break between tags, as written by a model that escapes the whole call once too often."""
NAME = re.compile(r"\s*([^\s<>{}\"'`\\]*)(?:\s|\\n)*")
_KEY = re.compile(r"[^<>]{1,64}")
LOST_KEY = re.compile(r"[^\W\d][\w-]{0,63}")
_PLAIN_NAME = r"[\w.:/-]{1,100}+"

KINDS: Mapping[str, Types] = {
    "string": Types({"string"}),
    "integer": Types({"integer"}),
    "number": Types({"number", "integer"}),
    "boolean": Types({"boolean"}),
    "array": Types({"array"}),
    "object": Types({"object"}),
    "null": Types({"null"}),
}
"""The types of a value by the type that the model wrote before it."""


@quick()
class PairTags:
    """The tags of one dialect."""

    block: str = ""
    """The element around several calls. Empty: each call is a block."""
    name_end: str = ""
    """A tag that may follow the name."""
    kind: str = ""
    """The element of a value's type; empty without one."""
    json: bool = False
    """A call may be a JSON object instead."""
    prefix: str = ""
    """The beginning of all tags, after `<` or `</`."""
    suffix: str = ""
    """The end of all tags, before `>`."""
    guesses: bool = True
    """Without a type in the schema, a value that is JSON is read as JSON."""

    def start(self, name: str) -> str:
        return f"<{self.prefix}{name}{self.suffix}>"

    def end(self, name: str) -> str:
        return f"</{self.prefix}{name}{self.suffix}>"

    @property
    def value(self) -> ValueTags:
        """The tags that matter in a value."""
        return _value_tags(self)

    def types(self, spec: ToolSpec | None, name: str) -> Types:
        """The types of an argument."""
        tries_json = self.guesses or (spec is not None and admits_argument(spec, name))
        return value_types(spec, name, guesses=True) if tries_json else TEXT

    def usual(self, name: str = _PLAIN_NAME) -> str:
        """The pattern of the usual beginning of a call. `name` is the pattern of its name."""
        gap = r"[ \t\r\n]{0,9}+"
        name_end = rf"(?:{re.escape(self.start(self.name_end))})?+" if self.name_end else ""
        return f"{gap}{name}{gap}{name_end}(?={gap}{re.escape(self.start('arg_key'))})"

    def key_follows(self, rest: str) -> bool | None:
        """Whether `rest`, after a key's start tag, is a key and the start of its value; None asks for more text."""
        key = _KEY.match(rest)
        after = f"{self.end('arg_key')}{self.start('arg_value')}"
        if key is None or key.end() == len(rest):
            return None if len(rest) <= 64 and "<" not in rest else False
        tag = stands("".join(rest[key.end() :].split()), 0, (after,))
        return None if tag is None else tag != ""

    def call_follows(self, rest: str) -> bool | None:
        """Whether `rest`, after a call's start tag, begins a call and not prose about the tag; None asks for more."""
        match = NAME.match(rest)
        if match is None or match.end() == len(rest):
            return None
        stop, has_name = match.end(), match[1] != ""
        if self.json and not has_name and rest[stop] == "{":
            return True
        # The end tags count where the start tag of a key or value was lost: the known tools still give such a meaning.
        tags = [self.start("arg_key")]
        if has_name:
            tags += [self.end("arg_key"), self.end("arg_value")]
            key = LOST_KEY.match(rest, stop)
            if key is not None and key.end() == len(rest):
                return None
            if key is not None and rest.startswith(self.end("arg_key"), key.end()):
                return True
            if key is not None and begins(rest, key.end(), self.end("arg_key")):
                return None
        if has_name and self.name_end:
            tags.append(self.start(self.name_end))
        # "between <tool_call> and </tool_call>" is prose. A call without arguments has no blanks around its name.
        if has_name and rest[0] not in " \t" and rest[match.end(1)] not in " \t":
            tags.append(self.end("tool_call"))
        tag = stands(rest, stop, (*tags, BREAK))
        return None if tag is None else tag != ""


@quick()
class WrittenTags:
    """The tags as the text shows them.

    `follow`: the tags that may follow a value.
    `between`: the tags that may follow a call.
    `in_key`: the tags that end a key; only the first one is correct.
    `pair`: the pattern of a key and the start of its value.
    `whole`: the patterns of a whole call.
    """

    call: str
    call_end: str
    key: str
    key_end: str
    value: str
    value_end: str
    kind: str
    kind_end: str
    name_end: str
    block_end: str
    follow: tuple[str, ...]
    between: tuple[str, ...]
    in_key: tuple[str, ...]
    pair: re.Pattern[str]
    whole: WholeCall


@cache
def written_tags(tags: PairTags, wrapped: bool) -> WrittenTags:
    def start(name: str) -> str:
        return tags.start(name) if name else ""

    call, call_end, key = tags.start("tool_call"), tags.end("tool_call"), tags.start("arg_key")
    block_end = tags.end(tags.block) if wrapped else ""
    in_key = (
        tags.end("arg_key"),
        tags.start("arg_value"),
        tags.end("arg_value"),
        start(tags.kind),
        key,
        call,
        call_end,
    )
    in_key = tuple(tag for tag in (*in_key, block_end) if tag)
    return WrittenTags(
        call=call,
        call_end=call_end,
        key=key,
        key_end=tags.end("arg_key"),
        value=tags.start("arg_value"),
        value_end=tags.end("arg_value"),
        kind=start(tags.kind),
        kind_end=tags.end(tags.kind),
        name_end=start(tags.name_end),
        block_end=block_end,
        follow=(key, call_end, block_end) if wrapped else (key, call_end),
        between=(call, block_end) if wrapped else (call,),
        pair=re.compile(
            rf"{re.escape(key)}([^<]*+){re.escape(tags.end('arg_key'))}(?:\s|\\n)*+"
            rf"(?:{re.escape(start(tags.kind) or tags.start('arg_value'))}|{re.escape(tags.start('arg_value'))})"
        ),
        in_key=in_key,
        whole=_whole(tags, wrapped, text_without(*in_key)),
    )


def _whole(tags: PairTags, wrapped: bool, text: str) -> WholeCall:
    """The patterns of a call with a plain name and plain keys. `text` is the pattern of a value."""

    def literal(tag: str) -> str:
        return re.escape(tag)

    key = rf"{literal(tags.start('arg_key'))}(?P<key>[^<>\s]++){literal(tags.end('arg_key'))}{GAP}"
    type_element = rf"(?:{literal(tags.start(tags.kind))}(?P<type>[a-z]++){literal(tags.end(tags.kind))}{GAP})?+"
    value = rf"(?!\s*+{literal(CDATA)})(?P<value>{text}){literal(tags.end('arg_value'))}"
    argument = key + (type_element if tags.kind else "(?P<type>)") + literal(tags.start("arg_value")) + value
    end = literal(tags.end("tool_call"))
    return whole_call(tags.usual(f"({_PLAIN_NAME})"), argument, end if wrapped else f"(?={end})")


@cache
def _value_tags(tags: PairTags) -> ValueTags:
    call, key, value = (tags.start(name) for name in ("tool_call", "arg_key", "arg_value"))
    return ValueTags(tags.end("arg_value"), (call, tags.end("tool_call"), key, value), start=value)
