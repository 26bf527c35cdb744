"""The grammars at length, with every matcher: `make test-grammar`. CI samples STRINGS=250 of each dialect, a quarter,
and of everything else a quarter too.

With GBNF_VALIDATOR=/path/to/llama.cpp's test-gbnf-validator its matcher is held to the same.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence

import pytest
from grammar_checks import Damage, Matcher, problem, render_calls, unnoticed_damages
from grammar_matchers import matcher
from grammar_sampler import Sampler
from grammar_tools import CALLS, TOOLS
from grammar_xgrammar import XgrammarMatcher
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from toolspeak.data.messages import ToolCall, ToolChoice
from toolspeak.dialects import DIALECTS, Dialect, Grammar, Target

VALIDATOR = os.environ.get("GBNF_VALIDATOR")
MATCHERS: dict[str, tuple[Target, Callable[[Grammar], Matcher]]] = {
    "xgrammar": ("xgrammar", XgrammarMatcher),
    "xgrammar-gbnf": ("gbnf", XgrammarMatcher),
    "llguidance-lark": ("lark", matcher),
    "llguidance-gbnf": ("gbnf", matcher),
}
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
each_matcher = pytest.mark.parametrize("library", MATCHERS)
AUTO, REQUIRED_CHOICE, NONE = ToolChoice("auto"), ToolChoice("required"), ToolChoice("none")
STRINGS = int(os.environ.get("STRINGS") or 1000)  # of each dialect
EXAMPLES, DAMAGED_STRINGS = -(-STRINGS // 25), -(-STRINGS // 333)  # of each grammar


def grammar_and_matcher(dialect: Dialect, library: str, choice: ToolChoice, **options: bool) -> tuple[Grammar, Matcher]:
    target, compile_grammar = MATCHERS[library]
    grammar = dialect.grammar(TOOLS, choice, target=target, **options)
    return grammar, compile_grammar(grammar)


@each_matcher
@each_dialect
def test_rendered_calls_are_accepted_where_calls_may_be(dialect: Dialect, library: str):
    _, auto = grammar_and_matcher(dialect, library, AUTO)
    _, accepts_required = grammar_and_matcher(dialect, library, REQUIRED_CHOICE)
    _, none = grammar_and_matcher(dialect, library, NONE)
    acceptors = {
        tool.name: grammar_and_matcher(dialect, library, ToolChoice("specific", tool.name))[1] for tool in TOOLS
    }

    @given(st.lists(CALLS, min_size=1, max_size=dialect.batch.max_calls or 3))
    @settings(
        deadline=None,
        max_examples=EXAMPLES,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    def check(calls: list[ToolCall]):
        text = render_calls(dialect, calls)
        assert (auto(text), accepts_required(text), none(text)) == (True, True, False), text
        alone = render_calls(dialect, calls[:1])
        assert {name for name, accepts in acceptors.items() if accepts(alone)} == {calls[0].name}, alone

    check()


@each_matcher
@each_dialect
def test_every_damage_of_a_frame_is_rejected(dialect: Dialect, library: str):
    """Each character of the frame deleted, replaced and crowded, by every other character of the frame."""
    for choice in (REQUIRED_CHOICE, ToolChoice("specific", "write_file"), ToolChoice("specific", "ping")):
        grammar, accepts = grammar_and_matcher(dialect, library, choice, reasoning=False)
        assert unnoticed_damages(dialect, grammar, accepts, strings=DAMAGED_STRINGS) == []


@each_dialect
def test_what_is_sampled_parses_and_is_accepted(dialect: Dialect):
    for mode, name, share in (("auto", None, 3), ("required", None, 4), ("specific", "grow", 2), ("none", None, 1)):
        grammars = [grammar_and_matcher(dialect, library, ToolChoice(mode, name)) for library in MATCHERS]
        sampler = Sampler(grammars[0][0].definition, share)
        for _ in range(STRINGS * share // 10):
            text, _ = sampler.sample(24)
            assert not problem(dialect, text, mode), (mode, text, problem(dialect, text, mode))
            assert [
                library for library, (_, accepts) in zip(MATCHERS, grammars, strict=True) if not accepts(text)
            ] == [], (
                mode,
                text,
            )


# --- llama.cpp ----------------------------------------------------------------------------------


class LlamaMatcher:
    """llama.cpp's own reading of a grammar, a process each time."""

    def __init__(self, grammar: Grammar, folder: os.PathLike[str]) -> None:
        self._grammar, self._text = os.path.join(folder, "grammar.gbnf"), os.path.join(folder, "text")
        with open(self._grammar, "w", encoding="utf-8", newline="") as file:
            file.write(grammar.source)

    def __call__(self, text: str) -> bool:
        with open(self._text, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        process = subprocess.run([VALIDATOR or "", self._grammar, self._text], capture_output=True, check=False)
        assert b"according to the grammar" in process.stdout, process.stdout + process.stderr
        return b"Input string is valid" in process.stdout

    def accepted_damages(self, text: str, damages: Sequence[Damage]) -> Iterator[str]:
        for start, stop, instead in damages:
            text_with_damage = text[:start] + instead + text[stop:]
            if self(text_with_damage):
                yield text_with_damage


@pytest.mark.skipif(not VALIDATOR, reason="GBNF_VALIDATOR names no test-gbnf-validator of llama.cpp")
@each_dialect
def test_llama_cpp_reads_the_grammars_alike(dialect: Dialect, tmp_path):
    for choice in (AUTO, REQUIRED_CHOICE, NONE, ToolChoice("specific", "write_file")):
        grammar = dialect.grammar(TOOLS, choice, target="gbnf")
        accepts, sampler = LlamaMatcher(grammar, tmp_path), Sampler(grammar.definition, 3)
        texts = [sampler.sample(20)[0] for _ in range(5)]
        assert [text for text in texts if not accepts(text)] == []
    assert not accepts(render_calls(dialect, [ToolCall("a1", "ping", {})]))
    grammar = dialect.grammar(TOOLS, REQUIRED_CHOICE, target="gbnf", reasoning=False)
    assert unnoticed_damages(dialect, grammar, LlamaMatcher(grammar, tmp_path), each_place=0) == []
