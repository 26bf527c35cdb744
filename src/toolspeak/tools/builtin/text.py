"""Text as files hold it: UTF-8, with a line-end style, perhaps a byte order mark, perhaps no final newline."""

from __future__ import annotations

import re

from toolspeak.errors import ToolError

BOM = "\ufeff"

# What a terminal or a bidirectional text layout would act on. Tab, newline and the joiners of emoji stay.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")


def encode(text: str, parameter: str) -> bytes:
    """UTF-8 bytes; a lone surrogate raises ToolError that names the parameter."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{parameter!r} contains a lone surrogate (character {error.start}), which UTF-8 cannot hold: "
            "nothing was written; send the text without it."
        ) from None


def decode(data: bytes, path: str) -> str:
    """The text of a file; a NUL byte or invalid UTF-8 raises ToolError."""
    refuse_nul(data, path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(path, error.start) from None


def refuse_nul(data: bytes, path: str) -> None:
    if b"\0" in data:
        raise ToolError(f"{path!r} is a binary file (it contains a NUL byte): only UTF-8 text can be read and edited.")


def not_utf8(path: str, offset: int) -> ToolError:
    return ToolError(f"{path!r} is not UTF-8 text (byte {offset}): only UTF-8 text can be read and edited.")


def split_lines(text: str) -> list[str]:
    """The lines with their ends. Only `\\n` ends a line (alone or after `\\r`), as in editors and `wc -l`."""
    return _LINE.findall(text)


def newline_style(text: str, default: str = "\n") -> str:
    """The line end most lines have, `default` where there is none."""
    total = text.count("\n")
    if not total:
        return default
    return "\r\n" if text.count("\r\n") * 2 > total else "\n"


def with_newlines(text: str, style: str) -> str:
    """The text with every line end in one style."""
    plain = text.replace("\r\n", "\n")
    return plain if style == "\n" else plain.replace("\n", style)


def visible(text: str) -> str:
    """The text with control and direction characters spelled out, so that what a person approves is what they see."""
    return _HIDDEN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)
