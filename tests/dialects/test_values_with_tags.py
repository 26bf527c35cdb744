"""Tags of the dialect itself in an argument's text: a properly closed text stays unchanged. A text without its
end never swallows the rest of its call, or the next call, and runs with that."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, get_dialect, read_turn
from toolspeak.testing import check_splits, chunks


def tool(name: str, *arguments: str) -> ToolSpec:
    properties = {key: {"type": "integer" if key == "limit" else "string"} for key in arguments}
    return ToolSpec(name, "", {"type": "object", "properties": properties})


TOOLS = [tool("write", "path", "content"), tool("search", "query", "limit"), tool("now")]
ELEMENTS = ["qwen3-coder", "step3p5", "mimo", "seed-oss", "minimax-m2", "step3", "muse", "deepseek-v32", "deepseek-v41"]
ELEMENTS.append("minicpm5")
PAIRS = ["glm45", "glm47", "hy-v3", "hy-v3-opensource", "k2-horizon", "spark25", "laguna-s"]
ALL = [*ELEMENTS, *PAIRS, "kimi-k3", "minimax-m3", "cogency-xml"]
WRITE, SEARCH = ToolCall("a", "write", {"path": "a.txt", "content": "@@"}), ToolCall("b", "search", {"query": "tea"})
BOTH = [("write", dict(WRITE.arguments)), ("search", dict(SEARCH.arguments))]


def calls_text(dialect: Dialect, *calls: ToolCall) -> str:
    return dialect.render([Message("assistant", calls)], TOOLS)[0].text


def read(dialect: Dialect, reply: str) -> list[Any]:
    """Each call's name and arguments, or its code."""
    halves = [(reply[:at], reply[at:]) for at in range(1, len(reply), 7)]
    check_splits(dialect, reply, TOOLS, splits=[*(tuple(chunks(reply, size)) for size in (1, 2, 3, 4, 7)), *halves])
    calls = read_turn(dialect, reply, TOOLS).calls
    return [call.code if isinstance(call, MalformedCall) else (call.name, dict(call.arguments)) for call in calls]


def value_end(dialect: Dialect) -> str:
    """What ends the value `@@` of a reply; the next tag is the call's end."""
    after = calls_text(dialect, WRITE).partition("@@")[2].lstrip("\n")
    for prefix, end in (("<|close|>", "<|sep|>"), ("]<]minimax[>[<", ">"), ("<", ">")):
        if after.startswith(prefix):
            return after[: after.index(end) + len(end)]
    raise AssertionError(after)


def call_end(dialect: Dialect) -> str:
    reply = calls_text(dialect, WRITE)
    after = reply[reply.index("@@") :].partition(value_end(dialect))[2].lstrip()
    end = "<|sep|>" if after.startswith("<|close|>") else ">"
    return after[: after.index(end) + len(end)]


@pytest.mark.parametrize("name", [*ELEMENTS, *PAIRS, "kimi-k3"])
def test_a_whole_reply_in_a_value_stays_as_it_is(name: str):
    """The source of a test of this very format, or what documents it."""
    dialect = get_dialect(name)
    example = calls_text(dialect, ToolCall("a", "write", {"path": "x", "content": "y"}), SEARCH).strip()
    for before, after in (("", ""), ("Write\n\n", "\n\nto search."), (f"{example}\n", "")):
        text = f"{before}{example}{after}"
        reply = calls_text(dialect, WRITE, SEARCH).replace("@@", text)
        assert read(dialect, reply) == [("write", {"path": "a.txt", "content": text}), BOTH[1]]


@pytest.mark.parametrize("name", [*ELEMENTS, *PAIRS, "kimi-k3"])
@pytest.mark.parametrize("argument_name", ["city", "path"])
def test_a_call_of_another_tool_in_a_value_stays_as_it_is(name: str, argument_name: str):
    dialect = get_dialect(name)
    example = calls_text(dialect, ToolCall("a", "weather", {argument_name: "Rome", "day": "1"})).strip()
    reply = calls_text(dialect, WRITE, SEARCH).replace("@@", example)
    assert read(dialect, reply) == [("write", {"path": "a.txt", "content": example}), BOTH[1]]


@pytest.mark.parametrize("name", ALL)
def test_a_tag_alone_in_a_value_stays_as_it_is(name: str):
    dialect = get_dialect(name)
    for tag in (value_end(dialect), call_end(dialect)):
        text = f"a text ends with {tag!r}, does it not?"
        reply = calls_text(dialect, WRITE, SEARCH).replace("@@", text)
        assert read(dialect, reply) == [("write", {"path": "a.txt", "content": text}), BOTH[1]]


@pytest.mark.parametrize("name", ALL)
def test_what_is_rendered_is_read_back(name: str):
    dialect = get_dialect(name)
    whole = calls_text(dialect, WRITE, SEARCH)
    tags = [value_end(dialect), call_end(dialect), whole[: whole.index("@@")], whole[whole.index("@@") :], whole]
    for tag in (*tags, f"{call_end(dialect)}\n{whole}", f"{value_end(dialect)}{value_end(dialect)}"):
        call = ToolCall("a", "write", {"path": tag, "content": f"{tag} "})
        assert read(dialect, calls_text(dialect, call, SEARCH)) == [("write", dict(call.arguments)), BOTH[1]]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("call", [SEARCH, ToolCall("b", "write", {"path": "b.txt", "content": "there"})])
def test_a_value_without_its_end_swallows_no_other_call(name: str, call: ToolCall):
    """Its call fails, or the value ends where the call does; the next call runs."""
    dialect = get_dialect(name)
    reply = calls_text(dialect, WRITE, call)
    at = reply.index(value_end(dialect), reply.index("@@"))
    first, second = read(dialect, reply[:at] + reply[at + len(value_end(dialect)) :])
    assert second == (call.name, dict(call.arguments))
    assert first == "unclosed" or first[1]["content"].strip() == "@@"


@pytest.mark.parametrize("name", [*ELEMENTS, *PAIRS, "kimi-k3"])
@pytest.mark.parametrize("call", [SEARCH, ToolCall("b", "write", {"path": "b.txt", "content": "there"})])
def test_a_value_and_a_call_without_end_run_with_nothing_of_the_next(name: str, call: ToolCall):
    dialect = get_dialect(name)
    reply = calls_text(dialect, WRITE, call)
    after = reply[reply.index("@@") :].replace(value_end(dialect), "", 1).replace(call_end(dialect), "", 1)
    for each in read(dialect, reply[: reply.index("@@")] + after):
        assert each == "unclosed" or each == (call.name, dict(call.arguments))


@pytest.mark.parametrize("name", [*ELEMENTS, *PAIRS, "kimi-k3"])
def test_prose_after_a_values_end_runs_nothing_with_the_rest_in_it(name: str):
    dialect = get_dialect(name)
    reply = calls_text(dialect, ToolCall("a", "search", {"query": "@@", "limit": 3}), SEARCH)
    end = value_end(dialect)
    at = reply.index(end, reply.index("@@")) + len(end)
    first, second = read(dialect, f"{reply[:at]} And so on: {reply[at:].lstrip()}")
    assert (type(first), second) == (str, BOTH[1])


@pytest.mark.parametrize("name", ["minimax-m2", "deepseek-v32", "step3"])
def test_a_call_without_its_end_before_another_runs_without_it(name: str):
    dialect = get_dialect(name)
    reply = calls_text(dialect, WRITE, SEARCH)
    assert read(dialect, reply.replace(call_end(dialect), "", 1)) == BOTH


@pytest.mark.parametrize("name", ["minimax-m2", "deepseek-v32", "step3"])
def test_the_last_value_without_end_fails_its_call_alone(name: str):
    dialect = get_dialect(name)
    reply = calls_text(dialect, SEARCH, WRITE)
    at = reply.index("@@")
    rest = reply[at:].replace(value_end(dialect), "").replace(call_end(dialect), "").replace("<｜tool_call_end｜>", "")
    assert read(dialect, reply[:at] + rest) == [BOTH[1], "unclosed"]


@pytest.mark.parametrize("name", ["minimax-m2", "deepseek-v32", "dots"])
def test_in_a_block_what_cannot_be_read_fails_alone(name: str):
    dialect = get_dialect(name)
    block = element_block(dialect)
    calls = [call.replace("@@", "hello") for call in block[1:-1]]
    broken_call = calls[0].replace('name="write"', "name=")
    for damaged_text in (broken_call, calls[0].replace("hello", "hello").replace(">", "> and ", 1)):
        assert read(dialect, "".join([block[0], damaged_text, calls[1], block[-1]])) == ["invalid_xml", BOTH[1]]
        assert read(dialect, "".join([block[0], calls[1], damaged_text, block[-1]])) == [BOTH[1], "invalid_xml"]


@pytest.mark.parametrize("name", ["minimax-m2", "deepseek-v32", "dots"])
def test_in_a_block_prose_between_calls_is_set_aside(name: str):
    dialect = get_dialect(name)
    start, write, search, end = element_block(dialect)
    reply = f"{start}{write}And then:\n{search}Done.{end}"
    assert read(dialect, reply) == BOTH
    turn = read_turn(dialect, reply, TOOLS)
    assert (turn.text, turn.aside.split()) == ("", ["And", "then:", "Done."])


@pytest.mark.parametrize("name", ["minimax-m2", "deepseek-v32"])
def test_a_call_in_a_value_whose_tag_cannot_be_read_never_runs(name: str):
    dialect = get_dialect(name)
    reply = calls_text(dialect, WRITE, ToolCall("b", "now", {}))
    example = calls_text(dialect, SEARCH)
    damaged_text = reply.replace('parameter name="content"', "parameter").replace("@@", example)
    assert ("search", dict(SEARCH.arguments)) not in read(dialect, damaged_text)
    assert damaged_text != reply


def element_block(dialect: Dialect) -> tuple[str, str, str, str]:
    """A block's start, a call of each tool, and its end."""
    if dialect.name == "dots":
        calls = [
            f'<invoke name="{call.name}">'
            + "".join(f'<parameter name="{key}">{value}</parameter>' for key, value in call.arguments.items())
            + "</invoke>\n"
            for call in (WRITE, SEARCH)
        ]
        return "<dots_function_call>", calls[0], calls[1], "</dots_function_call>"
    reply = calls_text(dialect, WRITE, SEARCH)
    end = call_end(dialect)
    first, second = reply.index(end) + len(end), reply.rindex(end) + len(end)
    at = reply.index("<", 1)
    return reply[:at], reply[at:first], reply[first:second], reply[second:]


GEMMA = {"gemma4": '<|"|>', "functiongemma": "<escape>"}


@pytest.mark.parametrize("name", GEMMA)
def test_a_string_without_its_end_swallows_no_other_call(name: str):
    dialect, quote = get_dialect(name), GEMMA[name]
    for call in (SEARCH, ToolCall("b", "write", {"path": "b.txt", "content": "there"})):
        reply = calls_text(dialect, WRITE, call).replace(f"@@{quote}", "@@")
        assert read(dialect, reply) == ["unclosed", (call.name, dict(call.arguments))]


@pytest.mark.parametrize("name", GEMMA)
def test_a_whole_reply_in_a_string_stays_as_it_is(name: str):
    dialect = get_dialect(name)
    example = calls_text(dialect, WRITE, SEARCH)
    for before, after in (("", ""), ("Write: ", ", to search."), (example, "")):
        text = f"{before}{example}{after}"
        reply = calls_text(dialect, WRITE, SEARCH).replace("@@", text)
        assert read(dialect, reply) == [("write", {"path": "a.txt", "content": text}), BOTH[1]]


@pytest.mark.parametrize("name", ["pythonic", "llama4-pythonic", "lfm2", "lfm25"])
@pytest.mark.parametrize(
    "damaged_text",
    [
        "write(path='a.txt', content='hello')search(query='tea', limit=3)",
        "write(path='a.txt', content='hello')And so on, search(query='tea', limit=3)",
        "write(path='a.txt'content='hello')",
        "write(path='a.txt' and content, content='hello')",
        "write(path='a', content='[write(path='b', content='hello'), search(query='tea')]'), search(query='tea')",
    ],
)
def test_no_string_with_its_own_quotes_swallows_an_argument(name: str, damaged_text: str):
    dialect = get_dialect(name)
    start, _, end = calls_text(dialect, ToolCall("a", "now", {})).partition("now()")
    assert not [each for each in read(dialect, start + damaged_text + end) if isinstance(each, tuple)]


@pytest.mark.parametrize("name", ["pythonic", "lfm2", "lfm25"])
@pytest.mark.parametrize("value", ["sed -n '1,5p' x", "print('a')", "say 'when' x=1", "grep --include='*.py' x"])
def test_a_string_may_hold_its_own_quotes(name: str, value: str):
    dialect = get_dialect(name)
    start, _, end = calls_text(dialect, ToolCall("a", "now", {})).partition("now()")
    expected = [("write", {"path": "a", "content": value}), BOTH[1]]
    assert read(dialect, f"{start}write(path='a', content='{value}'), search(query='tea'){end}") == expected


@pytest.mark.parametrize("name", ["hy-v3", "k2-horizon", "kimi-k3"])
def test_in_a_block_of_pairs_what_cannot_be_read_fails_alone(name: str):
    dialect = get_dialect(name)
    reply = calls_text(dialect, WRITE, SEARCH)
    end = call_end(dialect)
    first, second = reply.index(end) + len(end), reply.rindex(end) + len(end)
    for sign in ('key="path"', "<arg_key>path", "<ifm|arg_key>path"):
        damaged_text = reply.replace(sign, sign.replace("key", "kei", 1), 1)
        if damaged_text != reply:
            assert read(dialect, damaged_text) == ["invalid_call", BOTH[1]]
    prose = f"{reply[:first]} And then: {reply[first:second]} Done. {reply[second:]}"
    assert read(dialect, prose) == BOTH
    assert "And then:" in read_turn(dialect, prose, TOOLS).aside
    # A call in a value whose tags cannot be read counts as part of that value.
    example = calls_text(dialect, ToolCall("b", "now", {}))
    reply_with_call = reply.replace("<arg_value>@@", f"<arg>{example}").replace("<|sep|>@@", f"<|{example}")
    reply_with_call = reply_with_call.replace("<ifm|arg_value>@@", f"<ifm|arg>{example}")
    assert reply_with_call != reply
    assert ("now", {}) not in read(dialect, reply_with_call)


def test_an_element_that_is_named_as_a_call_begins_is_an_argument_however_the_reply_is_cut():
    dialect, tag = get_dialect("minimax-m3"), ']<]minimax[>[<invoke name="now">'
    calls = f"{tag}{tag}{' ' * 280}{tag}]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"
    assert read(dialect, f"]<]minimax[>[<tool_call>\n{calls}") == ["unclosed"]


def test_a_call_in_what_may_be_a_value_whose_tag_cannot_be_read_never_runs():
    """After an argument too: that may be a part of the value as well."""
    broken_call = '<invoke name="write">\n<parameter name="path"a.txt\n<parameter name="content">x</parameter>\n'
    reply = f'<minimax:tool_call>\n{broken_call}<invoke name="now">\n</invoke>\n</invoke>\n</minimax:tool_call>'
    assert read(get_dialect("minimax-m2"), reply) == ["invalid_xml"]
