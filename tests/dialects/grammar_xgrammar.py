"""xgrammar's matcher, for structural tags and for GBNF, which is its EBNF."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import tvm_ffi  # looks for torch itself, before anything stands in for it
from grammar_checks import Damage

from toolspeak.dialects import Grammar

assert tvm_ffi


class _Absent(ModuleType):
    """A package of several GB that xgrammar imports for its tensors and tokenizers, and matching a text never uses:
    anything requested of it is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda *_args, **_options: None})


for _name in ("torch", "transformers"):
    if importlib.util.find_spec(_name) is None:
        sys.modules[_name] = _Absent(_name)

import xgrammar  # noqa: E402

_COMPILER = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo([]), cache_enabled=False)


class XgrammarMatcher:
    """Matches text, without a tokenizer: compiled once, and taken back to where it was."""

    def __init__(self, grammar: Grammar) -> None:
        compile_source = {"xgrammar": _COMPILER.compile_structural_tag, "gbnf": _COMPILER.compile_grammar}
        compiled_grammar = compile_source[grammar.target](grammar.source)
        self._matcher = xgrammar.GrammarMatcher(compiled_grammar, terminate_without_stop_token=True)

    def __call__(self, text: str) -> bool:
        self._matcher.reset()
        return self._takes(text)

    def accepted_damages(self, text: str, damages: Sequence[Damage]) -> Iterator[str]:
        self._matcher.reset()
        at = 0
        for start, stop, instead in damages:
            assert start >= at, "damages go from left to right"
            assert self._matcher.accept_string(text[at:start]), text[:start]
            at = start
            if self._takes(instead + text[stop:]):
                yield text[:start] + instead + text[stop:]

    def _takes(self, rest: str) -> bool:
        """Whether the rest completes the text; the matcher stays where it was."""
        if not self._matcher.accept_string(rest):
            return False
        complete = self._matcher.is_terminated()
        self._matcher.rollback()
        return complete
