"""Reads the body of a block with Gemma's call: `call:f{k:<|"|>text<|"|>,n:2}`.

A string is between two equal delimiters and has no escapes. A delimiter ends the string if text follows that may
follow a string, and if it does not end a string that began in the string: a whole call in a string is text. A string
without an end before the next block fails its call.

The tool's schema gives the type of a value without delimiters. If the schema allows any type, the value may be JSON;
without a schema it is text. A string in JSON's quotes is read as JSON, so that a text may hold the delimiter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON, as_mapping
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.body import skip_space
from toolspeak.dialects.readers.function_calls import Flow, FunctionCalls, json_content
from toolspeak.dialects.readers.loose_values import read_other
from toolspeak.dialects.readers.open_call import json_string, string_text
from toolspeak.dialects.readers.whole_call import GAP, WholeCall, whole_call
from toolspeak.dialects.text.block_delimiters import begins, stands
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Buffer, Caps, JsonScanner, Problem, decode_json
from toolspeak.dialects.text.typed_text import json_type, resolve, schema_types

_FLOW: Flow = (re.compile(r"[^<]++").fullmatch, string_text)  # both delimiters begin like this
_HEAD = re.compile(r"(?:call)?:")
_HEAD_START = re.compile(r"c(?:a(?:ll?)?)?")

_KEY_RUN = re.compile(r"[^\s{}<>\"\[\],:]*")
_BARE_RUN = re.compile(r"[^,{}\[\]<\"]*")
# A key, even one without a colon, ends the string before it, so that no call runs with the key inside the string.
_NEXT_KEY = re.compile(r"\s*(?:[^\s{}<>\"\[\],:]+\s*(?::|<\|\"\|>|<escape>)|[}<\"])")
_NEXT_KEY_START = re.compile(r"\s*(?:[^\s{}<>\"\[\],:]+\s*)?(?:<[|\"a-z]{0,6})?")
_APOSTROPHE = re.compile(r"['\\<]")
_BEFORE_STRING = frozenset(":[,{")
_WORDS: dict[str, JSON] = {"True": True, "False": False, "None": None}
_STRING_SCHEMA: Mapping[str, JSON] = {"type": "string"}


@dataclass(slots=True)
class _Container:
    """An open object or array, and its schema."""

    closer: str
    schema: JSON
    count: int = 0
    key: str = ""


@cache
def _whole(quote: str) -> WholeCall:
    """The patterns of a call whose values are strings without anything like a delimiter or a marker."""
    quote = re.escape(quote)
    argument = rf"(?P<key>[A-Za-z_][A-Za-z0-9_.-]{{0,99}}+):(?P<value>{quote}[^<]*+(?:<(?![\w|/])[^<]*+)*+{quote})"
    return whole_call(r"(?:call)?:([\w.:/-]{1,100}+)\{", argument, r"\}", rf"{GAP}(?:,{GAP}|(?=\}}))")


class GemmaCalls(FunctionCalls):
    """Implements `Body` for one call. `quote` is the delimiter of strings, `block` the markers around a call."""

    _name_run = re.compile(r"[^\s{}<>\"\[\],]*")

    def __init__(
        self, quote: str, block: tuple[str, str], tools: Mapping[str, ToolSpec], first_index: int, caps: Caps
    ) -> None:
        super().__init__(first_index, caps)
        self._quote = quote
        self._next_call, self._block_end = f"{block[0]}call:", block[1]
        self._marks = (quote, self._next_call, self._block_end)
        self._last = ""  # the last character of the string that is not white space
        self._calls = 0  # the number of open calls in the string
        self._in_inner_string = False  # whether a string of such a call is open
        self._tools = tools
        self._spec: ToolSpec | None = None
        self._levels: list[_Container] = []
        self._in_key = False
        self._text = Buffer(caps.characters)  # the text of a key or of a value without delimiters
        self._scanner = JsonScanner(caps)

    def _start(self, text: str, position: int, out: list[Delta]) -> int:
        if text[position] == "<":
            return self._fail("empty_batch", "the block holds no call; write call:name{argument:value}", position)
        if (stop := self._take_whole(_whole(self._quote), text, position, out)) > position:
            self.is_complete = True
            return stop
        match = _HEAD.match(text, position)
        if match is None:
            self._wait = _HEAD_START.fullmatch(text, position) is not None
            return position if self._wait else self._fail_expected("call:name{…}", text, position)
        self._begin_raw(position)
        self._state = self._name_start
        return match.end()

    def _whole_value(self, text: str) -> str:
        return json_string(text[len(self._quote) : -len(self._quote)])

    def _name_start(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position < len(text):
            self._state = self._call_name
        return position

    def _call_open(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if not self._word or text[position] != "{":
            return self._fail_expected("call:name{…}", text, position)
        self._begin_call(out)
        self._spec = self._tools.get(self._name)
        self._push("{", self._spec.parameters if self._spec else _STRING_SCHEMA)
        return position + 1

    def _push(self, char: str, schema: JSON) -> None:
        self._add_fragment(char)
        self._levels.append(_Container("}" if char == "{" else "]", schema))
        self._state = self._key if char == "{" else self._value

    def _key(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        self._text = Buffer(self.caps.characters)
        if text[position] == "}":
            return self._close(text, position, out)
        if text[position] == '"':
            self._in_key, self._scanner, self._state = True, JsonScanner(self.caps), self._json_string
        elif text[position] == "'":
            self._in_key, self._state = True, self._apostrophes
            return position + 1
        elif text[position] == "<":
            return self._open_string(text, position, True)
        else:
            self._word, self._state = "", self._key_name
        return position

    def _key_name(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._take_word(_KEY_RUN, text, position, "the name of an argument")
        if stop == len(text):
            return stop
        if not self._word:
            return self._fail_expected("a key, as in key:value", text, stop)
        self._text.add(self._word)
        self._state = self._colon
        return stop

    def _colon(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        if text[position] != ":":
            return self._fail_expected("':' after the key", text, position)
        level = self._levels[-1]
        level.key = self._text.value()
        self._separate(level)
        self._add_fragment(f"{json.dumps(level.key, ensure_ascii=False)}: ")
        self._state = self._value
        return position + 1

    def _separate(self, level: _Container) -> None:
        self._add_fragment(", " if level.count else "")
        level.count += 1

    def _value(self, text: str, position: int, out: list[Delta]) -> int:
        position = skip_space(text, position)
        if position == len(text):
            return position
        level, char = self._levels[-1], text[position]
        if level.closer == "]":
            if char == "]":
                return self._close(text, position, out)
            if char != "<" or text.startswith(self._quote, position):
                self._separate(level)
        if char == "<":
            return self._open_string(text, position, False)
        if char == '"':
            self._in_key, self._scanner, self._state = False, JsonScanner(self.caps), self._json_string
        elif char == "'":
            self._text, self._in_key, self._state = Buffer(self.caps.characters), False, self._apostrophes
            return position + 1
        elif char in "[{":
            if len(self._levels) >= self.caps.depth:
                return self._too_deep(position)
            self._push(char, self._schema())
            return position + 1
        else:
            self._text, self._state = Buffer(self.caps.characters), self._bare
        return position

    def _open_string(self, text: str, position: int, in_key: bool) -> int:
        if not text.startswith(self._quote, position):
            if self._quote.startswith(text[position:]):
                self._wait = True
                return position
            return self._fail_expected(f"a value or {self._quote}", text, position)
        self._in_key, self._state = in_key, self._string
        self._last, self._calls, self._in_inner_string = "", 0, False
        self._add_fragment("" if in_key else '"')
        return position + len(self._quote)

    def flow(self) -> Flow | None:
        return _FLOW if self._state == self._string and not self._in_key else None

    def record(self, text: str) -> None:
        super().record(text)
        self._last = text.rstrip()[-1:] or self._last

    def _string(self, text: str, position: int, out: list[Delta]) -> int:
        at = text.find("<", position)
        mark = stands(text, at, self._marks) if at >= 0 else ""
        while at >= 0 and mark == "":
            at = text.find("<", at + 1)
            mark = stands(text, at, self._marks) if at >= 0 else ""
        stop = at if at >= 0 else len(text)
        self._content(text[position:stop])
        if not mark:
            self._wait = mark is None
            return stop
        ends = self._ends(text, at) if mark == self._quote else self._ends_block(text, at, mark)
        if ends == "wait":
            self._wait = True
            return at
        if ends == "content":
            # Gemma 4 also writes a quotation mark in a text this way. A call inside the text stays verbatim.
            self._content('"' if mark == '<|"|>' and not self._calls else mark)
            return at + len(mark)
        if mark != self._quote:
            return self._fail("unclosed", f"a string has no end; write {self._quote} after it", at)
        self._add_fragment("" if self._in_key else '"')
        self._state = self._colon if self._in_key else self._after
        return at + len(mark)

    def _content(self, piece: str) -> None:
        self._last = piece.rstrip()[-1:] or self._last
        if self._in_key:
            self._text.add(piece)
        else:
            self._add_fragment(json_content(piece))

    def _ends_block(self, text: str, at: int, mark: str) -> Literal["end", "content", "wait"]:
        """Whether the string has no end: a call's end marker is at text[at], and another call follows."""
        if mark == self._next_call:
            self._calls, self._in_inner_string = self._calls + 1, False
            return "content"
        if self._calls:
            self._calls, self._in_inner_string = self._calls - 1, False
            return "content"
        after = skip_space(text, at + len(mark))
        if self._last != "}" or after - at >= MAX_CANDIDATE:
            return "content"
        if text.startswith(self._next_call, after):
            return "end"
        return "wait" if after == len(text) or begins(text, after, self._next_call) else "content"

    def _ends(self, text: str, at: int) -> Literal["end", "content", "wait"]:
        """What the delimiter at text[at] is. It is content unless text follows that may follow a string.

        Where a value may begin, such content begins a string in the string.
        """
        if self._in_inner_string:
            self._in_inner_string = False
            return "content"
        if self._calls and self._last in _BEFORE_STRING:
            self._in_inner_string = True
            return "content"
        ends = self._ends_string(text, at, len(self._quote))
        if ends == "content" and self._last in _BEFORE_STRING:
            self._in_inner_string = True
        return ends

    def _ends_string(self, text: str, at: int, length: int) -> Literal["end", "content", "wait"]:
        """Whether the delimiter of this length at text[at] ends the string, by the text after it."""
        after = skip_space(text, at + length)
        closer = self._levels[-1].closer
        if after - at >= MAX_CANDIDATE:
            return "end"
        if after == len(text):
            return "wait"
        if self._in_key or text[after] not in "," + closer:
            return "end" if self._in_key and text[after] == ":" else "content"
        if text[after] == closer or closer == "]":
            return "end"
        window = text[after + 1 : at + 2 * MAX_CANDIDATE]
        if _NEXT_KEY.match(window):
            return "end"
        return "wait" if len(text) < at + 2 * MAX_CANDIDATE and _NEXT_KEY_START.fullmatch(window) else "content"

    def _json_string(self, text: str, position: int, out: list[Delta]) -> int:
        stop = self._scanner.feed(text, position)
        piece = text[position:stop]
        if self._in_key:
            self._text.add(piece)
        else:
            self._add_fragment(piece)
        if self._scanner.problem is not None:
            return self._fail(self._scanner.problem.code, self._scanner.problem.reason, stop)
        if self._scanner.is_complete and self._in_key:
            key = decode_json(self._text.value())
            self._text = Buffer(self.caps.characters)
            self._text.add(key if isinstance(key, str) else "")
        if self._scanner.is_complete:
            self._state = self._colon if self._in_key else self._after
        return stop

    def _apostrophes(self, text: str, position: int, out: list[Delta]) -> int:
        """A string in single quotes, as in Python. An escape in it, or a quote outside a word, is ambiguous: the
        call fails."""
        match = _APOSTROPHE.search(text, position)
        stop = match.start() if match else len(text)
        self._text.add(text[position:stop])
        self._last = text[stop - 1] if stop > position else self._last
        if self._text.overflown:
            return self._fail("too_large", f"a value is over {self.caps.characters} characters", position)
        if match is None:
            return stop
        mark = stands(text, stop, self._marks) if text[stop] == "<" else ""
        ends = self._ends_string(text, stop, 1) if text[stop] == "'" else "content"
        if mark is None or ends == "wait" or stop + 1 == len(text):
            self._wait = True
            return stop
        if ends == "end":
            self._take_text()
            return stop + 1
        word = text[stop] == "<" or (self._last.isalnum() and text[stop + 1].isalnum())
        if mark or text[stop] == "\\" or not word:
            reason = f"a string in single quotes cannot be read here; write {self._quote}text{self._quote}"
            return self._fail("invalid_call", reason, stop)
        self._text.add(text[stop])
        self._last = text[stop]
        return stop + 1

    def _take_text(self) -> None:
        """Takes a complete string, a key or a value."""
        if self._in_key:
            self._state = self._colon
            return
        self._add_fragment(json_string(self._text.value()))
        self._state = self._after

    def _bare(self, text: str, position: int, out: list[Delta]) -> int:
        """A value without delimiters."""
        match = _BARE_RUN.match(text, position)
        stop = match.end() if match else position
        self._text.add(text[position:stop])
        if self._text.overflown:
            return self._fail("too_large", f"a value is over {self.caps.characters} characters", position)
        if stop == len(text):
            return stop
        bare = self._text.value().strip()
        if not bare or text[stop] not in ",}]":
            return self._fail_expected("a value", text, stop)
        value = self._bare_json(bare)
        if isinstance(value, Problem):
            return self._fail(value.code, value.reason, stop)
        self._add_fragment(value)
        self._state = self._after
        return stop

    def _bare_json(self, bare: str) -> str | Problem:
        """The JSON of a value without delimiters, by its schema."""
        types = schema_types(self._schema(), self._spec.parameters if self._spec else {})
        value = _WORDS[bare] if bare in _WORDS else decode_json(bare, self.caps)
        text = json.dumps(bare, ensure_ascii=False)
        if isinstance(value, Problem) and "string" not in types:
            other = read_other(bare, types, self.caps)
            value = value if isinstance(other, str) else other
        if isinstance(value, Problem):
            return value if value.code != "invalid_json" and "string" not in types else text
        whole = isinstance(value, float) and value.is_integer() and "integer" in types
        if "string" in types and not whole and json_type(value) not in types:
            return text
        return json.dumps(value)

    def _schema(self) -> JSON:
        """The schema of the next value."""
        if self._spec is None:
            return _STRING_SCHEMA
        level, root = self._levels[-1], self._spec.parameters
        schema = as_mapping(level.schema)
        if isinstance(schema.get("$ref"), str):
            schema = as_mapping(resolve(schema["$ref"], root))
        if level.closer == "]":
            return schema.get("items", {})
        key = self._spec.aliases.get(level.key, level.key) if len(self._levels) == 1 else level.key
        return as_mapping(schema.get("properties")).get(key, {})

    def _after(self, text: str, position: int, out: list[Delta]) -> int:
        """After a value."""
        position = skip_space(text, position)
        if position == len(text):
            return position
        level = self._levels[-1]
        if text[position] == level.closer:
            return self._close(text, position, out)
        if text[position] != ",":
            return self._fail_expected(f"',' or '{level.closer}' after a value", text, position)
        self._state = self._value if level.closer == "]" else self._key
        return position + 1

    def _close(self, text: str, position: int, out: list[Delta]) -> int:
        self._add_fragment(self._levels.pop().closer)
        self._state = self._after
        if not self._levels and self.problem is None:
            self._end_call(text, position + 1, out)
            self.is_complete = True
        return position + 1
