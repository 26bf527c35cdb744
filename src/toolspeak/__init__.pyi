# What `__init__.py` gives, for type checkers: a test holds the two together.

from toolspeak.agent import (
    Agent,
    Approval,
    DialectSettings,
    Execution,
    ModelInterceptor,
    Output,
    Run,
    RunInterceptor,
    RunResult,
    RunState,
    Session,
    StepInterceptor,
    Window,
)
from toolspeak.data.events import Limits, Record
from toolspeak.data.messages import (
    MalformedCall,
    Message,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from toolspeak.data.tools import Effects, ToolSpec
from toolspeak.dialects import get_dialect
from toolspeak.errors import (
    AgentStop,
    ConfigurationError,
    JournalError,
    ProviderError,
    RunError,
    ToolError,
    ToolspeakError,
)
from toolspeak.execute import ApprovalRequest, Concurrency, Decision, Executor, Interceptor, Rule
from toolspeak.journal import MemoryJournal, SqliteJournal, open_journal
from toolspeak.programs import CodeMode
from toolspeak.tools import RunContext, StateView, Tool, Toolset, VerifiedResult, tool
from toolspeak.version import __version__

__all__ = [
    "Agent",
    "AgentStop",
    "Approval",
    "ApprovalRequest",
    "CodeMode",
    "Concurrency",
    "ConfigurationError",
    "Decision",
    "DialectSettings",
    "Effects",
    "Execution",
    "Executor",
    "Interceptor",
    "JournalError",
    "Limits",
    "MalformedCall",
    "MemoryJournal",
    "Message",
    "ModelInterceptor",
    "Output",
    "ProviderError",
    "Record",
    "Rule",
    "Run",
    "RunContext",
    "RunError",
    "RunInterceptor",
    "RunResult",
    "RunState",
    "Session",
    "SqliteJournal",
    "StateView",
    "StepInterceptor",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "Toolset",
    "ToolspeakError",
    "Usage",
    "VerifiedResult",
    "Window",
    "__version__",
    "get_dialect",
    "open_journal",
    "tool",
]
