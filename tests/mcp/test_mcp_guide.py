"""The guide's client runs against the guide's server."""

import json
import subprocess
import sys
from pathlib import Path

from page_examples import program_of

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "mcp.md"


def test_the_client_of_mcp_guide_talks_to_its_server(tmp_path):
    client, server = program_of(GUIDE).split("asyncio.run(main())\n", 1)
    (tmp_path / "serve_shop.py").write_text(server, "utf-8")
    shop = {"command": sys.executable, "args": ["serve_shop.py"]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"shop": shop}}), "utf-8")
    call = {"name": "shop__stock", "arguments": {"item": "apple"}}
    turns = [{"text": "", "calls": [call]}, "There are 3."]
    (tmp_path / "turns.json").write_text(json.dumps({"turns": turns}), "utf-8")
    client = client.replace('"ollama:qwen3:8b"', '"scripted:turns.json"') + "asyncio.run(main())\n"
    client = client.replace(").answer)", ").messages[2].results[0].text)")
    command = [sys.executable, "-W", "error", "-c", client]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.returncode) == ("3\n", 0), ended.stderr
