"""Opt-in repair: a dialect whose parser repairs blocks that are almost JSON, and marks the calls in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    TextAside,
    TextDelta,
)
from toolspeak.data.messages import (
    NORMAL_END,
    FinishReason,
    MalformedCall,
    Message,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import Dialect, Parser
from toolspeak.dialects.detection.auto_dialect import AutoDialect
from toolspeak.dialects.detection.strict_dialect import StrictDialect
from toolspeak.dialects.detection.wrapped_dialect import WrappedDialect
from toolspeak.dialects.parser.calls_in_reasoning import IN_THOUGHTS
from toolspeak.dialects.text.json_repair import load_repair, mend
from toolspeak.dialects.turn_rules import BatchRule, Section
from toolspeak.errors import ConfigurationError

_CALL_AND_TEXT = (TextDelta, TextAside, CallStarted, ArgumentsDelta, CallCompleted)
ReadAgain = Callable[[str], "list[Delta] | None"]
"""The deltas of a block's repaired body; None if it cannot be repaired."""


def with_repair(dialect: Dialect) -> Dialect:
    """The dialect with a parser that repairs a malformed block: unquoted keys, single quotes, Python's `True` and
    `None`, line breaks in strings, trailing commas, comments, missing final brackets.

    A repaired call has the note `repaired`, and in `repaired_from` the block as the model wrote it. Valid JSON stays as
    it is, and so do a block that the end of the turn cuts off and a string without its end. Needs the package
    json-repair. Raises ConfigurationError without it, and for a dialect whose calls are not JSON.

    `auto` without a model's own dialect repairs calls in Hermes's form: JSON with a name and arguments.
    """
    if isinstance(dialect, StrictDialect):
        raise ConfigurationError(
            "strict detection and repair cannot be combined: strict detection leaves malformed calls as text"
        )
    block_dialect = dialect.renderer if isinstance(dialect, AutoDialect) else dialect
    arguments = block_dialect.info.arguments
    if not arguments.startswith(("JSON", "fenced JSON")):
        raise ConfigurationError(
            f"repair is for JSON, and {block_dialect.name} does not write its calls as JSON ({arguments})"
        )
    return RepairingDialect(dialect, block_dialect, load_repair())


@dataclass(frozen=True, slots=True)
class RepairingDialect(WrappedDialect):
    """Implements `Dialect`. Everything but the parser is the inner dialect's."""

    inner: Dialect
    block_dialect: Dialect
    """The dialect whose blocks are repaired."""
    repair: Callable[[str], str]
    """Turns text that is almost JSON into JSON."""

    @property
    def renderer(self) -> Dialect:
        return self.inner

    def parser(self, tools: Sequence[ToolSpec] = (), starts_in: Section = "text") -> Parser:
        return _RepairingParser(
            self.inner.parser(tools, starts_in), self.batch, lambda raw: self._read_again(raw, tools)
        )

    def _read_again(self, raw: str, tools: Sequence[ToolSpec]) -> list[Delta] | None:
        """Reads a repaired body in its block with the dialect's own parser, as if the model had written it so."""
        body = mend(raw, self.repair)
        if body is None:
            return None
        block = MalformedCall("", body, "", "", None, whole_block=True)
        (message,) = self.block_dialect.render([Message("assistant", (block,))], tools)
        parser = self.block_dialect.parser(tools)
        deltas = [*parser.feed(message.text), *parser.close("stop")]
        body_deltas: list[Delta] = [delta for delta in deltas if not isinstance(delta, BatchEnded)]
        well_formed = all(isinstance(delta, _CALL_AND_TEXT) for delta in body_deltas)
        return body_deltas if well_formed and any(isinstance(delta, CallCompleted) for delta in body_deltas) else None


class _RepairingParser:
    """Implements `Parser`. The malformed block keeps its index and is ignored; its repaired calls take the next ones.

    So the indexes of all later calls move up.
    """

    def __init__(self, inner: Parser, batch: BatchRule, read_again: ReadAgain) -> None:
        self._inner = inner
        self._batch = batch
        self._read_again = read_again
        self._counts: dict[int, int] = {}  # the inner index of a block to the number of its calls
        self._ignored_blocks: set[int] = set()  # inner indexes of repaired blocks that do not count
        self._malformed_count = 0

    def feed(self, chunk: str) -> Iterable[Delta]:
        return self._mend(self._inner.feed(chunk), may_repair=True)

    def keep_reasoning(self) -> None:
        self._inner.keep_reasoning()

    def close(self, reason: FinishReason) -> Iterable[Delta]:
        # A block that is still open here was cut off, unless the model ended the turn.
        return self._mend(self._inner.close(reason), may_repair=reason in NORMAL_END)

    def _mend(self, deltas: Iterable[Delta], *, may_repair: bool) -> list[Delta]:
        out: list[Delta] = []
        for delta in deltas:
            match delta:
                case CallMalformed():
                    mends = may_repair and (delta.whole_block or delta.code == "invalid_json")
                    mends = mends and delta.code != IN_THOUGHTS
                    again = self._read_again(delta.raw) if mends else None
                    out.append(self._shift(delta))
                    if again is None:
                        self._malformed_count += 1
                    else:
                        self._add(delta, again, out)
                case CallIgnored(index, reason) if index in self._counts:
                    self._ignored_blocks.add(index)
                    out += [CallIgnored(each, reason) for each in self._made_of(index)]
                case BatchEnded():
                    self._end_batch(delta, out)
                case CallStarted() | ArgumentsDelta() | CallCompleted() | CallIgnored():
                    out.append(self._shift(delta) if self._counts else delta)
                case _:
                    out.append(delta)
        return out

    def _place(self, index: int) -> int:
        return index + sum(count for each, count in self._counts.items() if each < index)

    def _made_of(self, index: int) -> range:
        """The indexes of the calls that repair made of a block."""
        first = self._place(index) + 1
        return range(first, first + self._counts[index])

    def _shift(self, delta: CallStarted | ArgumentsDelta | CallCompleted | CallIgnored | CallMalformed) -> Delta:
        return replace(delta, index=self._place(delta.index))

    def _add(self, block: CallMalformed, again: Sequence[Delta], out: list[Delta]) -> None:
        self._counts[block.index] = sum(isinstance(delta, CallCompleted) for delta in again)
        first = self._made_of(block.index)[0]
        out.append(CallIgnored(first - 1, "it was repaired"))
        for delta in again:
            if isinstance(delta, CallCompleted):
                notes = (*delta.notes, "repaired")
                out.append(replace(delta, index=first + delta.index, notes=notes, repaired_from=block.raw))
            elif isinstance(delta, (CallStarted, ArgumentsDelta)):
                out.append(replace(delta, index=first + delta.index))
            elif isinstance(delta, (TextDelta, TextAside)) and delta.text.strip():
                out.append(delta)

    def _end_batch(self, end: BatchEnded, out: list[Delta]) -> None:
        if not self._counts:
            out.append(end)
            return
        counting = [index for each in self._counts if each not in self._ignored_blocks for index in self._made_of(each)]
        selected_indexes = sorted([*map(self._place, end.selected), *counting])
        ok = not self._malformed_count
        if self._batch.counts == "last_call":
            out += [CallIgnored(index, "only the last call of a turn counts") for index in selected_indexes[:-1]]
            selected_indexes = selected_indexes[-1:]
            ok = bool(selected_indexes)
        out.append(replace(end, selected=tuple(selected_indexes), ok=ok))
