"""Converts Python's literals to JSON piece by piece: numbers, escapes, and the content of strings."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from functools import partial

from toolspeak.dialects.readers.function_calls import Flow
from toolspeak.dialects.readers.open_call import string_text

NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+"
    r"|(?=\.?\d)(?:\d+(?:_\d+)*)?(?:\.(?:\d+(?:_\d+)*)?)?(?:[eE][+-]?\d+(?:_\d+)*)?)",
    re.ASCII,
)
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
# Content up to a quote, or to an escape that differs in JSON.
RUNS = {quote: re.compile(rf'[^{quote}\\]*+(?:\\(?:[nrtbf"\\]|u[0-9a-fA-F]{{4}})[^{quote}\\]*+)*+') for quote in "'\""}
RAW_RUNS = {quote: re.compile(rf"[^{quote}\\]*") for quote in "'\""}
_WHOLE = {quote: re.compile(rf'(?:[^{quote}\\]++|\\(?:[nrtbf"\\]|u[0-9a-fA-F]{{4}}))++') for quote in "'\""}
_NOT_JSON = re.compile(r'\\.|["\x00-\x1f]', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
ESCAPE = re.compile(
    r"\\(?:[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^{}]{1,64}\}|\r\n|[^xuUN])", re.DOTALL
)
ESCAPE_START = re.compile(r"\\(?:[0-7]{1,2}|x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|N(?:\{[^{}]{0,64})?|\r)?")
_SIMPLE = {
    "v": "\v",
    "\n": "",
    "\r": "",
    "\r\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}


def quoted_content(piece: str, quote: str) -> str:
    """The JSON content of a piece of a string in `quote` signs. Its escapes must be valid in JSON too."""
    if "\\" not in piece:
        return string_text(piece)
    if quote == "'" and '"' in piece:
        if '\\"' in piece or "\\\\" in piece:  # otherwise every quote is bare
            return _NOT_JSON.sub(_care, piece)
        piece = piece.replace('"', '\\"')
    return piece if piece.isprintable() else _CONTROL.sub(_care, piece)


FLOWS: Mapping[str, Flow] = {quote: (_WHOLE[quote].fullmatch, partial(quoted_content, quote=quote)) for quote in "'\""}
RAW_FLOWS: Mapping[str, Flow] = {quote: (re.compile(rf"[^{quote}\\]++").fullmatch, string_text) for quote in "'\""}


def _care(match: re.Match[str]) -> str:
    text = match[0]
    return text if text[0] == "\\" else json.dumps(text)[1:-1]


def unescape(escape: str) -> str | None:
    """The text that an escape stands for; None if the escape is invalid."""
    char, rest = escape[1], escape[2:]
    if char in _SIMPLE:
        return _SIMPLE[char]
    if char in "01234567":
        return chr(int(escape[1:], 8))
    try:
        if char in "xuU" and rest:
            return chr(int(rest, 16))
        if char == "N" and rest:
            return unicodedata.lookup(rest[1:-1])
    except (ValueError, KeyError):
        return None
    return escape  # Python keeps a backslash that begins no escape


def read_number(word: str) -> str | None:
    """A Python number as JSON; None for another word, or a number that JSON cannot represent."""
    if not word or not NUMBER.fullmatch(word):
        return None
    if _DECIMAL.fullmatch(word):
        return word
    digits = word.replace("_", "")
    try:
        if digits.lstrip("+-")[:2].lower() in ("0x", "0o", "0b") or not re.search("[.eE]", digits):
            return str(int(digits, 0))
        value = float(digits)
    except ValueError:
        return None
    return None if value in (float("inf"), float("-inf")) else repr(value)
