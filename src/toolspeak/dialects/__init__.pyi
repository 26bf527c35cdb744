# What `__init__.py` gives, for type checkers: a test holds the two together.

from toolspeak.dialects.base import BatchRule, Dialect, DialectInfo, History, Listing, Parser, Section
from toolspeak.dialects.catalogue import DIALECTS, PROTOCOLS
from toolspeak.dialects.detect import AutoDialect
from toolspeak.dialects.grammar.special import SpecialTokens
from toolspeak.dialects.grammar.target import TARGETS, Grammar, Target
from toolspeak.dialects.named import get_dialect, known_dialect
from toolspeak.dialects.prompt_tail import open_parser, section_of_reply
from toolspeak.dialects.repair import repaired
from toolspeak.dialects.results import read_results
from toolspeak.dialects.schema_text import list_tools
from toolspeak.dialects.strict import StrictDialect
from toolspeak.dialects.translation import Translation, translate
from toolspeak.dialects.turn import ParsedTurn, TurnCollector, read_turn

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
    "repaired",
    "section_of_reply",
    "translate",
]
