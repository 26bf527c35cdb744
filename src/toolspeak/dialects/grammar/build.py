"""A dialect's grammar for a matcher: which targets there are, and what each takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from toolspeak.data.messages import ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.base import BatchRule, Section
from toolspeak.dialects.grammar.gbnf import to_gbnf
from toolspeak.dialects.grammar.ir import Definition
from toolspeak.dialects.grammar.lark import to_lark
from toolspeak.dialects.grammar.regex import NotRegularError, to_regex
from toolspeak.dialects.grammar.structural_tag import to_structural_tag
from toolspeak.dialects.grammar.target import TARGETS, Grammar, Target
from toolspeak.dialects.grammar.turn import Frame, build_turn, chosen_tools
from toolspeak.dialects.markers import Marker
from toolspeak.errors import UsageError, suggest

_WRITERS: Mapping[str, Callable[[Definition], str]] = {
    "xgrammar": to_structural_tag,
    "lark": to_lark,
    "gbnf": to_gbnf,
}
_CALLS_ONLY = ("json_schema", "regex")


class WithGrammar:
    """Gives a dialect its `grammar`: it says what its calls look like, its markers and its batch rule."""

    __slots__ = ()

    def grammar_parts(self) -> tuple[Frame, Sequence[Marker], BatchRule]:
        raise AssertionError("a dialect has a frame")

    def grammar(
        self,
        tools: Sequence[ToolSpec],
        choice: ToolChoice = ToolChoice(),
        *,
        target: Target,
        max_calls: int | None = None,
        starts_in: Section = "text",
        reasoning: bool = True,
    ) -> Grammar:
        """What the model may write in one turn, for a matcher that constrains its decoding.

        `max_calls` bounds the calls of the turn (the dialect's batch rule does too; a named tool is called once unless
        it says more). `reasoning`: the turn may begin with a reasoning block, if the dialect has one;
        `starts_in="reasoning"`: the prompt has opened it already. Raises UsageError for a target the dialect does not
        have, and for a choice the tools cannot meet.
        """
        frame, markers, batch = self.grammar_parts()
        return build(
            frame,
            markers,
            batch,
            tools,
            choice,
            target=target,
            max_calls=max_calls,
            starts_in=starts_in,
            reasoning=reasoning,
        )


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
    if target not in TARGETS:
        raise UsageError(f"There is no grammar target {suggest(target, TARGETS)}")
    if max_calls is not None and max_calls < 1:
        raise UsageError("max_calls is at least 1; to forbid calls choose none")
    alone = target in _CALLS_ONLY
    turn, rules = build_turn(
        frame,
        markers,
        batch,
        tools,
        choice,
        max_calls=max_calls,
        starts_in=starts_in,
        reasoning=reasoning and not alone,
    )
    definition = Definition(turn.node(), dict(rules.nodes))
    if not alone:
        return Grammar(target, _WRITERS[target](definition), definition)
    if choice.mode in ("auto", "none") or starts_in == "reasoning":
        raise UsageError(f"{target} cannot say free text: choose required or a tool, or {', '.join(_WRITERS)}")
    if target == "regex":
        try:
            return Grammar(target, to_regex(definition), definition)
        except NotRegularError as problem:
            raise UsageError(f"these calls are no regular language: {problem}; take {', '.join(_WRITERS)}") from None
    if frame.json_schema is None:
        raise UsageError(f"calls of this dialect are not plain JSON; take {', '.join(_WRITERS)}")
    most = 1 if choice.mode == "specific" and max_calls is None else max_calls
    schema = frame.json_schema(chosen_tools(tools, choice), most)
    return Grammar(target, json.dumps(schema, ensure_ascii=False), definition)
