"""Codex and Claude Code with the tools of `toolspeak mcp serve`, which they start (`make test-clients`)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from client_programs import BINARIES, conversation_text, run_program
from conversations import KEY
from program_turns import NOTES, PROGRAM_ANSWER
from upstream import NATIVE, Upstream

SERVE = ["-m", "toolspeak", "mcp", "serve", "--approve", "all", "--journal"]


def server_environment() -> dict[str, str]:
    """What the server's process needs of ours to find this toolspeak."""
    return {name: os.environ[name] for name in ("PYTHONPATH", "TOOLSPEAK_SANDBOX") if name in os.environ}


def check_work(folder: Path, upstream: Upstream, task: str) -> None:
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == {"notes.txt": NOTES}
    _, second, third = upstream.requests[task]
    assert "bytes" in conversation_text({"messages": second["messages"][-1:]})
    assert "one\\\\ntwo" in conversation_text(third) or "one\\ntwo" in conversation_text(third)


def test_claude_code_calls_tools_of_toolspeak(gateways: dict[str, str], upstream: tuple[Upstream, str], tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    arguments = [*SERVE, str(tmp_path / "calls.db"), "--workspace", str(folder)]
    entry = {"command": sys.executable, "args": arguments, "env": server_environment()}
    config = json.dumps({"mcpServers": {"toolspeak": entry}})
    command = [str(BINARIES / "claude"), "-p", "#mcp claude", "--model", "m", "--output-format", "json"]
    command += ["--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__toolspeak"]
    environ = {"ANTHROPIC_BASE_URL": gateways[NATIVE], "ANTHROPIC_API_KEY": KEY, "DISABLE_AUTOUPDATER": "1"}
    out = run_program(command, folder, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", **environ)
    result = json.loads(out)
    assert (result["subtype"], result["is_error"], result["result"]) == ("success", False, PROGRAM_ANSWER), out
    check_work(folder, upstream[0], "#mcp claude")


def test_codex_calls_tools_of_toolspeak(gateways: dict[str, str], upstream: tuple[Upstream, str], tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    provider = f'{{name="gateway",base_url="{gateways[NATIVE]}/v1",wire_api="responses",env_key="GATEWAY_KEY"}}'
    arguments = json.dumps([*SERVE, str(tmp_path / "calls.db"), "--workspace", str(folder)])
    variables = ",".join(f"{name}={json.dumps(value)}" for name, value in server_environment().items())
    command = [str(BINARIES / "codex"), "exec", "--json", "--skip-git-repo-check"]
    command += ["--dangerously-bypass-approvals-and-sandbox"]
    command += ["-c", "model_provider=gateway", "-c", f"model_providers.gateway={provider}", "-m", "m"]
    command += ["-c", f"mcp_servers.toolspeak.command={json.dumps(sys.executable)}"]
    command += ["-c", f"mcp_servers.toolspeak.args={arguments}", "-c", f"mcp_servers.toolspeak.env={{{variables}}}"]
    # Otherwise its first turn does not wait for the server.
    command += ["-c", "mcp_servers.toolspeak.startup_timeout_sec=60", "-c", "mcp_servers.toolspeak.required=true"]
    lines = run_program([*command, "#mcp codex"], folder, GATEWAY_KEY=KEY).splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["text"] for item in items if item["type"] == "agent_message"][-1] == PROGRAM_ANSWER
    calls = [(item["tool"], item["status"]) for item in items if item["type"] == "mcp_tool_call"]
    assert calls == [("write", "completed"), ("read", "completed"), ("shell", "completed")]
    check_work(folder, upstream[0], "#mcp codex")
