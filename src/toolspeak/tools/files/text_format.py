"""Text in files: UTF-8, with a line-end style, with or without a byte order mark and a final newline."""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import BinaryIO

from toolspeak.errors import ToolError

BOM = "\ufeff"

CHUNK = 1024 * 1024
"""The number of bytes of a file that are checked at once."""

_MARKS = {"Mn", "Me"}
_MOST_MARKS = 4  # a letter of Hebrew or Vietnamese has three
_NOT_PLAIN = re.compile(r"[^\n\t -~]")
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
# Invisible letters, marks and symbols: fillers, variation selectors, blank signs of Braille and hieroglyphs.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00013441\U00013442\U00016fe4\U000e0100-\U000e01ef]"
)
_REMEDY = "only UTF-8 text can be read and edited. `shell` can work on it, `write` with overwrite: true can replace it."
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")


def encode(text: str, parameter: str) -> bytes:
    """UTF-8 bytes. Raises ToolError, which names the parameter, for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{parameter!r} contains a lone surrogate (character {error.start}), which UTF-8 cannot hold: "
            "nothing was written; send the text without it."
        ) from None


def decode(data: bytes, path: str) -> str:
    """The text of a file. Raises ToolError for a NUL byte and invalid UTF-8."""
    _refuse_nul(data, path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error.start) from None


def text_chunks(file: BinaryIO, path: str) -> Iterator[bytes]:
    """The bytes of a file, checked as `decode` does, in bounded memory."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    final = False
    while not final:
        chunk = file.read(CHUNK)
        final = not chunk
        _refuse_nul(chunk, path)
        pending = len(utf8.getstate()[0])
        try:
            utf8.decode(chunk, final)
        except UnicodeDecodeError as error:
            raise _not_utf8(path, offset - pending + error.start) from None
        offset += len(chunk)
        yield chunk


def _refuse_nul(data: bytes, path: str) -> None:
    if b"\0" in data:
        raise ToolError(f"{path!r} is a binary file (it contains a NUL byte): {_REMEDY}")


def _not_utf8(path: str, offset: int) -> ToolError:
    return ToolError(f"{path!r} is not UTF-8 text (byte {offset}): {_REMEDY}")


def split_lines(text: str) -> list[str]:
    """The lines with their ends. Only `\\n` ends a line (alone or after `\\r`), as in editors and `wc -l`."""
    return _LINE.findall(text)


def newline_style(text: str, default: str = "\n") -> str:
    """The most frequent line end; `default` if there is none."""
    total = text.count("\n")
    if not total:
        return default
    return "\r\n" if text.count("\r\n") * 2 > total else "\n"


def with_newlines(text: str, style: str) -> str:
    """The text with every line end in one style."""
    plain = text.replace("\r\n", "\n")
    return plain if style == "\n" else plain.replace("\n", style)


def visible(text: str) -> str:
    """The text with its invisible characters spelled out, so that a person sees all that they approve: controls,
    characters of bidirectional text, fillers, and every space but the usual one.

    So are the fifth and later marks on one letter, which would cover their neighbours, and joiners, also inside emoji,
    because they are invisible elsewhere. Tab and newline stay, and a selector right after a symbol, as in emoji.
    """
    return _NOT_PLAIN.sub(_spell, text)


def quote_path(path: str) -> str:
    """A path on one line: unchanged, or as a JSON string if it is ambiguous."""
    visible_path = visible(path)
    plain = visible_path == path and _PLAIN_PATH.fullmatch(path) and not _SPACES.search(path)
    return path if plain else visible(json.dumps(path, ensure_ascii=False))


_PLAIN_PATH = re.compile(r'[^\s"\\](?:[^"\\\n\t]*[^\s"\\])?')
_SPACES = re.compile("  ")


def _spell(match: re.Match[str]) -> str:
    character, at = match[0], match.start()
    if character in "\ufe0e\ufe0f" and at and unicodedata.category(match.string[at - 1]) == "So":
        return character
    before = match.string[max(0, at - _MOST_MARKS) : at]
    is_heap = len(before) == _MOST_MARKS and all(unicodedata.category(each) in _MARKS for each in (*before, character))
    if is_heap or unicodedata.category(character) in _HIDDEN_CATEGORIES or _BLANK.match(character):
        return character.encode("unicode_escape").decode()
    return character
