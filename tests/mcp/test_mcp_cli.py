"""`toolspeak run --mcp`: a model at the terminal with the tools of MCP servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_helpers import PATIENT, is_running, program, traces, wait_for_trace

from forked_commands import Command, completed_text
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect


def toolspeak(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a session of its own, in which there is no terminal to ask at."""
    env = {**os.environ, "TOOLSPEAK_JOURNAL": str(folder / "journal.db")}
    return completed_text(arguments, cwd=folder, env=env, session=True)


def files(folder: Path, *named_calls: tuple[str, dict]) -> tuple[str, str]:
    """A file that lists the test server, and a model that makes these calls and then answers."""
    server = program(folder)
    config = {"mcpServers": {"s": {"command": server.command, "args": list(server.args)}}}
    (folder / "mcp.json").write_text(json.dumps(config), encoding="utf-8")
    calls = tuple(ToolCall("", name, arguments) for name, arguments in named_calls)
    turn = get_dialect("cogency-json").render([Message("assistant", calls)])[0].text
    (folder / "book.json").write_text(json.dumps({"turns": [turn, "It was said."]}), encoding="utf-8")
    return str(folder / "mcp.json"), f"scripted:{folder / 'book.json'}"


@pytest.mark.over_a_second
def test_a_run_calls_what_a_server_offers(tmp_path):
    config, model = files(tmp_path, ("s__echo", {"text": "hello from afar"}))
    process_result = toolspeak(tmp_path, "run", "say it", "--model", model, "--mcp", config, "--json")
    assert process_result.returncode == 0, process_result.stderr
    assert "hello from afar" in process_result.stdout
    assert "'fetching' of the MCP server 's' is left out" in process_result.stderr
    assert traces(tmp_path, "calls") == ["echo"]


@pytest.mark.over_a_second
def test_a_call_that_may_do_anything_waits_for_a_yes_and_runs_when_it_is_resumed(tmp_path):
    config, model = files(tmp_path, ("s__plain", {"text": "write"}))
    paused_result = toolspeak(tmp_path, "run", "write it", "--model", model, "--mcp", config)
    assert paused_result.returncode == 3, paused_result.stderr
    assert "s__plain" in paused_result.stderr
    assert traces(tmp_path, "calls") == []
    (tmp_path / "book.json").write_text(json.dumps({"turns": ["It was said."]}), encoding="utf-8")
    process_result = toolspeak(tmp_path, "resume", "--approve", "all")
    assert (process_result.returncode, process_result.stdout) == (0, "It was said.\n"), process_result.stderr
    assert traces(tmp_path, "calls") == ["plain"]


@pytest.mark.over_a_second
def test_a_server_that_does_not_start_ends_the_command_with_its_reason(tmp_path):
    _, model = files(tmp_path, ("s__echo", {"text": "never"}))
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"gone": {"command": "no-such-program"}}}', encoding="utf-8")
    process_result = toolspeak(tmp_path, "run", "x", "--model", model, "--mcp", "mcp.json")
    assert process_result.returncode == 1
    assert process_result.stderr.startswith("toolspeak: the MCP server 'gone' cannot be used: FileNotFoundError")
    assert "Traceback" not in process_result.stderr


@pytest.mark.over_a_second
def test_without_the_extra_it_is_said_what_to_install(tmp_path):
    config, model = files(tmp_path, ("s__echo", {"text": "never"}))
    code = (
        "import sys; sys.modules['mcp'] = None; sys.argv[0] = 'toolspeak'\nfrom toolspeak.cli.main import main; main()"
    )
    process_result = subprocess.run(
        [sys.executable, "-c", code, "run", "x", "--model", model, "--mcp", config, "--journal", "none"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process_result.returncode == 2
    assert "MCP servers need: pip install 'toolspeak[mcp]'" in process_result.stderr


def test_who_uses_no_server_loads_no_sdk(tmp_path):
    code = "import sys, toolspeak.cli.main, toolspeak.mcp; print({'mcp', 'jsonschema_rs'} & sys.modules.keys())"
    process_result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert process_result.stdout.strip() == "set()"


@pytest.mark.over_a_second
@pytest.mark.skipif(os.name != "posix", reason="sends signals as Unix has them")
def test_a_second_interrupt_leaves_no_server_running(tmp_path):
    """The first has told it to end, which it takes its time for."""
    _, model = files(tmp_path, ("s__ask", {}))
    script = Path(__file__).with_name("hung_server.py")
    server = {"command": sys.executable, "args": [str(script), str(tmp_path)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"s": server}}), encoding="utf-8")
    arguments = ["run", "x", "--model", model, "--mcp", "mcp.json", "--approve", "all", "--journal", "none"]
    with (tmp_path / "said").open("wb") as log, open(os.devnull, "rb") as nothing:
        streams = (nothing.fileno(), log.fileno(), log.fileno())
        command = Command(arguments, cwd=tmp_path, streams=streams, session=True)
        try:
            asyncio.run(wait_for_trace(tmp_path, "waiting"))
            command.send_signal(signal.SIGINT)
            asyncio.run(wait_for_trace(tmp_path, "told"))
            command.send_signal(signal.SIGINT)
            assert command.wait(PATIENT) == 130
        finally:
            command.kill()
    assert not any(is_running(int(pid)) for pid in traces(tmp_path, "starts"))
