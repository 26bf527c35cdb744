"""A dialect's grammar for a matcher: which targets there are, and what each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from toolspeak.data.messages import ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import BatchRule, Section
from toolspeak.dialects.grammar.gbnf import to_gbnf
from toolspeak.dialects.grammar.ir import Definition
from toolspeak.dialects.grammar.lark import to_lark
from toolspeak.dialects.grammar.turn import Frame, Turn, build_turn
from toolspeak.dialects.markers import Marker
from toolspeak.errors import UsageError, suggest

Target = Literal["lark", "gbnf"]
TARGETS: tuple[Target, ...] = get_args(Target)


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar for one turn: `source` in the language of `target`. `definition` is the same before it was written."""

    target: Target
    source: str
    definition: Definition


_WRITERS: Mapping[str, Callable[[Turn, Definition], str]] = {
    "lark": lambda _, definition: to_lark(definition),
    "gbnf": lambda _, definition: to_gbnf(definition),
}


def build(
    frame: Frame,
    markers: Sequence[Marker],
    batch: BatchRule,
    tools: Sequence[ToolSpec],
    choice: ToolChoice,
    *,
    target: Target,
    max_calls: int | None = None,
    starts_in: Section = "text",
    reasoning: bool = True,
) -> Grammar:
    """Raises UsageError for a target or a choice that there is not."""
    if target not in _WRITERS:
        raise UsageError(f"There is no grammar target {suggest(target, TARGETS)}")
    if max_calls is not None and max_calls < 1:
        raise UsageError("max_calls is at least 1; to forbid calls choose none")
    turn, rules = build_turn(
        frame, markers, batch, tools, choice, max_calls=max_calls, starts_in=starts_in, reasoning=reasoning
    )
    definition = Definition(turn.node(), dict(rules.nodes))
    return Grammar(target, _WRITERS[target](turn, definition), definition)
