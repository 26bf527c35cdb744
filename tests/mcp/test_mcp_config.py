"""Files that list MCP servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolspeak.errors import ConfigurationError
from toolspeak.mcp import HttpServer, StdioServer, read_servers


def config_file(folder: Path, value: object, name: str = "mcp.json") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_both_forms_list_programs_and_addresses_in_their_order(key, tmp_path):
    path = config_file(
        tmp_path,
        {
            "inputs": [],
            key: {
                "files": {
                    "type": "stdio",
                    "command": "npx",
                    "args": ["-y", "server-files", "${HOME}/notes"],
                    "env": {"TOKEN": "${TOKEN}", "LEVEL": "${LEVEL:-info}", "EMPTY": "${EMPTY:-}"},
                    "cwd": "${workspaceFolder}",
                    "autoApprove": ["read"],
                },
                "off": {"command": "x", "disabled": True},
                "web": {
                    "type": "http",
                    "url": "https://${HOST}/mcp",
                    "headers": {"authorization": "Bearer ${env:TOKEN}"},
                },
                "old": {"type": "sse", "url": "http://localhost/sse"},
            },
        },
    )
    environ = {"HOME": "/home/me", "TOKEN": "t0ken", "HOST": "example.org", "LEVEL": ""}
    assert read_servers(path, environ) == (
        StdioServer(
            "files",
            "npx",
            ("-y", "server-files", "/home/me/notes"),
            {"TOKEN": "t0ken", "LEVEL": "info", "EMPTY": ""},
            str(tmp_path),
        ),
        HttpServer("web", "https://example.org/mcp", {"authorization": "Bearer t0ken"}),
        HttpServer("old", "http://localhost/sse", transport="sse"),
    )


def test_the_folder_of_an_editors_file_is_the_one_around_it(tmp_path):
    path = config_file(tmp_path, {"servers": {"s": {"command": "x", "cwd": "${workspaceFolder}"}}}, ".vscode/mcp.json")
    assert read_servers(path, {})[0].cwd == str(tmp_path)


def test_what_is_secret_is_not_shown():
    server = StdioServer("s", "x", ("--key=t0ken",), env={"TOKEN": "t0ken"})
    assert "t0ken" not in repr((server, HttpServer("h", "http://x/t0ken", {"authorization": "t0ken"})))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("{", "mcp.json: not JSON"),
        ('{"servers": {} // mine\n}', "JSON has no comments and no trailing commas"),
        ([], "mcp.json: expected an object"),
        ({}, "list the servers under 'mcpServers' or (VS Code) under 'servers'; the file has neither"),
        ({"mcpServers": {}, "servers": {}}, "has both"),
        ({"mcpServers": []}, "mcpServers: expected"),
        ({"mcpServers": {"s": "npx"}}, 'mcpServers.s: expected {"command": …} or {"url": …}, found "npx"'),
        ({"mcpServers": {"s": {"comand": "x"}}}, "mcpServers.s: write 'command' (a program to start) or 'url'"),
        ({"mcpServers": {"s": {"command": "x", "url": "http://x"}}}, "has both"),
        ({"mcpServers": {"s": {"command": " "}}}, "mcpServers.s.command: it is empty"),
        ({"mcpServers": {"s": {"command": 7}}}, "mcpServers.s.command: expected a string, found 7"),
        ({"mcpServers": {"s": {"command": "x", "args": "-y"}}}, "mcpServers.s.args: expected an array"),
        ({"mcpServers": {"s": {"command": "x", "args": ["a", 1]}}}, "mcpServers.s.args[1]: expected a string"),
        ({"mcpServers": {"s": {"command": "x\0"}}}, "mcpServers.s.command: a NUL"),
        ({"mcpServers": {"s": {"command": "x", "env": {"A": 1}}}}, "mcpServers.s.env.A: expected a string"),
        (
            {"mcpServers": {"s": {"command": "x", "env": {"A": "${B}"}}}},
            "variable B is not set; set it, or write",
        ),
        ({"servers": {"s": {"command": "x", "env": {"A": "${input:key}"}}}}, "unknown reference ${input:key}"),
        (
            {"servers": {"s": {"command": "x", "envFile": ".env"}}},
            "servers.s.envFile: toolspeak does not read",
        ),
        ({"mcpServers": {"s": {"url": "example.org"}}}, "mcpServers.s.url: expected an address"),
        (
            {"mcpServers": {"s": {"url": "http://x", "headers": {"a": "b\nc: d"}}}},
            "headers.a: a header must be one",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(value, problem, tmp_path):
    path = config_file(tmp_path, value)
    with pytest.raises(ConfigurationError) as raised_error:
        read_servers(path, {})
    assert str(raised_error.value).startswith(str(path))
    assert problem in str(raised_error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no such file"):
        read_servers(tmp_path / "none.json")
