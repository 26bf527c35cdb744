"""How models write tool calls in text: sans-IO parsers, renderers and instructions, usable on their own.

parser = get_dialect("cogency-json").parser(tools)
for chunk in chunks:
    for delta in parser.feed(chunk): ...
for delta in parser.close("stop"): ...
"""

from __future__ import annotations

from toolspeak.dialects.base import BatchRule, Dialect, DialectInfo, History, Listing, Parser, Section
from toolspeak.dialects.catalogue import DIALECTS, PROTOCOLS
from toolspeak.dialects.opening import open_parser
from toolspeak.dialects.read_results import read_results
from toolspeak.dialects.repair import repaired
from toolspeak.dialects.schema_text import list_tools
from toolspeak.dialects.translate import Translation, translate
from toolspeak.dialects.turn import ParsedTurn, TurnCollector, read_turn
from toolspeak.errors import UnknownDialect, suggest

_BY_NAME = {name: dialect for dialect in DIALECTS for name in (dialect.name, *dialect.info.aliases)}


def get_dialect(name: str) -> Dialect:
    """The dialect of this name, in any case, with `-` or `_`. Raises UnknownDialect, which lists them all."""
    try:
        return _BY_NAME[name.lower().replace("_", "-")]
    except KeyError:
        raise UnknownDialect(f"There is no dialect {suggest(name, _BY_NAME)}") from None


__all__ = [
    "DIALECTS",
    "PROTOCOLS",
    "BatchRule",
    "Dialect",
    "DialectInfo",
    "History",
    "Listing",
    "ParsedTurn",
    "Parser",
    "Section",
    "Translation",
    "TurnCollector",
    "get_dialect",
    "list_tools",
    "open_parser",
    "read_results",
    "read_turn",
    "repaired",
    "translate",
]
