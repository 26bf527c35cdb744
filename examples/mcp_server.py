"""A small MCP server for mcp_tools.py: help desk tickets, over standard input and output."""

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("help desk")
TICKETS = {"7": "The printer is out of paper.", "9": "The projector hums."}


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def open_tickets() -> dict[str, str]:
    """The open tickets by number."""
    return TICKETS


@server.tool(annotations=ToolAnnotations(destructive_hint=True, open_world_hint=False))
def close_ticket(number: str, reason: str) -> str:
    """Closes a ticket for good."""
    return f"closed {number}: {TICKETS.pop(number)} ({reason})"


if __name__ == "__main__":
    server.run()
