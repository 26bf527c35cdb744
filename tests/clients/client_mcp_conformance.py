"""The protocol's own conformance tests (npm), against `McpApp` and against `McpServers` (`make test-clients`)."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from client_programs import BINARIES

from toolspeak import RunContext, Tool, tool
from toolspeak.data.messages import FilePart, ImagePart, TextPart
from toolspeak.mcp import McpApp
from uvicorn_here import serving

CLIENT = Path(__file__).with_name("conforming_client.py")
IMAGE = ImagePart("image/png", b"\x89PNG\r\n\x1a\n")
TEXT = TextPart("This is a simple text response for testing.")
CONTENTS = {
    "test_simple_text": [TEXT],
    "test_image_content": [IMAGE],
    "test_audio_content": [FilePart("a.wav", "audio/wav", b"RIFF")],
    "test_embedded_resource": [FilePart("a.txt", "text/plain", b"This is an embedded resource content.")],
    "test_multiple_content_types": [TEXT, IMAGE, FilePart("a.json", "application/json", b'{"value": 123}')],
}


def tools() -> Sequence[Tool]:
    """The tools that the protocol's tests call."""

    def returning(name: str) -> Tool:
        @tool(name=name, description="Returns what the tests expect.", read_only=True)
        def contents() -> list:
            return CONTENTS[name]

        return contents

    @tool(name="test_error_handling", read_only=True)
    def fails() -> str:
        """Fails."""
        raise RuntimeError("This tool intentionally returns an error for testing")

    @tool(name="test_tool_with_progress", read_only=True)
    def reports(ctx: RunContext) -> str:
        """Reports its progress."""
        for share in (0, 50, 100):
            ctx.progress(f"{share} of 100")
        return "done"

    return [*map(returning, CONTENTS), fails, reports]


async def verdict(*arguments: str) -> str:
    """What the tests print at their end."""
    node = os.environ["CLIENTS_NODE"]
    process = await asyncio.create_subprocess_exec(
        node,
        str(BINARIES / "conformance"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
    )
    output, _ = await process.communicate()
    return output.decode()


def check(text: str) -> None:
    match = re.search(r"Passed: (\d+)/(\d+), 0 failed", text)
    assert match is not None, text
    assert match[1] == match[2] != "0", text


OLD, NEW = "2025-11-25", "2026-07-28"
BOTH = (OLD, NEW)
SERVER_SCENARIOS = {
    "server-initialize": [OLD],
    "ping": [OLD],
    "tools-list": BOTH,
    "tools-call-simple-text": BOTH,
    "tools-call-image": BOTH,
    "tools-call-audio": BOTH,
    "tools-call-embedded-resource": BOTH,
    "tools-call-mixed-content": BOTH,
    "tools-call-error": BOTH,
    "tools-call-with-progress": BOTH,
    "server-sse-multiple-streams": BOTH,
    "dns-rebinding-protection": BOTH,
    "input-required-result-unsupported-methods": [NEW],
}
CLIENT_SCENARIOS = {
    "initialize": [OLD],
    "tools_call": BOTH,
    "elicitation-sep1034-client-defaults": [OLD],
    "sse-retry": [OLD],
    "request-metadata": [NEW],
    "http-standard-headers": [NEW],
    "sep-2322-client-request-state": [NEW],
    "json-schema-ref-no-deref": [NEW],
    "json-schema-2020-12-preservation": BOTH,
}


def in_revisions(scenarios: Mapping[str, Sequence[str]]) -> Any:
    """Each scenario in the revisions of the protocol that have it."""
    pairs = [(name, revision) for name, revisions in scenarios.items() for revision in revisions]
    return pytest.mark.parametrize(("scenario", "revision"), pairs)


@in_revisions(SERVER_SCENARIOS)
def test_a_server_conforms(scenario: str, revision: str):
    async def main() -> str:
        config = uvicorn.Config(McpApp(tools()), log_level="critical", ws="none", timeout_graceful_shutdown=0)
        async with serving(config) as (_, port):
            place = ("--url", f"http://127.0.0.1:{port}/mcp")
            return await verdict("server", *place, "--scenario", scenario, "--spec-version", revision)

    check(asyncio.run(main()))


@in_revisions(CLIENT_SCENARIOS)
def test_a_client_conforms(scenario: str, revision: str):
    command = ("--command", f"{sys.executable} {CLIENT}")
    check(asyncio.run(verdict("client", *command, "--scenario", scenario, "--spec-version", revision)))
