"""The agent: pure decisions about a run's state, and the loop that performs them."""

from toolspeak.agent.agent import DEFAULT_DIALECT, Agent, RunResult, result_of
from toolspeak.agent.compaction import Window
from toolspeak.agent.driver import Driver, TextDriver, TurnRequest
from toolspeak.agent.run import Run, Watched
from toolspeak.agent.session import Session
from toolspeak.agent.state import RunState, apply, fold

__all__ = [
    "DEFAULT_DIALECT",
    "Agent",
    "Driver",
    "Run",
    "RunResult",
    "RunState",
    "Session",
    "TextDriver",
    "TurnRequest",
    "Watched",
    "Window",
    "apply",
    "fold",
    "result_of",
]
