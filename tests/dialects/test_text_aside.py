"""Text after calls: part of the answer, or set aside where the dialect's engines show none there."""

from __future__ import annotations

import pytest
from dialect_strategies import TOOLS

from toolspeak.data.deltas import CallCompleted, TextAside, TextDelta
from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.dialects import DIALECTS, AutoDialect, Dialect, get_dialect, read_turn
from toolspeak.testing import check_splits

ASIDE = [dialect for dialect in DIALECTS if dialect.info.text_aside]
each_aside = pytest.mark.parametrize("dialect", ASIDE, ids=[dialect.name for dialect in ASIDE])


def call_text(dialect: Dialect, file: str) -> str:
    call = ToolCall("callid000", "read", {"file": file})
    return dialect.render([Message("assistant", (call,))], TOOLS)[0].text


@each_aside
def test_text_after_calls_is_set_aside_and_reported(dialect: Dialect):
    text = f"I look.\n{call_text(dialect, 'a')} Then {call_text(dialect, 'b')} Done `x`."
    turn = read_turn(dialect, text, TOOLS)
    assert turn.text.strip() == "I look."
    assert turn.aside.split() == ["Then", "Done", "`x`."]
    assert [call.arguments for call in turn.calls if isinstance(call, ToolCall)] == [{"file": "a"}, {"file": "b"}]
    assert turn.message.text == "I look."
    check_splits(dialect, text, TOOLS, "stop")


@each_aside
def test_every_reader_of_the_dialect_agrees(dialect: Dialect):
    text = f"{call_text(dialect, 'a')} Done."
    for reader in (dialect, AutoDialect(dialect)):
        assert (read_turn(reader, text, TOOLS).text.strip(), read_turn(reader, text, TOOLS).aside.strip()) == (
            "",
            "Done.",
        )


@each_aside
def test_text_after_what_is_no_call_stays_text(dialect: Dialect):
    assert read_turn(dialect, "One. Two.", TOOLS).text == "One. Two."
    mention = call_text(dialect, "a").split("\n")[0]
    assert read_turn(dialect, f"As in `{mention}`: so.", TOOLS).text == f"As in `{mention}`: so."


def test_it_leaves_as_it_comes():
    dialect = get_dialect("longcat")
    parser = dialect.parser(TOOLS)
    deltas = [delta for piece in (call_text(dialect, "a"), " Then", " more") for delta in parser.feed(piece)]
    at = next(i for i, delta in enumerate(deltas) if isinstance(delta, CallCompleted))
    assert deltas[at + 1 :] == [TextAside(" Then"), TextAside(" more")]
    assert not any(isinstance(delta, TextDelta) for delta in deltas)


def test_elsewhere_text_after_calls_is_part_of_the_answer():
    dialect = get_dialect("hermes")
    turn = read_turn(dialect, f"{call_text(dialect, 'a')}Done.", TOOLS)
    assert (turn.text, turn.aside) == ("Done.", "")


CODE = "```py\nprint(1)\n```"


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_the_fence_that_ends_a_code_block_of_the_text_is_text(dialect: Dialect):
    if dialect.name in ("harmony", "muse", "inkling", "functionary-v32"):
        return  # a turn of messages begins with its header
    for gap in ("\n", "", "\n\n"):
        if not gap and call_text(dialect, "a")[0].isalpha():
            continue  # after a fence it is the name of a language
        text = f"{CODE}{gap}{call_text(dialect, 'a')}"
        turn = read_turn(dialect, text, TOOLS)
        assert turn.text.strip() == CODE, text
        assert [call.arguments for call in turn.calls if isinstance(call, ToolCall)] == [{"file": "a"}]
        check_splits(dialect, text, TOOLS, "stop")
    if dialect.name == "plamo3":
        return  # its markers stand alone, so that in a fence they are an example
    text = f"{CODE}\n```xml\n{call_text(dialect, 'a')}\n```\n"
    turn = read_turn(dialect, text, TOOLS)
    assert turn.text.split() == CODE.split()
    assert [call.arguments for call in turn.calls if isinstance(call, ToolCall)] == [{"file": "a"}]
    turn_with_end = read_turn(dialect, f"{text}end", TOOLS)
    assert (turn_with_end.text, turn_with_end.calls) == (f"{text}end", ())


ECHOES = {
    "lfm2": ('<|tool_call_start|>[write(file="a", content="{}")]<|tool_call_end|>', "<|tool_call_start|>"),
    "hermes": (
        '<tool_call>\n{"name": "write", "arguments": {"file": "a", "content": "{}"}}\n</tool_call>',
        "<tool_call>\n",
    ),
    "glm45": (
        "<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>",
        "<tool_call>",
    ),
}


@pytest.mark.parametrize("name", ECHOES)
@pytest.mark.parametrize("size", [1, 300])
def test_an_echo_of_the_calls_after_their_end_is_set_aside(name: str, size: int):
    """LFM2 writes its calls again after their end marker, which then ends them a second time."""
    dialect, (form, start) = get_dialect(name), ECHOES[name]
    calls = form.replace("{}", "x" * size)
    echo = calls.removeprefix(start)
    for gap, after in (("", ""), ("\n", " Done.")):
        reply = f"{calls}{gap}{echo}{after}"
        check_splits(dialect, reply, TOOLS, splits=[list(reply), [reply[i : i + 7] for i in range(0, len(reply), 7)]])
        turn = read_turn(dialect, reply, TOOLS)
        assert (len(turn.calls), turn.text, turn.aside) == (1, after, f"{gap}{echo}")


@pytest.mark.parametrize("name", ECHOES)
def test_what_only_begins_like_an_echo_is_text(name: str):
    dialect, (form, start) = get_dialect(name), ECHOES[name]
    calls = form.replace("{}", "x")
    for after in (calls.removeprefix(start)[:-3], f"\n {calls.removeprefix(start)[:9]} and so on", " ", f"{calls}\n"):
        reply = f"{calls}{after}"
        check_splits(dialect, reply, TOOLS)
        turn = read_turn(dialect, reply, TOOLS)
        again = after.startswith(start)
        if name == "glm45" and after.startswith("write\n<arg_key>"):
            # A call without its beginning never runs, and is reported.
            assert [type(call) for call in turn.calls] == [ToolCall, MalformedCall]
            assert (turn.text, turn.aside) == ("write\n", "")
            continue
        assert (len(turn.calls), turn.text, turn.aside) == (1 + again, "\n" if again else after, "")


def test_what_is_a_call_by_itself_is_no_echo():
    block = "<tool_call>\n<function=read>\n<parameter=file>\na\n</parameter>\n</function>\n</tool_call>"
    turn = read_turn(get_dialect("qwen3-coder"), block + block.removeprefix("<tool_call>"), TOOLS)
    assert [call.arguments for call in turn.calls if isinstance(call, ToolCall)] == [{"file": "a"}] * 2
