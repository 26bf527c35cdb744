"""What the gateway is told of server-side tools, in its file and on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from mcp_helpers import is_running, program, traces

from forked_commands import completed_text
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.gateway_settings import ToolSettings, approved_names, read_config

MODEL = '[[model]]\nname = "m"\nupstream = "http://127.0.0.1:9/v1"\n'


def read(folder: Path, text: str) -> ToolSettings | None:
    (folder / "gateway.toml").write_text(MODEL + text, encoding="utf-8")
    return read_config(folder / "gateway.toml").tools


def test_a_file_says_which_servers_and_what_may_run(tmp_path):
    assert read(tmp_path, "") is None
    assert read(tmp_path, '[tools]\nfile = "mcp.json"\n') == ToolSettings(str(tmp_path / "mcp.json"))
    text = '[tools]\nfile = "mcp.json"\napprove = ["a__b", "c__*"]\nsteps = 3\ncalls = 5\nseconds = 9\ntimeout = 2.5\n'
    assert read(tmp_path, text) == ToolSettings(str(tmp_path / "mcp.json"), ("a__b", "c__*"), 3, 5, 9, 2.5)


@pytest.mark.parametrize(("text", "names"), [("all", ("*",)), ("a, b,", ("a", "b")), ("", ()), ("all,b", ("all", "b"))])
def test_names_to_approve(text, names):
    assert approved_names(text) == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tools = 1\n", "tools: expected a table"),
        ("[tools]\n", "tools.file: missing"),
        ('[tools]\nfile = ""\n', "tools.file: missing"),
        ("[tools]\nfile = 7\n", "tools.file: expected text, found 7"),
        ('[tools]\nfile = "x"\nstep = 1\n', "tools.step: unknown key"),
        ('[tools]\nfile = "x"\nsteps = "many"\n', "tools.steps: expected a number"),
        ('[tools]\nfile = "x"\ncalls = -1\n', "tools.calls: -1 is less than 0"),
        ('[tools]\nfile = "x"\napprove = [1]\n', "tools.approve: expected text"),
    ],
)
def test_a_mistake_is_named(text, problem, tmp_path):
    text = text + MODEL if text.startswith("tools =") else MODEL + text
    (tmp_path / "gateway.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised_error:
        read_config(tmp_path / "gateway.toml")
    assert str(raised_error.value).startswith(str(tmp_path / "gateway.toml"))
    assert problem in str(raised_error.value)


def serving(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return completed_text(("serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", *arguments), cwd=folder)


def test_what_cannot_be_served_is_told_at_the_start(tmp_path):
    alone = serving(tmp_path, "--approve-tools", "all")
    assert alone.returncode == 2
    assert "--approve-tools needs --tools FILE" in alone.stderr
    missing = serving(tmp_path, "--tools", "none.json")
    assert missing.returncode == 2
    assert "none.json: there is no such file" in missing.stderr
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"gone": {"command": "no-such-program"}}}', encoding="utf-8")
    unusable = serving(tmp_path, "--tools", "mcp.json")
    assert unusable.returncode != 0
    assert "the MCP server 'gone' cannot be used" in unusable.stderr
    assert "Start 'no-such-program' by hand" in unusable.stderr


@pytest.mark.over_a_second
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_gateway_that_is_stopped_leaves_no_server_behind(workers, tmp_path):
    server = program(tmp_path)
    # The program writes down its starts beside the configuration.
    config = {"mcpServers": {"s": {"command": server.command, "args": list(server.args), "sandbox": False}}}
    (tmp_path / "mcp.json").write_text(json.dumps(config), encoding="utf-8")
    call = ToolCall("", "s__echo", {"text": "hello from afar"})
    turn = get_dialect("hermes").render([Message("assistant", (call,))])[0].text
    turns = [turn, "It says {{find:hello from \\w+}} back."]
    (tmp_path / "book.json").write_text(json.dumps({"turns": turns}), encoding="utf-8")
    command = [sys.executable, "-m", "toolspeak", "serve", "--upstream", f"scripted:{tmp_path / 'book.json'}"]
    command += ["--dialect", "hermes", "--port", "0", "--tools", "mcp.json", "--workers", str(workers)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        address = next(line for line in serving.stderr if "serves at" in line).split()[-1]
        body = {"model": "m", "messages": [{"role": "user", "content": "hello?"}]}
        with httpx2.Client(trust_env=False, timeout=60) as client:
            answer = client.post(f"{address}/v1/chat/completions", json=body).json()
        while len(traces(tmp_path, "starts")) < workers:  # each has servers of its own
            time.sleep(0.05)
        serving.terminate()
        log = serving.stderr.read()
        serving.wait(120)
    assert answer["choices"][0]["message"]["content"] == "It says hello from afar back."
    assert not any(is_running(int(pid)) for pid in traces(tmp_path, "starts"))
    assert "Traceback" not in log
