"""A marker of reasoning or results that a reply only mentions is text, in every dialect of blocks."""

from __future__ import annotations

import pytest

from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn, section_of_reply
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.text.markers import Marker
from toolspeak.testing import check_splits, chunks

READ = ToolSpec("read", "", {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]})
TOOLS = [READ]


def markers_of(dialect: Dialect, kind: str) -> list[Marker]:
    """The markers of this kind that are a tag."""
    parser = dialect.parser(TOOLS)
    markers = parser.format.table.markers if isinstance(parser, BlockParser) else ()
    return [
        each for each in markers if each.kind == kind and each.end and each.text[0] in "<[" and each.text[-1] in ">]"
    ]


def is_special(dialect: Dialect, text: str | None) -> bool:
    """Whether it is a special token, which is dropped wherever it stands."""
    parser = dialect.parser(TOOLS)
    assert isinstance(parser, BlockParser)
    return any(each.kind == "noise" and each.text == text for each in parser.format.table.markers)


def cases(kind: str) -> list[object]:
    own = [(dialect, marker) for dialect in DIALECTS for marker in markers_of(dialect, kind)]
    read_by = [(dialect, marker, dialect.name) for dialect, marker in own if dialect.name != "plamo3"]
    firsts = {marker.text: (get_dialect("auto"), marker, "auto") for _, marker in own}
    last = [firsts[text] for text in ("<think>", "<tool_response>") if text in firsts]
    return [pytest.param(dialect, each, id=f"{name} {each.text}") for dialect, each, name in [*read_by, *last]]


SPOKEN_OF = [
    "Write your plan in {0} tags, then answer.",
    "Write your plan between {0} and {1}, then answer.",
    "Write it in {0}.",
    "Tags ({0}, {1}) stand around it.",
    'It stands in "{0}" and "{1}".',
    'Write "{0}plan{1}", then answer.',
    "Write `{0}plan{1}`, then answer.",
    "Write ``{0}`` and `{1}`.",
    "Like this:\n```\n{0}\nplan\n{1}\n```\nThen answer.",
    "Like this:\n```xml\nx\n{0}\nplan\n```\nThen answer.",
    "Like this:\n~~~\n{0}\n[1]\n~~~\nThen answer.",
    "Like this:\n````\n```\n{0}\n{1}\n```\n````\nThen answer.",
    "- {0} begins it\n- {1} ends it\n",
    "- {0}\n- {1}\n",
    "1. {0}\n2. {1}\nThat is all.",
    "The tags:\n\n> {0}\n> plan\n> {1}\n\nThen answer.",
    "| tag | what |\n|---|---|\n| {0} | begins |\n| {1} | ends |\n",
    "So **{0}** begins and **{1}** ends.",
    "<pre>\n{0}\n{1}\n</pre>\nThen answer.",
    "It begins with <code>{0}</code> and ends with <code>{1}</code>.",
    "Тег «{0}» начинает, «{1}» кончает.",
    "In „{0}“ beginnt es.",
    "「{0}」で始まる。",
    "请在{0}标签里写，再回答。",
    "请在 {0} 里写，再回答。",
    "Sure.\n{0} opens it, and the rest follows.",
]


@pytest.mark.parametrize(("dialect", "marker"), [*cases("reasoning"), *cases("results")])
def test_a_marker_that_is_spoken_of_is_text(dialect: Dialect, marker: Marker):
    special = is_special(dialect, marker.end)
    for mention in SPOKEN_OF:
        if ("{1}" in mention and special) or (mention.startswith("Sure") and marker.kind == "results"):
            continue  # a special token, which no text holds; the beginning of results is unknown
        text = mention.format(marker.text, marker.end).replace("plan", "[1]")
        turn = read_turn(dialect, text, TOOLS)
        assert (turn.text, turn.reasoning, turn.calls) == (text, "", ())
        check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 5))])


REAL_MARKERS = [
    ("{0}I think.{1}Yes.", "I think.", "Yes."),
    ("{0} i think.{1}Yes.", " i think.", "Yes."),
    ("Well.\n{0}\nI think.\n{1}\nYes.", "\nI think.\n", "Well.\n\nYes."),
    ("Well. {0}I think.{1} Yes.", "I think.", "Well.  Yes."),
    ("Well {0}I think.{1} Yes.", "I think.", "Well  Yes."),
    ("```\nx\n```\n{0}I think.{1}Yes.", "I think.", "```\nx\n```\nYes."),
    ("{0}So `x` and ```y``` it is.{1}Yes.", "So `x` and ```y``` it is.", "Yes."),
    ("{0}They ask about {0} tags. OK.{1}Yes.", "They ask about {0} tags. OK.", "Yes."),
    ("{0}They ask about {0} and {1} tags.\n{1}Yes.", "They ask about {0} and {1} tags.\n", "Yes."),
    ("{0}They ask about `{0}` and `{1}`.\n{1}Yes.", "They ask about `{0}` and `{1}`.\n", "Yes."),
    ('{0}They ask: "what is {0}?".\n{1}Yes.', 'They ask: "what is {0}?".\n', "Yes."),
    ("{0}So:\n```\n{0}\nplan\n```\nGood.\n{1}Yes.", "So:\n```\n{0}\nplan\n```\nGood.\n", "Yes."),
    ("{0}So:\n```\n{0}\nplan\n{1}\n```\nGood.\n{1}Yes.", "So:\n```\n{0}\nplan\n{1}\n```\nGood.\n", "Yes."),
    ("{0}An unclosed `tick.{1}Yes.", "An unclosed `tick.", "Yes."),
    ("{0}An unclosed\n```\nfence.\n{1}Yes.", "An unclosed\n```\nfence.\n", "Yes."),
]


@pytest.mark.parametrize(("dialect", "marker"), cases("reasoning"))
def test_reasoning_that_is_meant_is_reasoning(dialect: Dialect, marker: Marker):
    for frame, thought, answer in REAL_MARKERS:
        if not marker.nested and frame.count("{0}") > 1:
            continue  # its own marker is text in it, which ends at its first end marker
        text, reasoning = (each.format(marker.text, marker.end) for each in (frame, thought))
        turn = read_turn(dialect, text, TOOLS)
        assert (turn.text, turn.reasoning, turn.calls) == (answer, reasoning, ()), text
        check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 5))])


@pytest.mark.parametrize(("dialect", "marker"), cases("results"))
def test_results_that_are_made_up_are_none_of_the_text(dialect: Dialect, marker: Marker):
    call = dialect.render([Message("assistant", (ToolCall("callid000", "read", {"file": "a"}),))], TOOLS)[0].text
    results_text = f"{marker.text}\n[1]\n{marker.end}"
    for lead in ("", "\n", "\nIt says ", "\nIt says: "):
        text = f"{call}{lead}{results_text}\nSo."
        turn = read_turn(dialect, text, TOOLS)
        assert "[1]" not in turn.text, lead
        check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 5))])


@pytest.mark.parametrize("name", ["hermes", "xlam", "granite4", "auto"])
def test_an_end_without_a_beginning_is_read_the_same_in_every_cut(name: str):
    text = 'I could read {"name": "read"} here.\n</think>\nThe answer.'
    dialect = get_dialect(name)
    check_splits(dialect, text, TOOLS)
    turn = read_turn(dialect, text, TOOLS)
    assert (turn.text, turn.reasoning) == ("\nThe answer.", 'I could read {"name": "read"} here.\n')
    assert section_of_reply(dialect, text, TOOLS) == "reasoning"


@pytest.mark.parametrize("name", ["hermes", "xlam", "granite4", "auto"])
def test_a_finished_reply_that_speaks_of_an_end_begins_in_text(name: str):
    for text in ("It ends with </think>.", '"</think>" ends it.', "1. </think>\n2. x", "```\n</think>\n```\nSo."):
        assert section_of_reply(get_dialect(name), text, TOOLS) == "text"
        assert read_turn(get_dialect(name), text, TOOLS).text == text
