"""Reads calls that are XML-like elements: `<tool><argument>value</argument></tool>`.

Values are text, byte for byte. The only markup in a value is its own end tag, which counts only if a known sibling, the
tool's end tag or the block's end tag follows. A value that starts with `<![CDATA[` is the content of its CDATA
sections. The tool's schema gives the type of a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.readers.body import skip_space
from toolspeak.dialects.readers.open_call import OpenCall
from toolspeak.dialects.readers.open_value import OpenValue, ValueEvent, ValueRules, ValueTags
from toolspeak.dialects.readers.tagged_calls import MayFollow, TaggedCalls
from toolspeak.dialects.readers.tagged_values import CDATA, TEXT
from toolspeak.dialects.readers.whole_call import GAP, WholeCall, whole_call
from toolspeak.dialects.readers.xml_tags import NAMED_ARGUMENT, NAMED_CALL, TAG_START, XmlTag, match_tag
from toolspeak.dialects.text.scan import MAX_CANDIDATE, Caps, Problem, shorten
from toolspeak.dialects.text.typed_text import (
    admits_argument,
    argument_schemas,
    argument_types,
    has_argument,
    read_typed,
)

_PLAIN_NAME = r"[A-Za-z_][\w.-]{0,99}+"
_WHOLE = whole_call(
    rf"{GAP}<({_PLAIN_NAME})>",
    rf"<(?P<key>{_PLAIN_NAME})(?P<type>)>(?!\s*+{re.escape(CDATA)})"
    r"(?P<value>[^<]*+(?:<(?![A-Za-z_/])[^<]*+)*+)</(?P=key)>",
    r"</\1>",
)


@lru_cache(256)
def _value_tags(argument: str, call: str) -> ValueTags:
    around = (f"<{argument}", f"<{call}", f"</{call}")
    return ValueTags(f"</{argument}>", around, start=f"<{argument}", loose=True)


class XmlCalls(TaggedCalls):
    """Implements `Body` for XML-like calls. It sends string values as they arrive."""

    rules = ValueRules(reading="strict", tears="never")
    whole: WholeCall | None = _WHOLE
    example = "<tool><argument>value</argument></tool>"

    def __init__(self, block: str, tools: Mapping[str, ToolSpec], first_index: int, caps: Caps) -> None:
        super().__init__(tools, first_index, caps)
        self._block = block.lower()
        self._element = ""  # of the open call

    def hint(self) -> str:
        """The reason that an open value did not end at its end tag."""
        return self._rejected_end(self._value).reason if self._value is not None and self._value.following_end else ""

    def _rejected_end(self, value: OpenValue) -> Problem:
        call, end = self._open_call(), value.tags.end
        names = ", ".join(argument_schemas(call.spec)) if call.spec else ""
        reason = (
            f"the value of {end.replace('/', '', 1)} did not end at its {end}, because {value.following_end} follows, "
            f"which is no argument of {call.name} (known: {names})"
        )
        return Problem("unknown_argument", reason)

    # States, as in `StateBody`.

    def _between(self, text: str, position: int, out: list[Delta]) -> int:
        if self.whole is not None:
            position = self._take_whole(self.whole, text, position, out)
        position = skip_space(text, position)
        tag = self._read_tag(text, position, NAMED_CALL)
        if tag is None:
            return position
        if not tag.closing:
            self._open_element(tag, text, position, out)
            return position + tag.length
        if tag.element.lower() != self._block:
            self._fail("invalid_xml", f"</{shorten(tag.element)}> closes nothing here", position)
        elif self.calls:
            self.is_complete = True
        else:
            self._fail("empty_batch", f"<{self._block}> holds no call", position)
        return position

    def _open_element(self, tag: XmlTag, text: str, position: int, out: list[Delta]) -> None:
        call = self._start_call(tag.name, position, out)
        self._element = tag.element
        self._note_attributes(call, tag)
        self._state = self._in_call
        if tag.empty:
            self._close(call, text, position + tag.length, out)

    def _whole_value(self, spec: ToolSpec | None, name: str, type_text: str, text: str) -> JSON | Problem:
        if spec is None:
            return text
        if not has_argument(spec, name):
            problem = Problem("unknown_argument", "it may be a part of the value before it")
            return text if admits_argument(spec, name) else problem
        types = argument_types(spec, name)
        return text if "string" in types else read_typed(text, types, False, self.caps)

    def _in_call(self, text: str, position: int, out: list[Delta]) -> int:
        call = self._open_call()
        position = skip_space(text, position)
        tag = self._read_tag(text, position, NAMED_ARGUMENT)
        if tag is None:
            return position
        if not tag.closing:
            self._open_argument(call, tag)
            return position + tag.length
        if tag.element == self._element:
            self._close(call, text, position + tag.length, out)
            return position + tag.length
        if tag.element.lower() == self._block:
            call.notes.append("missing_closer")
            self._close(call, text, position, out)
            return position
        self._fail("invalid_xml", f"</{shorten(tag.element)}> closes nothing; <{self._element}> is open", position)
        return position

    def _open_argument(self, call: OpenCall, tag: XmlTag) -> None:
        types, explicit = TEXT, tag.kind == "json"
        if call.spec is not None:
            types = argument_types(call.spec, tag.name) if has_argument(call.spec, tag.name) else TEXT
        self._note_attributes(call, tag)
        # A value is text wherever text is allowed. `type="json"` marks other values.
        types = TEXT if "string" in types and not explicit else types
        self._start_value(tag.name, _value_tags(tag.element, self._element), types, explicit="json" if explicit else "")
        if tag.empty:
            self._end_value()

    def _note_attributes(self, call: OpenCall, tag: XmlTag) -> None:
        """Accepts attributes, except one with the name of an argument, whose value would be lost."""
        if tag.attributes:
            call.notes.append("attributes")
        argument = next((key for key in tag.attributes if call.spec is not None and has_argument(call.spec, key)), None)
        if argument is not None and call.problem is None:
            reason = f"arguments are elements, not attributes; write <{argument}>…</{argument}>"
            call.problem = Problem("no_arguments", reason)

    def _event(self, value: OpenValue, rest: str, literal: str) -> ValueEvent:
        """Calls in a value count only with the open element's name: others cannot end the open call."""
        end_stop = value.tags.match_end(rest, 0)
        if end_stop >= 0:
            return "argument_end" if end_stop else "undecided"
        tag = match_tag(rest, 0, NAMED_ARGUMENT)
        if tag is None:
            return "undecided" if TAG_START.fullmatch(rest) else "content"
        argument = value.tags.end[2:-1]
        if tag.closing:
            return "call_end" if tag.element == self._element else "content"
        if tag.element == argument and value.inside.calls and not tag.empty:
            return "argument"
        if tag.element != self._element or tag.empty:
            return "content"
        stop, spec = skip_space(rest, tag.length), self._open_call().spec
        inner = match_tag(rest, stop, NAMED_ARGUMENT)
        if inner is None:
            return "undecided" if stop == len(rest) or TAG_START.fullmatch(rest, stop) else "content"
        if inner.closing:
            return "call" if inner.element == self._element else "content"
        return "call" if spec is None or admits_argument(spec, inner.name) else "content"

    def _call_ends(self, rest: str) -> MayFollow:
        """Whether the call ends here. Its value has no end tag, or an unknown argument follows that tag."""
        stop = _value_tags(self._element, self._element).match_end(rest, 0)
        if stop <= 0:
            return "no" if stop < 0 else "undecided"
        stop = skip_space(rest, stop)
        tag = match_tag(rest, stop, NAMED_CALL)
        if tag is None:
            return "undecided" if stop == len(rest) or TAG_START.fullmatch(rest, stop) else "no"
        return "yes" if self._follows_call(tag) else "no"

    def _follows_call(self, tag: XmlTag) -> bool:
        """Whether this tag may only follow a call's end tag."""
        return tag.element.lower() == self._block if tag.closing else tag.name in self._tools

    def _may_follow(self, rest: str, position: int) -> MayFollow:
        tag = match_tag(rest, position, NAMED_ARGUMENT)
        if tag is None:
            return "undecided" if TAG_START.fullmatch(rest, position) else "no"
        if tag.closing:
            return "yes" if tag.element == self._element or tag.element.lower() == self._block else "no"
        spec = self._open_call().spec
        return "yes" if spec is None or admits_argument(spec, tag.name) else "no"

    def _name_following(self, rest: str, position: int) -> str:
        tag = match_tag(rest, position, NAMED_ARGUMENT)
        return f"<{'/' if tag.closing else ''}{tag.element}>" if tag else "text"

    def _close(self, call: OpenCall, text: str, stop: int, out: list[Delta]) -> None:
        if not call.arguments and "attributes" in call.notes and call.problem is None:
            # A call with its arguments in another place never runs as {}.
            element = self._element
            reason = f"arguments are elements, not attributes: <{element}><argument>value</argument></{element}>"
            call.problem = Problem("no_arguments", reason)
        self._end_call(text, stop, out)

    def _read_tag(self, text: str, position: int, named_element: str) -> XmlTag | None:
        """The tag at `position`; None if more characters are needed or the body failed."""
        if position == len(text):
            return None
        tag = match_tag(text, position, named_element)
        rest = text[position : position + MAX_CANDIDATE]
        if tag is None and TAG_START.fullmatch(rest) and len(rest) < MAX_CANDIDATE:
            self._wait = True
        elif tag is None:
            inside = f"<{self._element}>" if self._call else f"<{self._block}>"
            what = "<argument>value</argument>" if self._call else self.example
            actual = "a tag that cannot be read" if rest[0] == "<" else repr(rest[0])
            self._fail("invalid_xml", f"expected {what} inside {inside}, found {actual}", position)
        return tag
