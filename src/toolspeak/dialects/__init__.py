"""How models write tool calls in text: sans-IO parsers, renderers and instructions, usable on their own.

parser = get_dialect("cogency-json").parser(tools)
for chunk in chunks:
    for delta in parser.feed(chunk): ...
for delta in parser.close("stop"): ...
"""

from __future__ import annotations

from toolspeak.dialects.base import BatchRule, Dialect, DialectInfo, History, Parser, Section
from toolspeak.dialects.cogency_json import CogencyJson
from toolspeak.dialects.cogency_xml import CogencyXml
from toolspeak.dialects.gemma import FUNCTIONGEMMA, GEMMA4
from toolspeak.dialects.hermes import HERMES
from toolspeak.dialects.pythonic import LFM2, LLAMA4_PYTHONIC, OLMO3, PYTHONIC
from toolspeak.dialects.tool_call import ToolCallDialect
from toolspeak.dialects.turn import ParsedTurn, TurnCollector, read_turn
from toolspeak.errors import UnknownDialect, suggest

DIALECTS: tuple[Dialect, ...] = (
    CogencyJson(),
    CogencyXml(),
    ToolCallDialect(),
    HERMES,
    PYTHONIC,
    LLAMA4_PYTHONIC,
    LFM2,
    OLMO3,
    GEMMA4,
    FUNCTIONGEMMA,
)
"""Adding a dialect: one file, one line here, its samples in `tests/samples`."""

_BY_NAME = {name: dialect for dialect in DIALECTS for name in (dialect.name, *dialect.info.aliases)}


def get_dialect(name: str) -> Dialect:
    """The dialect of this name. Raises UnknownDialect, which lists the names there are."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise UnknownDialect(f"There is no dialect {suggest(name, _BY_NAME)}") from None


__all__ = [
    "DIALECTS",
    "BatchRule",
    "Dialect",
    "DialectInfo",
    "History",
    "ParsedTurn",
    "Parser",
    "Section",
    "TurnCollector",
    "get_dialect",
    "read_turn",
]
