"""Functions as tools: `@tool` makes a tool, and a `Toolset` holds tools."""

from toolspeak.data.tools import Effects
from toolspeak.tools.context import RunContext, StateView
from toolspeak.tools.decorator import tool
from toolspeak.tools.tool import Tool
from toolspeak.tools.tool_options import ToolOptions
from toolspeak.tools.toolset import DeferredTools, ToolFilter, ToolLike, ToolList, Toolset, TurnTools
from toolspeak.tools.verify import VerifiedResult

__all__ = [
    "DeferredTools",
    "Effects",
    "RunContext",
    "StateView",
    "Tool",
    "ToolFilter",
    "ToolLike",
    "ToolList",
    "ToolOptions",
    "Toolset",
    "TurnTools",
    "VerifiedResult",
    "tool",
]
