"""What a grammar is to its user: the matchers there are, and the text for one of them."""

from __future__ import annotations

from typing import Literal, get_args

from toolspeak.data.values import quick
from toolspeak.dialects.grammar.ir import Definition

Target = Literal["xgrammar", "lark", "gbnf", "json_schema", "regex"]
"""`xgrammar`: a structural tag (vLLM, SGLang); `lark`: llguidance; `gbnf`: llama.cpp; `json_schema` and `regex` where
a turn of calls is one JSON value, or a regular language."""

TARGETS: tuple[Target, ...] = get_args(Target)


@quick()
class Grammar:
    """A grammar for one turn: `source` in the language of `target`. `definition` is the same before it was written."""

    target: Target
    source: str
    definition: Definition
