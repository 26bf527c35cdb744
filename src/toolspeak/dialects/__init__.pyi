# What `__init__.py` gives, for type checkers: a test holds the two together.

from toolspeak.dialects.base import Dialect, DialectInfo, History, Listing, Parser
from toolspeak.dialects.by_name import get_dialect, known_dialect
from toolspeak.dialects.catalogue import DIALECTS, PROTOCOLS
from toolspeak.dialects.detection.auto_dialect import AutoDialect
from toolspeak.dialects.detection.prompt_tail import open_parser, section_of_reply
from toolspeak.dialects.detection.repairing_dialect import with_repair
from toolspeak.dialects.detection.strict_dialect import StrictDialect
from toolspeak.dialects.grammar.special_tokens import SpecialTokens
from toolspeak.dialects.grammar.target import TARGETS, Grammar, Target
from toolspeak.dialects.parser.parsed_turn import ParsedTurn, TurnCollector, read_turn
from toolspeak.dialects.prompts.result_reader import read_results
from toolspeak.dialects.prompts.schema_text import list_tools
from toolspeak.dialects.translation import Translation, translate
from toolspeak.dialects.turn_rules import BatchRule, Section

__all__ = [
    "DIALECTS",
    "PROTOCOLS",
    "TARGETS",
    "AutoDialect",
    "BatchRule",
    "Dialect",
    "DialectInfo",
    "Grammar",
    "History",
    "Listing",
    "ParsedTurn",
    "Parser",
    "Section",
    "SpecialTokens",
    "StrictDialect",
    "Target",
    "Translation",
    "TurnCollector",
    "get_dialect",
    "known_dialect",
    "list_tools",
    "open_parser",
    "read_results",
    "read_turn",
    "section_of_reply",
    "translate",
    "with_repair",
]
