"""Markers that are one token of the model's own, which llguidance matches as tokens and never as text.

The other targets do not need this: xgrammar and llama.cpp match a special token by its text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TypeAlias, cast

from toolspeak.dialects.grammar.avoid import exactly
from toolspeak.dialects.grammar.ir import (
    Choice,
    Definition,
    Literal,
    Node,
    Repeat,
    Series,
    Special,
    Text,
    Token,
    choice,
    is_regular,
    series,
)
from toolspeak.errors import ConfigurationError

SpecialTokens: TypeAlias = Mapping[str, int] | Collection[str]
"""The texts of special tokens, with their ids where they are known."""

# What llguidance's lexer accepts as a token's name (`SpecialToken` in its parser/src/lark/lexer.rs).
_NAME = re.compile(r"<[^<>\s]+>")


def with_special(definition: Definition, tokens: SpecialTokens) -> Definition:
    """The grammar with the texts of `tokens` in its frame replaced by these tokens.

    Raises ConfigurationError for a text that names no token by itself (`[TOOL_CALLS]`) and has no id.
    """
    if isinstance(tokens, str):
        raise ConfigurationError(f"special_tokens is a list of texts, or their ids by text; found the text {tokens!r}")
    without_ids: Mapping[str, int | None] = dict.fromkeys(tokens)
    ids = cast("Mapping[str, int]", tokens) if isinstance(tokens, Mapping) else without_ids
    nameless = [text for text, number in ids.items() if number is None and not _NAME.fullmatch(text)]
    if nameless:
        raise ConfigurationError(
            f"special token {nameless[0]!r} has no name in angle brackets: add its id, as {{text: id}}"
        )
    inserter = _TokenInserter({text: Special(text, number) for text, number in ids.items() if text})
    rules = {name: inserter.node(node) for name, node in definition.rules.items()}
    return Definition(inserter.node(definition.start), rules)


class _TokenInserter:
    def __init__(self, tokens: Mapping[str, Special]) -> None:
        self._tokens = tokens
        longest_first = sorted(tokens, key=len, reverse=True)
        self._token_pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})" if tokens else "(?!)")

    def node(self, node: Node) -> Node:
        match node:
            case Literal(text):
                return self._literal(text)
            case Series(parts):
                return series(*map(self.node, parts))
            case Choice(options):
                return choice(*map(self.node, options))
            case Repeat(part, low, high):
                return Repeat(self.node(part), low, high)
            case Token(part):
                inner = self.node(part)
                return Token(inner) if is_regular(inner) else inner
            case Text(avoid, end) if self._token_pattern.search(end):
                # Within the text a lexer cannot see the token, so the text avoids what ends it.
                ending = exactly(end)
                free = Text(avoid if ending in avoid else (*avoid, ending))
                return series(free, self._literal(end))
            case _:
                return node

    def _literal(self, text: str) -> Node:
        return series(*(self._tokens.get(piece, piece) for piece in self._token_pattern.split(text)))
