"""The nodes of a grammar, before it is written for a matcher.

A dialect describes one call as nodes. `tool_choice` joins calls, free text and reasoning for a tool choice. `lark`,
`gbnf`, `regex` and `structural_tag` write the nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from toolspeak.data.values import quick
from toolspeak.dialects.grammar.avoid import Pattern


@quick()
class Literal:
    """Exactly this text."""

    text: str


@quick()
class Chars:
    r"""One character of a class, written as in a regular expression without its brackets (`A-Z\x00-\x1f`).

    It may hold ranges, `\n`, `\t`, `\r`, `\xHH` and a backslash before `\ ] [`, which all targets read.
    """

    body: str
    negated: bool = False


@quick()
class Series:
    """The parts in order."""

    parts: tuple[Node, ...]


@quick()
class Choice:
    """One of the options. Without options it matches nothing."""

    options: tuple[Node, ...]


@quick()
class Repeat:
    """The part, at least `low` and at most `high` times (None: any number)."""

    part: Node
    low: int = 0
    high: int | None = None


@quick()
class Token:
    """A part without references that a lexer reads as one piece, because what follows cannot continue it."""

    part: Node


@quick()
class Text:
    """Any text without the patterns, up to the first `end`. If the end completes a pattern, the end counts."""

    avoid: tuple[Pattern, ...]
    end: str = ""


@quick()
class JsonText:
    """A JSON string with its quotes. Its source, including the closing quote, does not contain the patterns."""

    avoid: tuple[Pattern, ...] = ()


@quick()
class Json:
    """A JSON value of a schema."""

    schema: str
    """The JSON Schema, as JSON text."""
    form: Node
    """The same as nodes, for targets without JSON Schema."""


@quick()
class Special:
    """One token of the model's vocabulary, with this text. `number` is its id, if known."""

    text: str
    number: int | None = None


@quick()
class Ref:
    """A named rule."""

    name: str


Node: TypeAlias = Literal | Chars | Series | Choice | Repeat | Token | Text | JsonText | Json | Special | Ref

COUNTER = Token(Series((Chars("0-9"), Repeat(Chars("0-9"), 0, 8))))
NINE = Token(Repeat(Chars("0-9A-Za-z"), 9, 9))
"""An id as Mistral's template requires it."""

EMPTY = Series(())
NOTHING = Choice(())


def series(*parts: Node | str) -> Node:
    """The parts as one flat series, with neighbouring literals joined.

    A literal moves into a choice after it whose options begin with literals, so that a lexer sees the difference.
    """
    flat: list[Node] = []
    for part in parts:
        node = Literal(part) if isinstance(part, str) else part
        for each in node.parts if isinstance(node, Series) else (node,):
            last = flat[-1] if flat else None
            if isinstance(each, Literal) and isinstance(last, Literal):
                flat[-1] = Literal(last.text + each.text)
            elif isinstance(each, Choice) and isinstance(last, Literal) and all(map(_begins_literally, each.options)):
                flat[-1] = choice(*(series(last, option) for option in each.options))
            elif each != Literal(""):
                flat.append(each)
    if NOTHING in flat:
        return NOTHING
    return flat[0] if len(flat) == 1 else Series(tuple(flat))


def _begins_literally(node: Node) -> bool:
    match node:
        case Literal() | Text():
            return True
        case Series((first, *_)):
            return _begins_literally(first)
        case Choice(options):
            return all(map(_begins_literally, options))
        case _:
            return False


def split_leading_literals(node: Node) -> tuple[Node, Node]:
    """The literals with which a node begins, and the rest."""
    match node:
        case Literal():
            return node, EMPTY
        case Series((Literal() as first, *rest)):
            return first, series(*rest)
        case Series((Choice(options) as first, *rest)) if all(isinstance(option, Literal) for option in options):
            return first, series(*rest)
        case _:
            return (node, EMPTY) if _begins_literally(node) else (EMPTY, node)


def is_regular(node: Node) -> bool:
    """Whether a lexer can read the node: it holds no rule, no JSON and no special token."""
    match node:
        case Series(parts) | Choice(parts):
            return all(map(is_regular, parts))
        case Repeat(part, _, _) | Token(part):
            return is_regular(part)
        case Json() | Special() | Ref():
            return False
        case _:
            return True


def choice(*options: Node | str) -> Node:
    """One of the options, each once."""
    nodes = dict.fromkeys(Literal(option) if isinstance(option, str) else option for option in options)
    rest = [node for node in nodes if node != NOTHING]
    return rest[0] if len(rest) == 1 else Choice(tuple(rest))


def optional(part: Node | str) -> Node:
    node = Literal(part) if isinstance(part, str) else part
    return EMPTY if node == NOTHING else Repeat(node, 0, 1)


def separated_list(part: Node, joint: Node | str, low: int, high: int | None) -> Node:
    """`part`, `low` to `high` times, with `joint` in between; `low` is 0 or more."""
    if high is not None and high < max(low, 1):
        return EMPTY if high == 0 == low else NOTHING
    more = Repeat(series(joint, part), max(low - 1, 0), None if high is None else high - 1)
    chain = part if high == 1 else series(part, more)
    return chain if low else optional(chain)


@quick(frozen=False)
class Rules:
    """The named rules of a grammar while it is being built."""

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    _names: dict[object, str] = field(default_factory=dict[object, str])

    def add(self, hint: str, node: Node) -> Ref:
        """The rule for this node; equal nodes share one rule."""
        return self.once(node, hint, lambda: node)

    def once(self, key: object, hint: str, make: Callable[[], Node]) -> Ref:
        """The rule of this key, made on first use. It may refer to itself."""
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._free(hint)
            self.nodes[name] = EMPTY  # a placeholder while the rule is being made
            self.nodes[name] = make()
        return Ref(name)

    def _free(self, hint: str) -> str:
        base = re.sub("[^a-z0-9]+", "-", hint.lower()).strip("-")[:40] or "x"
        base = base if base[0].isalpha() else f"r-{base}"
        name, number = base, 1
        while name in self.nodes:
            number += 1
            name = f"{base}-{number}"
        return name


@quick()
class Definition:
    """A whole grammar: the start node and the rules it refers to."""

    start: Node
    rules: Mapping[str, Node]


def reachable_rules(node: Node, rules: Mapping[str, Node]) -> list[str]:
    """The rules that a node refers to, directly or through other rules, but not from within JSON values."""
    names: dict[str, None] = {}
    waiting = [node]
    while waiting:
        match waiting.pop():
            case Ref(name) if name not in names:
                names[name] = None
                waiting.append(rules[name])
            case Series(parts) | Choice(parts):
                waiting += parts
            case Repeat(part, _, _) | Token(part):
                waiting.append(part)
            case _:
                pass
    return sorted(names)


def strip_prefix(node: Node, prefix: str) -> Node:
    """The rest of a node after the prefix; NOTHING if it cannot begin so."""
    match node:
        case _ if not prefix:
            return node
        case Literal(text):
            return Literal(text[len(prefix) :]) if text.startswith(prefix) else NOTHING
        case Choice(options):
            return choice(*(strip_prefix(option, prefix) for option in options))
        case Series((Literal(text), *rest)) if len(text) < len(prefix):
            inner = strip_prefix(series(*rest), prefix[len(text) :])
            return inner if prefix.startswith(text) else NOTHING
        case Series((first, *rest)):
            return series(strip_prefix(first, prefix), *rest)
        case Repeat(part, low, high) if high is None or high > 0:
            most = None if high is None else high - 1
            return series(strip_prefix(part, prefix), Repeat(part, max(low - 1, 0), most))
        case _:
            return NOTHING


def quantifier(low: int, high: int | None) -> str:
    """The suffix of a repeated part, as grammars and regular expressions write it."""
    match low, high:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _:
            return f"{{{low},{'' if high is None else high}}}"


def json_literal(text: str) -> str:
    """A JSON string's source."""
    return json.dumps(text, ensure_ascii=False)


def literals(texts: Iterable[str]) -> Node:
    return choice(*(Literal(text) for text in texts))
