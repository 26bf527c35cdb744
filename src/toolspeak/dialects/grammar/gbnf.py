"""A grammar as llama.cpp's GBNF (grammars/README.md there), which xgrammar's EBNF reads too."""

from __future__ import annotations

from toolspeak.dialects.grammar.avoid import Automaton, Edge
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
    quantifier,
)

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_CLASS_ESCAPES = {
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "]": "\\]",
    "\\": "\\\\",
    "[": "\\[",
    "^": "\\x5e",
    "-": "\\x2d",
}


def to_gbnf(definition: Definition) -> str:
    """The grammar's text; its first rule is `root`."""
    return _GbnfWriter(definition).write()


class _GbnfWriter:
    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._lines: list[str] = []
        self._texts: dict[Text | JsonText, str] = {}
        self._shared_rules: dict[str, str] = {}

    def write(self) -> str:
        start = self._node(self._definition.start)
        rules = [f"{name} ::= {self._node(node)}" for name, node in self._definition.rules.items()]
        return "\n".join([f"root ::= {start}", *rules, *self._lines]) + "\n"

    def _node(self, node: Node, inner: bool = False) -> str:
        match node:
            case Literal(text) | Special(text):
                return _literal(text)
            case Chars(body, is_negated):
                return f"[{'^' if is_negated else ''}{body}]"
            case Series(parts):
                text = " ".join(self._node(part, True) for part in parts) or '""'
                return f"({text})" if inner and len(parts) > 1 else text
            case Choice(options):
                text = " | ".join(self._node(option) for option in options) or "[^\\x00-\\U0010ffff]"
                return f"({text})" if inner else text
            case Repeat(part, low, high):
                return self._unit(part) + quantifier(low, high)
            case Token(part):
                return self._node(part, inner)
            case Text():
                return self._automaton(node, "text")
            case JsonText(()):
                return self._share("json-string", _STRING)
            case JsonText():
                return self._automaton(node, "string")
            case Json(_, form):
                return self._node(form, inner)
            case Ref(name):
                return name

    def _unit(self, part: Node) -> str:
        text = self._node(part, True)
        simple = isinstance(part, Chars | Ref | Text | JsonText | Literal) or text.startswith("(")
        return text if simple else f"({text})"

    def _share(self, name: str, text: str) -> str:
        if name not in self._shared_rules:
            self._shared_rules[name] = text
            self._lines.append(f"{name} ::= {text}")
        return name

    def _automaton(self, node: Text | JsonText, hint: str) -> str:
        if node not in self._texts:
            base = self._texts[node] = f"{hint}-{len(self._texts)}"
            if isinstance(node, Text):
                self._text(node, base)
            else:
                self._string(node, base)
        return self._texts[node]

    def _text(self, node: Text, base: str) -> None:
        """One rule for each state. Each rule ends in the next one, so that no stack grows."""
        states = Automaton(node.avoid, node.end).states
        for i, edges in enumerate(states):
            options = [_edge(edge, base) for edge in edges]
            self._lines.append(f"{_state(base, i)} ::= {' | '.join(options if node.end else [*options, _EMPTY])}")

    def _string(self, node: JsonText, base: str) -> None:
        escape = self._share("json-escape", _ESCAPE)
        automaton = Automaton(node.avoid)
        closing = [_closes(automaton, i) for i in range(len(automaton.states))]
        restart = _state(f"{base}-in", automaton.restart)
        for i, edges in enumerate(automaton.states):
            options = [_edge(each, f"{base}-in") for edge in edges if (each := _inside(edge)) is not None]
            options += [f"{escape} {restart}", *(['"\\""'] if closing[i] else [])]
            self._lines.append(f"{_state(f'{base}-in', i)} ::= {' | '.join(options)}")
        self._lines.append(f'{base} ::= "\\"" {base}-in')


_EMPTY = '""'
_ESCAPE = '"\\\\" (["\\\\/bfnrt] | "u" [0-9a-fA-F]{4})'
_STRING = f'"\\"" ([^"\\\\\\x00-\\x1f] | {_ESCAPE})* "\\""'
_CONTROLS = "\\x00-\\x1f"


def _closes(automaton: Automaton, state: int) -> bool:
    """Whether the string may end here: the quote completes no pattern."""
    edges = automaton.states[state]
    return any(('"' in edge.chars) != edge.others for edge in edges)


def _inside(edge: Edge) -> Edge | None:
    """The edge without the characters that a JSON string must escape. `_edge` adds the control characters."""
    if edge.others:
        return Edge(edge.chars + "".join(char for char in '"\\' if char not in edge.chars) + "\0", True, edge.target)
    chars = "".join(char for char in edge.chars if char not in '"\\' and char >= " ")
    return Edge(chars, False, edge.target) if chars else None


def _edge(edge: Edge, base: str) -> str:
    controls = _CONTROLS if "\0" in edge.chars else ""
    body = "".join(_CLASS_ESCAPES.get(char, char) for char in edge.chars if not controls or char >= " ")
    chars = f"[{'^' if edge.others else ''}{body}{controls}]"
    return chars if edge.target is None else f"{chars} {_state(base, edge.target)}"


def _state(base: str, number: int) -> str:
    return f"{base}-{number}" if number else base


def _literal(text: str) -> str:
    return (
        '"' + "".join(_ESCAPES.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 32 else char) for char in text) + '"'
    )
