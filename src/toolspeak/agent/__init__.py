"""The agent: pure decisions about a run's state, and the loop that performs them."""

from toolspeak.agent.agent import Agent, RunResult, result_of
from toolspeak.agent.cassettes.cassette import Cassette
from toolspeak.agent.drivers.base import Conversation, Driver, DriverContext, TurnRequest
from toolspeak.agent.drivers.choose import DEFAULT_DIALECT
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.react import ReActDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.agent.interceptors import (
    AnyInterceptor,
    Compaction,
    CompactionInterceptor,
    MessageInterceptor,
    ModelInterceptor,
    RunInterceptor,
    RunStart,
    Step,
    StepEnd,
    StepInterceptor,
)
from toolspeak.agent.options import Approval, CommonOptions, DialectSettings, Execution
from toolspeak.agent.recording.recorder import RunEvent, StreamItem
from toolspeak.agent.run import Run
from toolspeak.agent.session import Session
from toolspeak.agent.state.decide import Finish
from toolspeak.agent.state.fold import apply, fold
from toolspeak.agent.state.history import Window
from toolspeak.agent.state.output import Output
from toolspeak.agent.state.state import RunState
from toolspeak.agent.state.steps import RunStep, StepEnded
from toolspeak.agent.streams import StreamedOutput, stream_output, stream_text
from toolspeak.programs.code_mode import CodeMode

__all__ = [
    "DEFAULT_DIALECT",
    "Agent",
    "AnyInterceptor",
    "Approval",
    "Cassette",
    "CodeMode",
    "CommonOptions",
    "Compaction",
    "CompactionInterceptor",
    "Conversation",
    "DialectSettings",
    "Driver",
    "DriverContext",
    "Execution",
    "Finish",
    "MessageInterceptor",
    "ModelInterceptor",
    "NativeDriver",
    "Output",
    "ReActDriver",
    "Run",
    "RunEvent",
    "RunInterceptor",
    "RunResult",
    "RunStart",
    "RunState",
    "RunStep",
    "Session",
    "Step",
    "StepEnd",
    "StepEnded",
    "StepInterceptor",
    "StreamItem",
    "StreamedOutput",
    "TextDriver",
    "TurnRequest",
    "Window",
    "apply",
    "fold",
    "result_of",
    "stream_output",
    "stream_text",
]
