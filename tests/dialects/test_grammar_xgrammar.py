"""The structural tags, with xgrammar's own matcher (`make test-grammar`: it brings torch)."""

from __future__ import annotations

import pytest
from grammar_checks import TOOLS, Sampler, damages, is_legal, rendered

from toolspeak.data.messages import ToolCall, ToolChoice
from toolspeak.dialects import DIALECTS, Dialect

xgrammar = pytest.importorskip("xgrammar", reason="make test-grammar installs xgrammar")
testing = pytest.importorskip("xgrammar.testing")

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
CALLS = [
    ToolCall("a1", "write_file", {"path": "a.py", "content": 'if a < b:\n\tprint("</x>")\n', "mode": "x y"}),
    ToolCall("a2", "pick", {"either": ["x"], "level": "one", "two": [1, 2]}),
]


def tag(dialect: Dialect, choice: ToolChoice, **options: bool):
    compiled = xgrammar.Grammar.from_structural_tag(dialect.grammar(TOOLS, choice, target="xgrammar", **options).source)
    return lambda text: testing._is_grammar_accept_string(compiled, text)


@each_dialect
def test_a_choice_admits_its_turns(dialect: Dialect):
    text = rendered(dialect, CALLS[: dialect.batch.max_calls or 2])
    assert [tag(dialect, ToolChoice(mode))(text) for mode in ("auto", "required", "none")] == [True, True, False]


@each_dialect
def test_what_is_sampled_is_accepted(dialect: Dialect):
    for mode in ("auto", "required"):
        accepts = tag(dialect, ToolChoice(mode))
        sampler = Sampler(dialect.grammar(TOOLS, ToolChoice(mode), target="gbnf").definition, 3)
        texts = [sampler.sample(20)[0] for _ in range(8)]
        assert [text for text in texts if not accepts(text)] == []


@each_dialect
def test_a_damaged_frame_is_rejected(dialect: Dialect):
    accepts = tag(dialect, ToolChoice("required"), reasoning=False)
    definition = dialect.grammar(TOOLS, ToolChoice("required"), target="gbnf", reasoning=False).definition
    text, framed = Sampler(definition, 5).sample(12)
    alphabet = "".join(sorted({char for char, own in zip(text, framed, strict=True) if own}))
    spoiled = [text[:at] + instead + text[stop:] for at, stop, instead in damages(text, framed, alphabet, 1, 7)[::7]]
    assert [each for each in spoiled if accepts(each) and not is_legal(dialect, each)] == []
