"""The tools of an MCP server: calls of tools that it declares read-only run immediately, and all others ask first.

    python examples/mcp_tools.py
    MODEL=ollama:qwen3:8b python examples/mcp_tools.py my-servers.json "Close what is done."

The file has the same format as in other MCP clients: `{"mcpServers": {"name": {"command": "…", "args": […]}}}`.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from toolspeak import Agent, ApprovalRequest
from toolspeak.mcp import McpServers

HERE = Path(__file__).parent
MODEL = os.environ.get("MODEL", f"scripted:{HERE}/scripts/mcp_tools.json")


async def ask(request: ApprovalRequest) -> bool:
    print(f"{request.reason}: {request.call.name}({dict(request.call.arguments)})")
    return (await asyncio.to_thread(input, "Allow? [y/N] ")).strip().lower() == "y"


async def main(path: str, task: str) -> None:
    async with McpServers.from_file(path) as servers:
        print("tools:", ", ".join(tool.name for tool in servers.tools))
        agent = Agent(MODEL, servers.tools, approve=ask)
        print(await agent.run(task))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(main(sys.argv[1], sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "servers.json"
            server = {"command": sys.executable, "args": [str(HERE / "mcp_server.py")]}
            file.write_text(json.dumps({"mcpServers": {"desk": server}}))
            asyncio.run(main(str(file), "The printer has paper again. Close its ticket."))
