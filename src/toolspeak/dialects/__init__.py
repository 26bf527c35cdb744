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
from toolspeak.dialects.cohere import COHERE_COMMAND, COMMAND_R_PLUS
from toolspeak.dialects.hermes import ERNIE45, GRANITE4, HERMES
from toolspeak.dialects.open_json import (
    GIGACHAT3,
    GRANITE3,
    GRANITE_20B_FC,
    LLAMA3_JSON,
    MISTRAL_V3,
    PHI4_MINI,
    XLAM,
)
from toolspeak.dialects.tagged_json import (
    APERTUS,
    APRIEL,
    DOTS,
    HUNYUAN_A13B,
    INKLING,
    INTERNLM2,
    JAMBA,
    LONGCAT,
    NEMOTRON_V2,
)
from toolspeak.dialects.tool_call import ToolCallDialect
from toolspeak.dialects.turn import ParsedTurn, TurnCollector, read_turn
from toolspeak.errors import UnknownDialect, suggest

DIALECTS: tuple[Dialect, ...] = (
    CogencyJson(),
    CogencyXml(),
    ToolCallDialect(),
    HERMES,
    GRANITE4,
    ERNIE45,
    LONGCAT,
    JAMBA,
    APRIEL,
    HUNYUAN_A13B,
    NEMOTRON_V2,
    APERTUS,
    INTERNLM2,
    INKLING,
    DOTS,
    GRANITE3,
    GRANITE_20B_FC,
    PHI4_MINI,
    MISTRAL_V3,
    LLAMA3_JSON,
    XLAM,
    GIGACHAT3,
    COHERE_COMMAND,
    COMMAND_R_PLUS,
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
