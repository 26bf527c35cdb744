"""How models write tool calls in text: sans-IO parsers, renderers and instructions, usable on their own.

parser = get_dialect("cogency-json").parser(tools)
for chunk in chunks:
    for delta in parser.feed(chunk): ...
for delta in parser.close("stop"): ...
"""

# pyright: reportUnsupportedDunderAll=false

from toolspeak.lazy import lazy_names

_PLACES = {
    "AutoDialect": "toolspeak.dialects.detect",
    "BatchRule": "toolspeak.dialects.base",
    "DIALECTS": "toolspeak.dialects.catalogue",
    "Dialect": "toolspeak.dialects.base",
    "DialectInfo": "toolspeak.dialects.base",
    "Grammar": "toolspeak.dialects.grammar.target",
    "History": "toolspeak.dialects.base",
    "Listing": "toolspeak.dialects.base",
    "PROTOCOLS": "toolspeak.dialects.catalogue",
    "ParsedTurn": "toolspeak.dialects.turn",
    "Parser": "toolspeak.dialects.base",
    "Section": "toolspeak.dialects.base",
    "SpecialTokens": "toolspeak.dialects.grammar.special",
    "StrictDialect": "toolspeak.dialects.strict",
    "TARGETS": "toolspeak.dialects.grammar.target",
    "Target": "toolspeak.dialects.grammar.target",
    "Translation": "toolspeak.dialects.translation",
    "TurnCollector": "toolspeak.dialects.turn",
    "get_dialect": "toolspeak.dialects.named",
    "known_dialect": "toolspeak.dialects.named",
    "list_tools": "toolspeak.dialects.schema_text",
    "open_parser": "toolspeak.dialects.prompt_tail",
    "read_results": "toolspeak.dialects.results",
    "read_turn": "toolspeak.dialects.turn",
    "repaired": "toolspeak.dialects.repair",
    "section_of_reply": "toolspeak.dialects.prompt_tail",
    "translate": "toolspeak.dialects.translation",
}
"""Each public name and where it is. The catalogue is large: it is imported by whoever asks for all dialects, and not by
whoever names one, or a type. Type checkers read `__init__.pyi`."""

__all__ = list(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
