"""Text behind calls: part of the answer, or set aside where the dialect's engines show none there."""

from __future__ import annotations

import pytest
from dialect_strategies import TOOLS

from toolspeak.data.deltas import CallCompleted, TextAside, TextDelta
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import DIALECTS, AutoDialect, Dialect, get_dialect, read_turn
from toolspeak.testing import check_splits

ASIDE = [dialect for dialect in DIALECTS if dialect.info.text_aside]
each_aside = pytest.mark.parametrize("dialect", ASIDE, ids=[dialect.name for dialect in ASIDE])


def written(dialect: Dialect, file: str) -> str:
    call = ToolCall("callid000", "read", {"file": file})
    return dialect.render([Message("assistant", (call,))], TOOLS)[0].text


@each_aside
def test_text_behind_calls_is_set_aside_and_reported(dialect: Dialect):
    text = f"I look.\n{written(dialect, 'a')} Then {written(dialect, 'b')} Done `x`."
    turn = read_turn(dialect, text, TOOLS)
    assert turn.text.strip() == "I look."
    assert turn.aside.split() == ["Then", "Done", "`x`."]
    assert [call.arguments for call in turn.calls if isinstance(call, ToolCall)] == [{"file": "a"}, {"file": "b"}]
    assert turn.message.text == "I look."
    check_splits(dialect, text, TOOLS, "stop")


@each_aside
def test_it_is_so_whoever_reads_the_dialect(dialect: Dialect):
    text = f"{written(dialect, 'a')} Done."
    for reader in (dialect, AutoDialect(dialect)):
        assert (read_turn(reader, text, TOOLS).text.strip(), read_turn(reader, text, TOOLS).aside.strip()) == (
            "",
            "Done.",
        )


@each_aside
def test_text_behind_what_is_no_call_stays_text(dialect: Dialect):
    assert read_turn(dialect, "One. Two.", TOOLS).text == "One. Two."
    mention = written(dialect, "a").split("\n")[0]
    assert read_turn(dialect, f"As in `{mention}`: so.", TOOLS).text == f"As in `{mention}`: so."


def test_it_leaves_as_it_comes():
    dialect = get_dialect("longcat")
    parser = dialect.parser(TOOLS)
    deltas = [delta for piece in (written(dialect, "a"), " Then", " more") for delta in parser.feed(piece)]
    at = next(i for i, delta in enumerate(deltas) if isinstance(delta, CallCompleted))
    assert deltas[at + 1 :] == [TextAside(" Then"), TextAside(" more")]
    assert not any(isinstance(delta, TextDelta) for delta in deltas)


def test_elsewhere_text_behind_calls_is_part_of_the_answer():
    dialect = get_dialect("hermes")
    turn = read_turn(dialect, f"{written(dialect, 'a')}Done.", TOOLS)
    assert (turn.text, turn.aside) == ("Done.", "")


CODE = "```py\nprint(1)\n```"


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_the_fence_that_ends_a_code_block_of_the_text_is_text(dialect: Dialect):
    if dialect.name in ("harmony", "muse", "inkling", "functionary-v32"):
        return  # a turn of messages begins with its header
    for gap in ("\n", "", "\n\n"):
        if not gap and written(dialect, "a")[0].isalpha():
            continue  # behind a fence it is the name of a language
        text = f"{CODE}{gap}{written(dialect, 'a')}"
        turn = read_turn(dialect, text, TOOLS)
        assert turn.text.strip() == CODE, text
        assert [call.arguments for call in turn.calls if isinstance(call, ToolCall)] == [{"file": "a"}]
        check_splits(dialect, text, TOOLS, "stop")
    if dialect.name == "plamo3":
        return  # its markers stand alone, so that in a fence they are an example
    fenced = read_turn(dialect, f"{CODE}\n```xml\n{written(dialect, 'a')}\n```\nend", TOOLS)
    assert (fenced.text + fenced.aside).split() == [*CODE.split(), "end"]
