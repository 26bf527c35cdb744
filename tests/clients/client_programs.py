"""Codex and Claude Code, as people start them, at work through the gateway (`make test-clients`): their own tools run
on files, in native mode and in two dialects of text."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conversations import KEY, SECONDS
from program_turns import NEW_FILE_TEXT, NOTES, PATCHED_NOTES, PROGRAM_ANSWER
from upstream import NATIVE, Upstream

BINARIES = Path(__file__).parent / "npm/node_modules/.bin"

each_dialect = pytest.mark.parametrize("dialect", ["hermes", "qwen3-coder", NATIVE])


def run_program(command: list[str], folder: Path, **environ: str) -> str:
    """What it wrote to standard output, started in this folder with a home of its own."""
    home = folder.with_name("home")
    home.mkdir()
    node = str(Path(os.environ["CLIENTS_NODE"]).parent)
    variables = {"PATH": f"{node}:{os.environ['PATH']}", "HOME": str(home), "NO_PROXY": "127.0.0.1", "TERM": "dumb"}
    result = subprocess.run(
        command,
        cwd=folder,
        env={**variables, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def conversation_text(request: Mapping[str, Any]) -> str:
    """All that the model reads in a request, but for the tools' definitions."""
    return json.dumps(request["messages"], ensure_ascii=False)


@each_dialect
def test_codex_runs_a_command_and_applies_a_patch(
    dialect: str, gateways: dict[str, str], upstream: tuple[Upstream, str], tmp_path: Path
):
    folder = tmp_path / "work"
    folder.mkdir()
    provider = f'{{name="gateway",base_url="{gateways[dialect]}/v1",wire_api="responses",env_key="GATEWAY_KEY"}}'
    command = [str(BINARIES / "codex"), "exec", "--json", "--skip-git-repo-check"]
    command += ["--dangerously-bypass-approvals-and-sandbox"]  # its sandbox does not start in every container
    command += ["-c", "model_provider=gateway", "-c", f"model_providers.gateway={provider}"]
    command += ["-m", "gpt-5.5"]  # a name that it offers `apply_patch` to
    lines = run_program([*command, f"#codex {dialect}"], folder, GATEWAY_KEY=KEY).splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["text"] for item in items if item["type"] == "agent_message"][-1] == PROGRAM_ANSWER
    assert events[-1]["type"] == "turn.completed"
    assert [item["exit_code"] for item in items if item["type"] == "command_execution"] == [0]
    assert [item["status"] for item in items if item["type"] == "file_change"] == ["completed"]
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == {"notes.txt": PATCHED_NOTES}
    first, second, third = upstream[0].requests[f"#codex {dialect}"]
    assert second["messages"][: len(first["messages"])] == first["messages"], "the server's cache would not hold"
    assert third["messages"][: len(second["messages"])] == second["messages"], "the server's cache would not hold"
    assert "one\\ntwo" in conversation_text({"messages": second["messages"][-1:]})
    assert "Success. Updated the following files" in conversation_text({"messages": third["messages"][-1:]})


@each_dialect
def test_claude_code_runs_commands_at_once_and_writes_a_file(
    dialect: str, gateways: dict[str, str], upstream: tuple[Upstream, str], tmp_path: Path
):
    folder = tmp_path / "work"
    folder.mkdir()
    command = [str(BINARIES / "claude"), "-p", f"#claude {dialect}", "--model", "m", "--output-format", "json"]
    command += ["--allowedTools", "Bash,Write"]
    environ = {"ANTHROPIC_BASE_URL": gateways[dialect], "ANTHROPIC_API_KEY": KEY, "DISABLE_AUTOUPDATER": "1"}
    out = run_program(command, folder, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", **environ)
    result = json.loads(out)
    assert (result["subtype"], result["is_error"], result["result"]) == ("success", False, PROGRAM_ANSWER), out
    assert result["permission_denials"] == []
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == {
        "notes.txt": NOTES,
        "more.txt": NEW_FILE_TEXT,
    }
    first, second, third = upstream[0].requests[f"#claude {dialect}"]
    assert second["messages"][: len(first["messages"])] == first["messages"], "the server's cache would not hold"
    assert third["messages"][: len(second["messages"])] == second["messages"], "the server's cache would not hold"
    assert "one\\ntwo" in conversation_text(second)
    assert "ä <b>" in conversation_text(second)
    assert "more.txt" in conversation_text(third)
