"""Reads and writes the tags of element dialects: `<parameter=name>` or `<parameter name="name" …>`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from toolspeak.data.values import quick
from toolspeak.dialects.readers.open_value import ValueRules, ValueTags
from toolspeak.dialects.readers.tagged_values import CDATA, Explicit, escape_name, unescape_name
from toolspeak.dialects.readers.whole_call import GAP, WholeCall, text_without, whole_call
from toolspeak.dialects.text.block_delimiters import begins
from toolspeak.dialects.text.scan import MAX_CANDIDATE

_EQUALS = r'([^<>]*?)(\s+type="json")?>'
# Ġ is a blank that a byte-level detokenizer did not decode (MiniCPM).
_NAMED_TAGS = (
    r"""(?:[\sĠ]*name\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>/]+))(?=[\s/>])((?:[^<>/]|/(?!>))*)"""
    r"""|\s+([\w.-]+)\s*)(/?)>"""
)
_INSIDE = r"\s*<name>([^<>]*)</name>"
_INSIDE_START = re.compile(r"\s*(?:<(?:n(?:a(?:m(?:e(?:>[^<>]*(?:<(?:/(?:n(?:a(?:me?)?)?)?)?)?)?)?)?)?)?)?")
_PLAIN_NAME = r"[^<>&\s\"']{1,100}"
_PLAIN_TYPE = '(?P<type>(?: string="(?:true|false)")?+)'
_LAST_END = re.compile(r"</([^<>\s]+)[^<>]*>\Z")
_STRING = re.compile(r"""\bstring\s*=\s*["']?(true|false)\b""")
_JSON = re.compile(r"""\btype\s*=\s*["']json["']""")


@quick()
class ElementTag:
    """A start tag."""

    name: str
    explicit: Explicit
    """The type that the tag gives its value."""
    empty: bool
    """Whether the tag is its own end tag: `<…/>`."""
    length: int
    """The tag's length in characters."""


@dataclass(frozen=True, slots=True, eq=False)  # equal by identity: each is a key of a cache that every block uses
class ElementSyntax:
    """How a dialect writes calls as elements.

    `call` and `argument` are the beginnings of start tags. After a final `=` the name follows, else `name="…"`.
    """

    call: str
    argument: str
    trims: bool = False
    """One line break on each side of a value is not part of it. Both are CRLF if the first is."""
    typed: bool = False
    """The tag says whether the value is text (`string="true"`)."""
    guesses: bool = False
    """Without a schema, a value that is JSON is read as JSON."""
    doubled: bool = False
    """The model may write a tool's name after a namespace of the same name (`f.f`)."""
    named_inside: bool = False
    """`call` is the whole start tag, and the name follows it in an element `<name>`."""
    tight: bool = False
    """Tags have no white space between them."""
    fillers: tuple[str, ...] = ()
    """Texts without meaning between calls."""
    wrappers: tuple[str, ...] = ()
    """Argument names that a model may use for one JSON object with all arguments."""
    call_end: str = field(init=False)
    argument_end: str = field(init=False)
    ends: re.Pattern[str] = field(init=False)
    rules: ValueRules = field(init=False)
    _patterns: dict[str, re.Pattern[str]] = field(init=False)

    def __post_init__(self) -> None:
        patterns = {
            opener: re.compile(re.escape(opener) + (_EQUALS if opener.endswith("=") else _NAMED_TAGS))
            for opener in (self.call, self.argument)
        }
        if self.named_inside:
            patterns[self.call] = re.compile(re.escape(self.call) + _INSIDE)
        set_ = object.__setattr__
        set_(self, "call_end", f"</{self.call[1:].rstrip('=>')}>")
        set_(self, "argument_end", f"</{self.argument[1:].removesuffix('=')}>")
        texts = (self.argument_end, self.call_end, self.argument)
        set_(self, "ends", re.compile("|".join(map(re.escape, texts))))
        tears: Literal["line", "word"] = "word" if self.tight else "line"
        set_(self, "rules", ValueRules(reading="lenient", trims=self.trims, tears=tears, mends=True))
        set_(self, "_patterns", patterns)

    def match(self, opener: str, text: str, position: int) -> ElementTag | Literal["undecided"] | None:
        """The start tag at `position`, of at most `MAX_CANDIDATE` characters; None without a tag."""
        if not text.startswith(opener, position):
            return "undecided" if begins(text, position, opener) else None
        match = self._patterns[opener].match(text, position, position + MAX_CANDIDATE)
        if match is None:
            rest = text[position : position + MAX_CANDIDATE]
            if opener == self.call and self.named_inside:
                may_begin = _INSIDE_START.fullmatch(rest, len(opener)) and len(rest) < MAX_CANDIDATE
                return "undecided" if may_begin else None
            return None if len(rest) == MAX_CANDIDATE or ">" in rest or "<" in rest[1:] else "undecided"
        if opener == self.call and self.named_inside:
            return ElementTag(_name(match[1]), "", False, len(match[0]))
        if opener.endswith("="):
            return ElementTag(_name(_unquote(match[1].strip())), "json" if match[2] else "", False, len(match[0]))
        name = next(group for group in match.group(1, 2, 3, 5) if group is not None)
        return ElementTag(_name(name), explicit_type(match[4] or ""), bool(match[6]), len(match[0]))

    def open(self, opener: str, name: str, attribute: str = "") -> str:
        name = escape_name(name)
        return f"{opener}{name}{attribute}>" if opener.endswith("=") else f'{opener} name="{name}"{attribute}>'

    def cut_end(self, text: str) -> bool:
        """Whether a text ends in a damaged end tag of an argument: its beginning, or all except two characters."""
        tail, end = text[-2 * len(self.argument_end) :].rstrip().lower(), self.argument_end.lower()
        if any(tail.endswith(end[:length]) for length in range(2, len(end))):
            return True
        return any(_nearly(tail[-length:], end) for length in range(len(end) - 2, len(end) + 3))

    def ends_unread(self, value: str) -> bool:
        """Whether the end of a value without an end tag is ambiguous.

        It is if the value ends in half of a tag, in an end tag that nothing in it opened, or in a line break, which may
        be the one between tags.
        """
        content = value.rstrip()
        end = _LAST_END.search(content)
        is_unopened = end is not None and f"<{end[1]}" not in content
        return value.endswith("\n") or content.endswith("<") or self.cut_end(content) or is_unopened


@cache
def value_tags(syntax: ElementSyntax, block: tuple[str, ...]) -> ValueTags:
    around = (syntax.call_end, syntax.argument, syntax.call, *block)
    return ValueTags(syntax.argument_end, around, start=syntax.argument.rstrip("="), trims=syntax.trims)


@cache
def whole_element(syntax: ElementSyntax, block: tuple[str, ...]) -> WholeCall:
    """The patterns of a call with plain names, whose values hold none of the tags that may end a value."""
    texts = (syntax.argument_end, syntax.call_end, syntax.argument, syntax.call, *block)
    key = _plain_tag(syntax.argument, f"(?P<key>{_PLAIN_NAME})", _PLAIN_TYPE)
    line_break = r"\n?+" if syntax.trims else ""
    value = rf"(?!\s*+{re.escape(CDATA)}|\r){line_break}(?P<value>{text_without(*texts)})"
    start = GAP + _plain_tag(syntax.call, f"({_PLAIN_NAME})", "")
    return whole_call(start, key + value + re.escape(syntax.argument_end), re.escape(syntax.call_end))


def _plain_tag(opener: str, name: str, attribute: str) -> str:
    """The pattern of a start tag. `name` is the pattern of the name, `attribute` that of the text after its quotes."""
    opener = re.escape(opener)
    if opener.endswith(">"):
        return f"{opener}<name>{name}</name>"
    return (
        f"{opener}{name}{attribute and '(?P<type>)'}>"
        if opener.endswith("=")
        else f'{opener} name="{name}"{attribute}>'
    )


def _nearly(text: str, tag: str) -> bool:
    """Whether a text equals a tag except for two neighbouring characters."""
    length = max(len(text), len(tag))
    front = _common(text, tag)
    return front + min(_common(text[::-1], tag[::-1]), length - front) >= length - 2


def _common(one: str, other: str) -> int:
    """The length of the common beginning of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (first, second) in pairs if first != second), min(len(one), len(other)))


def _unquote(name: str) -> str:
    """The name without quotes around it. Names that toolspeak writes have their quotes escaped."""
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] and name[0] in "\"'" else name


def _name(text: str) -> str:
    return unescape_name(text.strip())


def explicit_type(attributes: str) -> Explicit:
    if not attributes:
        return ""
    match = _STRING.search(attributes)
    if match:
        return "string" if match[1] == "true" else "json"
    return "json" if _JSON.search(attributes) else ""
