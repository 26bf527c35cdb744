"""Grammars, with llguidance's matcher: rendered text is accepted, damaged text is not, sampled text parses."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest
from dialect_strategies import spec
from grammar_checks import problem, render_calls, unnoticed_damages
from grammar_matchers import matcher
from grammar_sampler import Sampler
from grammar_tools import CALLS, TOOLS, I, S
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sweeps import fewer, grid
from toolspeak.data.messages import JSON, ToolCall, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, Target, get_dialect, read_turn
from toolspeak.dialects.catalogue import FAMILIES
from toolspeak.errors import ConfigurationError

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
each_target = pytest.mark.parametrize(
    ("dialect", "target"), grid(DIALECTS, ["lark", "gbnf"], every=2, ids=lambda value: getattr(value, "name", value))
)
"""Of the two, `make test` runs one in turn."""
REQUIRED_CHOICE, NONE = ToolChoice("required"), ToolChoice("none")

# --- rendered calls are accepted ----------------------------------------------------------------


@each_target
def test_rendered_calls_are_accepted(dialect: Dialect, target):
    accepts_required = matcher(dialect.grammar(TOOLS, REQUIRED_CHOICE, target=target))
    most = dialect.batch.max_calls or 3

    @given(st.lists(CALLS, min_size=1, max_size=most))
    @settings(
        deadline=None,
        max_examples=fewer(8 if target == "lark" else 3),
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    def check(calls: list[ToolCall]):
        text = render_calls(dialect, calls)
        assert accepts_required(text), text

    check()


@each_dialect
def test_a_choice_admits_its_turns(dialect: Dialect):
    weather, ping = ToolCall("a1", "get_weather", {"city": "Oslo"}), ToolCall("a2", "ping", {})
    one, other = render_calls(dialect, [weather]), render_calls(dialect, [ping])
    prose = f"{dialect.grammar_parts()[0].text_start or ''}Some text\nwithout calls."  # type: ignore[attr-defined]
    verdicts = {
        mode: [
            matcher(dialect.grammar(TOOLS, ToolChoice(mode, name), target="lark"))(text) for text in (prose, one, other)
        ]
        for mode, name in (("auto", None), ("required", None), ("none", None), ("specific", "get_weather"))
    }
    assert verdicts == {
        "auto": [True, True, True],
        "required": [False, True, True],
        "none": [True, False, False],
        "specific": [False, True, False],
    }


@each_dialect
def test_calls_are_bounded(dialect: Dialect):
    calls = [ToolCall(f"a{i}", "get_weather", {"city": "Oslo"}) for i in range(4)]
    accepts_two = matcher(dialect.grammar(TOOLS, REQUIRED_CHOICE, target="lark", max_calls=2))
    most = min(dialect.batch.max_calls or 2, 2)
    assert [accepts_two(render_calls(dialect, calls[:count])) for count in (1, 2, 3)] == [True, most == 2, False]


def test_text_may_stand_before_calls_and_thoughts_before_text():
    hermes = get_dialect("hermes")
    call = render_calls(hermes, [ToolCall("a", "ping", {})])
    auto = matcher(hermes.grammar(TOOLS, target="lark"))
    assert auto(f"<think>Which?</think>\nI ask.\n{call}")
    assert not auto(f"I ask <tool_call> what?\n{call}")
    assert not auto(f"<tool_response>\n7\n</tool_response>{call}")
    assert not matcher(hermes.grammar(TOOLS, target="lark", reasoning=False))(f"<think>Which?</think>{call}")
    inside = matcher(hermes.grammar(TOOLS, REQUIRED_CHOICE, target="lark", starts_in="reasoning"))
    assert inside(f"Which?</think>\n\n{call}")
    assert not inside(call)


# --- a damaged frame is rejected ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "choice"), grid(["lark", "gbnf"], [REQUIRED_CHOICE, ToolChoice("specific", "write_file")], every=2)
)
@each_dialect
def test_a_damaged_frame_is_rejected(dialect: Dialect, target, choice):
    """Every deletion of a character of the frame, and replacements and insertions everywhere in it."""
    grammar = dialect.grammar(TOOLS, choice, target=target, reasoning=False)
    assert unnoticed_damages(dialect, grammar, matcher(grammar), each_place=1) == []


# --- what is sampled parses ---------------------------------------------------------------------

STRINGS = 50  # of each family; slow_grammar.py takes 1,000 of each dialect
SAMPLES = [(dialect, -(-STRINGS // len(family))) for family in FAMILIES.values() for dialect in family]
CHOICES = (("auto", None, 3), ("required", None, 4), ("specific", "grow", 2), ("none", None, 1))


@pytest.mark.parametrize("number", range(len(SAMPLES)), ids=[dialect.name for dialect, _ in SAMPLES])
def test_what_is_sampled_parses(number: int):
    """With two of the four tool choices, in turn; slow_grammar.py takes all."""
    dialect, strings = SAMPLES[number]
    for mode, name, share in CHOICES[number % 2 :: 2]:
        grammar = dialect.grammar(TOOLS, ToolChoice(mode, name), target="lark")
        accepts, sampler = matcher(grammar), Sampler(grammar.definition, share)
        for _ in range(-(-strings * share // 10)):
            text, _ = sampler.sample(24)
            assert not problem(dialect, text, mode), (mode, text, problem(dialect, text, mode))
            assert accepts(text), (mode, text)


# --- the plain targets, and what there is not ---------------------------------------------------

PLAIN = (spec("ping", {}), spec("get_weather", {"city": S, "days": I}, ["city"]))


def test_plain_json_has_a_schema():
    calls = [ToolCall("a", "get_weather", {"city": "Oslo"}), ToolCall("b", "ping", {})]
    for name, texts in (
        ("xlam", [render_calls(get_dialect("xlam"), calls)]),
        ("llama3-json", [render_calls(get_dialect("llama3-json"), calls[:1])]),
    ):
        most = 1 if name == "llama3-json" else None
        schema = json.loads(
            get_dialect(name).grammar(TOOLS, REQUIRED_CHOICE, target="json_schema", max_calls=most).source
        )
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
    grammar = dialect.grammar(PLAIN, REQUIRED_CHOICE, target="regex", max_calls=2)
    text = render_calls(
        dialect, [ToolCall("a", "get_weather", {"city": 'O"slo', "days": 2}), ToolCall("b", "ping", {})]
    )
    assert re.fullmatch(grammar.source, text)
    assert not re.fullmatch(grammar.source, text.replace("city", "town"))


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("hermes", {"target": "yaml"}, "grammar target"),
        ("hermes", {"target": "lark", "max_calls": 0}, "at least 1"),
        ("hermes", {"target": "lark", "choice": ToolChoice("specific", "pong")}, "ping"),
        (
            "hermes",
            {"target": "json_schema", "choice": REQUIRED_CHOICE},
            "not plain JSON; use the target xgrammar, lark, gbnf",
        ),
        ("xlam", {"target": "json_schema"}, "free text"),
        ("llama3-json", {"target": "json_schema", "choice": REQUIRED_CHOICE}, "max_calls"),
        ("qwen3-coder", {"target": "regex", "choice": REQUIRED_CHOICE}, "text between tags"),
    ],
)
def test_what_there_is_not_is_said(name: str, options: dict[str, Any], reason: str):
    with pytest.raises(ConfigurationError, match=reason):
        get_dialect(name).grammar(PLAIN, **options)


def test_without_tools_there_is_text_alone():
    hermes = get_dialect("hermes")
    assert matcher(hermes.grammar((), target="lark"))("Hello.")
    with pytest.raises(ConfigurationError, match="no tools"):
        hermes.grammar((), REQUIRED_CHOICE, target="lark")


def test_undeclared_arguments_are_left_out_unless_the_schema_names_them():
    hermes = get_dialect("hermes")
    open_ = ToolSpec("f", "", {"type": "object", "properties": {"a": I}, "additionalProperties": S})
    closed_tool = ToolSpec("f", "", {"type": "object", "properties": {"a": I}})
    for target in ("lark", "gbnf"):
        for tool, is_admitted in ((open_, True), (closed_tool, False)):
            accepts = matcher(hermes.grammar([tool], REQUIRED_CHOICE, target=target))
            text = render_calls(hermes, [ToolCall("x", "f", {"a": 1, "b": "c"})], [tool])
            assert accepts(text) is is_admitted
            assert read_turn(hermes, text, [tool]).calls


FREE = {"type": "object", "additionalProperties": S}


@pytest.mark.parametrize("target", ["lark", "gbnf"])
@pytest.mark.parametrize(
    ("schema", "value", "inner"),
    [
        (FREE, {"K": "v"}, "K"),
        ({"type": "object"}, {"K": "v"}, "K"),
        ({"type": "object", "properties": {"env": FREE}}, {"env": {"K": "v"}}, "env K"),
        ({**FREE, "properties": {"a": S}}, {"a": "1", "K": "v"}, "a=1 K"),
        ({"type": "array", "items": FREE}, [{"K": "v"}], "item K"),
    ],
)
def test_minimax_m3_writes_free_keys_as_json_alone_and_reads_elements_too(
    schema: JSON, value: JSON, inner: str, target: Target
):
    dialect, mark = get_dialect("minimax-m3"), "]<]minimax[>["
    tool = ToolSpec("f", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]})
    accepts = matcher(dialect.grammar([tool], REQUIRED_CHOICE, target=target))
    as_json = render_calls(dialect, [ToolCall("1", "f", {"x": value})], [tool])
    assert f'<x type="json">{json.dumps(value)}{mark}</x>' in as_json
    value_text = "v"
    for name in reversed(inner.split()):
        name, _, before = name.partition("=")
        element = f"{mark}<{name}>{before or value_text}{mark}</{name}>"
        value_text = element + value_text if before else element
    elements = as_json.replace(f' type="json">{json.dumps(value)}', f">{value_text}")
    assert (accepts(elements), accepts(as_json)) == (False, True)
    for text in (elements, as_json):
        (call,) = read_turn(dialect, text, [tool]).calls
        assert isinstance(call, ToolCall)
        assert call.arguments == {"x": value}


def test_objects_put_together_keep_each_others_properties():
    hermes = get_dialect("hermes")
    point = {"type": "object", "properties": {"x": I}, "required": ["x"]}
    both = {"allOf": [{"$ref": "#/$defs/point"}, {"type": "object", "properties": {"z": I}, "required": ["z"]}]}
    tool = ToolSpec("f", "", {"type": "object", "properties": {"at": both, "no": False}, "$defs": {"point": point}})
    for target in ("lark", "gbnf"):
        accepts = matcher(hermes.grammar([tool], REQUIRED_CHOICE, target=target))
        for value, is_admitted in (({"x": 1, "z": 2}, True), ({"x": 1}, False), ({"x": 1, "z": 2, "q": 3}, False)):
            assert accepts(render_calls(hermes, [ToolCall("a", "f", {"at": value})], [tool])) is is_admitted
