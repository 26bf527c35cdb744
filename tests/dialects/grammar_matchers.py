"""llguidance's matcher, for Lark and, converted, for GBNF."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

import llguidance
from grammar_checks import Damage
from llguidance.gbnf_to_lark import gbnf_to_lark

from toolspeak.dialects import Grammar


class _Vocabulary:
    """Single bytes and special tokens, as `llguidance.TokenizerWrapper` asks for them."""

    bos_token_id = None

    def __init__(self, special: Sequence[str]) -> None:
        self.tokens = [bytes([i]) for i in range(256)] + [text.encode() for text in (*special, "<|end|>")]
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = range(256, len(self.tokens))

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


class LlguidanceMatcher:
    """Matches with a tokenizer of single bytes, and of `special` tokens, which stand wherever their text does."""

    def __init__(self, source: str, special: Collection[str] = ()) -> None:
        self._special = {text: 256 + i for i, text in enumerate(special)}
        longest_first = sorted(special, key=len, reverse=True)
        self._cut = re.compile(f"({'|'.join(map(re.escape, longest_first))})" if special else "(?!)")
        wrapper = llguidance.TokenizerWrapper(_Vocabulary(tuple(special)))
        tokenizer = llguidance.LLTokenizer(wrapper, slices=[]) if special else _BYTES
        grammar = llguidance.LLMatcher.grammar_from_lark(source)
        problem = llguidance.LLMatcher.validate_grammar(grammar, tokenizer)
        assert not problem, f"{problem}\n{source}"
        self._fresh = llguidance.LLMatcher(tokenizer, grammar)

    def __call__(self, text: str) -> bool:
        return _takes(self._fresh.deep_copy(), self.tokens(text))

    def tokens(self, text: str) -> list[int]:
        """The text as a tokenizer cuts it."""
        pieces = self._cut.split(text)
        return [token for piece in pieces for token in self._piece(piece)]

    def spelled_out(self, text: str) -> bool:
        """Whether the text is taken when no special token stands in it, only their characters."""
        return _takes(self._fresh.deep_copy(), list(text.encode()))

    def accepted_damages(self, text: str, damages: Sequence[Damage]) -> Iterator[str]:
        at, matcher = 0, self._fresh.deep_copy()
        for start, stop, instead in damages:
            assert start >= at, "damages go from left to right"
            assert matcher.consume_tokens(list(text[at:start].encode())), text[:start]
            at = start
            if _takes(matcher.deep_copy(), list((instead + text[stop:]).encode())):
                yield text[:start] + instead + text[stop:]

    def _piece(self, piece: str) -> list[int]:
        number = self._special.get(piece)
        return list(piece.encode()) if number is None else [number]


def _takes(matcher: llguidance.LLMatcher, tokens: list[int]) -> bool:
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


_BYTES = llguidance.LLTokenizer("byte")


def matcher(grammar: Grammar) -> LlguidanceMatcher:
    """The matcher of a Lark or a GBNF grammar."""
    return _matcher(grammar.target, grammar.source)


@lru_cache(8)
def _matcher(target: str, source: str) -> LlguidanceMatcher:
    return LlguidanceMatcher(gbnf_to_lark(spell_out(source)) if target == "gbnf" else source)


def spell_out(gbnf: str) -> str:
    """The same grammar with every character a rule that the converter cannot join with others into one lexeme:
    llguidance reads lexemes without going back, llama.cpp reads characters. (`\x01` may follow each of them.)"""
    units: dict[str, str] = {}

    def unit(body: str) -> str:
        return units.setdefault(body, f"unit{len(units)}")

    def spell(match: re.Match[str]) -> str:
        text = match[0]
        if text[0] == "[":
            return unit(text)
        chars = re.findall(r"\\x..|\\.|[^\\]", text[1:-1])
        return "(" + " ".join(unit(f'"{char}"') for char in chars) + ")" if chars else text

    source = re.sub(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]', spell, gbnf)
    rules = "".join(f"{name} ::= {body} keep\n" for body, name in units.items())
    return f'{source}{rules}keep ::= "" | [\\x01] keep\n'
