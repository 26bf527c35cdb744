"""`toolspeak serve` as its own process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from loopback_server import STREAM_HEAD, Exchange, event, http_chunks, says, serve

REQUEST = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "secret words"}]}
CHAT = "/v1/chat/completions"


@dataclass
class GatewayCommand:
    process: asyncio.subprocess.Process
    url: str
    lines: list[str]

    async def rest(self) -> list[dict]:
        """The log, once the process has ended."""
        assert self.process.stderr is not None
        text = (await self.process.stderr.read()).decode()
        await self.process.wait()
        return [json.loads(line) for line in text.splitlines()]


@asynccontextmanager
async def start_gateway(*arguments: str) -> AsyncGenerator[GatewayCommand]:
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", "0", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stderr=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"}
    )
    assert process.stderr is not None
    try:
        while (line := (await process.stderr.readline()).decode()).startswith("{"):
            pass  # its log, before the address is printed
        assert line.startswith("toolspeak serves at http://"), line
        yield GatewayCommand(process, line.split()[-1], [])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def client(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False, verify=False)


async def up(http: httpx2.AsyncClient) -> None:
    while True:
        try:
            assert (await http.get("/healthz")).status_code == 200
            return
        except httpx2.TransportError:
            await asyncio.sleep(0.05)


async def ready(http: httpx2.AsyncClient) -> int:
    """What `/readyz` answers once it is no more 200."""
    while True:
        status = (await http.get("/readyz")).status_code
        if status != 200:
            return status


@pytest.mark.over_a_second
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_lets_open_streams_end(workers: int):
    async def run() -> None:
        go_on = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            if exchange.request_line.startswith("GET"):
                await exchange.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                return
            await exchange.send(
                STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([event(says("One, "))])
            )
            await go_on.wait()
            await exchange.send(http_chunks([event(says("two.", "stop")), event("[DONE]")]), b"0\r\n\r\n")

        async with (
            serve(answer) as upstream,
            start_gateway("--upstream", upstream.base_url, "--dialect", "hermes", "--workers", str(workers)) as gateway,
            client(gateway.url) as http,
        ):
            await up(http)
            async with http.stream("POST", CHAT, json=REQUEST) as response:
                pieces = response.aiter_text()
                text = await anext(pieces)
                while "One, " not in text:
                    text += await anext(pieces)
                gateway.process.send_signal(signal.SIGTERM)
                if workers == 1:  # a connection made anew goes to the worker that answers, which need not be this one
                    assert await ready(http) == 503
                    refusal = await http.post(CHAT, json=REQUEST)
                    assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "1")
                go_on.set()
                async for piece in pieces:
                    text += piece
            assert "two." in text
            assert text.endswith("data: [DONE]\n\n")
            log = await gateway.rest()
            assert gateway.process.returncode in (0, -signal.SIGTERM)
            lines = [line for line in log if line["event"] == "request"]
            assert (lines[-1]["status"], lines[-1]["upstream"]) == (200, "openai:m")
            assert "secret words" not in json.dumps(log)

    asyncio.run(run())


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_anew_and_counts_no_more_as_busy():
    busy = "toolspeak_active_requests "

    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([event(says("One, "))]))
        await exchange.reader.read()

    async def gauge(url: str) -> str | None:
        """As a worker that is there says."""
        async with client(url) as http:
            try:
                text = (await http.get("/metrics")).text
            except httpx2.TransportError:
                return None
        return next((line for line in text.splitlines() if line.startswith(busy)), None)

    async def run() -> None:
        async with (
            serve(answer) as upstream,
            start_gateway("--upstream", upstream.base_url, "--dialect", "hermes", "--workers", "2") as gateway,
            client(gateway.url) as http,
        ):
            await up(http)
            try:
                async with http.stream("POST", CHAT, json=REQUEST) as response:
                    async for piece in response.aiter_text():
                        if "One, " in piece:
                            assert await gauge(gateway.url) == f"{busy}1.0"
                            for worker in workers_of(gateway.process.pid):
                                os.kill(worker, signal.SIGKILL)
            except httpx2.TransportError:
                pass
            async with asyncio.timeout(60):
                while (line := await gauge(gateway.url)) != f"{busy}0.0":
                    assert line in (None, f"{busy}1.0")
                    await asyncio.sleep(0.1)
            gateway.process.send_signal(signal.SIGTERM)
            await gateway.rest()

    asyncio.run(run())


def workers_of(pid: int) -> list[int]:
    """The processes that serve."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if "resource_tracker" not in Path(f"/proc/{child}/cmdline").read_text()]


@pytest.mark.over_a_second
def test_sigterm_does_not_wait_for_ever():
    async def run() -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(
                STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([event(says("One, "))])
            )
            await exchange.reader.read()

        async with (
            serve(answer) as upstream,
            start_gateway("--upstream", upstream.base_url, "--dialect", "hermes", "--drain", "0.1") as gateway,
            client(gateway.url) as http,
        ):
            await up(http)
            text = ""
            async with http.stream("POST", CHAT, json=REQUEST) as response:
                async for piece in response.aiter_text():
                    text += piece
                    if "One, " in piece:
                        gateway.process.send_signal(signal.SIGTERM)
            assert "gateway_stopped" in text
            assert "[DONE]" not in text  # no client takes it for a whole answer
            await gateway.rest()

    asyncio.run(run())


@pytest.mark.over_a_second
def test_a_port_that_is_taken(tmp_path):
    book = tmp_path / "book.json"
    book.write_text('{"turns": ["Hi."]}')

    async def run() -> tuple[int, str]:
        async with start_gateway("--upstream", f"scripted:{book}") as gateway:
            port = gateway.url.rpartition(":")[2]
            command = [sys.executable, "-m", "toolspeak", "serve", "--upstream", f"scripted:{book}", "--port", port]
            process = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
            return process.returncode, process.stderr

    code, output = asyncio.run(run())
    assert code == 2
    assert "choose another --port" in output


def test_without_the_extra_it_says_what_to_install(tmp_path):
    program = "import sys; sys.modules['uvicorn'] = None; from toolspeak.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "--upstream", "http://127.0.0.1:1/v1"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 2
    assert "pip install 'toolspeak[gateway]'" in process.stderr
