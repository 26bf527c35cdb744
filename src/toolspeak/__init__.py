"""Any model can use tools.

    from toolspeak import Agent, tool

    @tool(read_only=True)
    def add(a: int, b: int) -> int:
        "Adds two numbers."
        return a + b

    print(Agent("openai:qwen3", tools=[add]).run_sync("What is 19 + 23?").answer)

Parsers alone: `toolspeak.dialects`. Built-in file and shell tools: `toolspeak.tools.builtin`.
"""

# pyright: reportUnsupportedDunderAll=false

from toolspeak.lazy import lazy_names

_PLACES = {
    "Agent": "toolspeak.agent",
    "AgentStop": "toolspeak.errors",
    "Approval": "toolspeak.agent",
    "ApprovalRequest": "toolspeak.execute",
    "CodeMode": "toolspeak.programs",
    "Concurrency": "toolspeak.execute",
    "ConfigurationError": "toolspeak.errors",
    "Decision": "toolspeak.execute",
    "DialectSettings": "toolspeak.agent",
    "Effects": "toolspeak.data.tools",
    "Execution": "toolspeak.agent",
    "Executor": "toolspeak.execute",
    "VerifiedResult": "toolspeak.tools",
    "Interceptor": "toolspeak.execute",
    "JournalError": "toolspeak.errors",
    "Limits": "toolspeak.data.events",
    "MalformedCall": "toolspeak.data.messages",
    "MemoryJournal": "toolspeak.journal",
    "Message": "toolspeak.data.messages",
    "ModelInterceptor": "toolspeak.agent",
    "Output": "toolspeak.agent",
    "ProviderError": "toolspeak.errors",
    "Record": "toolspeak.data.events",
    "Rule": "toolspeak.execute",
    "Run": "toolspeak.agent",
    "RunContext": "toolspeak.tools",
    "RunError": "toolspeak.errors",
    "RunInterceptor": "toolspeak.agent",
    "RunResult": "toolspeak.agent",
    "RunState": "toolspeak.agent",
    "Session": "toolspeak.agent",
    "SqliteJournal": "toolspeak.journal",
    "StateView": "toolspeak.tools",
    "StepInterceptor": "toolspeak.agent",
    "TextPart": "toolspeak.data.messages",
    "Tool": "toolspeak.tools",
    "ToolCall": "toolspeak.data.messages",
    "ToolChoice": "toolspeak.data.messages",
    "ToolError": "toolspeak.errors",
    "ToolResult": "toolspeak.data.messages",
    "ToolSpec": "toolspeak.data.tools",
    "Toolset": "toolspeak.tools",
    "ToolspeakError": "toolspeak.errors",
    "Usage": "toolspeak.data.messages",
    "Window": "toolspeak.agent",
    "__version__": "toolspeak.version",
    "get_dialect": "toolspeak.dialects",
    "open_journal": "toolspeak.journal",
    "tool": "toolspeak.tools",
}
"""Each public name and its module. A module is imported at the first use of one of its names: a program that needs
only a parser does not load the agent. Type checkers read `__init__.pyi`."""

__all__ = list(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
