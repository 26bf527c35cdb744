"""Strings made from a grammar."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

from toolspeak.dialects.grammar.avoid import Automaton, exactly
from toolspeak.dialects.grammar.ir import (
    Chars,
    Choice,
    Definition,
    Json,
    JsonText,
    Literal,
    Node,
    Ref,
    Repeat,
    Series,
    Special,
    Text,
    Token,
)

_ALPHABET = "aZ09_ .,:;=+-\"'\\/<>[]{}()|`\n\té😀"
_PIECES = [
    *(
        "<",
        "</",
        ">",
        "<|",
        "|>",
        "```",
        "`",
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        "\\",
        "\n",
        "\n\n",
        " ",
        "null",
        "true",
        "12",
    ),
    *(
        "<tool_call",
        "</tool_call",
        "<think",
        "</think",
        "<arg",
        "</",
        "<![CDATA[",
        "]]",
        "]]>",
        "call:",
        "functions.",
        "end",
    ),
    *(
        '{"name"',
        '{"name": "ping"',
        "<function",
        "</function",
        "<parameter",
        "</parameter",
        "<invoke",
        "a < b && c > d",
    ),
    *("plain words ", "é", "😀", "def f(x):\n    return [x]\n", "http://x/?a=1&b=2", "\u2028", "\\u003c", "\\n", "\t"),
]


class Sampler:
    """Random strings of a grammar, each with the places of its frame: what is no value. The free text before a
    call never quotes it: then it is no call (docs/design.md, promise 6)."""

    def __init__(self, definition: Definition, seed: int) -> None:
        self._definition = definition
        self._random = random.Random(seed)
        self._automata: dict[Text | JsonText, Automaton] = {}
        self._leads = set(_leads(definition.start))
        self._costs = self._least()
        self._budget = 0

    def sample(self, budget: int = 40) -> tuple[str, list[bool]]:
        """A string, and of each character whether it belongs to the frame. `budget` bounds how much is optional."""
        self._budget = budget
        pieces = list(self._make(self._definition.start))
        text = "".join(piece for piece, _ in pieces)
        return text, [in_frame for piece, in_frame in pieces for _ in piece]

    def _make(self, node: Node) -> Iterator[tuple[str, bool]]:
        rng = self._random
        match node:
            case Literal(text) | Special(text):
                yield text, True
            case Chars():
                yield rng.choice(_members(node)), False
            case Series(parts):
                for part in parts:
                    yield from self._make(part)
            case Choice(options):
                self._budget -= 1
                if self._budget < 0:
                    options = sorted(options, key=self._cost)[:1]
                yield from self._make(rng.choice(options))
            case Repeat(part, low, high):
                count = low
                while (high is None or count < high) and self._budget > 0 and rng.random() < 0.6:
                    self._budget -= 1
                    count += 1
                for _ in range(count):
                    yield from self._make(part)
            case Token(part):
                for piece, _ in self._make(part):
                    yield piece, False
            case Text(_, end):
                text = self._text(node)
                while node in self._leads and _quotes(text):
                    text = self._text(node)
                yield text, False
                yield end, True
            case JsonText():
                yield self._string(node), False
            case Json(_, form):
                for piece, _ in self._make(form):
                    yield piece, False
            case Ref(name):
                yield from self._make(self._definition.rules[name])

    def _text(self, node: Text) -> str:
        automaton = self._automaton(node, node.end)
        state, text = 0, ""
        for _ in range(self._random.randrange(6)):
            state, text = self._walk(automaton, state, text, self._piece())
        for char in "x\nyz":  # what was begun is no end
            if not node.end or self._ends(automaton, state, node.end):
                return text
            state, text = self._walk(automaton, state, text, char)
        raise AssertionError(f"{node.end!r} can never come")

    def _string(self, node: JsonText) -> str:
        automaton = self._automaton(node, "")
        state, content = 0, ""
        for char in "".join(self._piece() for _ in range(self._random.randrange(4))):
            source = json.dumps(char, ensure_ascii=self._random.random() < 0.2)[1:-1]
            if len(source) > 1:
                state, content = automaton.restart, content + source
            elif (after := automaton.step(state, char)) is not None:
                state, content = after, content + char
        for char in "xyz":
            if not node.avoid or automaton.step(state, '"') is not None:
                return f'"{content}"'
            state, content = self._walk(automaton, state, content, char)
        raise AssertionError(f"the string {content!r} can never end")

    def _automaton(self, node: Text | JsonText, end: str) -> Automaton:
        if node not in self._automata:
            self._automata[node] = Automaton(node.avoid, end)
        return self._automata[node]

    def _piece(self) -> str:
        return self._random.choice(_PIECES if self._random.random() < 0.7 else _ALPHABET)

    def _walk(self, automaton: Automaton, state: int, text: str, piece: str) -> tuple[int, str]:
        for char in piece:
            after = automaton.step(state, char)
            if after is not None:
                state, text = after, text + char
        return state, text

    def _ends(self, automaton: Automaton, state: int, end: str) -> bool:
        for i, char in enumerate(end):
            edge = next((e for e in automaton.states[state] if (char in e.chars) != e.others), None)
            if edge is None or (edge.target is None) != (i == len(end) - 1):
                return False
            state = edge.target if edge.target is not None else state
        return True

    def _cost(self, node: Node) -> float:
        match node:
            case Series(parts):
                return sum(map(self._cost, parts))
            case Choice(options):
                return 1 + min(map(self._cost, options), default=1e9)
            case Repeat(part, low, _):
                return low * self._cost(part) if low else 0
            case Token(part) | Json(_, part):
                return self._cost(part)
            case Ref(name):
                return self._costs[name]
            case _:
                return 1

    def _least(self) -> dict[str, float]:
        """How little each rule may come to, so that recursion ends."""
        self._costs = dict.fromkeys(self._definition.rules, 1e9)
        for _ in range(20):
            self._costs = {name: self._cost(node) + 1 for name, node in self._definition.rules.items()}
        return self._costs


def _members(chars: Chars) -> str:
    inside = re.compile(f"[{'^' if chars.negated else ''}{chars.body}]")
    return "".join(filter(inside.fullmatch, "aceftxuEnrbZ0123456789_-.:+/\"'\\ \t\n"))


def _leads(node: Node) -> Iterator[Text]:
    """The free text before a call, outside the rules of calls. It avoids what it ends with; thoughts do not."""
    match node:
        case Text(avoid, end) if end and exactly(end) in avoid:
            yield node
        case Series(parts) | Choice(parts):
            for part in parts:
                yield from _leads(part)
        case Repeat(part) | Token(part):
            yield from _leads(part)
        case _:
            pass


def _quotes(text: str) -> bool:
    """Whether a call right after this text may stand in code: in a code block, in inline code, or indented after a
    colon."""
    earlier_lines, _, line = text.rpartition("\n")
    is_indented = not line.strip() and len(line.expandtabs(4)) >= 4
    return "```" in text or line.count("`") % 2 == 1 or (is_indented and earlier_lines.rstrip()[-1:] == ":")
