"""Where a turn begins: many chat templates open reasoning, or a required call, at the end of the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from toolspeak.data.deltas import CallMalformed, Delta, ReasoningDelta, TextAside, TextDelta, TextWasReasoning
from toolspeak.data.messages import FinishReason
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import Dialect, Parser
from toolspeak.dialects.detection.repairing_dialect import RepairingDialect
from toolspeak.dialects.detection.strict_dialect import StrictDialect
from toolspeak.dialects.parser.blocks import BlockParser
from toolspeak.dialects.turn_rules import Section


def open_parser(
    dialect: Dialect,
    tools: Sequence[ToolSpec] = (),
    *,
    starts_in: Section = "text",
    prompt_tail: str = "",
    keep_reasoning: bool = False,
) -> Parser:
    """The parser of a turn.

    - `prompt_tail`: the text that the chat template writes after the last message. If it ends inside reasoning or
      inside a call, the turn starts there.
    - `keep_reasoning`: reasoning and its markup stay in the text.

    Strict detection does not apply to a turn whose call the prompt has begun.
    """
    if isinstance(dialect, StrictDialect) and prompt_tail and _ends_in_call(dialect.dialect, tools, prompt_tail):
        dialect = dialect.dialect
    if starts_in == "text" and prompt_tail:
        starts_in = _section_after(dialect, tools, prompt_tail)
    parser = dialect.parser(tools, starts_in)
    if keep_reasoning:
        parser.keep_reasoning()
    if starts_in == "text" and prompt_tail and _ends_in_call(dialect, tools, prompt_tail):
        return _OpenedCall(parser, prompt_tail)
    return parser


def section_of_reply(dialect: Dialect, reply: str, tools: Sequence[ToolSpec] = ()) -> Section:
    """Where a finished reply begins whose prompt is unknown: inside reasoning if only text precedes its end marker.

    A marker that is mentioned, or is inside or after a call, does not count. Not for a stream, because its deltas
    cannot be taken back.
    """
    inner = dialect.inner if isinstance(dialect, RepairingDialect) else dialect
    parser = inner.parser(tools)
    if not isinstance(parser, BlockParser):
        return "text"  # other dialects have messages, whose headers mark reasoning
    deltas = [*parser.feed(reply), *parser.close("stop")]
    return "reasoning" if any(isinstance(delta, TextWasReasoning) for delta in deltas) else "text"


def _section_after(dialect: Dialect, tools: Sequence[ToolSpec], prompt_tail: str) -> Section:
    parser = dialect.parser(tools)
    read = [*parser.feed(prompt_tail), *parser.feed("x")]  # a letter opens and closes nothing
    return "reasoning" if read and isinstance(read[-1], ReasoningDelta) else "text"


def _ends_in_call(dialect: Dialect, tools: Sequence[ToolSpec], prompt_tail: str) -> bool:
    parser = dialect.parser(tools)
    parser.feed(prompt_tail)
    return any(isinstance(delta, CallMalformed) for delta in parser.close("length"))


_CONTENT_DELTAS = (TextDelta, TextAside, ReasoningDelta)


class _OpenedCall:
    """Implements `Parser` for a turn whose prompt ends inside a call. The call belongs to the turn; the prompt's other
    text does not."""

    def __init__(self, inner: Parser, prompt_tail: str) -> None:
        self._inner = inner
        self._prompt_deltas = [delta for delta in inner.feed(prompt_tail) if not isinstance(delta, _CONTENT_DELTAS)]
        self._before = len(prompt_tail)

    def feed(self, chunk: str) -> list[Delta]:
        return self._place(self._inner.feed(chunk))

    def close(self, reason: FinishReason) -> list[Delta]:
        return self._place(self._inner.close(reason))

    def keep_reasoning(self) -> None:
        self._inner.keep_reasoning()

    def _place(self, deltas: Iterable[Delta]) -> list[Delta]:
        from_prompt, self._prompt_deltas = self._prompt_deltas, []
        return from_prompt + [
            replace(delta, offset=max(delta.offset - self._before, 0)) if isinstance(delta, CallMalformed) else delta
            for delta in deltas
        ]
