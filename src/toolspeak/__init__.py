"""Any model can use tools.

    from toolspeak import Agent, tool

    @tool(read_only=True)
    def add(a: int, b: int) -> int:
        "Adds two numbers."
        return a + b

    print(Agent("openai:qwen3", tools=[add]).run_sync("What is 19 + 23?").answer)

Parsers alone: `toolspeak.dialects`. Built-in file and shell tools: `toolspeak.tools.builtin`.
"""

from toolspeak.agent import Agent, Run, RunResult, RunState
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
from toolspeak.errors import ProviderError, RunError, ToolError, ToolspeakError, UsageError
from toolspeak.execute import ApprovalRequest, Concurrency, Decision, Executor, Interceptor
from toolspeak.tools import RunContext, Tool, Toolset, tool

__all__ = [
    "Agent",
    "ApprovalRequest",
    "Concurrency",
    "Decision",
    "Effects",
    "Executor",
    "Interceptor",
    "Limits",
    "MalformedCall",
    "Message",
    "ProviderError",
    "Record",
    "Run",
    "RunContext",
    "RunError",
    "RunResult",
    "RunState",
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
    "UsageError",
    "get_dialect",
    "tool",
]
