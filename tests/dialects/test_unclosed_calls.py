"""A call without its end, and another after it: the complete one runs, and two calls never become one."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_strategies import TOOLS

from toolspeak.data.messages import FinishReason, MalformedCall, Message, ToolCall
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.testing import check_splits

PAIRS = ["glm45", "glm47", "spark25", "ling3", "poolside-v1", "laguna-s", "hy-v3", "hy-v3-opensource", "k2-horizon"]
ELEMENTS = ["qwen3-coder", "step3p5", "mimo", "seed-oss", "minimax-m2", "muse", "deepseek-v32", "deepseek-v4", "dots"]
CALL_TAG = {name: "<function=write" if name in ELEMENTS[:4] else 'invoke name="write"' for name in ELEMENTS}
FIRST, SECOND = ToolCall("a", "write", {"file": "x", "content": "y"}), ToolCall("b", "read", {"file": "z"})
BOTH = [("write", FIRST.arguments), ("read", SECOND.arguments)]


def calls_text(dialect: Dialect, *calls: ToolCall) -> str:
    return dialect.render([Message("assistant", calls)], TOOLS)[0].text


def element_form(name: str, call: ToolCall) -> str:
    """The call in elements, also in a dialect that would write another form."""
    if name != "dots":
        return calls_text(get_dialect(name), call)
    values = "".join(f'<parameter name="{key}">{value}</parameter>' for key, value in call.arguments.items())
    return f'<dots_function_call><invoke name="{call.name}">{values}</invoke></dots_function_call>'


def read(dialect: Dialect, reply: str) -> list[Any]:
    """Each call's name and arguments, or its code."""
    check_splits(dialect, reply, TOOLS)
    calls = read_turn(dialect, reply, TOOLS).calls
    return [call.code if isinstance(call, MalformedCall) else (call.name, call.arguments) for call in calls]


def block(text: str) -> str:
    """Without the header of a message, which is Muse's alone."""
    return text.rpartition("<|message|>")[2]


def ends(text: str, count: int) -> list[str]:
    """The last tags of a text, the last of all at the end."""
    return ["</" + part for part in text.strip().split("</")[-count:]]


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("gap", ["", "\n", "\n\n  "])
def test_a_whole_call_without_its_blocks_end_runs_with_the_next(name: str, gap: str):
    dialect = get_dialect(name)
    first, second = element_form(name, FIRST), block(element_form(name, SECOND))
    (closer,) = ends(first, 1)
    cut = first.strip().removesuffix(closer)
    assert read(dialect, f"{cut}{gap}{second}") == BOTH
    assert "missing_closer" in read_turn(dialect, f"{cut}{gap}{second}", TOOLS).notes


@pytest.mark.parametrize("name", ELEMENTS)
def test_a_call_that_does_not_end_before_the_next_block_never_runs(name: str):
    dialect = get_dialect(name)
    first, second = element_form(name, FIRST), block(element_form(name, SECOND))
    call_end, block_end = ends(first, 2)
    cut = first.strip().removesuffix(call_end + block_end)
    assert read(dialect, f"{cut}{second}") == ["unclosed", BOTH[1]]
    # Without arguments too: nothing says that it is to have none.
    opening = cut[: cut.index(">", cut.index(CALL_TAG[name])) + 1]
    assert read(dialect, f"{opening}\n{second}") == ["unclosed", BOTH[1]]


@pytest.mark.parametrize("name", ["qwen3-coder", "mimo", "minimax-m2"])
def test_a_start_that_no_call_follows_is_content(name: str):
    dialect = get_dialect(name)
    text = calls_text(dialect, ToolCall("a", "write", {"file": "x", "content": "@@"}))
    start = text[: text.index(">") + 1]
    value = f"the end tag, then {start} and more"
    assert read(dialect, text.replace("@@", value)) == [("write", {"file": "x", "content": value})]


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("qwen3-coder", "<tool_call>"),
        ("qwen3-coder", "<tool_call>\n<func"),
        ("hermes", "<tool_ca"),
        ("hermes", "<tool_call>\n"),
    ],
)
def test_what_may_begin_another_block_at_the_end_of_the_turn_is_text(name: str, beginning: str):
    dialect = get_dialect(name)
    cut = calls_text(dialect, FIRST).strip().removesuffix("</tool_call>")
    assert read(dialect, cut + beginning) == [BOTH[0]]
    assert read_turn(dialect, cut + beginning, TOOLS).text == beginning


def test_muses_message_ends_the_block_in_it():
    dialect = get_dialect("muse")
    first, second = calls_text(dialect, FIRST, SECOND).split("<|eom|>")
    whole = first.removesuffix("</atem:function_calls>")
    assert read(dialect, f"{whole}<|eom|>{second}") == BOTH
    cut = whole.strip().removesuffix("</atem:invoke>")
    assert read(dialect, f"{cut}<|eom|>{second}") == ["unclosed", BOTH[1]]


def test_a_json_call_without_its_blocks_end_runs_with_the_next():
    reply = calls_text(get_dialect("hermes"), FIRST, SECOND)
    assert read(get_dialect("hermes"), reply.replace("</tool_call>", "", 1)) == BOTH


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_call_without_its_end_never_runs_and_the_next_does(name: str):
    dialect = get_dialect(name)
    reply = calls_text(dialect, FIRST, SECOND)
    end = tag_of(dialect, reply, "/tool_call")
    assert read(dialect, reply.replace(end, "", 1)) == ["unclosed", BOTH[1]]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("which", [0, 1])
def test_a_key_holds_no_tag(name: str, which: int):
    """A key whose end is missing would swallow the rest of the call and the next one, and be run so."""
    dialect = get_dialect(name)
    reply = calls_text(dialect, FIRST, SECOND)
    end = tag_of(dialect, reply, "/arg_key")
    parts = reply.split(end)
    damaged_reply = end.join(parts[: which + 1]) + end.join(["", *parts[which + 1 :]])[len(end) :]
    assert damaged_reply.count(end) == reply.count(end) - 1
    assert read(dialect, damaged_reply) == ["unclosed", BOTH[1]]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("tag", ["arg_key", "/arg_value", "/tool_call", "tool_call"])
def test_whatever_stands_in_a_key_its_call_never_runs(name: str, tag: str):
    dialect = get_dialect(name)
    reply = calls_text(dialect, SECOND)
    damaged_reply = reply.replace("file", f"fi\n{tag_of(dialect, reply, tag)}le", 1)
    assert not [each for each in read(dialect, damaged_reply) if isinstance(each, tuple)]


def tag_of(dialect: Dialect, reply: str, name: str) -> str:
    """`/arg_key` and others as the dialect writes them."""
    slash, name = ("/", name[1:]) if name.startswith("/") else ("", name)
    prefix = "ifm|" if dialect.name == "k2-horizon" else ""
    suffix = ":opensource" if dialect.name == "hy-v3-opensource" else ""
    tag = f"<{slash}{prefix}{name}{suffix}>"
    assert tag in reply
    return tag


def _end_marker(dialect: Dialect, call: str) -> str:
    """The marker that ends a call; empty where it has none."""
    markers = [each for each in dialect.grammar_parts()[1] if each.kind == "calls" and each.end]  # type: ignore[attr-defined]
    return next((each.end for each in markers if call.startswith(each.text) and call.endswith(each.end)), "")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_marker_that_stands_twice_after_a_call_is_read_as_one(dialect: Dialect):
    call = calls_text(dialect, ToolCall("callid000", "read", {"file": "a"}))
    end = _end_marker(dialect, call)
    if not end:
        return
    for text in (f"Hm.{call}{end}", f"Hm.{call}\n{end}", f"Hm.{call}{end} So."):
        turn = read_turn(dialect, text, TOOLS)
        assert [getattr(each, "arguments", each) for each in turn.calls] == [{"file": "a"}], text
        assert end not in turn.text + turn.aside, text
        check_splits(dialect, text, TOOLS, "stop")


def runs(dialect: Dialect, reply: str, finish: FinishReason) -> list[Any]:
    turn = read_turn(dialect, reply, TOOLS, finish=finish)
    return [(call.name, call.arguments) for call in turn.calls if isinstance(call, ToolCall)]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_what_runs_at_the_token_limit_runs_whatever_would_have_followed(dialect: Dialect):
    whole = calls_text(dialect, FIRST, SECOND).strip()
    starts = {0, *(at for part in ("write", "{", "[") if (at := whole.find(part)) > 0)}  # markers are dropped
    for text in (whole[start:] for start in starts):
        for stop in range(len(text) + 1):
            ran = runs(dialect, text[:stop], "length")
            for after in (",", "}", "]", ")", ", x") if ran else ():
                assert [call for call in ran if call not in runs(dialect, text[:stop] + after, "stop")] == [], (
                    text[:stop],
                    after,
                )
