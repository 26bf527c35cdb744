"""An attempted call that cannot be read is reported, in every dialect; prose about the format stays text."""

from __future__ import annotations

from typing import cast

import pytest

from sweeps import parts
from toolspeak import Agent, tool
from toolspeak.data.deltas import CallMalformed
from toolspeak.data.messages import MalformedCall, Message, TextMessage, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect, get_dialect, read_turn
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.text.block_delimiters import Signature
from toolspeak.dialects.text.markers import Marker
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import check_splits, chunks, parse_pieces

READ = ToolSpec("read", "", {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]})
TOOLS = [READ]


def call_markers(dialect: Dialect) -> list[Marker]:
    """The markers of calls that have an end of their own."""
    parser = dialect.parser(TOOLS)
    markers = parser.format.table.markers if isinstance(parser, BlockParser) else ()
    return [
        marker
        for marker in markers
        if marker.kind == "calls" and marker.end and not isinstance(marker.opening, Signature)
    ]


ENVELOPES = [
    pytest.param(get_dialect(name), marker, id=f"{each.name}-{marker.text}" + ("-auto" if name == "auto" else ""))
    for each in DIALECTS
    if each.name != "muse"  # its messages begin with headers
    for marker in call_markers(each)
    if marker.text[0].isascii() and not marker.text[0].isalpha() and marker.end != "```"
    for name in (each.name, "auto")
    if name != "auto" or marker is call_markers(each)[0]
]


def opening_of(marker: Marker) -> str:
    """The marker, or the whole tag that it begins."""
    rest = {"=": "read>", "[": "", ">": "", "]": ""}
    return marker.text + rest.get(marker.text[-1], ' name="read">')


BODIES = [
    "\nread a.txt\n",
    "I will read the file now.",
    'read(file="a")',
    "\nname: read\nargs:\n  file: a\n",
    '"read"',
    "",
    "\n",
    '// read it\n[{"name": "read", "args": {"file": "a"}}]',
    'functools{"name": "read", "arguments": {"file": "a"}}',
    "\nread a.txt" + " and another" * 100 + "\n",
]


@pytest.mark.parametrize(("dialect", "marker"), ENVELOPES)
def test_what_stands_between_the_markers_is_a_call_or_reported(dialect: Dialect, marker: Marker):
    for body in BODIES:
        for lead in ("", "I'll read it.\n", "I'll read it. "):
            turn = read_turn(dialect, f"{lead}{opening_of(marker)}{body}{marker.end}\n", TOOLS)
            assert turn.calls, (lead, body)
            assert turn.text.strip() == lead.strip(), (lead, body)


@pytest.mark.parametrize(("dialect", "marker"), ENVELOPES)
@parts(5)
def test_what_is_reported_is_reported_however_it_is_cut(dialect: Dialect, marker: Marker, part: int):
    for body in BODIES[part::5]:
        for text in (f"So.\n{opening_of(marker)}{body}{marker.end}\nDone.", f"{marker.text}{body}"):
            check_splits(dialect, text, TOOLS, splits=[list(text), list(chunks(text, 7))])


PROSE = [
    "The {0} element and the {1} tag stand around calls.",
    "{0} opens a block, and {1} closes it.",
    "{0} is the start marker.",
    "Calls stand between {0} and {1}.",
    "Write `{0}read a.txt{1}` for that.",
    'Write "{0}read a.txt{1}" for that.',
    "- {0} what to do {1}\n- no more",
    "So you write:\n```\n{0}\nread a.txt\n{1}\n```\nand that is all.",
    "The end tag is {1}",
    "The end tag is `{1}`.",
    "The end tag is ({1})",
]


@pytest.mark.parametrize(("dialect", "marker"), ENVELOPES)
def test_prose_about_the_format_stays_text(dialect: Dialect, marker: Marker):
    if marker.text[-1] not in ">]" or dialect.name == "plamo3" or marker.text.startswith("<|plamo"):
        return  # the beginning of a tag; a token that no text holds
    noise = {each.text for each in dialect.parser(TOOLS).format.table.markers if each.kind == "noise"}  # type: ignore[attr-defined]
    for prose in PROSE:
        if ("{1}" in prose and noise & {marker.end}) or (marker.spare and "`" not in prose):
            continue  # a special token, which no text holds but in code
        text = prose.format(marker.text, marker.end)
        turn = read_turn(dialect, text, TOOLS)
        assert (turn.calls, turn.text) == ((), text)
        check_splits(dialect, text, TOOLS, splits=[list(text)])


ALONE = {
    "minimax-m2": "read the file</parameter>\n</invoke>\n</minimax:tool_call>",
    "minimax-m3": "a.txt]<]minimax[>[</file>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    "hermes": '{"file": "a"}}\n</tool_call>\n',
    "qwen3-coder": "a.txt\n</parameter>\n</function>\n</tool_call>",
    "glm45": "a.txt</arg_value>\n</tool_call>",
    "cogency-xml": "<read><file>a</file></read></execute>",
    "tool-call": "read a.txt</tool_call>",
    "auto": "a.txt</parameter></invoke></minimax:tool_call>",
    "kimi-k2": '{"file": "a"}<|tool_call_end|>',
}


@pytest.mark.parametrize("name", ALONE)
def test_end_tags_alone_are_reported(name: str):
    dialect = get_dialect(name)
    for lead in ("", "I'll read it.\n"):
        turn = read_turn(dialect, lead + ALONE[name], TOOLS)
        (call,) = turn.calls
        assert isinstance(call, MalformedCall)
        assert call.code == "no_start", call
        assert call.reason.endswith(read_form(name))
        check_splits(dialect, lead + ALONE[name], TOOLS)


def read_form(name: str) -> str:
    """What the model is shown: a call as its dialect writes it."""
    return {"cogency-xml": "</execute>", "minimax-m2": "</minimax:tool_call>", "auto": ""}.get(name, "")


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("cogency-json", "<execute>", "unreadable"),
        ("cogency-json", "<execute>\nread a.txt\n", "unreadable"),
        ("cogency-json", '<execute>read(file="a")', "unreadable"),
        ("cogency-json", "<execute> read a.txt", "unreadable"),
        ("tool-call", "I'll read it.\n<tool_call>\nread a.txt and then", "unreadable"),
        ("tool-call", "<tool_call>\n" + "read a.txt " * 100, "unreadable"),
        ("llama3-json", "<|python_tag|>\nread a.txt", "unreadable"),
    ],
)
def test_an_attempt_without_its_end_is_reported(name: str, text: str, code: str):
    dialect = get_dialect(name)
    check_splits(dialect, text, TOOLS)
    (call,) = read_turn(dialect, text, TOOLS).calls
    assert isinstance(call, MalformedCall)
    assert call.code == code
    (cut,) = read_turn(dialect, text, TOOLS, finish="length").calls
    assert isinstance(cut, MalformedCall)


@pytest.mark.parametrize(("dialect", "marker"), ENVELOPES)
def test_no_call_in_an_attempt_runs_when_the_token_limit_cuts_off_the_end_of_the_attempt(
    dialect: Dialect, marker: Marker
):
    call = dialect.render([Message("assistant", (ToolCall("callid000", "read", {"file": "a"}),))], TOOLS)[0].text
    for body in {call, *(call.removeprefix(each.text) for each in call_markers(dialect))}:
        text = f"{opening_of(marker)}-{body}{marker.end}"
        whole = [each for each in read_turn(dialect, text, TOOLS).calls if isinstance(each, ToolCall)]
        for stop in range(len(text) - len(marker.end or "") - 9, len(text)):
            cut = read_turn(dialect, text[:stop], TOOLS, finish="length").calls
            assert [each for each in cut if isinstance(each, ToolCall) and each not in whole] == [], text[:stop]


@pytest.mark.parametrize("text", ["<tool_call> is how", "- <tool_call> is", "<tool_call> - the marker, then `read("])
def test_what_only_mentions_the_marker_stays_text_when_it_is_cut(text: str):
    turn = read_turn(get_dialect("hermes"), text, TOOLS, finish="length")
    assert (turn.text, turn.calls) == (text, ())


def test_text_is_not_held_back_longer_than_a_candidate():
    parser = get_dialect("hermes").parser(TOOLS)
    text = "<tool_call> is a marker of ours" + ", and one of many" * 40
    text_out = "".join(getattr(delta, "text", "") for delta in parser.feed(text))
    assert len(text) - len(text_out) < 256


def told_last(provider: ScriptedProvider) -> str:
    return cast("TextMessage", provider.requests[1].messages[-1]).text


@tool(read_only=True)
def look(file: str) -> str:
    """Reads a file."""
    return file


@pytest.mark.parametrize("name", ["cogency-json", "cogency-xml", "tool-call", "auto", "hermes", "glm45"])
def test_a_run_continues_after_an_attempt_and_the_model_is_shown_the_form(name: str):
    start = "tool_call" if name in ("tool-call", "hermes", "glm45") else "execute"
    for body in BODIES:
        provider = ScriptedProvider([f"<{start}>{body}</{start}>", "x"])
        result = Agent(provider, [look], dialect=name).run_sync("go")
        assert (result.status, result.answer) == ("answered", "x"), body
        feedback = told_last(provider)
        assert "look" in feedback or "read" in feedback, body


def test_an_attempt_has_the_place_and_the_text_of_its_block():
    deltas = parse_pieces(get_dialect("hermes"), ["Now.\n<tool_call>\nread a.txt\n</tool_call>"], TOOLS)
    (malformed_call,) = [delta for delta in deltas if isinstance(delta, CallMalformed)]
    assert (malformed_call.raw, malformed_call.offset, malformed_call.whole_block) == ("\nread a.txt\n", 5, True)
