"""A grammar as xgrammar's structural tag (0.2.x), which vLLM and SGLang take as JSON.

xgrammar defines free text: it ends at the triggers and excludes the markers as they are usually written. Our other
targets also exclude their variants in other case or with white space. Arguments are JSON Schema; other
values are EBNF, as in GBNF.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolspeak.dialects.grammar.avoid import Pattern
from toolspeak.dialects.grammar.gbnf import to_gbnf
from toolspeak.dialects.grammar.ir import (
    Choice,
    Definition,
    Json,
    Literal,
    Node,
    Ref,
    Repeat,
    Series,
    Text,
    Token,
    reachable_rules,
)

_MAX_SPACE = 20  # otherwise a model may write white space until its tokens end
Format = dict[str, Any]


def to_structural_tag(definition: Definition) -> str:
    """The tag as JSON."""
    tag = _TagWriter(definition.rules).format(definition.start)
    return json.dumps({"type": "structural_tag", "format": tag}, ensure_ascii=False)


class _TagWriter:
    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules

    def format(self, node: Node) -> Format:
        match node:
            case Literal(text):
                return {"type": "const_string", "value": text}
            case Text(avoid, end):
                return self._text(node, avoid, end)
            case _ if not self._holds_json(node):
                return self._ebnf(node)
            case Series(parts):
                return _sequence([self.format(part) for part in parts])
            case Choice(options):
                return {"type": "or", "elements": [self.format(option) for option in options]}
            case Repeat(part, low, high):
                return _repeat(self.format(part), low, high)
            case Ref(name):
                return self.format(self._rules[name])
            case Json(schema, _):
                return {"type": "json_schema", "json_schema": json.loads(schema), "max_whitespace_cnt": _MAX_SPACE}
            case _:
                return self._ebnf(node)

    def _text(self, node: Text, avoid: tuple[Pattern, ...], end: str) -> Format:
        if any(pattern.anchored for pattern in avoid):
            return self._ebnf(node)  # a value
        excludes = [text for text in _literals(avoid) if not end or (text not in end and end not in text)]
        free_text: Format = {"type": "any_text", "excludes": excludes}
        return {"type": "tag", "begin": "", "content": free_text, "end": end} if end else free_text

    def _ebnf(self, node: Node) -> Format:
        rules = {name: self._rules[name] for name in reachable_rules(node, self._rules)}
        return {"type": "grammar", "grammar": to_gbnf(Definition(node, rules))}

    def _holds_json(self, node: Node) -> bool:
        """Whether a node, or a rule that it refers to, holds a JSON value. Such rules never refer to themselves."""
        nodes = [node, *(self._rules[name] for name in reachable_rules(node, self._rules))]
        return any(_json_inside(each) for each in nodes)


def _json_inside(node: Node) -> bool:
    match node:
        case Series(parts) | Choice(parts):
            return any(map(_json_inside, parts))
        case Repeat(part, _, _) | Token(part):
            return _json_inside(part)
        case _:
            return isinstance(node, Json)


def _sequence(parts: list[Format]) -> Format:
    flat = [inner for part in parts for inner in _parts(part)]
    return flat[0] if len(flat) == 1 else {"type": "sequence", "elements": flat}


def _parts(form: Format) -> list[Format]:
    return form["elements"] if form["type"] == "sequence" else [form]


def _repeat(content: Format, low: int, high: int | None) -> Format:
    match low, high:
        case 0, 1:
            return {"type": "optional", "content": content}
        case 0, None:
            return {"type": "star", "content": content}
        case 1, None:
            return {"type": "plus", "content": content}
        case _:
            return {"type": "repeat", "min": low, "max": -1 if high is None else high, "content": content}


def _literals(avoid: Iterable[Pattern]) -> dict[str, None]:
    """The usual text of each pattern that has one: a character of a set is the first, a `>` before white space."""
    texts: dict[str, None] = {}
    for pattern in avoid:
        if any(item.loop or item.negated for item in pattern.items):
            continue
        texts["".join(">" if ">" in item.chars else max(item.chars) for item in pattern.items)] = None
    return texts
