"""Text that must not contain certain patterns, and the automaton that reads such text a character at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from toolspeak.data.values import quick

OTHER = ""
"""Every character that no pattern names."""


@quick()
class Item:
    """One character of a set. `negated`: one outside the set. `loop`: any number of such characters."""

    chars: frozenset[str]
    negated: bool = False
    loop: bool = False

    def takes(self, char: str) -> bool:
        return (char in self.chars) != self.negated

    def regex(self) -> str:
        body = "".join(_escape_char(char) for char in sorted(self.chars))
        return f"[{'^' if self.negated else ''}{body}]{'*' if self.loop else ''}"


SPACE = Item(frozenset(" \t\r\n"), loop=True)


@quick()
class Pattern:
    """A sequence of characters. `anchored`: only at the beginning of the text."""

    items: tuple[Item, ...]
    anchored: bool = False

    def regex(self) -> str:
        return "".join(item.regex() for item in self.items)


def exactly(text: str, *, anchored: bool = False, fold: bool = False) -> Pattern:
    """The pattern of one text. `fold`: ASCII letters match in any case."""
    return Pattern(items_of(text, fold=fold), anchored)


def items_of(text: str, *, fold: bool = False) -> tuple[Item, ...]:
    return tuple(Item(frozenset({char.lower(), char.upper()} if fold and char.isascii() else {char})) for char in text)


def texts(*each: str) -> tuple[Pattern, ...]:
    return tuple(exactly(text) for text in each)


@quick()
class Edge:
    """A step from one state to another."""

    chars: str
    others: bool
    """Whether the step is for any character except `chars`; otherwise it is for one of them."""
    target: int | None
    """The next state; None: the end is complete."""


State = frozenset[tuple[int, int]]


class Automaton:
    """The states of text that avoids `patterns` and ends at the first `end`; `states[i]` are the edges of state `i`.

    A state is the set of positions in the patterns (subset construction). Without an end the text may stop in every
    state. A pattern that begins the end (`</think` of `</thinking>`) may occur as part of the end only.
    """

    def __init__(self, patterns: Sequence[Pattern], end: str = "") -> None:
        self._patterns = [*patterns, *([exactly(end)] if end else [])]
        self._end = len(patterns) if end else -1
        prefixes = [each for each in patterns if len(each.items) < len(end) and _begins(each, end)]
        self._within_end = {number for number, each in enumerate(patterns) if each in prefixes}
        chars = {char for pattern in self._patterns for item in pattern.items for char in item.chars}
        self._alphabet = sorted(chars)
        everywhere = [(i, 0) for i, pattern in enumerate(self._patterns) if not pattern.anchored]
        self._restart = self._closure(everywhere)
        anywhere = [(i, 0) for i in range(len(self._patterns))]
        self._numbers: dict[State, int] = {}
        self._queue: list[State] = []
        self.states: list[tuple[Edge, ...]] = []
        self._number(self._closure(anywhere))
        while len(self.states) < len(self._queue):
            self.states.append(self._edges(self._queue[len(self.states)]))

    @property
    def restart(self) -> int:
        """The state in which no pattern has begun. Text without anchored patterns starts in it."""
        return self._number(self._restart)

    def step(self, state: int, char: str) -> int | None:
        """The next state; None if a pattern or the end is complete."""
        edges = self.states[state]
        match = next((edge for edge in edges if (char in edge.chars) != edge.others), None)
        return match.target if match else None

    def _edges(self, state: State) -> tuple[Edge, ...]:
        targets: dict[int | None, list[str]] = {}
        dead: list[str] = []
        for char in (*self._alphabet, OTHER):
            verdict = self._next(state, char)
            if verdict == "dead":
                dead.append(char)
            else:
                targets.setdefault(None if isinstance(verdict, str) else self._number(verdict), []).append(char)
        alphabet = set(self._alphabet)
        edges: list[Edge] = []
        for target, chars in targets.items():
            if OTHER in chars:
                edges.append(Edge("".join(sorted(alphabet - set(chars))), True, target))
            else:
                edges.append(Edge("".join(chars), False, target))
        return tuple(edges)

    def _next(self, state: State, char: str) -> State | Literal["dead", "end"]:
        next_positions: list[tuple[int, int]] = []
        for number, at in state:
            item = self._patterns[number].items[at]
            if item.takes(char):
                next_positions.append((number, at if item.loop else at + 1))
        closure = self._closure(next_positions)
        complete = {number for number, at in closure if at == len(self._patterns[number].items)}
        if self._end in complete:
            return "end"
        # Only the positions in the end: text that has begun a pattern of it must continue with the end.
        ending = frozenset((number, at) for number, at in closure if number == self._end and at > 1)
        if self._end >= 0 and state.isdisjoint(self._restart):
            return ending or "dead"
        if complete:
            lengths = {len(self._patterns[number].items) for number in complete}
            ending = frozenset((number, at) for number, at in ending if at in lengths)
            return ending if complete <= self._within_end and ending else "dead"
        return closure | self._restart

    def _closure(self, places: Sequence[tuple[int, int]]) -> State:
        """The positions, with those after loops: a loop may match no character."""
        closure: set[tuple[int, int]] = set()
        for number, at in places:
            items = self._patterns[number].items
            closure.add((number, at))
            while at < len(items) and items[at].loop:
                at += 1
                closure.add((number, at))
        return frozenset(closure)

    def _number(self, state: State) -> int:
        if state not in self._numbers:
            self._numbers[state] = len(self._queue)
            self._queue.append(state)
        return self._numbers[state]


def _escape_char(char: str) -> str:
    if char in '\\]^-[/"&~#|':
        return f"\\x{ord(char):02x}"
    escapes = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return escapes.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 32 else char)


def _begins(pattern: Pattern, end: str) -> bool:
    """Whether the pattern matches the beginning of the end."""
    return all(not item.loop and item.takes(char) for item, char in zip(pattern.items, end, strict=False))


def contains(patterns: Sequence[Pattern]) -> list[str]:
    """Regular expressions of all texts in which one of the patterns occurs."""
    free = [pattern.regex() for pattern in patterns if not pattern.anchored]
    bound = [pattern.regex() for pattern in patterns if pattern.anchored]
    expressions = [rf"(?s:.*)({'|'.join(free)})(?s:.*)"] if free else []
    return [*expressions, rf"({'|'.join(bound)})(?s:.*)"] if bound else expressions
