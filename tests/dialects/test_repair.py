"""Repair: what is repaired and what never is, in every dialect whose calls are JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from dialect_strategies import FINISHES, TOOLS, cuts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak.data.deltas import ArgumentsDelta, BatchEnded, CallCompleted, CallMalformed
from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn, with_repair
from toolspeak.dialects.text.json_repair import load_repair, mend
from toolspeak.errors import ConfigurationError
from toolspeak.testing import check_splits, chunks, parse_pieces

HERMES = with_repair(get_dialect("hermes"))
JSON_DIALECTS = [each for each in DIALECTS if each.info.arguments.startswith(("JSON", "fenced JSON"))]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

REPAIRS: list[tuple[str, dict[str, Any]]] = [  # the arguments as a model may write them, and what they are
    ("{a: 1, b_c: [2]}", {"a": 1, "b_c": [2]}),
    ("{'a': 'it\\'s \"so\"'}", {"a": 'it\'s "so"'}),
    ('{"a": 1, "b": [1, 2,],}', {"a": 1, "b": [1, 2]}),
    ('{"a": 1 /* one */, // and\n"b": "// kept" # so\n}', {"a": 1, "b": "// kept"}),
    ("{'a': True, 'b': None}", {"a": True, "b": None}),
    ('{"a": "two\nlines\tand a tab"}', {"a": "two\nlines\tand a tab"}),
    ('{"a": {"b": [1, {"c": 2.5e3', {"a": {"b": [1, {"c": 2.5e3}]}}),
    ('{"a": 1,', {"a": 1}),
    ("{a: '</tool'}", {"a": "</tool"}),
]
UNREPAIRABLE = [  # texts without a certain meaning
    '{"a": "no end',
    "{'a': 'no end}}",
    '{"a": word}',
    '{"a": }',
    '{"a": 1 "b": 2}',
    '{"a" 1}',
    '{"a": [1}}',
    '{"a": 01}',
    '{a: 1, "a": 2}',
    '{"a": "\\q",}',
    '{"a": 1} and more',
    '{"a": 1}}}',
    '{"a": 1 and more',
    '{"a": NaN,}',
    "{,}",
    "{" * 200,
    "{a: " * 200,
]


def block(arguments: str) -> str:
    return f'<tool_call>{{"name": "f", "arguments": {arguments}'


@pytest.mark.parametrize(("arguments_text", "expected"), REPAIRS)
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_what_is_mended(arguments_text: str, expected: dict[str, Any], closed: bool):
    text = block(arguments_text) + ("}</tool_call> so" if closed else "")
    check_splits(HERMES, text)
    turn = read_turn(HERMES, text)
    (call,) = turn.calls
    assert isinstance(call, ToolCall)
    assert (call.arguments, call.notes) == (expected, ("repaired",))
    assert call.repaired_from is not None
    assert arguments_text in call.repaired_from
    assert turn.text == (" so" if closed else "")


@pytest.mark.parametrize("arguments_text", UNREPAIRABLE)
@pytest.mark.parametrize("closing", ["}</tool_call>", ""], ids=["closed", "open"])
def test_what_is_never_mended(arguments_text: str, closing: str):
    text = block(arguments_text) + closing
    assert parse_pieces(HERMES, [text]) == parse_pieces(get_dialect("hermes"), [text])
    assert not any(isinstance(call, ToolCall) for call in read_turn(HERMES, text).calls)


@pytest.mark.parametrize(("arguments_text", "_expected"), REPAIRS)
def test_what_the_end_of_the_turn_cut_off_stays_malformed(arguments_text: str, _expected: dict[str, Any]):
    text = block(arguments_text)
    for finish in ("length", "cancelled", "error"):
        assert parse_pieces(HERMES, [text], finish=finish) == parse_pieces(get_dialect("hermes"), [text], finish=finish)


@pytest.mark.parametrize("dialect", JSON_DIALECTS, ids=lambda dialect: dialect.name)
def test_every_json_dialect_is_repaired(dialect: Dialect):
    calls = tuple(ToolCall(f"{i}", "write", {"content": "abc"}) for i in range(dialect.batch.max_calls or 2))
    (message,) = dialect.render([Message("assistant", calls)], TOOLS)
    text = message.text.replace('"abc"', "'abc',")
    assert all(isinstance(call, MalformedCall) for call in read_turn(dialect, text, TOOLS).calls)
    turn = read_turn(with_repair(dialect), text, TOOLS)
    assert [(call.name, call.arguments) for call in turn.calls if isinstance(call, ToolCall)] == [
        ("write", {"content": "abc"}) for _ in calls
    ]
    check_splits(with_repair(dialect), text, TOOLS, splits=[tuple(chunks(text, 1)), tuple(chunks(text, 4))])
    for finish in ("stop", "length"):
        cut = read_turn(with_repair(dialect), text[: text.index("abc") + 1], TOOLS, finish=finish)
        assert not any(isinstance(call, ToolCall) for call in cut.calls)


def test_the_deltas_hold_the_raw_text_and_the_repaired_calls_and_the_calls_after_move_up():
    dialect = with_repair(get_dialect("hermes"))
    deltas = parse_pieces(dialect, [block("{a: 1}") + "}</tool_call>" + block("{}") + "}</tool_call>"])
    (malformed_call,) = (delta for delta in deltas if isinstance(delta, CallMalformed))
    repaired_call, after = (delta for delta in deltas if isinstance(delta, CallCompleted))
    assert malformed_call.raw == repaired_call.repaired_from
    assert (malformed_call.index, repaired_call.index, after.index) == (0, 1, 2)
    assert after.repaired_from is None
    assert [delta.text for delta in deltas if isinstance(delta, ArgumentsDelta) and delta.index == 1] == ['{"a": 1}']
    assert deltas[-1] == BatchEnded((1, 2), True)


BROKEN_BODY, WHOLE_BODY, HOPELESS_BODY = (
    '{"name": "f", "arguments": {a: 1}}',
    '{"name": "g", "arguments": {}}',
    '{"name": "h", "arguments": {a: b}}',
)


@pytest.mark.parametrize(
    ("name", "bodies", "selected_names", "ok"),
    [
        ("tool-call", [BROKEN_BODY], ["f"], True),
        ("tool-call", [WHOLE_BODY, BROKEN_BODY], ["f"], True),
        ("tool-call", [BROKEN_BODY, WHOLE_BODY], ["g"], True),
        ("tool-call", [BROKEN_BODY, HOPELESS_BODY], [], False),
        ("hermes", [BROKEN_BODY, HOPELESS_BODY, WHOLE_BODY], ["f", "g"], False),
        ("hermes", [HOPELESS_BODY], [], False),
    ],
)
def test_the_batch_rule_holds_for_repaired_calls(name: str, bodies: list[str], selected_names: list[str], ok: bool):
    text = "".join(f"<tool_call>{body}</tool_call>" for body in bodies)
    deltas = check_splits(with_repair(get_dialect(name)), text)
    end = next(delta for delta in deltas if isinstance(delta, BatchEnded))
    names = {delta.index: delta.name for delta in deltas if isinstance(delta, CallCompleted)}
    assert [names[index] for index in end.selected] == selected_names
    assert end.ok is ok


def test_only_the_first_block_of_cogency_counts_repaired_or_not():
    dialect = with_repair(get_dialect("cogency-json"))
    first = '<execute>[{"name": "f", "args": {a: 1}}, {"name": "g", "args": {}}]</execute>'
    turn = read_turn(dialect, first + first)
    assert [call.name for call in turn.calls] == ["f", "g"]
    assert [entry.call.name for entry in turn.ignored_calls if isinstance(entry.call, ToolCall)][-2:] == ["f", "g"]


PIECES = [*"{}[]:,\"' \n", "<tool_call>", "</tool_call>", "// a\n", "/*", "*/", "a", "1", '{"name": "f", "arguments": ']


@given(data=st.data())
@settings(deadline=None, max_examples=fewer(100), suppress_health_check=SLOW)
def test_splits_do_not_matter_and_nothing_raises(data: st.DataObject):
    pieces = st.sampled_from([*PIECES, block("{a: 1}}"), block("{'a': [1,]}}")])
    text = data.draw(st.lists(pieces, max_size=24).map("".join))
    check_splits(HERMES, text, finish=data.draw(FINISHES), splits=[tuple(chunks(text, 1)), data.draw(cuts(text))])


@st.composite
def loosely(draw: st.DrawFn, value: Any) -> str:
    """A JSON value in one of the spellings that are mended."""
    gap = draw(st.sampled_from(["", " ", "\n", "/* { */", "// ' }\n"]))
    if isinstance(value, dict):
        items = [f"{draw(keys(key))}{gap}: {draw(loosely(each))}" for key, each in value.items()]
        return f"{{{', '.join(items)}{draw(st.sampled_from(['', ','])) if items else ''}{gap}}}"
    if isinstance(value, list):
        items = [draw(loosely(each)) for each in value]
        return f"[{', '.join(items)}{draw(st.sampled_from(['', ','])) if items else ''}{gap}]"
    if isinstance(value, str):
        return draw(quote(value))
    return str(value) if value in (True, False, None) and draw(st.booleans()) else json.dumps(value)


@st.composite
def quote(draw: st.DrawFn, text: str) -> str:
    if draw(st.booleans()):
        return json.dumps(text, ensure_ascii=draw(st.booleans()))
    return "'" + json.dumps(text)[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"


def keys(key: str) -> st.SearchStrategy[str]:
    return st.one_of(st.just(key), quote(key)) if key.isidentifier() and key.isascii() else quote(key)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)


@given(dialect=st.sampled_from(JSON_DIALECTS), arguments=st.dictionaries(st.text(max_size=4), VALUES, max_size=3))
@settings(deadline=None, max_examples=fewer(100), suppress_health_check=SLOW)
def test_what_is_read_without_repair_is_read_the_same_with_it(dialect: Dialect, arguments: dict[str, Any]):
    (message,) = dialect.render([Message("assistant", (ToolCall("0", "f", arguments),))])
    assert parse_pieces(with_repair(dialect), [message.text]) == parse_pieces(dialect, [message.text])


@given(data=st.data(), value=st.dictionaries(st.sampled_from(["a", "b c", "d"]), VALUES, min_size=1, max_size=3))
@settings(deadline=None, max_examples=fewer(100), suppress_health_check=SLOW)
def test_a_value_is_mended_to_itself_or_not_at_all(data: st.DataObject, value: dict[str, Any]):
    mended_text = mend(data.draw(loosely(value)), load_repair())
    assert mended_text is None or json.loads(mended_text) == value


def test_a_dialect_without_json_is_refused():
    with pytest.raises(ConfigurationError, match="qwen3-coder does not write its calls as JSON"):
        with_repair(get_dialect("qwen3-coder"))


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "json_repair", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'toolspeak\[repair\]'"):
        with_repair(get_dialect("hermes"))


@pytest.mark.parametrize("name", ["solar-open", "kimi-k2", "deepseek-v3", "deepseek-v31"])
def test_a_call_outside_of_its_section_is_repaired_too(name: str):
    dialect = get_dialect(name)
    (message,) = dialect.render([Message("assistant", (ToolCall("c", "write", {"content": "abc"}),))], TOOLS)
    section = message.text.index("<", 1)
    text = message.text[section : message.text.rindex("<")].replace('"abc"', "'abc',")
    (call,) = read_turn(with_repair(dialect), text, TOOLS).calls
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("write", {"content": "abc"})
