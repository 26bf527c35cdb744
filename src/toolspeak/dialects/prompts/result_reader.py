"""Reads the results of a batch back from the text that a dialect wrote.

No dialect declares how. The reader lets the dialect write results of known content, which shows the text around them.
This needs the calls, because their names and ids may be in that text.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from toolspeak.data.messages import FAILURE_PREFIX, JsonPart, Message, ResultStatus, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.base import Dialect

_CONTENT = "QzQ{}QzQ"  # letters and digits, which no dialect escapes
_AWKWARD = "\ud800"  # no request can carry it, so a dialect with its own quotes writes such a text as JSON
_REFERENCE = re.compile(r"&((?:amp;)*)(lt|#\d{1,7});")


_Pair = tuple[ResultStatus | None, ResultStatus | None]
_STATUSES: tuple[ResultStatus, ResultStatus] = ("success", "failure")


@quick()
class _Layout:
    """The text around the results of a batch."""

    edges: tuple[dict[_Pair, str], ...]
    """The text before each result, and after the last one, by the statuses of the results beside it."""
    is_json: bool
    """Whether a result is JSON; otherwise it is text with its live markers escaped."""

    def start(self, i: int) -> str:
        """The beginning of an edge that all statuses share."""
        least, most = min(self.edges[i].values()), max(self.edges[i].values())
        return least[: next((at for at, char in enumerate(least) if most[at : at + 1] != char), len(least))]


def read_results(
    dialect: Dialect,
    text: str,
    calls: Sequence[ToolCall],
    tools: Sequence[ToolSpec] = (),
    *,
    tool_role: bool = False,
) -> tuple[list[ToolResult], str] | None:
    """The results of `calls` at the beginning of `text`, and the text after them; None if it does not hold them.

    In a dialect that writes nothing or only line breaks around results, the whole text is results.
    """
    if not calls:
        return None
    for suffix in ("", _AWKWARD):
        layout = _layout(dialect, calls, suffix, tools, tool_role)
        reading = _read(dialect, text, calls, layout) if layout else None
        if reading is not None:
            return reading
    return None


def begins_as_results(dialect: Dialect, text: str, calls: Sequence[ToolCall], tools: Sequence[ToolSpec] = ()) -> bool:
    """Whether `text` begins like the dialect's results of these calls, even if it cannot be divided into them."""
    layout = _layout(dialect, calls, "", tools, tool_role=False) if calls else None
    return layout is not None and text.lstrip().startswith(layout.start(0).strip())


def _read(
    dialect: Dialect, text: str, calls: Sequence[ToolCall], layout: _Layout
) -> tuple[list[ToolResult], str] | None:
    text, results = text.strip(), list[ToolResult]()
    status: list[ResultStatus | None] = [None]
    parts, position = list[TextPart | JsonPart](), 0
    for i, edge in enumerate(layout.edges):
        texts = {pair: _trim_edge(each, i, len(calls)) for pair, each in edge.items()}
        pairs = [pair for pair, each in texts.items() if pair[0] in status and text.startswith(each, position)]
        if not pairs:
            return None
        longest = max(len(texts[pair]) for pair in pairs)
        pairs = [pair for pair in pairs if len(texts[pair]) == longest]
        if i > 0:
            results.append(_result(calls[i - 1], parts[-1], pairs[0][0] or "success", layout.is_json))
        position += longest
        if i == len(calls):
            break
        status = [pair[1] for pair in pairs]
        read = _json(text, position) if layout.is_json else _text(dialect, layout, text, position, i)
        if read is None:
            return None
        parts.append(read[0])
        position = read[1]
    return results, text[position:]


def _trim_edge(edge: str, i: int, last: int) -> str:
    edge = edge.lstrip() if i == 0 else edge
    return edge.rstrip() if i == last else edge


def _result(call: ToolCall, part: TextPart | JsonPart, status: ResultStatus, is_json: bool) -> ToolResult:
    if isinstance(part, TextPart) and is_json and part.text.startswith(FAILURE_PREFIX):
        part, status = TextPart(part.text.removeprefix(FAILURE_PREFIX)), "failure"
    return ToolResult(call.id, call.name, status, (part,))


def _layout(
    dialect: Dialect, calls: Sequence[ToolCall], suffix: str, tools: Sequence[ToolSpec], tool_role: bool
) -> _Layout | None:
    """The layout that results with this suffix show; None if they are not one message, in order."""
    after = json.dumps(suffix)[1:]  # as JSON writes it, with the closing quote
    edges: list[dict[_Pair, str]] = [{} for _ in range(len(calls) + 1)]
    for first, second in itertools.product(_STATUSES, repeat=2):
        statuses: list[ResultStatus] = [second if i % 2 else first for i in range(len(calls))]
        batch_edges = _edges(dialect, calls, statuses, suffix, tools, tool_role)
        if batch_edges is None:
            return None
        ends: list[ResultStatus | None] = [None, *statuses, None]
        for i, pair in enumerate(itertools.pairwise(ends)):
            edges[i][pair] = batch_edges[i]
    are_quoted = all(edge.endswith(('"', '"' + FAILURE_PREFIX)) for each in edges[:-1] for edge in each.values())
    is_json = are_quoted and all(edge.startswith(after) for each in edges[1:] for edge in each.values())
    if suffix and not is_json:
        return None
    if is_json:
        edges = [
            {pair: _unquote_edge(edge, i, len(calls), after) for pair, edge in each.items()}
            for i, each in enumerate(edges)
        ]
    return _Layout(tuple(edges), is_json)


def _edges(
    dialect: Dialect,
    calls: Sequence[ToolCall],
    statuses: Sequence[ResultStatus],
    suffix: str,
    tools: Sequence[ToolSpec],
    tool_role: bool,
) -> list[str] | None:
    """The text around results; None if the dialect does not write them in one message, in order."""
    results = [
        ToolResult(call.id, call.name, status, (TextPart(_CONTENT.format(i) + suffix),))
        for i, (call, status) in enumerate(zip(calls, statuses, strict=True))
    ]
    turns = [Message("assistant", tuple(calls)), Message("tool", tuple(results))]
    rest = dialect.render(turns, tools, tool_role=tool_role)[-1].text
    edges: list[str] = []
    for i in range(len(calls)):
        before, content, rest = rest.partition(_CONTENT.format(i))
        if not content:
            return None
        edges.append(before)
    return [*edges, rest]


def _unquote_edge(edge: str, i: int, last: int, after: str) -> str:
    """An edge without the quotes of the JSON strings beside it, and without the prefix of a failure."""
    edge = edge.removeprefix(after) if i else edge
    return edge if i == last else edge.removesuffix(FAILURE_PREFIX).removesuffix('"')


def _json(text: str, position: int) -> tuple[TextPart | JsonPart, int] | None:
    try:
        value: Any
        value, end = json.JSONDecoder().raw_decode(text, position)
    except (ValueError, RecursionError):
        return None
    return (TextPart(value) if isinstance(value, str) else JsonPart(value)), end


def _text(dialect: Dialect, layout: _Layout, text: str, position: int, i: int) -> tuple[TextPart, int] | None:
    edge, more = layout.start(i + 1), len(layout.edges) - 2 - i
    tail = layout.start(len(layout.edges) - 1).rstrip()
    edge = edge if more else tail
    end = text.find(edge, position) if edge else len(text)
    if edge and not (edge.strip() and _is_live(dialect, edge.lstrip())):  # a result may hold it too
        stop = len(text) - len(tail) if text.endswith(tail) else len(text)
        # An edge may name its call: then it is there once.
        alike = sum(layout.start(later) == edge for later in range(i + 1, len(layout.edges) - 1))
        if more and text.count(edge, position, stop) != alike:
            return None
        end = end if more else stop
    return (TextPart(_unescape(dialect, text[position:end])), end) if end >= 0 else None


def _unescape(dialect: Dialect, text: str) -> str:
    """The text without the escapes of the dialect's live markers.

    A character reference is such an escape if the dialect would write it again.
    """
    if "&" not in text:
        return text
    references = list(_REFERENCE.finditer(text))
    pieces, position = list[str](), 0
    for reference in references:
        char = "<" if reference[2] == "lt" else chr(min(int(reference[2][1:]), 0x10FFFF))
        after = text[reference.end() : reference.end() + 512]
        if _is_live(dialect, char + after):
            pieces.append(text[position : reference.start()])
            pieces.append(f"&{reference[1].removeprefix('amp;')}{reference[2]};" if reference[1] else char)
            position = reference.end()
    return "".join([*pieces, text[position:]])


def _is_live(dialect: Dialect, text: str) -> bool:
    """Whether the dialect escapes the first character of this text in a result."""
    result = ToolResult("", "x", "success", (TextPart(_CONTENT.format(0) + text),))
    _, _, tail = dialect.render_results([result]).partition(_CONTENT.format(0))
    return not tail.startswith(text[0])
