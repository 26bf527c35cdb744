"""A dialect's grammar for a matcher: which targets there are, and what each takes."""

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
        special_tokens: SpecialTokens = (),
    ) -> Grammar:
        """What the model may write in one turn, for a matcher that constrains its decoding.

        `max_calls` bounds the calls of the turn (the dialect's batch rule does too; a named tool is called once unless
        it says more). `reasoning`: the turn may begin with a reasoning block, if the dialect has one;
        `starts_in="reasoning"`: the prompt has opened it already. `special_tokens`: the texts of the model's special
        tokens, or their ids by text, for the target `lark`: llguidance never matches such a token as text (the other
        targets' matchers do, and need none). Raises ConfigurationError for a target the dialect does not have, for a
        choice the tools cannot meet, and for a special token that cannot be named.
        """
        if target not in TARGETS:
            raise ConfigurationError(f"There is no grammar target {suggest(target, TARGETS)}")
        if max_calls is not None and max_calls < 1:
            raise ConfigurationError("max_calls is at least 1; to forbid calls choose none")
        alone = target in _CALLS_ONLY
        if alone and (choice.mode in ("auto", "none") or starts_in == "reasoning"):
            raise ConfigurationError(
                f"{target} cannot say free text: choose required or a tool, or the target {_OTHERS}"
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
        raise ConfigurationError(f"these calls are no regular language: {problem}; take the target {_OTHERS}") from None


def _json_schema(frame: Frame, tools: Sequence[ToolSpec], max_calls: int | None) -> str:
    if frame.json_schema is None:
        raise ConfigurationError(f"calls of this dialect are not plain JSON; take the target {_OTHERS}")
    return json.dumps(frame.json_schema(tools, max_calls), ensure_ascii=False)
