"""DeepSeek V3, R1 and V3.1: the name outside, the arguments as JSON, between special tokens with full-width bars.

V3 and R1 name the type of the call first and put the arguments in a code fence. V3.1 omits both. Models of either kind
sometimes write the other form, so one reader reads both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from toolspeak.data.messages import MalformedCall
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.declared_dialect import DeclaredDialect, ResultLayout, Tools
from toolspeak.dialects.declarations.named_layout import NamedLayout
from toolspeak.dialects.grammar.avoid import Pattern, texts
from toolspeak.dialects.prompts.rendering import malformed_text
from toolspeak.dialects.readers.body import Body
from toolspeak.dialects.readers.named_calls import Header, NamedCalls, NamedShape
from toolspeak.dialects.text.block_delimiters import Follows, Signature
from toolspeak.dialects.text.candidates import NAME, first_of, one_of
from toolspeak.dialects.text.markers import Marker, MarkerTable
from toolspeak.dialects.text.scan import Caps

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEP = "<｜tool▁sep｜>"
_OUTPUTS, _OUTPUTS_END = "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"
_OUTPUT, _OUTPUT_END = "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"
_SPELLINGS = [(bar, joint) for bar in "｜|" for joint in "▁ _"]
"""Bars and joints. Models that spell the tokens letter by letter, and servers that print them, use others."""
_LIVE = re.compile(r"<(?=[｜|]tool[▁ _]|\s*+(?:/\s*+)?(?ai:think))")
_SPACE = re.compile(r"\s*")


@quick()
class _Tokens:
    """The tokens of a call in one spelling."""

    calls: str
    calls_end: str
    call: str
    call_end: str
    sep: str
    header: re.Pattern[str]
    start: re.Pattern[str]
    start_pattern: re.Pattern[str]

    def read_header(self, text: str) -> Header | None:
        match = self.header.fullmatch(text)
        return Header(match["v3"] or match["v31"]) if match else None

    @property
    def usual(self) -> str:
        return rf"(?=\s*+{re.escape(self.call)}{self.start.pattern})"

    def call_follows(self, rest: str) -> bool | None:
        """Whether a call follows its token; None asks for more text.

        Step3 shares a spelling, with elements after it.
        """
        if self.start.match(rest):
            return True
        match = self.start_pattern.fullmatch(rest)
        return None if match and self.sep.startswith(match["sep"] or "") else False

    def calls_follow(self, rest: str) -> bool | None:
        rest = rest.lstrip()
        if rest.startswith(self.call):
            return self.call_follows(rest[len(self.call) :])
        return True if rest.startswith(self.calls_end) else self._coming(rest)

    def _coming(self, rest: str) -> bool | None:
        return None if self.call.startswith(rest) or self.calls_end.startswith(rest) else False


def _tokens(bar: str, joint: str) -> _Tokens:
    spellings = [each.replace("｜", bar).replace("▁", joint) for each in (_CALLS, _CALLS_END, _CALL, _CALL_END, _SEP)]
    sep = re.escape(spellings[-1])
    return _Tokens(
        *spellings,
        header=re.compile(rf"\s*(?:function{sep}\s*(?P<v3>{NAME})|(?P<v31>{NAME})\s*{sep})\s*"),
        start=re.compile(rf"\s*{NAME}\s*{sep}\s*+(?=[^\s<])"),
        start_pattern=re.compile(rf"\s*(?:{NAME}\s*)?(?:{sep}\s*+|(?P<sep><[^>]*))?"),
    )


_ALL_TOKENS = [_tokens(bar, joint) for bar, joint in _SPELLINGS]


def _shape(example: str, tokens: _Tokens, *, fenced: bool, single: bool = False, named: bool = False) -> NamedShape:
    read, ends = tokens.read_header, (tokens.call_end, tokens.call, tokens.calls_end)
    if single or named:  # the block's marker is the call's own, and the frame reads its end, if it has one
        return NamedShape(read, example, others=ends, fenced=fenced, unended=named)
    return NamedShape(read, example, tokens.call, "", tokens.call_end, (tokens.calls_end,), fenced=fenced)


def _new_body(example: str, fenced: bool):  # noqa: ANN202 - what `DeclaredDialect.new_body` takes
    shapes: dict[str, NamedShape] = {}
    for tokens in _ALL_TOKENS:
        shapes[tokens.calls] = _shape(example, tokens, fenced=fenced)
        shapes[tokens.call] = _shape(example, tokens, fenced=fenced, single=True)
        shapes[tokens.sep] = _shape(example, tokens, fenced=fenced, named=True)

    def new_body(marker: Marker, first_index: int, caps: Caps, tools: Tools) -> Body:
        return NamedCalls(shapes[marker.text], first_index, caps, tools)

    return new_body


def _bare(names: tuple[str, ...]) -> list[Marker]:
    """The markers of a call whose first tokens a server left out: the word `function`, or a tool's name."""
    markers: list[Marker] = []
    for tokens in _ALL_TOKENS:
        after = (tokens.sep, _SPACE, re.compile(r"[^\s<]"))
        live = ("<", re.escape(tokens.sep[1:]))
        starts = [Signature(("function", *after), 0, "f", live)]
        if names:
            starts.append(Signature((one_of(names), _SPACE, *after), 0, first_of(names), live, names))
        markers += [Marker("calls", tokens.sep, None, start, place="word") for start in starts]
    return markers


@lru_cache(64)
def _table(names: tuple[str, ...] = ()) -> MarkerTable:
    calls = [
        Marker("calls", each.calls, each.calls_end, Follows(each.calls_follow, each.usual)) for each in _ALL_TOKENS
    ]
    # Models sometimes forget the wrapper.
    calls += [Marker("calls", each.call, each.call_end, Follows(each.call_follows)) for each in _ALL_TOKENS]
    ends = [end for each in _ALL_TOKENS for end in (each.calls_end, each.call_end)]
    return MarkerTable(
        [
            Marker("reasoning", "<think>", "</think>"),
            *calls,
            *_bare(names),
            Marker("results", _OUTPUTS, _OUTPUTS_END, plain=True),
            Marker("results", _OUTPUT, _OUTPUT_END, plain=True),
            *(Marker("noise", text, None) for text in (*ends, _OUTPUTS_END, _OUTPUT_END)),
        ],
        specials=("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"),
    )


def _write_malformed(call: MalformedCall) -> str:
    return malformed_text(call, _CALL, _CALL_END)


def _avoid(_tools: Sequence[ToolSpec]) -> Sequence[Pattern]:
    """The separators. Each begins a call after a tool's name."""
    return texts(*(each.sep for each in _ALL_TOKENS))


_LAYOUT_V3 = NamedLayout(
    live=_LIVE,
    head=lambda name, _id: f"{_CALL}function{_SEP}{name}\n```json\n",
    tail=f"\n```{_CALL_END}",
    start=_CALLS,
    joint="\n",
    end=_CALLS_END,
    write_malformed=_write_malformed,
)
_LAYOUT_V31 = NamedLayout(
    live=_LIVE,
    head=lambda name, _id: f"{_CALL}{name}{_SEP}",
    tail=_CALL_END,
    start=_CALLS,
    end=_CALLS_END,
    write_malformed=_write_malformed,
)

_RULES = (
    "- Copy the markers letter by letter: the bars are full-width (｜) and the words are joined by ▁. One pair of\n"
    "  begin and end around all calls, one around each call."
)

DEEPSEEK_V3 = DeclaredDialect(
    info=DialectInfo(
        "deepseek-v3",
        f"{_CALL}function{_SEP}name, the arguments as fenced JSON, {_CALL_END}; all calls in one block",
        "chat templates of deepseek-ai/DeepSeek-V3-0324 and deepseek-ai/DeepSeek-R1",
        aliases=("deepseek-r1",),
        models=("deepseek-v3", "deepseek-r1"),
        arguments="fenced JSON",
        results=f"{_OUTPUT}…{_OUTPUT_END} inside {_OUTPUTS}…{_OUTPUTS_END}",
        stop=("<｜end▁of▁sentence｜>",),
    ),
    table=_table(),
    by_tools=_table,
    new_body=_new_body(f"{_CALL}function{_SEP}name\n```json\n{{…}}\n```{_CALL_END}", fenced=True),
    write_calls=_LAYOUT_V3.write_calls,
    results=ResultLayout(_OUTPUT, _OUTPUT_END, "\n", _OUTPUTS, _OUTPUTS_END),
    live=_LIVE,
    frame=_LAYOUT_V3.frame(avoid=_avoid),
    rules=f"{_RULES}\n- The arguments are one JSON object in a ```json fence.",
)

DEEPSEEK_V31 = DeclaredDialect(
    info=DialectInfo(
        "deepseek-v31",
        f"{_CALL}name{_SEP}{{…}}{_CALL_END}; all calls in one block",
        "chat template of deepseek-ai/DeepSeek-V3.1",
        aliases=("deepseek-v3.1",),
        models=("deepseek-v3.1", "deepseek-v3.2-exp"),
        results=f"{_OUTPUT}…{_OUTPUT_END}",
        stop=("<｜end▁of▁sentence｜>",),
    ),
    table=_table(),
    by_tools=_table,
    new_body=_new_body(f"{_CALL}name{_SEP}{{…}}{_CALL_END}", fenced=False),
    write_calls=_LAYOUT_V31.write_calls,
    results=ResultLayout(_OUTPUT, _OUTPUT_END, ""),
    live=_LIVE,
    frame=_LAYOUT_V31.frame(avoid=_avoid),
    rules=f"{_RULES}\n- The arguments are one JSON object, right after {_SEP}.",
)
