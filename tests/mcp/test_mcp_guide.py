"""The client of one guide runs against the server of the other."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_clients import client_of_command, command, text_of

from page_examples import program_of

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def shop_of_guide(folder: Path) -> None:
    shop, _ = program_of(GUIDES / "mcp-server.md").split("from toolspeak.mcp import McpApp\n")
    (folder / "shop.py").write_text(shop, "utf-8")


@pytest.mark.over_a_second
def test_the_client_of_the_guide_talks_to_the_guides_server(tmp_path):
    shop_of_guide(tmp_path)
    shop = {
        "command": sys.executable,
        "args": ["-m", "toolspeak", "mcp", "serve", "--tools", "shop.py:tools"],
        "env": {"PYTHONPATH": str(GUIDES.parents[1] / "src")},
    }
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"shop": shop}}), "utf-8")
    call = {"name": "shop__stock", "arguments": {"item": "apple"}}
    turns = [{"text": "", "calls": [call]}, "There are 3."]
    (tmp_path / "turns.json").write_text(json.dumps({"turns": turns}), "utf-8")
    client = program_of(GUIDES / "mcp.md").replace('"ollama:qwen3:8b"', '"scripted:turns.json"')
    client = client.replace(").answer)", ").messages[2].results[0].text)")
    program = [sys.executable, "-W", "error", "-c", client]
    process_result = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (process_result.stdout, process_result.returncode) == ("3\n", 0), process_result.stderr


@pytest.mark.over_a_second
def test_the_guides_agent_is_served(tmp_path):
    shop_of_guide(tmp_path)
    (tmp_path / "turns.json").write_text(json.dumps({"turns": ["Nothing is missing."]}), "utf-8")

    async def main() -> None:
        parameters = command(
            "--tools",
            "shop.py:tools",
            "--agent",
            "shop.py:buyer",
            env={"SHOP_MODEL": "scripted:turns.json"},
            cwd=tmp_path,
        )
        async with client_of_command(parameters) as client:
            assert [each.name for each in (await client.list_tools()).tools] == ["stock", "order", "buyer"]
            assert text_of(await client.call_tool("buyer", {"task": "Look."})) == "Nothing is missing."

    asyncio.run(main())


def test_the_guides_application_serves_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(program_of(GUIDES / "mcp-server.md"), names)
    assert callable(names["app"])
