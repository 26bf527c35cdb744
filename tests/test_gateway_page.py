"""What the gateway's page, unit and container file show works as it is written: each command serves a client."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from loopback_server import STREAM_HEAD, Exchange, Server, event, http_chunks, serve

from toolspeak.data.deltas import BatchEnded, CallCompleted, Delta, TextDelta, TurnEnded
from toolspeak.data.messages import Message, ToolCall, Usage
from toolspeak.dialects import get_dialect
from toolspeak.gateway.settings.gateway_settings import Settings, read_config
from toolspeak.wire.base import WireFormat
from toolspeak.wire.ollama import OLLAMA
from toolspeak.wire.openai_chat import OPENAI_CHAT

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "guides" / "gateway.md", ROOT / "docs" / "reference" / "gateway.md"]
GUIDE, REFERENCE = (page.read_text("utf-8") for page in PAGES)
PAGE = GUIDE + REFERENCE
README = (ROOT / "README.md").read_text("utf-8")
UNIT = (ROOT / "contrib" / "toolspeak-gateway.service").read_text("utf-8")
CONTAINER = (ROOT / "contrib" / "Containerfile").read_text("utf-8")
COMMANDS = Path(sys.executable).parent
SECONDS = 60
KEY = "a-key-that-is-long-enough"

ADDRESSES = {
    "OLLAMA_HOST": "",
    "LLAMACPP_BASE_URL": "/v1",
    "VLLM_BASE_URL": "/v1",
    "LMSTUDIO_BASE_URL": "/v1",
}
"""The variables that say where a server is, and what stands behind its address."""
CALL = ("get_weather", {"city": "Zürich", "days": 3})
TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def commands(page: str) -> list[str]:
    """Every line that starts the gateway to serve, without prompt and comment, continued lines joined."""
    text = "\n".join(blocks("sh", page) + blocks("console", page)).replace("\\\n", " ")
    lines = (re.sub(r"\s+#.*", "", line).removeprefix("$ ") for line in text.splitlines())
    return [line for line in lines if line.startswith("toolspeak serve ") and "--check" not in line]


SERVING = [*dict.fromkeys(commands(PAGE) + commands(README))]


def test_there_are_commands_for_the_servers_it_names():
    for provider in ("ollama", "llamacpp", "vllm", "lmstudio"):
        assert any(f"--upstream {provider} " in command for command in SERVING)


@pytest.mark.parametrize("page", [GUIDE, README], ids=["guide", "readme"])
def test_clients_are_sent_to_the_port_it_listens_on(page: str):
    assert f"http://127.0.0.1:{Settings(()).port}/v1" in page


class Model:
    """A model server with one answer, a call: in text where no tools are asked for, in the API that is asked."""

    def __init__(self, dialect: str) -> None:
        self.dialect = get_dialect("hermes" if dialect in ("auto", "native") else dialect)

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request_line.startswith("GET"):
            content = json.dumps({"data": [{"id": "m"}]}).encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
            await exchange.send(head.encode(), content)
            return
        ollama = "/api/chat" in exchange.request_line
        wire: WireFormat = OLLAMA if ollama else OPENAI_CHAT
        request = wire.decode_request(exchange.json)
        encoder = wire.encoder(request, response_id="r", created_at=1)
        frames = [frame for delta in self.turn(bool(request.request.tools)) for frame in encoder.feed(delta)]
        if ollama:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n"
            pieces = [json.dumps(data).encode() + b"\n" for _, data in frames]
        else:
            head, pieces = STREAM_HEAD, [event(data) for _, data in frames]
        await exchange.send(head + b"transfer-encoding: chunked\r\n\r\n", http_chunks(pieces), b"0\r\n\r\n")

    def turn(self, native: bool) -> list[Delta]:
        name, arguments = CALL
        if native:
            return [CallCompleted(0, name, arguments, "c1"), BatchEnded((0,), True), TurnEnded("stop", Usage(3, 2))]
        (message,) = self.dialect.render([Message("assistant", (ToolCall("c1", name, arguments),))])
        return [
            *(TextDelta(message.text[at : at + 5]) for at in range(0, len(message.text), 5)),
            TurnEnded("stop", Usage(3, 2)),
        ]


@asynccontextmanager
async def running_server(command: Sequence[str], environ: Mapping[str, str], cwd: Path) -> AsyncGenerator[str]:
    """The gateway as this command starts it, on a free port; its address."""
    plain = {name: value for name, value in os.environ.items() if not name.endswith(("_BASE_URL", "_API_KEY", "_HOST"))}
    process = await asyncio.create_subprocess_exec(
        COMMANDS / command[0],
        *command[1:],
        env={**plain, **environ},
        cwd=cwd,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(SECONDS):
            while (line := (await process.stderr.readline()).decode()).startswith("{"):
                pass  # its log, before the address is printed
        assert line.startswith("toolspeak serves at "), line
        yield line.split()[-1]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def calls(address: str, model: str, key: str = "none") -> list[tuple[str, Any]]:
    """What a client gets from there."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Will it rain?"}],
        "tools": [{"type": "function", "function": TOOL}],
    }
    headers = {"authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(trust_env=False, timeout=SECONDS, headers=headers) as client:
        answer = await client.post(f"{address}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    calls = answer.json()["choices"][0]["message"]["tool_calls"]
    return [(each["function"]["name"], json.loads(each["function"]["arguments"])) for each in calls]


def environment(model: Server) -> dict[str, str]:
    root = model.base_url.removesuffix("/v1")
    return {name: root + path for name, path in ADDRESSES.items()}


@pytest.mark.over_a_second
@pytest.mark.parametrize("command", SERVING)
def test_each_command_serves_calls(command: str, tmp_path: Path):
    words = shlex.split(command)
    dialect = words[words.index("--dialect") + 1] if "--dialect" in words else "auto"

    async def run() -> list[tuple[str, Any]]:
        async with serve(Model(dialect)) as model:
            there = [model.base_url if word.startswith("http://") else word for word in words]
            if "--config" in there:
                (tmp_path / "gateway.toml").write_text(config_text(model), "utf-8")
            async with running_server([*there, "--port", "0"], environment(model), tmp_path) as address:
                return await calls(address, "m")

    assert asyncio.run(run()) == [CALL]


def config_text(model: Server) -> str:
    return f'[[model]]\nname = "m"\nupstream = "{model.base_url}"\ndialect = "hermes"\n'


@pytest.mark.parametrize("text", blocks("toml"))
def test_its_configurations_are_read(text: str, tmp_path: Path):
    # What is shown of one table stands beside a model in a file.
    row = "" if "[[model]]" in text else '\n[[model]]\nname = "m"\nupstream = "ollama"\n'
    (tmp_path / "gateway.toml").write_text(text + row, "utf-8")
    assert read_config(tmp_path / "gateway.toml").upstreams


@pytest.mark.parametrize("command", re.findall(r"^\$ (toolspeak dialects .*)\n(\S+)$", PAGE, re.MULTILINE))
def test_the_dialects_of_models_are_those_it_shows(command: tuple[str, str]):
    result = subprocess.run(
        [COMMANDS / "toolspeak", *shlex.split(command[0])[1:]], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == command[1]


# --- the unit ----------------------------------------------------------------------------------------------------


def unit_value(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


@pytest.mark.over_a_second
def test_the_unit_starts_a_gateway(tmp_path: Path):
    words = shlex.split(unit_value("ExecStart").replace("/etc/toolspeak", str(tmp_path)))

    async def run() -> list[tuple[str, Any]]:
        async with serve(Model("hermes")) as model:
            key = f'[[key]]\nname = "alice"\nsha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"\n'
            (tmp_path / "gateway.toml").write_text(config_text(model) + key, "utf-8")
            command = [Path(words[0]).name, *words[1:], "--port", "0"]
            async with running_server(command, {}, tmp_path) as address:
                return await calls(address, "m", KEY)

    assert asyncio.run(run()) == [CALL]


def test_the_unit_waits_longer_than_the_gateway_drains():
    assert int(unit_value("TimeoutStopSec")) > Settings(()).drain_seconds


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_takes_the_unit(tmp_path: Path):
    unit = tmp_path / "toolspeak-gateway.service"
    unit.write_text(UNIT.replace("/opt/toolspeak/bin/toolspeak", str(COMMANDS / "toolspeak")), "utf-8")
    result = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert [line for line in result.stderr.splitlines() if "toolspeak" in line] == []


# --- the container -----------------------------------------------------------------------------------------------

ENTRYPOINT: list[str] = json.loads(re.findall(r"^ENTRYPOINT (.*)$", CONTAINER, re.MULTILINE)[0])
CMD: list[str] = json.loads(re.findall(r"^CMD (.*)$", CONTAINER, re.MULTILINE)[0])


def test_the_container_copies_what_is_there():
    sources = [line.split()[1:-1] for line in CONTAINER.splitlines() if re.match(r"COPY (?!--from)", line)]
    assert sources
    assert [name for names in sources for name in names if not (ROOT / name).exists()] == []


def test_the_container_serves_whoever_has_a_key(tmp_path: Path):
    entry = [word.replace("8665", "0") for word in [*ENTRYPOINT, *CMD]]
    command = [word.replace("/etc/toolspeak", str(tmp_path)) for word in entry]

    async def run() -> list[tuple[str, Any]]:
        async with serve(Model("hermes")) as model:
            (tmp_path / "gateway.toml").write_text(config_text(model), "utf-8")
            async with running_server(command, {"TOOLSPEAK_API_KEYS": KEY}, tmp_path) as address:
                return await calls(address.replace("0.0.0.0", "127.0.0.1"), "m", KEY)

    assert asyncio.run(run()) == [CALL]


def test_the_container_serves_nobody_without_a_key(tmp_path: Path):
    (tmp_path / "gateway.toml").write_text('[[model]]\nname = "m"\nupstream = "ollama"\n', "utf-8")
    command = [COMMANDS / ENTRYPOINT[0], *ENTRYPOINT[1:], "--config", tmp_path / "gateway.toml"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert result.returncode == 2
    assert "TOOLSPEAK_API_KEYS" in result.stderr


def test_the_container_is_checked_where_it_listens():
    port = ENTRYPOINT[ENTRYPOINT.index("--port") + 1]
    assert f"EXPOSE {port}" in CONTAINER
    assert f"http://127.0.0.1:{port}/healthz" in CONTAINER
    assert int(port) == Settings(()).port
