"""MCP servers as a source of tools (needs the extra `mcp`).

    async with McpServers.from_file(".mcp.json") as servers:
        agent = Agent("openai:qwen3", tools=[*servers.tools])

Importing this imports no SDK yet: `McpServers` is looked up when it is asked for.
"""

# pyright: reportUnsupportedDunderAll=false

import importlib

from toolspeak.errors import UsageError
from toolspeak.mcp.config import HttpServer, Server, StdioServer, read_servers

__all__ = ["HttpServer", "LeftOut", "McpServers", "Server", "StdioServer", "read_servers"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        servers = importlib.import_module("toolspeak.mcp.servers")
    except ImportError as error:
        raise UsageError(f"MCP servers need: pip install 'toolspeak[mcp]' ({error})") from error
    return getattr(servers, name)
