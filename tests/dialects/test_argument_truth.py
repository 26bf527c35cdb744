"""No argument is silently lost or changed, where calls are elements, pairs or Gemma's notation."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak.data.deltas import BatchEnded, CallCompleted, CallIgnored, CallMalformed, Delta
from toolspeak.data.messages import ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect
from toolspeak.dialects.parser.parsed_turn import read_turn
from toolspeak.testing import check_splits, chunks, every_split, join_deltas, parse_pieces

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
M = "]<]minimax[>["


def tool(name: str, **properties: Any) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object", "properties": properties})


RUN = tool("run", command=TEXT, timeout=INTEGER)
F = tool("f", a=TEXT, b=TEXT, n=INTEGER, tags={"type": "array", "items": TEXT}, opts={"type": "object"})
PING = tool("ping")
VIEW = tool("view", what={"type": "array", "enum": ["view", "create"]})
TOOLS = (RUN, F, PING, VIEW)


def reading(name: str, text: str) -> list[Delta]:
    dialect = get_dialect(name)
    splits = list(every_split(text)) if len(text) < 300 else []
    check_splits(dialect, text, TOOLS, "stop", splits=[tuple(chunks(text, 1)), tuple(chunks(text, 4)), *splits])
    return join_deltas(parse_pieces(dialect, [text], TOOLS))


def arguments_of(name: str, text: str) -> Any:
    """The arguments of the only call, which is to run; else what is wrong with it."""
    deltas = reading(name, text)
    batch_end = next(delta for delta in deltas if isinstance(delta, BatchEnded))
    (call,) = (delta for delta in deltas if isinstance(delta, CallCompleted | CallMalformed))
    if isinstance(call, CallMalformed):
        assert batch_end.selected == ()
        return call.code
    assert batch_end.selected == (0,)
    return call.arguments


def call_text(name: str, inner: dict[str, str]) -> str:
    """The call of `view` or `f` with these texts as values."""
    tool_name = "view" if "what" in inner else "f"
    match name:
        case "cogency-xml":
            return (
                f"<execute><{tool_name}>{''.join(f'<{k}>{v}</{k}>' for k, v in inner.items())}</{tool_name}></execute>"
            )
        case "qwen3-coder":
            values = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in inner.items())
            return f"<tool_call>\n<function={tool_name}>\n{values}</function>\n</tool_call>"
        case "minimax-m2":
            values = "".join(f'<parameter name="{k}">{v}</parameter>\n' for k, v in inner.items())
            return f'<minimax:tool_call>\n<invoke name="{tool_name}">\n{values}</invoke>\n</minimax:tool_call>'
        case "minimax-m3":
            values = "".join(f"{M}<{k}>{v}{M}</{k}>" for k, v in inner.items())
            return f'{M}<tool_call>\n{M}<invoke name="{tool_name}">{values}{M}</invoke>\n{M}</tool_call>'
        case "gemma4":
            return f"<|tool_call>call:{tool_name}{{{','.join(f'{k}:{v}' for k, v in inner.items())}}}<tool_call|>"
        case _:
            values = "".join(f"<arg_key>{k}</arg_key><arg_value>{v}</arg_value>" for k, v in inner.items())
            return f"<tool_call>{tool_name}{values}</tool_call>"


NAMES = ("cogency-xml", "qwen3-coder", "minimax-m2", "minimax-m3", "glm47", "gemma4")


@pytest.mark.parametrize("name", NAMES)
def test_an_array_whose_schema_lists_its_elements_is_an_array(name: str) -> None:
    value_text = '[<|"|>view<|"|>]' if name == "gemma4" else '["view"]'
    assert arguments_of(name, call_text(name, {"what": value_text})) == {"what": ["view"]}


@pytest.mark.parametrize("name", ["qwen3-coder", "minimax-m2", "minimax-m3", "glm47", "gemma4"])
@pytest.mark.parametrize(
    ("value_text", "expected"), [("007", 7), ("+007", 7), ("-07", -7), ("00", 0), ("0x10", "0x10")]
)
def test_zeros_before_an_integer_are_none_of_it(name: str, value_text: str, expected: object) -> None:
    assert arguments_of(name, call_text(name, {"n": value_text})) == {"n": expected}


def test_zeros_before_a_text_stay() -> None:
    for name in NAMES:
        assert arguments_of(name, call_text(name, {"a": "007"})) == {"a": "007"}


def test_an_empty_element_is_the_empty_array_or_object_of_its_schema() -> None:
    assert arguments_of("minimax-m3", call_text("minimax-m3", {"tags": "", "opts": "\n", "a": ""})) == {
        "tags": [],
        "opts": {},
        "a": "",
    }


@pytest.mark.parametrize(
    "element",
    [
        '<run timeout="5"><command>ls</command></run>',
        '<run><command timeout="5">ls</command></run>',
        '<run command="ls"/>',
        "<run Command='x' command='ls'></run>",
    ],
)
def test_an_argument_in_an_attribute_is_not_dropped(element: str) -> None:
    assert arguments_of("cogency-xml", f"<execute>{element}</execute>") == "no_arguments"


def test_other_attributes_are_let_pass_as_before() -> None:
    assert arguments_of("cogency-xml", '<execute><run id="7"><command lang="sh">ls</command></run></execute>') == {
        "command": "ls"
    }


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_name_in_quotes_is_the_name(quote: str) -> None:
    tags = f"<function={quote}run{quote}>\n<parameter={quote}command{quote}>"
    text = f"<tool_call>\n{tags}\nls\n</parameter>\n</function>\n</tool_call>"
    (call,) = read_turn(get_dialect("qwen3-coder"), text, TOOLS).calls
    assert isinstance(call, ToolCall)
    assert (call.name, arguments_of("qwen3-coder", text)) == ("run", {"command": "ls"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "qwen3-coder",
            (
                "<tool_call>\n<function=run>\n<parameter=command>\n"
                'echo "</parameter>\n</function>" > a\n</parameter>\n</function>\n</tool_call>'
            ),
        ),
        (
            "minimax-m2",
            (
                '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n'
                "y</parameter>\n</invoke>\n</minimax:tool_call>"
            ),
        ),
        (
            "minimax-m2",
            (
                '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</parameter></invoke></parameter>\n'
                "</invoke>\n</minimax:tool_call>"
            ),
        ),
    ],
)
def test_a_call_that_a_tag_in_its_value_cut_does_not_run(name: str, text: str) -> None:
    deltas = reading(name, text)
    assert [delta.index for delta in deltas if isinstance(delta, CallIgnored)] == [0]
    assert [delta.selected for delta in deltas if isinstance(delta, BatchEnded)] == [()]
    assert any(isinstance(delta, CallMalformed) for delta in deltas)


def test_only_the_call_before_the_stray_tag_is_in_doubt() -> None:
    text = (
        '<minimax:tool_call>\n<invoke name="ping">\n</invoke>\n<invoke name="f">\n<parameter name="a">x</parameter>\n'
        '</invoke>\ny</parameter>\n</invoke>\n<invoke name="ping"></invoke></minimax:tool_call>'
    )
    assert next(delta.selected for delta in reading("minimax-m2", text) if isinstance(delta, BatchEnded)) == (0, 3)


Q = '<|"|>'


@pytest.mark.parametrize(
    ("value_text", "expected"),
    [
        ("tags:['x','y']", {"tags": ["x", "y"]}),
        ("a:'x'", {"a": "x"}),
        ("a:'it's',b:'x, y'", {"a": "it's", "b": "x, y"}),
        ("a:'x,b:y'", {"a": "x,b:y"}),
        ("a:''", {"a": ""}),
        ("a:'a < b <tool_cal'", {"a": "a < b <tool_cal"}),
        ("opts:{'mode': 'fast'}", {"opts": {"mode": "fast"}}),
        (f"a:{Q}say {Q}hi{Q} now{Q}", {"a": 'say "hi" now'}),
        (f"a:{Q}f({Q}{Q}{Q} S {Q}{Q}{Q}).df(){Q},tags:[{Q}d{Q}]", {"a": 'f(""" S """).df()', "tags": ["d"]}),
        # These have no certain meaning.
        (r"a:'it\'s'", "invalid_call"),
        (r"a:'C:\new'", "invalid_call"),
        ("a:'x', y', b:1", "invalid_call"),
        ("a:'x", "invalid_call"),
        ("tags:['x]", "invalid_call"),
    ],
)
def test_gemmas_strings_in_other_quotes(value_text: str, expected: object) -> None:
    assert arguments_of("gemma4", f"<|tool_call>call:f{{{value_text}}}<tool_call|>") == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        # Another argument whose start tag was lost, or cannot be read, stands in the value; or its end tag does twice.
        (
            "qwen3-coder",
            "<function=run>\n<parameter=command>\nls\n</parameter>\n\n30\n</parameter>\n</function>",
            "unclosed",
        ),
        (
            "minicpm5",
            '<function name="run"><param name="command">ls</param><paam name="timeout">1</param></function>',
            "unclosed",
        ),
        ("minimax-m2", '<invoke name="run"><parameter name="command">ls</parameter></parameter></invoke>', "unclosed"),
        (
            "glm47",
            "<tool_call>run<arg_key>command</arg_key><arg_value>ls</arg_value></arg_value></tool_call>",
            "invalid_value",
        ),
        (
            "glm47",
            "<tool_call>run<arg_key>command</arg_key><arg_value>a</arg_value>b</arg_value></tool_call>",
            "invalid_value",
        ),
        # A tag in a line, and an element of that name, are text.
        (
            "minimax-m2",
            '<invoke name="run"><parameter name="command">a</parameter>b</parameter></invoke>',
            {"command": "a</parameter>b"},
        ),
        (
            "minimax-m2",
            '<invoke name="run"><parameter name="command"><parameter>\n</parameter></parameter></invoke>',
            {"command": "<parameter>\n</parameter>"},
        ),
    ],
)
def test_a_value_that_may_be_two_does_not_run(name: str, text: str, expected: object) -> None:
    assert arguments_of(name, text) == expected


def test_a_call_that_only_begins_does_not_run() -> None:
    text = '<minimax:tool_call>\n<invoke name="f"><invoke name="run">\n<parameter name="command">ls</parameter>\n'
    deltas = reading("minimax-m2", f"{text}</invoke>\n</minimax:tool_call>")
    assert next(delta.selected for delta in deltas if isinstance(delta, BatchEnded)) == (1,)
