"""A turn as nodes: reasoning, free text and calls, as a tool choice allows them.

- `auto`: text without markers of the dialect, then calls or none. The turn ends after calls.
- `required` and a specific tool: calls without text in front.
- `none`: text alone.

In a dialect with reasoning markers a turn may begin with reasoning, also under `required`: models that were trained to
think write worse calls if they must not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from toolspeak.data.messages import JSON, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.grammar.avoid import SPACE, Item, Pattern, exactly, items_of
from toolspeak.dialects.grammar.ir import (
    EMPTY,
    NOTHING,
    Chars,
    Definition,
    Node,
    Repeat,
    Rules,
    Text,
    Token,
    choice,
    optional,
    series,
    split_leading_literals,
    strip_prefix,
)
from toolspeak.dialects.text.block_delimiters import Matches, Signature
from toolspeak.dialects.text.markers import Marker
from toolspeak.dialects.turn_rules import BatchRule, Section
from toolspeak.errors import ConfigurationError, suggest

_GAP = Token(Repeat(Chars("\\n"), 0, 2))
"""The white space that templates write between reasoning and calls."""

WriteCall = Callable[[ToolSpec, Rules], Node]
Triggers = Callable[[Sequence[ToolSpec]], Iterable[str]]
Avoid = Callable[[Sequence[ToolSpec]], Iterable[Pattern]]


@quick(kw_only=True)
class Frame:
    """How a turn's calls are framed: `start`, the calls with `joint` between them, `end`."""

    call: WriteCall
    start: str = ""
    joint: str = ""
    end: str = ""
    triggers: Triggers | None = None
    """The texts with which calls may begin, and which therefore end free text; None: `start`."""
    avoid: Avoid | None = None
    """Further patterns that free text must not hold."""
    lead: Node = EMPTY
    """What may stand before the first call, or of text."""
    text_start: str | None = None
    """What begins text in dialects whose text has an addressee; None in others."""
    text_before_calls: tuple[str, str, str] = ("", "", "")
    """Of text before calls, in those dialects: its beginning, its end, and what follows it."""
    reasoning: tuple[tuple[str, str, str], ...] = ()
    """The same of each kind of reasoning; empty: as the markers say."""
    json_schema: Callable[[Sequence[ToolSpec], int | None], JSON] | None = None
    """The JSON Schema of these tools' calls, at most so many; None if they are not one JSON value.

    Raises ConfigurationError for a number of calls that no JSON value can hold.
    """


@quick()
class Turn:
    """The parts of a turn for one tool choice."""

    choice: ToolChoice
    calls: Node
    """The calls of the turn; NOTHING if it may have none."""
    auto: tuple[tuple[str, Node], ...]
    """The triggers, each with what follows it."""
    avoid: tuple[Pattern, ...]
    """The patterns that free text must not hold."""
    thoughts: tuple[tuple[str, str, str], ...]
    """Each kind of reasoning: start, end, and what follows."""
    starts_in: Section
    frame: Frame

    def node(self) -> Node:
        """The whole turn."""
        frame, free_text = self.frame, Text(self.avoid)
        match self.choice.mode:
            case "none":
                body: Node = series(frame.text_start or "", free_text)
            case "auto" if frame.text_start is not None:
                start, end, after = frame.text_before_calls
                first = optional(series(start, Text(self.avoid, end), after))
                body = choice(series(frame.text_start, free_text), series(first, self.calls))
            case "auto":
                body = choice(free_text, *(series(Text(self.avoid, trigger), rest) for trigger, rest in self.auto))
            case _:
                # Some templates and models write a line break before calls.
                body = series(_GAP, self.calls) if frame.lead == EMPTY else self.calls
        lead, thought = frame.lead, self._thought()
        if self.starts_in == "reasoning" and thought != NOTHING:
            return series(thought, body)
        # No lead follows reasoning.
        return series(optional(thought), body) if lead == EMPTY else choice(series(lead, body), series(thought, body))

    def _thought(self) -> Node:
        """The reasoning before the text, without its marker if the prompt has opened it; NOTHING without reasoning."""
        gap = _GAP if self.choice.mode in ("required", "specific") else EMPTY
        is_open = self.starts_in == "reasoning"
        each = (("" if is_open else start, Text(self.avoid, end), after) for start, end, after in self.thoughts)
        return choice(*(series(start, text, after, gap) for start, text, after in each))


def build_turn(
    frame: Frame,
    markers: Sequence[Marker],
    batch: BatchRule,
    tools: Sequence[ToolSpec],
    tool_choice: ToolChoice,
    *,
    max_calls: int | None,
    starts_in: Section,
    reasoning: bool,
) -> Definition:
    """The turn of these tools and this choice. Raises ConfigurationError for a choice that the tools cannot meet."""
    allowed_tools = chosen_tools(tools, tool_choice)
    rules = Rules()
    if max_calls is None and tool_choice.mode == "specific":
        max_calls = 1
    bounds = [bound for bound in (max_calls, batch.max_calls) if bound is not None]
    more = min(bounds) - 1 if bounds else None
    # The literals that begin a call are joined with the frame before it, so that a lexer distinguishes the calls at
    # once.
    split = {spec.name: split_leading_literals(frame.call(spec, rules)) for spec in allowed_tools}
    each = [(head, rules.add(f"call-{name}", rest)) for name, (head, rest) in split.items()]
    later = choice(*(series(frame.joint, head, rest) for head, rest in each))
    following = Repeat(rules.add("next", later), 0, more) if more != 0 and each else EMPTY
    first = choice(*(series(frame.start, head, rest) for head, rest in each))
    calls = series(first, following, frame.end)

    def triggers(specs: Sequence[ToolSpec]) -> list[str]:
        return list(dict.fromkeys(frame.triggers(specs) if frame.triggers else [frame.start]))

    auto: list[tuple[str, Node]] = []
    if tool_choice.mode == "auto" and frame.text_start is None:
        after = [(trigger, strip_prefix(calls, trigger)) for trigger in triggers(allowed_tools)]
        auto = [(trigger, rest) for trigger, rest in after if rest != NOTHING]
    avoid = [*marker_patterns(markers), *(frame.avoid(tools) if frame.avoid else ())]
    avoid += map(exactly, triggers(tools) if frame.text_start is None else ())
    thoughts = frame.reasoning or reasoning_of(markers)
    turn = Turn(
        tool_choice,
        calls,
        tuple(auto),
        tuple(dict.fromkeys(avoid)),
        thoughts if reasoning or starts_in == "reasoning" else (),
        starts_in,
        frame,
    )
    return Definition(turn.node(), rules.nodes)


def chosen_tools(tools: Sequence[ToolSpec], tool_choice: ToolChoice) -> list[ToolSpec]:
    """The tools that may be called.

    Raises ConfigurationError if the choice names an unknown tool, or requires a call and there are no tools.
    """
    if tool_choice.mode == "none":
        return []
    if tool_choice.mode == "specific":
        matching = [spec for spec in tools if spec.name == tool_choice.name]
        if not matching:
            raise ConfigurationError(
                f"tool_choice names an unknown tool: {suggest(tool_choice.name or '', [t.name for t in tools])}"
            )
        return matching
    if tool_choice.mode == "required" and not tools:
        raise ConfigurationError("tool_choice is required, and there are no tools; add some, or use auto")
    return list(tools)


def reasoning_of(markers: Sequence[Marker]) -> tuple[tuple[str, str, str], ...]:
    """Start (with its label) and end of each kind of reasoning, and what follows it."""
    return tuple(
        (marker.text + marker.label, marker.end, "") for marker in markers if marker.kind == "reasoning" and marker.end
    )


# The regular expressions in markers' signatures, as items.
_LOOPS: dict[str, tuple[Item, ...]] = {
    r"\s*": (SPACE,),
    r'[^"\\\x00-\x1f]*': (Item(frozenset('"\\'), True, True),),
    r"[ \t]*": (Item(frozenset(" \t"), loop=True),),
    "[0-9]+": (Item(frozenset("0123456789")), Item(frozenset("0123456789"), loop=True)),
    r"[^<>|\s]{0,160}": (Item(frozenset("<>| \n"), True, True),),
}
_KEYS = ("parameters", "arguments", "args")


def marker_patterns(markers: Sequence[Marker]) -> list[Pattern]:
    """The patterns that free text must not hold, so that a parser finds no block in it."""
    patterns: list[Pattern] = []
    for marker in markers:
        if marker.kind == "noise" or (isinstance(marker.opening, Matches) and marker.opening.within):
            continue
        if isinstance(marker.opening, Signature):
            patterns += _signature_patterns(marker.opening.parts)
        elif marker.element:
            ending = Item(frozenset("> \t\r\n"))
            patterns.append(Pattern((*items_of(f"<{marker.element}", fold=True), ending)))
        else:
            patterns.append(exactly(marker.text))
    # A pattern that ends in another one is redundant.
    tails = {pattern.items for pattern in patterns}
    return [each for each in patterns if not any(each.items[i:] in tails for i in range(1, len(each.items)))]


def _signature_patterns(parts: Sequence[str | re.Pattern[str]]) -> list[Pattern]:
    runs: list[tuple[Item, ...]] = [()]
    for part in parts:
        if isinstance(part, str):
            runs = [(*run, *items_of(part)) for run in runs]
        elif part.pattern in _LOOPS:
            runs = [(*run, *_LOOPS[part.pattern]) for run in runs]
        elif part.pattern.startswith(r"\{"):  # the beginning of an object is enough
            return [Pattern((*run, *items_of("{"))) for run in runs]
        elif part.pattern.startswith("(?:parameters"):  # the key after the name
            runs = [(*run, *items_of(key)) for run in runs for key in _KEYS]
        elif runs != [()]:  # further parts only narrow the pattern; a tool's name before it may be any text
            break
    return [Pattern(run) for run in runs]
