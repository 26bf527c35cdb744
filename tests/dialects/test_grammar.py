"""Grammars, with llguidance's matcher: what renders is accepted, what is damaged is not, what is sampled parses."""

from __future__ import annotations

import pytest
from grammar_checks import TOOLS, Sampler, damages, is_legal, matcher, problem, rendered

from toolspeak.data.messages import ToolCall, ToolChoice
from toolspeak.dialects import DIALECTS, Dialect

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
each_target = pytest.mark.parametrize("target", ["lark", "gbnf"])


@each_dialect
@each_target
def test_calls_are_accepted(dialect: Dialect, target):
    most = dialect.batch.max_calls or 2
    calls = [
        ToolCall("a1", "write_file", {"path": "a.py", "content": 'if a < b:\n\tprint("</x>")\n', "mode": "x y"}),
        ToolCall("a2", "pick", {"either": ["x"], "level": "one", "two": [1, 2]}),
    ][:most]
    text = rendered(dialect, calls)
    for mode in ("auto", "required"):
        accepts = matcher(dialect.grammar(TOOLS, ToolChoice(mode), target=target))
        assert accepts(text), (mode, text)
    none = matcher(dialect.grammar(TOOLS, ToolChoice("none"), target=target))
    assert not none(text)
    assert none(f"{dialect.grammar_parts()[0].said or ''}Some text\nwithout calls.")


@each_dialect
def test_what_is_sampled_parses(dialect: Dialect):
    for mode, name in (("auto", None), ("required", None), ("none", None), ("specific", "write_file")):
        grammar = dialect.grammar(TOOLS, ToolChoice(mode, name), target="gbnf")
        sampler = Sampler(grammar.definition, 1)
        for i in range(40):
            text, _ = sampler.sample()
            assert not problem(dialect, text), (mode, i, text, problem(dialect, text))


@each_dialect
@each_target
def test_a_damaged_frame_is_rejected(dialect: Dialect, target):
    grammar = dialect.grammar(TOOLS, ToolChoice("required"), target=target, reasoning=False)
    sampler = Sampler(grammar.definition, 5)
    text, framed = sampler.sample(30)
    alphabet = "".join(sorted({char for char, own in zip(text, framed, strict=True) if own}))
    accepted = list(matcher(grammar).damaged(text, damages(text, framed, alphabet, 3, 7)))
    assert [each for each in accepted if not is_legal(dialect, each)] == []
