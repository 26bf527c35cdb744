"""Reads and writes the tags of XML-like calls."""

from __future__ import annotations

import re

from toolspeak.data.values import quick
from toolspeak.dialects.readers.tagged_values import unescape_name
from toolspeak.dialects.text.scan import MAX_CANDIDATE

NAMED_CALL, NAMED_ARGUMENT = "call", "argument"
"""The elements for names that cannot be element names: `<call name="…">` and `<argument name="…">`."""

TAG_START = re.compile(r"<[^<>]*")
_TAG = re.compile(r"""<(/?)\s*([^\s<>/"'=]+)((?:\s+[^\s=/"'<>]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*)\s*(/?)>""")
_ATTRIBUTE = re.compile(r"""([^\s=/"']+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_ELEMENT_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_UNSAFE = re.compile(r"[^\w .:/-]")


@quick()
class XmlTag:
    """A tag.

    `closing`: it is an end tag.
    `name`: the tool or argument that the element means.
    `empty`: it is its own end tag, `<…/>`.
    `kind`: the `type` attribute.
    `attributes`: the names of attributes without a meaning here.
    `length`: in characters.
    """

    closing: bool
    element: str
    name: str
    empty: bool
    kind: str | None
    attributes: tuple[str, ...]
    length: int


def match_tag(text: str, position: int, named_element: str) -> XmlTag | None:
    """The whole tag at `position`, of at most `MAX_CANDIDATE` characters; None without one.

    `named_element`: the element whose `name` attribute is the real name.
    """
    tag = _TAG.match(text, position, position + MAX_CANDIDATE)
    if tag is None:
        return None
    name = tag[2]
    if not tag[3]:
        return XmlTag(tag[1] == "/", name, name, tag[4] == "/", None, (), tag.end() - position)
    attributes = {
        match[1]: unescape_name(match[2] if match[2] is not None else match[3]) for match in _ATTRIBUTE.finditer(tag[3])
    }
    keys = {key.lower(): key for key in attributes}
    if name == named_element and "name" in keys:
        name = attributes.pop(keys["name"])
    kind = attributes.pop(keys["type"], None) if "type" in keys else None
    return XmlTag(bool(tag[1]), tag[2], name, bool(tag[4]), kind, tuple(attributes), len(tag[0]))


def open_tag(name: str, named_element: str, kind: str = "") -> tuple[str, str]:
    """The start tag for a name, and the name of its element."""
    suffix = f' type="{kind}"' if kind else ""
    if _ELEMENT_NAME.fullmatch(name) and name != named_element:
        return f"<{name}{suffix}>", name
    return f'<{named_element} name="{_escape(name)}"{suffix}>', named_element


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"&#{ord(match[0])};", text)
