from toolspeak.mcp.mcp_tools import LeftOut
from toolspeak.mcp.servers import McpServers
from toolspeak.mcp.servers_file import HttpServer, Server, ServerSandbox, StdioServer, confined, read_servers
from toolspeak.mcp.serving.mcp_app import McpApp

__all__ = [
    "HttpServer",
    "LeftOut",
    "McpApp",
    "McpServers",
    "Server",
    "ServerSandbox",
    "StdioServer",
    "confined",
    "read_servers",
]
