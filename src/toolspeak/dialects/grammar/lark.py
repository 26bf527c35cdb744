"""A grammar in llguidance's dialect of Lark (docs/syntax.md there): JSON values as `%json`, free text as terminals."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolspeak.dialects.grammar.avoid import Pattern, contains, exactly
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
    is_regular,
    json_literal,
    quantifier,
    reachable_rules,
    series,
)
from toolspeak.dialects.grammar.special_tokens import SpecialTokens, with_special

_STRING = r"""/"([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/"""
# Our renderers escape live markers (`\u003c`); white space is bounded, or a model may write it until its tokens end.
_GUIDANCE = {
    "whitespace_pattern": "( |\\n[ \\t]{0,20})?",
    "json_allowed_escapes": 'nrbtf\\"u',
    "json_allow_general_unicode_escapes": True,
}


def to_lark(definition: Definition, special_tokens: SpecialTokens = ()) -> str:
    """The grammar's text; its start rule is `start`. Raises ConfigurationError for special tokens it cannot name."""
    return _LarkWriter(with_special(definition, special_tokens)).write()


class _LarkWriter:
    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._terminals: dict[object, str] = {}
        self._lines: list[str] = []

    def write(self) -> str:
        start = self._rule(self._definition.start)
        rules = [
            f"{_name(name)}: {self._rule(self._definition.rules[name])}"
            for name in reachable_rules(self._definition.start, self._definition.rules)
        ]
        return "\n".join(["%llguidance {}", "", f"start: {start}", *rules, *self._lines]) + "\n"

    def _rule(self, node: Node, inner: bool = False) -> str:
        match node:
            case Literal(text):
                return json_literal(text)
            case Series(parts):
                text = " ".join(self._rule(part, True) for part in _runs(parts)) or '""'
                return f"({text})" if inner and len(parts) > 1 else text
            case Choice(options) if not is_regular(node):
                return f"({' | '.join(self._rule(option) for option in options)})"
            case Repeat(part, low, high):
                return f"({self._rule(part)}){quantifier(low, high)}"
            case Ref(name):
                return _name(name)
            case Special(text, number):
                return text if number is None else f"<[{number}]>"
            case Json(schema, _):
                return f"%json {json.dumps({**json.loads(schema), 'x-guidance': _GUIDANCE}, ensure_ascii=False)}"
            case _:
                return self._terminal(node, "TOKEN", self._token(node))

    def _token(self, node: Node) -> str:
        """As a part of a terminal, which may hold other terminals but no rules."""
        match node:
            case Literal(text):
                return json_literal(text)
            case Chars(body, is_negated):
                return f"/[{'^' if is_negated else ''}{_slashes(body)}]/"
            case Series(parts):
                return f"({' '.join(self._token(part) for part in parts)})" if parts else '""'
            case Choice(options):
                return f"({' | '.join(self._token(option) for option in options)})"
            case Repeat(part, low, high):
                return f"({self._token(part)}){quantifier(low, high)}"
            case Token(part):
                return self._token(part)
            case Text(avoid, end):
                return self._terminal(node, "TEXT", self._text(avoid, end))
            case JsonText(avoid):
                free = self._terminal("string", "STRING", _STRING)
                inside = "".join(f' & ~/"{regex}/' for regex in contains(avoid))
                return self._terminal(node, "STRING", free + inside) if avoid else free
            case Json() | Special() | Ref():
                raise AssertionError("a rule inside of a terminal is our bug")

    def _text(self, avoid: Sequence[Pattern], end: str) -> str:
        patterns = [*avoid, *([exactly(end)] if end else [])]
        free = "/(?s:.*)/" + "".join(f" & ~/{regex}/" for regex in contains(patterns))
        if not end:
            return free
        return f"{self._terminal(('free', *patterns), 'FREE', free)} {json_literal(end)}"

    def _terminal(self, key: object, hint: str, text: str) -> str:
        if key not in self._terminals:
            name = self._terminals[key] = f"{hint}_{len(self._terminals)}"
            self._lines.append(f"{name}: {text}")
        return self._terminals[key]


def _runs(parts: Sequence[Node]) -> list[Node]:
    """Joins neighbours that a lexer can read into one token: a lexer reads the longest token and never goes back. A
    part that may be missing stays separate, because the text after it can begin in the same way."""
    runs: list[Node] = []
    for part in parts:
        last = runs[-1] if runs else None
        joins = last is not None and not any(isinstance(each, Repeat) or not is_regular(each) for each in (last, part))
        if last is not None and joins:
            runs[-1] = Token(series(last.part if isinstance(last, Token) else last, part))
        else:
            runs.append(part)
    return runs


def _name(rule: str) -> str:
    return f"r_{rule.replace('-', '_')}"


def _slashes(body: str) -> str:
    return body.replace("/", "\\/")
