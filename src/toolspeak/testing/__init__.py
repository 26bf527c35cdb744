"""For tests of what users build: models that follow a script, runs that were recorded, and the contracts of dialects,
journals and engines. Needs no test framework."""

from __future__ import annotations

from toolspeak.agent import Cassette
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.testing.contract import check_dialect, written_turns
from toolspeak.testing.dialects import (
    check_results_cannot_forge,
    check_round_trip,
    check_splits,
    parse_pieces,
)
from toolspeak.testing.engines import ENGINE_CHECKS
from toolspeak.testing.invariants import CheckedParser, TurnChecker, check_deltas, check_nothing_lost
from toolspeak.testing.queued_runs import JOURNAL_CHECKS
from toolspeak.testing.scripted_requests import ScriptedRequest, assert_played, assert_request, scripted_request
from toolspeak.testing.splits import chunks, every_split, join_deltas

__all__ = [
    "ENGINE_CHECKS",
    "JOURNAL_CHECKS",
    "Cassette",
    "CheckedParser",
    "ScriptedCall",
    "ScriptedProvider",
    "ScriptedRequest",
    "ScriptedTurn",
    "TurnChecker",
    "assert_played",
    "assert_request",
    "check_deltas",
    "check_dialect",
    "check_nothing_lost",
    "check_results_cannot_forge",
    "check_round_trip",
    "check_splits",
    "chunks",
    "every_split",
    "join_deltas",
    "parse_pieces",
    "scripted_request",
    "written_turns",
]
