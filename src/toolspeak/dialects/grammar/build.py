"""Builds a dialect's grammar for one of the targets."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolspeak.data.messages import ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects.grammar.gbnf import to_gbnf
from toolspeak.dialects.grammar.ir import Definition
from toolspeak.dialects.grammar.lark import to_lark
from toolspeak.dialects.grammar.regex import NotRegularError, to_regex
from toolspeak.dialects.grammar.special_tokens import SpecialTokens
from toolspeak.dialects.grammar.structural_tag import to_structural_tag
from toolspeak.dialects.grammar.target import TARGETS, Grammar, Target
from toolspeak.dialects.grammar.tool_choice import Frame, build_turn, chosen_tools
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.turn_rules import BatchRule, Section
from toolspeak.errors import ConfigurationError, suggest

_CALLS_ONLY: tuple[Target, ...] = ("json_schema", "regex")
_OTHERS = ", ".join(target for target in TARGETS if target not in _CALLS_ONLY)


class WithGrammar:
    """Gives a dialect its `grammar`, from the frame of its calls, its markers and its batch rule."""

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
        special_tokens: SpecialTokens = (),
    ) -> Grammar:
        """What the model may write in one turn, for a matcher that constrains its decoding.

        - `max_calls`: the most calls of the turn, besides the dialect's batch rule. With a specific tool it is 1 by
          default.
        - `starts_in="reasoning"`: the prompt has opened the reasoning block.
        - `reasoning`: the turn may begin with a reasoning block, if the dialect has one.
        - `special_tokens`: the texts of the model's special tokens, or their ids by text. Only the target `lark` uses
          them: llguidance never matches such a token as text.

        Raises ConfigurationError for a target that the dialect does not have, for a choice that the tools cannot meet,
        and for a special token that cannot be named.
        """
        if target not in TARGETS:
            raise ConfigurationError(f"unknown grammar target {suggest(target, TARGETS)}")
        if max_calls is not None and max_calls < 1:
            raise ConfigurationError("max_calls must be at least 1; to forbid calls use tool choice none")
        alone = target in _CALLS_ONLY
        if alone and (choice.mode in ("auto", "none") or starts_in == "reasoning"):
            raise ConfigurationError(
                f"the target {target!r} cannot express free text; use tool choice required or a specific tool, "
                f"or the target {_OTHERS}"
            )
        frame, markers, batch = self.grammar_parts()
        definition = build_turn(
            frame,
            markers,
            batch,
            tools,
            choice,
            max_calls=max_calls,
            starts_in=starts_in,
            reasoning=reasoning and not alone,
        )
        match target:
            case "xgrammar":
                source = to_structural_tag(definition)
            case "lark":
                source = to_lark(definition, special_tokens)
            case "gbnf":
                source = to_gbnf(definition)
            case "regex":
                source = _regex(definition)
            case "json_schema":
                most = 1 if choice.mode == "specific" and max_calls is None else max_calls
                source = _json_schema(frame, chosen_tools(tools, choice), most)
        return Grammar(target, source, definition)


def _regex(definition: Definition) -> str:
    try:
        return to_regex(definition)
    except NotRegularError as problem:
        raise ConfigurationError(
            f"these calls are not a regular language: {problem}; use the target {_OTHERS}"
        ) from None


def _json_schema(frame: Frame, tools: Sequence[ToolSpec], max_calls: int | None) -> str:
    if frame.json_schema is None:
        raise ConfigurationError(f"calls of this dialect are not plain JSON; use the target {_OTHERS}")
    return json.dumps(frame.json_schema(tools, max_calls), ensure_ascii=False)
