"""Checks of grammars with the matchers themselves: strings made from a grammar, and a grammar's frame damaged."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jsonschema_rs
import llguidance
from dialect_strategies import spec
from llguidance.gbnf_to_lark import gbnf_to_lark

from toolspeak.data.messages import MalformedCall, Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import Dialect, read_turn
from toolspeak.dialects.grammar.avoid import Automaton
from toolspeak.dialects.grammar.build import Grammar
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
    Text,
    Token,
)

S, I = {"type": "string"}, {"type": "integer"}  # noqa: E741
TREE = {
    "type": "object",
    "properties": {"name": S, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["name"],
    "additionalProperties": False,
}
TOOLS = (
    spec("get_weather", {"city": S, "days": I}, ["city"]),
    spec("ping", {}),
    spec(
        "write_file",
        {"path": S, "content": S, "mode": {"enum": ["w", "a", "x y"]}, "size": {"type": "number"}},
        ["path", "content"],
    ),
    spec(
        "set_flags",
        {
            "on": {"type": "boolean"},
            "none": {"type": "null"},
            "maybe": {"type": ["string", "null"]},
            "fixed": {"const": 7},
        },
        [],
    ),
    spec(
        "any-shape",
        {
            "any": {},
            "list": {"type": "array"},
            "map": {"type": "object"},
            "more": {"type": "object", "additionalProperties": I},
        },
        [],
    ),
    spec(
        "pick",
        {
            "either": {"anyOf": [I, {"type": "array", "items": S}]},
            "level": {"oneOf": [{"const": 1}, {"const": "one"}]},
            "two": {"type": "array", "items": I, "minItems": 2, "maxItems": 3},
        },
        ["either"],
    ),
    ToolSpec(
        "grow",
        "",
        {
            "type": "object",
            "properties": {
                "tree": {"$ref": "#/$defs/tree"},
                "point": {
                    "allOf": [
                        {"type": "object", "properties": {"x": I}, "required": ["x"]},
                        {"type": "object", "properties": {"y": I}},
                    ]
                },
                "pair": {"type": "array", "prefixItems": [S, {"type": "boolean"}], "items": False},
            },
            "required": ["tree"],
            "$defs": {"tree": TREE},
        },
    ),
)
"""Tools that show every feature of a schema that grammars know."""

NAMES = {tool.name for tool in TOOLS}
_VALIDATORS = {tool.name: jsonschema_rs.validator_for(dict(tool.parameters)) for tool in TOOLS}

# --- matchers -----------------------------------------------------------------------------------

Accepts = Callable[[str], bool]
_BYTES = llguidance.LLTokenizer("byte")


class Matcher:
    """llguidance's matcher over a tokenizer of single bytes: the whole text, token by token."""

    def __init__(self, source: str) -> None:
        grammar = llguidance.LLMatcher.grammar_from_lark(source)
        problem = llguidance.LLMatcher.validate_grammar(grammar, _BYTES)
        assert not problem, f"{problem}\n{source}"
        self._fresh = llguidance.LLMatcher(_BYTES, grammar)

    def __call__(self, text: str) -> bool:
        matcher = self._fresh.deep_copy()
        tokens = list(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    def damaged(self, text: str, spoiled: Sequence[tuple[int, int, str]]) -> Iterator[str]:
        """Of the texts that result from replacing text[start:stop] each time, those that are still accepted."""
        at, matcher = 0, self._fresh.deep_copy()
        for start, stop, instead in spoiled:
            assert start >= at, "damages go from left to right"
            assert matcher.consume_tokens(list(text[at:start].encode())), text[:start]
            at, branch = start, matcher.deep_copy()
            rest = list((instead + text[stop:]).encode())
            if branch.try_consume_tokens(rest) == len(rest) and branch.is_accepting():
                yield text[:start] + instead + text[stop:]


def matcher(grammar: Grammar) -> Matcher:
    return _matcher(grammar.target, grammar.source)


@lru_cache(8)
def _matcher(target: str, source: str) -> Matcher:
    return Matcher(gbnf_to_lark(spelled(source)) if target == "gbnf" else source)


def spelled(gbnf: str) -> str:
    """The same grammar with every character a rule that the converter cannot join with others into one lexeme:
    llguidance reads lexemes without going back, llama.cpp reads characters. (`\x01` may follow each of them.)"""
    units: dict[str, str] = {}

    def unit(body: str) -> str:
        return units.setdefault(body, f"unit{len(units)}")

    def spell(found: re.Match[str]) -> str:
        text = found[0]
        if text[0] == "[":
            return unit(text)
        chars = re.findall(r"\\x..|\\.|[^\\]", text[1:-1])
        return "(" + " ".join(unit(f'"{char}"') for char in chars) + ")" if chars else text

    made = re.sub(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]', spell, gbnf)
    rules = "".join(f"{name} ::= {body} keep\n" for body, name in units.items())
    return f'{made}{rules}keep ::= "" | [\\x01] keep\n'


# --- strings made from a grammar ----------------------------------------------------------------

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
    """Random strings of a grammar, each with the places of its frame: what is no value."""

    def __init__(self, definition: Definition, seed: int) -> None:
        self._definition = definition
        self._random = random.Random(seed)
        self._automata: dict[Text | JsonText, Automaton] = {}
        self._costs = self._least()
        self._budget = 0

    def sample(self, budget: int = 40) -> tuple[str, list[bool]]:
        """A string, and of each character whether it belongs to the frame. `budget` bounds how much is optional."""
        self._budget = budget
        pieces = list(self._make(self._definition.start))
        text = "".join(piece for piece, _ in pieces)
        return text, [framed for piece, framed in pieces for _ in piece]

    def _make(self, node: Node) -> Iterator[tuple[str, bool]]:
        rng = self._random
        match node:
            case Literal(text):
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
                yield self._text(node), False
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
        state, made = 0, ""
        for _ in range(self._random.randrange(6)):
            state, made = self._walk(automaton, state, made, self._piece())
        for char in "x\nyz":  # what was begun is no end
            if not node.end or self._ends(automaton, state, node.end):
                return made
            state, made = self._walk(automaton, state, made, char)
        raise AssertionError(f"{node.end!r} can never come")

    def _string(self, node: JsonText) -> str:
        automaton = self._automaton(node, "")
        state, made = 0, ""
        for char in "".join(self._piece() for _ in range(self._random.randrange(4))):
            source = json.dumps(char, ensure_ascii=self._random.random() < 0.2)[1:-1]
            if len(source) > 1:
                state, made = automaton.restart, made + source
            elif (after := automaton.step(state, char)) is not None:
                state, made = after, made + char
        for char in "xyz":
            if not node.avoid or automaton.step(state, '"') is not None:
                return f'"{made}"'
            state, made = self._walk(automaton, state, made, char)
        raise AssertionError(f"the string {made!r} can never end")

    def _automaton(self, node: Text | JsonText, end: str) -> Automaton:
        if node not in self._automata:
            self._automata[node] = Automaton(node.avoid, end)
        return self._automata[node]

    def _piece(self) -> str:
        return self._random.choice(_PIECES if self._random.random() < 0.7 else _ALPHABET)

    def _walk(self, automaton: Automaton, state: int, made: str, piece: str) -> tuple[int, str]:
        for char in piece:
            after = automaton.step(state, char)
            if after is not None:
                state, made = after, made + char
        return state, made

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


# --- what a string is to the dialect ------------------------------------------------------------


def problem(dialect: Dialect, text: str, tools: Sequence[ToolSpec] = TOOLS) -> str:
    """What the dialect's own parser, or a tool's schema, has against a turn; empty if nothing."""
    turn = read_turn(dialect, text, tools)
    if turn.forged:
        return f"forged results: {turn.forged}"
    if turn.ignored:
        return f"ignored: {turn.ignored}"
    for call in turn.calls:
        if isinstance(call, MalformedCall):
            if call.code == "duplicate_key":
                continue  # in an object with free keys: that the same one comes twice, no grammar can rule out
            return f"malformed: {call.code}: {call.reason}"
        if call.name not in NAMES:
            return f"unknown tool: {call.name}"
        error = next(iter(_VALIDATORS[call.name].iter_errors(dict(call.arguments))), None)
        if error is not None:
            return f"{call.name}: {error.message} at {list(error.instance_path)}"
    return ""


def rendered(dialect: Dialect, calls: Sequence[ToolCall], tools: Sequence[ToolSpec] = TOOLS) -> str:
    return "\n".join(entry.text for entry in dialect.render([Message("assistant", tuple(calls))], tools))


def is_legal(dialect: Dialect, text: str) -> bool:
    """Whether this is a form of the dialect, if another one: its parser reads calls of known tools and nothing else,
    with valid arguments, and has nothing to be lenient about."""
    turn = read_turn(dialect, text, TOOLS)
    noted = turn.notes or any(isinstance(call, ToolCall) and call.notes for call in turn.calls)
    return bool(turn.calls) and not (problem(dialect, text) or turn.text.strip() or noted)


def damages(text: str, framed: Sequence[bool], alphabet: str, count: int, seed: int) -> list[tuple[int, int, str]]:
    """Every deletion in the frame, and of each place `count` replacements and insertions of the frame's characters;
    nothing is inserted at a value's edge, where it would be the value's."""
    rng = random.Random(seed)
    found: list[tuple[int, int, str]] = []
    for i, char in enumerate(text):
        if not framed[i]:
            continue
        others = [each for each in alphabet if each != char]
        found.append((i, i + 1, ""))
        found += [(i, i + 1, each) for each in rng.sample(others, min(count, len(others)))]
        if i and framed[i - 1]:
            found += [(i, i, each) for each in rng.sample(others, min(count, len(others)))]
    return found


def plain(value: Any) -> Any:
    """A value as JSON Schema has it: no `1.0` where an integer is meant, keys as they are."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value
