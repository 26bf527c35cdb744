from toolspeak.mcp.config import HttpServer, Server, StdioServer, read_servers
from toolspeak.mcp.servers import McpServers
from toolspeak.mcp.tools import LeftOut

__all__ = ["HttpServer", "LeftOut", "McpServers", "Server", "StdioServer", "read_servers"]
