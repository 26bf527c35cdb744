"""Grammars, with llguidance's matcher: what renders is accepted, what is damaged is not, what is sampled parses."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest
from dialect_strategies import spec
from grammar_checks import TOOLS, I, S, Sampler, damages, is_legal, matcher, problem, rendered
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from toolspeak.data.messages import ToolCall, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.errors import UsageError

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
REQUIRED, NONE = ToolChoice("required"), ToolChoice("none")

# --- rendered calls are accepted ----------------------------------------------------------------

# Left out is what cannot reach a tokenizer (lone surrogates), and DEL, which llguidance does not take in JSON.
_TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "\n", "</x>", "a < b", "</parameter>", "]]>", "<![CDATA[x]]>", '"', "\\", "null", "5", "</arg_value>"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=8),
)
_INTEGERS = st.integers(-(10**20), 10**20)
_NUMBERS = st.one_of(_INTEGERS, st.floats(-1e300, 1e300, allow_nan=False).map(lambda number: number + 0.0))
_KEYS = st.text(st.sampled_from("abc_"), min_size=1, max_size=3)
_TREES = st.recursive(
    st.fixed_dictionaries({"name": _TEXTS}),
    lambda inner: st.builds(
        lambda name, inside: {"name": name, "children": inside}, _TEXTS, st.lists(inner, max_size=2)
    ),
    max_leaves=3,
)


def _calls(name: str, needed: dict[str, Any], others: dict[str, Any] | None = None) -> st.SearchStrategy[ToolCall]:
    """Arguments in the schema's order, as grammars have them."""
    made = st.fixed_dictionaries(needed, optional=others or {})
    order = next(list(tool.properties) for tool in TOOLS if tool.name == name)
    return made.map(lambda found: ToolCall("id1", name, {key: found[key] for key in order if key in found}))


CALLS = st.one_of(
    _calls("ping", {}),
    _calls("get_weather", {"city": _TEXTS}, {"days": _INTEGERS}),
    _calls(
        "write_file",
        {"path": _TEXTS, "content": _TEXTS},
        {"mode": st.sampled_from(["w", "a", "x y"]), "size": _NUMBERS},
    ),
    _calls("set_flags", {}, {"on": st.booleans(), "none": st.none(), "maybe": st.none() | _TEXTS, "fixed": st.just(7)}),
    _calls("any-shape", {}, {"list": st.lists(_INTEGERS | _TEXTS, max_size=2)}),
    _calls(
        "pick",
        {"either": _INTEGERS | st.lists(_TEXTS, max_size=2)},
        {"level": st.sampled_from([1, "one"]), "two": st.lists(_INTEGERS, min_size=2, max_size=3)},
    ),
    _calls(
        "grow",
        {"tree": _TREES},
        {
            "point": st.builds(lambda x, y: {"x": x, "y": y}, _INTEGERS, _INTEGERS),
            "pair": st.tuples(_TEXTS, st.booleans()).map(list),
        },
    ),
)


@pytest.mark.parametrize("target", ["lark", "gbnf"])
@each_dialect
def test_rendered_calls_are_accepted(dialect: Dialect, target):
    required = matcher(dialect.grammar(TOOLS, REQUIRED, target=target))
    most = dialect.batch.max_calls or 3

    @given(st.lists(CALLS, min_size=1, max_size=most))
    @settings(
        deadline=None,
        max_examples=12 if target == "lark" else 3,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    def check(calls: list[ToolCall]):
        # Entries of any type, which minimax-m3 nests as elements, its grammar has as JSON alone.
        nested = dialect.name == "minimax-m3" and any(call.arguments.get("list") for call in calls)
        text = rendered(dialect, calls)
        assert nested or required(text), text

    check()


@each_dialect
def test_a_choice_admits_its_turns(dialect: Dialect):
    weather, ping = ToolCall("a1", "get_weather", {"city": "Oslo"}), ToolCall("a2", "ping", {})
    one, other = rendered(dialect, [weather]), rendered(dialect, [ping])
    said = f"{dialect.grammar_parts()[0].said or ''}Some text\nwithout calls."  # type: ignore[attr-defined]
    accepted = {
        mode: [
            matcher(dialect.grammar(TOOLS, ToolChoice(mode, name), target="lark"))(text) for text in (said, one, other)
        ]
        for mode, name in (("auto", None), ("required", None), ("none", None), ("specific", "get_weather"))
    }
    assert accepted == {
        "auto": [True, True, True],
        "required": [False, True, True],
        "none": [True, False, False],
        "specific": [False, True, False],
    }


@each_dialect
def test_calls_are_bounded(dialect: Dialect):
    calls = [ToolCall(f"a{i}", "get_weather", {"city": "Oslo"}) for i in range(4)]
    bounded = matcher(dialect.grammar(TOOLS, REQUIRED, target="lark", max_calls=2))
    most = min(dialect.batch.max_calls or 2, 2)
    assert [bounded(rendered(dialect, calls[:count])) for count in (1, 2, 3)] == [True, most == 2, False]


def test_text_may_stand_in_front_of_calls_and_thoughts_in_front_of_text():
    hermes = get_dialect("hermes")
    call = rendered(hermes, [ToolCall("a", "ping", {})])
    auto = matcher(hermes.grammar(TOOLS, target="lark"))
    assert auto(f"<think>Which?</think>\nI ask.\n{call}")
    assert not auto(f"I ask <tool_call> what?\n{call}")
    assert not auto(f"<tool_response>\n7\n</tool_response>{call}")
    assert not matcher(hermes.grammar(TOOLS, target="lark", reasoning=False))(f"<think>Which?</think>{call}")
    inside = matcher(hermes.grammar(TOOLS, REQUIRED, target="lark", starts_in="reasoning"))
    assert inside(f"Which?</think>\n\n{call}")
    assert not inside(call)


# --- a damaged frame is rejected ----------------------------------------------------------------


CHOICES = {"lark": REQUIRED, "gbnf": ToolChoice("specific", "write_file")}


@pytest.mark.parametrize("target", CHOICES)
@each_dialect
def test_a_damaged_frame_is_rejected(dialect: Dialect, target):
    """Every deletion of a character of the frame, and replacements and insertions everywhere in it."""
    choice = CHOICES[target]
    grammar = dialect.grammar(TOOLS, choice, target=target, reasoning=False)
    text, framed = Sampler(grammar.definition, 5).sample(12)
    alphabet = "".join(sorted({char for char, own in zip(text, framed, strict=True) if own}))
    accepted = matcher(grammar).damaged(text, damages(text, framed, alphabet, 1, 7))
    assert [each for each in accepted if not is_legal(dialect, each)] == []


# --- what is sampled parses ---------------------------------------------------------------------


@each_dialect
def test_what_is_sampled_parses(dialect: Dialect):
    for seed, (mode, name) in enumerate([("auto", None), ("required", None), ("none", None), ("specific", "grow")]):
        grammar = dialect.grammar(TOOLS, ToolChoice(mode, name), target="lark")
        accepts, sampler = matcher(grammar), Sampler(grammar.definition, seed)
        for i in range(50):
            text, _ = sampler.sample(24)
            assert not problem(dialect, text), (mode, i, text, problem(dialect, text))
            assert i or accepts(text), text


# --- the plain targets, and what there is not ---------------------------------------------------

PLAIN = (spec("ping", {}), spec("get_weather", {"city": S, "days": I}, ["city"]))


def test_plain_json_has_a_schema():
    calls = [ToolCall("a", "get_weather", {"city": "Oslo"}), ToolCall("b", "ping", {})]
    for name, texts in (
        ("xlam", [rendered(get_dialect("xlam"), calls)]),
        ("llama3-json", [rendered(get_dialect("llama3-json"), calls[:1])]),
    ):
        most = 1 if name == "llama3-json" else None
        schema = json.loads(get_dialect(name).grammar(TOOLS, REQUIRED, target="json_schema", max_calls=most).source)
        valid = jsonschema_rs.validator_for(schema)
        assert [valid.is_valid(json.loads(text)) for text in texts] == [True]
        assert not valid.is_valid(json.loads(texts[0].replace("Oslo", "x").replace("city", "town")))
        tree = [{"name": "grow", "arguments": {"tree": {"name": "a", "children": [{"name": 1}]}}}]
        assert not valid.is_valid(tree)


@pytest.mark.parametrize(
    "name", ["hermes", "xlam", "kimi-k2", "deepseek-v3", "cogency-json", "pythonic", "llama4-pythonic"]
)
def test_regular_calls_have_an_expression(name: str):
    dialect = get_dialect(name)
    grammar = dialect.grammar(PLAIN, REQUIRED, target="regex", max_calls=2)
    text = rendered(dialect, [ToolCall("a", "get_weather", {"city": 'O"slo', "days": 2}), ToolCall("b", "ping", {})])
    assert re.fullmatch(grammar.source, text)
    assert not re.fullmatch(grammar.source, text.replace("city", "town"))


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("hermes", {"target": "yaml"}, "grammar target"),
        ("hermes", {"target": "lark", "max_calls": 0}, "at least 1"),
        ("hermes", {"target": "lark", "choice": ToolChoice("specific", "pong")}, "ping"),
        ("hermes", {"target": "json_schema", "choice": REQUIRED}, "not plain JSON; take xgrammar, lark, gbnf"),
        ("xlam", {"target": "json_schema"}, "free text"),
        ("llama3-json", {"target": "json_schema", "choice": REQUIRED}, "max_calls"),
        ("qwen3-coder", {"target": "regex", "choice": REQUIRED}, "text between tags"),
    ],
)
def test_what_there_is_not_is_said(name: str, options: dict[str, Any], reason: str):
    with pytest.raises(UsageError, match=reason):
        get_dialect(name).grammar(PLAIN, **options)


def test_without_tools_there_is_text_alone():
    hermes = get_dialect("hermes")
    assert matcher(hermes.grammar((), target="lark"))("Hello.")
    with pytest.raises(UsageError, match="no tools"):
        hermes.grammar((), REQUIRED, target="lark")


def test_undeclared_arguments_are_left_out_unless_the_schema_names_them():
    hermes = get_dialect("hermes")
    open_ = ToolSpec("f", "", {"type": "object", "properties": {"a": I}, "additionalProperties": S})
    closed = ToolSpec("f", "", {"type": "object", "properties": {"a": I}})
    for target in ("lark", "gbnf"):
        for tool, admitted in ((open_, True), (closed, False)):
            accepts = matcher(hermes.grammar([tool], REQUIRED, target=target))
            text = rendered(hermes, [ToolCall("x", "f", {"a": 1, "b": "c"})], [tool])
            assert accepts(text) is admitted
            assert read_turn(hermes, text, [tool]).calls
