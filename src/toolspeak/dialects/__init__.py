"""How models write tool calls in text: sans-IO parsers, renderers and instructions, usable on their own.

parser = get_dialect("cogency-json").parser(tools)
for chunk in chunks:
    for delta in parser.feed(chunk): ...
for delta in parser.close("stop"): ...
"""

from __future__ import annotations

from toolspeak.dialects.base import BatchRule, Dialect, DialectInfo, History, Parser, Section
from toolspeak.dialects.catalogue import DIALECTS, PROTOCOLS
from toolspeak.dialects.grammar.target import TARGETS, Grammar, Target
from toolspeak.dialects.turn import ParsedTurn, TurnCollector, read_turn
from toolspeak.errors import UnknownDialect, suggest

_BY_NAME = {name: dialect for dialect in DIALECTS for name in (dialect.name, *dialect.info.aliases)}


def get_dialect(name: str) -> Dialect:
    """The dialect of this name. Raises UnknownDialect, which lists the names there are."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise UnknownDialect(f"There is no dialect {suggest(name, _BY_NAME)}") from None


__all__ = [
    "DIALECTS",
    "PROTOCOLS",
    "TARGETS",
    "BatchRule",
    "Dialect",
    "DialectInfo",
    "Grammar",
    "History",
    "ParsedTurn",
    "Parser",
    "Section",
    "Target",
    "TurnCollector",
    "get_dialect",
    "read_turn",
]
