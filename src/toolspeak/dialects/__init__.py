"""How models write tool calls in text: sans-IO parsers, renderers and instructions, usable on their own.

    parser = get_dialect("cogency-json").parser(tools)
    for chunk in chunks:
        for delta in parser.feed(chunk): ...
    for delta in parser.close("stop"): ...

A delta is a piece of text, of reasoning or of a call (`toolspeak.data.deltas`).
"""

# pyright: reportUnsupportedDunderAll=false

from toolspeak.lazy import lazy_names

_PLACES = {
    "AutoDialect": "toolspeak.dialects.detection.auto_dialect",
    "BatchRule": "toolspeak.dialects.turn_rules",
    "DIALECTS": "toolspeak.dialects.catalogue",
    "Dialect": "toolspeak.dialects.base",
    "DialectInfo": "toolspeak.dialects.base",
    "Grammar": "toolspeak.dialects.grammar.target",
    "History": "toolspeak.dialects.base",
    "Listing": "toolspeak.dialects.base",
    "PROTOCOLS": "toolspeak.dialects.catalogue",
    "ParsedTurn": "toolspeak.dialects.parser.parsed_turn",
    "Parser": "toolspeak.dialects.base",
    "Section": "toolspeak.dialects.turn_rules",
    "SpecialTokens": "toolspeak.dialects.grammar.special_tokens",
    "StrictDialect": "toolspeak.dialects.detection.strict_dialect",
    "TARGETS": "toolspeak.dialects.grammar.target",
    "Target": "toolspeak.dialects.grammar.target",
    "Translation": "toolspeak.dialects.translation",
    "TurnCollector": "toolspeak.dialects.parser.parsed_turn",
    "get_dialect": "toolspeak.dialects.by_name",
    "known_dialect": "toolspeak.dialects.by_name",
    "list_tools": "toolspeak.dialects.prompts.schema_text",
    "open_parser": "toolspeak.dialects.detection.prompt_tail",
    "read_results": "toolspeak.dialects.prompts.result_reader",
    "read_turn": "toolspeak.dialects.parser.parsed_turn",
    "section_of_reply": "toolspeak.dialects.detection.prompt_tail",
    "translate": "toolspeak.dialects.translation",
    "with_repair": "toolspeak.dialects.detection.repairing_dialect",
}
"""The module of each public name. The large catalogue is only imported for a name that needs all dialects.

Type checkers read `__init__.pyi`.
"""

__all__ = list(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
