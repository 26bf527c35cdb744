from toolspeak.mcp.mcp_tools import LeftOut
from toolspeak.mcp.server_resources import PromptField, ServerPrompt
from toolspeak.mcp.servers import McpServers
from toolspeak.mcp.servers_file import HttpServer, Server, ServerSandbox, StdioServer, confine_servers, read_servers
from toolspeak.mcp.serving.mcp_app import McpApp
from toolspeak.mcp.tool_pins import ChangedTool, ToolPins, definition_of, digest_of

__all__ = [
    "ChangedTool",
    "HttpServer",
    "LeftOut",
    "McpApp",
    "McpServers",
    "PromptField",
    "Server",
    "ServerPrompt",
    "ServerSandbox",
    "StdioServer",
    "ToolPins",
    "confine_servers",
    "definition_of",
    "digest_of",
    "read_servers",
]
