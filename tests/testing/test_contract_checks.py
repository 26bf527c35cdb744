"""`check_dialect` finds what is wrong with a dialect that breaks one promise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from toolspeak.data.deltas import CallCompleted, TextDelta
from toolspeak.data.messages import TextPart, ToolCall
from toolspeak.dialects import DialectInfo, get_dialect
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect
from toolspeak.dialects.declarations.json_dialect import json_dialect
from toolspeak.dialects.grammar.json_frames import named_call
from toolspeak.dialects.grammar.tool_choice import Frame
from toolspeak.dialects.prompts.rendering import dump_json, result_text
from toolspeak.dialects.readers.json_call import CallShape
from toolspeak.dialects.readers.named_calls import Header, NamedCalls, NamedShape
from toolspeak.dialects.text.block_delimiters import Follows, Starts
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.testing import check_dialect

HERMES: Any = get_dialect("hermes")


class BrokenDialect(DeclaredDialect):
    """Its parser is changed by `breaking`."""

    breaking: Callable[[Any], Any]

    def parser(self, tools=(), starts_in="text"):
        return self.breaking(super().parser(tools, starts_in))


def dialect_with(parser: type) -> DeclaredDialect:
    fields = {name: getattr(HERMES, name) for name in HERMES.__dataclass_fields__}
    dialect = type("Sample", (BrokenDialect,), {"breaking": staticmethod(parser), "__slots__": ()})
    return dialect(**fields)


class ParserWrapper:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def feed(self, chunk: str) -> Iterable[Any]:
        return self.inner.feed(chunk)

    def close(self, reason: Any) -> Iterable[Any]:
        return self.inner.close(reason)

    def keep_reasoning(self) -> None:
        self.inner.keep_reasoning()


class StripsChunks(ParserWrapper):
    def feed(self, chunk: str):
        return self.inner.feed(chunk.lstrip(" ") if len(chunk) > 1 else chunk)


class HoldsAll(ParserWrapper):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.text = ""

    def feed(self, chunk: str):
        self.text += chunk
        return []

    def close(self, reason: Any):
        return [*self.inner.feed(self.text), *self.inner.close(reason)]


class Raises(ParserWrapper):
    def feed(self, chunk: str):
        if "\0" in chunk:
            raise ValueError("a NUL")
        return self.inner.feed(chunk)


class Invents(ParserWrapper):
    """Completes what the token limit cut."""

    def close(self, reason: Any):
        if reason == "length":
            for closing in ("}}\n</tool_call>", '"}}\n</tool_call>'):
                deltas = list(self.inner.feed(closing))
                if any(isinstance(delta, CallCompleted) for delta in deltas):
                    return [*deltas, *self.inner.close("stop")]
        return self.inner.close(reason)


class Revokes(ParserWrapper):
    """Says at the end of a text what it kept of its beginning."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.first: list[Any] = []

    def feed(self, chunk: str):
        deltas = list(self.inner.feed(chunk))
        texts = [delta for delta in deltas if isinstance(delta, TextDelta)]
        self.first += texts[:1] if not self.first else []
        return [delta for delta in deltas if delta not in self.first]

    def close(self, reason: Any):
        return [*self.first, *self.inner.close(reason)]


@pytest.mark.parametrize("parser", [StripsChunks, HoldsAll, Raises, Invents, Revokes], ids=lambda kind: kind.__name__)
def test_a_parser_that_breaks_a_promise_is_found(parser: type):
    with pytest.raises((AssertionError, ValueError)):
        check_dialect(dialect_with(parser))


def write_stripped_calls(calls: Any, tools: Any) -> str:
    return HERMES.write_calls(
        [
            replace(call, arguments={k: v.strip() if isinstance(v, str) else v for k, v in call.arguments.items()})
            if isinstance(call, ToolCall)
            else call
            for call in calls
        ],
        tools,
    )


def write_plain_results(results: Any) -> str:
    texts = ["".join(part.text for part in result.content if isinstance(part, TextPart)) for result in results]
    return "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)


@pytest.mark.parametrize(
    "change",
    [
        {"write_calls": write_stripped_calls},
        {"write_results": write_plain_results},
        {"write_calls": lambda calls, tools: ""},
    ],
    ids=["strips values", "escapes nothing", "writes nothing"],
)
def test_a_renderer_that_breaks_a_promise_is_found(change: dict[str, Any]):
    with pytest.raises(AssertionError):
        check_dialect(replace(HERMES, **change))


# A dialect whose markers are not `<name>`, and every one of them in `live`.
LIVE = re.compile(r"⟦(?=/?(?:call|result|think)\b)")
CALL, END = "⟦call:", "⟦/call⟧"
SHAPE = NamedShape(lambda text: Header(text), "⟦call:name⟧{…}⟦/call⟧", separator="⟧", others=(END,))


def bracket_dialect(live: str = "call|result|think", result: str = "⟦result⟧{}⟦/result⟧", end: str = END, **info: str):
    """`end`: how the grammar has a call's end."""
    live_pattern = re.compile(rf"⟦(?=/?(?:{live})\b)")
    return DeclaredDialect(
        info=DialectInfo("lumen", "⟦call:name⟧{…}⟦/call⟧", "made up", "parallel", **{"reasoning": "⟦think⟧", **info}),
        table=MarkerTable(
            [
                Marker("calls", CALL, END, Follows(lambda rest: "{" in rest or (None if len(rest) < 40 else False))),
                Marker("results", "⟦result⟧", "⟦/result⟧", plain=True),
                Marker("reasoning", "⟦think⟧", "⟦/think⟧"),
            ]
        ),
        new_body=lambda _marker, first, caps, _tools: NamedCalls(SHAPE, first, caps),
        write_calls=lambda calls, _tools: "\n".join(
            f"{CALL}{call.name}⟧{dump_json(dict(call.arguments), LIVE)}{END}"
            for call in calls
            if isinstance(call, ToolCall)
        ),
        write_results=lambda results: "\n".join(
            result.replace("{}", result_text(each, live_pattern)) for each in results
        ),
        live=live_pattern,
        frame=Frame(
            call=named_call(LIVE, lambda name: f"{CALL}{name}⟧", end), joint="\n", triggers=lambda _tools: [CALL]
        ),
        rules="",
    )


def test_markers_of_any_look_keep_the_contract():
    check_dialect(bracket_dialect())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"live": "call|think"}, "a result can write '⟦result⟧'"),
        ({"live": "result|think"}, "a result can write '⟦call:'"),
        ({"live": "call|result"}, "a result can write '⟦think⟧'"),
        ({"result": "⟦result⟧⟦/result⟧"}, "is not shown"),
        ({"result": "<<out>>{}<</out>>"}, "a result can write '<<out>>'"),
        ({"end": "⟦/coll⟧"}, "its grammar"),
        ({"reasoning": "<think>"}, "reasoning is described as '<think>'"),
    ],
    ids=str,
)
def test_a_declaration_that_contradicts_itself_is_found(change: dict[str, str], problem: str):
    with pytest.raises(AssertionError, match=re.escape(problem)):
        check_dialect(bracket_dialect(**change))


def test_results_that_are_a_block_only_with_some_contents_are_named_as_such():
    markers = [
        Marker("calls", "<call>", None, Starts("{")),
        Marker("results", "RESULT:", None, Starts("{["), plain=True),
    ]
    dialect = json_dialect(
        DialectInfo("odd", "<call>{…}", "made up", "parallel"),
        markers,
        CallShape("arguments", array=False, arguments_required=False),
        around=("<call>", ""),
        write_result=lambda live, result: f"RESULT: {live.result_text(result)}",
    )
    with pytest.raises(AssertionError, match="read by what they hold"):
        check_dialect(dialect)


def test_the_sample_itself_keeps_the_contract():
    check_dialect(dialect_with(ParserWrapper))
