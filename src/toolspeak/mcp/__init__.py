"""MCP servers as a source of tools, and a server of tools and agents (needs the extra `mcp`).

    async with McpServers.from_file(".mcp.json") as servers:
        agent = Agent("openai:qwen3", tools=[*servers.tools])

    app = McpApp([read, write])  # an ASGI application

Importing this package does not import the SDK; the first use of `McpServers` or `McpApp` does.
"""

# pyright: reportUnsupportedDunderAll=false

import importlib
from types import ModuleType

from toolspeak.errors import ConfigurationError
from toolspeak.lazy import lazy_names

_PLACES = {
    "HttpServer": "toolspeak.mcp.servers_file",
    "LeftOut": "toolspeak.mcp.servers",
    "McpApp": "toolspeak.mcp.serving.mcp_app",
    "McpServers": "toolspeak.mcp.servers",
    "Server": "toolspeak.mcp.servers_file",
    "PromptField": "toolspeak.mcp.server_resources",
    "ServerPrompt": "toolspeak.mcp.server_resources",
    "ServerSandbox": "toolspeak.mcp.servers_file",
    "ChangedTool": "toolspeak.mcp.tool_pins",
    "StdioServer": "toolspeak.mcp.servers_file",
    "ToolPins": "toolspeak.mcp.tool_pins",
    "definition_of": "toolspeak.mcp.tool_pins",
    "digest_of": "toolspeak.mcp.tool_pins",
    "confine_servers": "toolspeak.mcp.servers_file",
    "read_servers": "toolspeak.mcp.servers_file",
}

__all__ = list(_PLACES)


def _load(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(f"MCP servers need: pip install 'toolspeak[mcp]' ({error})") from error


__getattr__, __dir__ = lazy_names(__name__, _PLACES, _load)
