"""Repairs text that is almost JSON. Only quotes, comments, commas and final brackets change.

The library `json-repair` guesses freely. Its result counts only if both texts have the same tokens. Other faults stay:
a string without an end, a missing value, a duplicate key.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from typing import cast

from toolspeak.data.messages import JSON
from toolspeak.dialects.text.scan import Caps, Problem, decode_json
from toolspeak.errors import ConfigurationError

MAX_MENDED = 256 * 1024
"""The length limit in characters: a longer text stays unchanged."""

_TOKEN = re.compile(
    r"""(?P<gap>\s++ | //[^\n]*+ | /\*(?s:.*?)\*/ | \#[^\n]*+ )
      | (?P<string>"(?:[^"\\]|\\(?s:.))*+" | '(?:[^'\\]|\\(?s:.))*+')
      | (?P<number>-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?(?![\w.]))
      | (?P<key>[A-Za-z_$][\w$-]*+)(?=\s*+:)
      | (?P<word>[A-Za-z]++)(?![\w$-])
      | (?P<mark>[{}\[\]:,])""",
    re.VERBOSE | re.ASCII,
)
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_CLOSERS = {"{": "}", "[": "]"}
_OPENERS = (("mark", "{"), ("mark", "["))
_IN_SINGLE_QUOTES = re.compile(r"\\.|\"", re.DOTALL)

_END = re.compile(r"\Z|<[|｜]|```")
"""What may follow a missing final bracket: the text's end, or the format's next token. Any other text, such as
a string without an end, is ambiguous."""

_Token = tuple[str, JSON]


def load_repair() -> Callable[[str], str]:
    """`json-repair` as a function from text to text. Raises ConfigurationError if the package is not installed."""
    try:
        library = importlib.import_module("json_repair")  # not at the top: it is an extra, and slow to import
    except ImportError:
        raise ConfigurationError("repair needs the package json-repair: pip install 'toolspeak[repair]'") from None
    repair = library.repair_json
    return lambda text: cast("str", repair(text, skip_json_loads=True, ensure_ascii=False))


def mend(text: str, repair: Callable[[str], str], caps: Caps = Caps()) -> str | None:
    """The text with its JSON values repaired where that is possible; None if nothing changed.

    `text` is the body of a block: JSON, or headers, each followed by a JSON object.
    """
    if len(text) > MAX_MENDED:
        return None
    bare = text.lstrip().startswith("[")
    parts: list[str] = []
    position = 0
    is_changed = False
    while (start := text.find("[" if bare else "{", position)) >= 0:
        tokens, stop = _read(text, start, caps)
        if not tokens:
            break
        value = text[start:stop]
        new_value = _repaired_value(value, tokens, repair, caps)
        is_changed = is_changed or new_value is not None
        parts += [text[position:start], value if new_value is None else new_value]
        position, bare = stop, False
    return "".join([*parts, text[position:]]) if is_changed else None


def _repaired_value(value: str, tokens: list[_Token], repair: Callable[[str], str], caps: Caps) -> str | None:
    if not isinstance(decode_json(value, caps), Problem):
        return None
    try:
        new_value = repair(value)
    except (RecursionError, ValueError):
        return None
    again, stop = _read(new_value, 0, caps)
    beginning = again[: len(tokens)]
    additions = again[len(tokens) :]
    whole = stop == len(new_value) and beginning == tokens and all(token[1] in ("}", "]") for token in additions)
    return new_value if whole else None


def _read(text: str, start: int, caps: Caps) -> tuple[list[_Token], int]:
    """The tokens of the value that begins at `start`, and its end: after its bracket, or before other text.

    Returns no tokens for a value that must not be repaired.
    """
    tokens: list[_Token] = []
    open_brackets: list[str] = []
    position = start
    while match := _TOKEN.match(text, position):
        kind = cast("str", match.lastgroup)
        if kind != "gap":
            token = _token(kind, match[kind])
            if token is None:
                return [], start
            if kind == "mark" and token[1] in ("}", "]"):
                if not open_brackets or open_brackets.pop() != token[1]:
                    return [], start
                _drop_comma(tokens)
            elif kind == "mark" and token[1] in _CLOSERS:
                open_brackets.append(_CLOSERS[token[1]])
            tokens.append(token)
        position = match.end()
        if not open_brackets or len(open_brackets) > caps.depth:
            break
    if open_brackets and (not _END.match(text, position) or len(open_brackets) > caps.depth):
        return [], start
    if open_brackets:
        _drop_comma(tokens)
    return tokens, position


def _drop_comma(tokens: list[_Token]) -> None:
    """Removes the comma after the last entry, if there is an entry."""
    if tokens[-1] == ("mark", ",") and tokens[-2] not in _OPENERS:
        tokens.pop()


def _token(kind: str, text: str) -> _Token | None:
    """The token without its spelling; None if its meaning is not certain."""
    if kind == "key":
        return "value", ("str", text)
    if kind == "word":
        return ("value", ("word", _WORDS[text])) if text in _WORDS else None
    if kind == "mark":
        return "mark", text
    if text[0] == "'":
        text = f'"{_IN_SINGLE_QUOTES.sub(_requote, text[1:-1])}"'
    try:
        value: JSON = json.loads(text, strict=False)  # line breaks in strings are unambiguous
    except ValueError:
        return None
    return "value", (type(value).__name__, value)


def _requote(match: re.Match[str]) -> str:
    return "'" if match[0] == "\\'" else '\\"' if match[0] == '"' else match[0]
