"""The matchers that take grammars, and a grammar for one of them."""

from __future__ import annotations

from typing import Literal, get_args

from toolspeak.data.values import quick
from toolspeak.dialects.grammar.ir import Definition

Target = Literal["xgrammar", "lark", "gbnf", "json_schema", "regex"]
"""The language of a grammar.

- `xgrammar`: a structural tag, for vLLM and SGLang
- `lark`: for llguidance
- `gbnf`: for llama.cpp
- `json_schema`: if a turn of calls is one JSON value
- `regex`: if a turn of calls is a regular language
"""

TARGETS: tuple[Target, ...] = get_args(Target)
"""Every target that a grammar can be written for."""


@quick()
class Grammar:
    """A grammar for one turn."""

    target: Target
    source: str
    """The grammar's text, in the language of `target`."""
    definition: Definition
    """The same as nodes."""
