"""Settings that change while the gateway serves: by SIGHUP, and when a file changes."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from loopback_server import STREAM_HEAD, Exchange, Server, event, http_chunks, says, serve
from processes import CHAT, Process, Streams, running_process

BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "How is it?"}]}
KEY, OTHER = "a-key-that-is-long-enough", "another-that-is-long-enough"


def row(name: str, server: Server) -> str:
    return f'[[model]]\nname = "{name}"\nupstream = "{server.base_url}"\ndialect = "hermes"\n'


class Halting:
    """Says the first half of an answer at once, and the second once `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request_line.startswith("GET"):
            await exchange.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([event(says("One, "))]))
        await self.go_on.wait()
        await exchange.send(http_chunks([event(says("two.", "stop")), event("[DONE]")]), b"0\r\n\r\n")


def replace_file(path: Path, text: str) -> None:
    """As editors do it: never half of it is there."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


@asynccontextmanager
async def serve_config(
    tmp_path: Path, *arguments: str, halts: bool = False
) -> AsyncGenerator[tuple[Path, Halting, Server, Process]]:
    """A configuration of the model `m`, the model behind it, and `toolspeak serve` that goes by it."""
    model, config = Halting(), tmp_path / "gateway.toml"
    if not halts:
        model.go_on.set()
    async with serve(model) as server:
        config.write_text(row("m", server))
        async with running_process("--config", str(config), *arguments) as process:
            yield config, model, server, process


@pytest.mark.over_a_second
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_sighup_loses_none_of_a_hundred_open_streams(workers: int, tmp_path: Path):
    async def run() -> None:
        arguments = ("--workers", str(workers))
        async with serve_config(tmp_path, *arguments, halts=True) as (config, model, server, process):
            async with process.client() as client:
                streams = Streams(client, [BODY] * 100)
                await streams.until(lambda texts: all("One, " in text for text in texts))
                os.kill(process.process.pid, signal.SIGHUP)
                assert len(await process.log_lines("reloaded", workers, why="signal")) == workers
                replace_file(config, row("other", server))
                await process.log_lines("reloaded", workers, why="file", keys=["model.m", "model.other"])
                model.go_on.set()
                for text in await streams.read_to_end():
                    assert "two." in text
                    assert text.endswith("data: [DONE]\n\n")
                assert set(streams.statuses) == {200}
            async with process.client() as client:  # the old model is gone, the new one is there, in every worker
                for _ in range(4):
                    assert (await client.post(CHAT, json=BODY)).status_code == 404
                    answer = await client.post(CHAT, json={**BODY, "model": "other"})
                    assert answer.text.endswith("data: [DONE]\n\n")

    asyncio.run(run())


@pytest.mark.over_a_second
def test_a_file_that_is_broken_changes_nothing(tmp_path: Path):
    async def run() -> None:
        async with serve_config(tmp_path) as (config, _, server, process), process.client() as client:
            for config_text, problem in (
                (row("m", server) + "dialekt = 'x'\n", "model[0].dialekt: unknown key 'dialekt'"),
                ("[[model", "is not TOML"),
                (row("m", server) + 'key_env = "NOT_SET_ANYWHERE"\n', "NOT_SET_ANYWHERE is not set"),
            ):
                count = len([line for line in process.lines if line["event"] == "reload_failed"])
                replace_file(config, config_text)
                lines = await process.log_lines("reload_failed", count + 1)
                assert (lines[-1]["level"], lines[-1]["why"]) == ("error", "file")
                assert problem in lines[-1]["problem"]
                assert (await client.post(CHAT, json=BODY)).text.endswith("data: [DONE]\n\n")
            config.unlink()
            lines = await process.log_lines("reload_failed", 4)
            assert f"{config} cannot be read: No such file" in lines[-1]["problem"]
            os.kill(process.process.pid, signal.SIGHUP)
            assert (await process.log_lines("reload_failed", 5))[-1]["why"] == "signal"
            metrics = (await client.get("/metrics")).text
            assert 'toolspeak_reloads_total{outcome="failed"} 5.0' in metrics
            assert "toolspeak_config_last_reload_successful 0.0" in metrics
            replace_file(config, row("mended", server))
            await process.log_lines("reloaded")
            metrics = (await client.get("/metrics")).text
            assert 'toolspeak_reloads_total{outcome="succeeded"} 1.0' in metrics
            assert "toolspeak_config_last_reload_successful 1.0" in metrics
            answer = await client.post(CHAT, json={**BODY, "model": "mended"})
            assert answer.text.endswith("data: [DONE]\n\n")

    asyncio.run(run())


@pytest.mark.over_a_second
def test_a_key_that_is_taken_out_of_its_file_is_refused(tmp_path: Path):
    async def run() -> None:
        model = Halting()
        keys = tmp_path / "keys"
        keys.write_text(f"{KEY}\n{OTHER}\n")
        async with serve(model) as server:
            arguments = ("--upstream", server.base_url, "--dialect", "hermes", "--api-keys", str(keys))
            async with running_process(*arguments) as process, process.client(**{"x-api-key": KEY}) as client:
                streams = Streams(client, [BODY])
                await streams.until(lambda texts: "One, " in texts[0])
                keys.write_text(f"{OTHER}\n")
                await process.log_lines("reloaded", why="file", changed=[str(keys)])
                assert (await client.post(CHAT, json=BODY)).status_code == 401
                model.go_on.set()
                (text,) = await streams.read_to_end()  # what had begun ends as it would have
                assert text.endswith("data: [DONE]\n\n")
                keys.write_text("")  # nobody is let in by an empty file
                lines = await process.log_lines("reload_failed")
                assert "holds no API key" in lines[0]["problem"]
                assert (await client.post(CHAT, json=BODY)).status_code == 401
                answer = await client.post(CHAT, json=BODY, headers={"x-api-key": OTHER})
                assert answer.status_code == 200

    asyncio.run(run())


@pytest.mark.over_a_second
def test_what_needs_a_restart_is_told_and_stays(tmp_path: Path):
    async def run() -> None:
        async with serve_config(tmp_path) as (config, _, server, process), process.client() as client:
            server_table = '[server]\nhost = "::1"\nworkers = 3\nheader_bytes = 9000\nbody_bytes = 64\n'
            replace_file(config, server_table + row("m", server))
            (line,) = await process.log_lines("reloaded")
            assert line["needs_restart"] == ["host", "workers", "header_bytes"]
            assert line["keys"] == ["server.body_bytes"]
            assert (await client.post(CHAT, json=BODY)).status_code == 413

    asyncio.run(run())


@pytest.mark.over_a_second
def test_a_worker_that_starts_later_has_the_settings_of_the_others(tmp_path: Path):
    """Even if the file is broken by then."""

    async def run() -> None:
        model = Halting()
        model.go_on.set()
        config = tmp_path / "gateway.toml"
        async with serve(model) as server:
            config.write_text(row("old", server))
            async with running_process("--config", str(config), "--workers", "2") as process:
                replace_file(config, row("m", server))
                await process.log_lines("reloaded", 2)
                os.kill(process.process.pid, signal.SIGHUP)  # the supervisor has read it once the workers say so
                lines = await process.log_lines("reloaded", 2, why="signal")
                replace_file(config, "[[model")
                await process.log_lines("reload_failed", 2)
                for worker in {line["pid"] for line in lines}:
                    os.kill(worker, signal.SIGKILL)
                ended_pids = {line["pid"] for line in await process.log_lines("worker_ended", 2)}
                assert ended_pids == {line["pid"] for line in lines}
                await process.log_lines("serving", 4)
                async with process.client() as client:
                    assert (await client.post(CHAT, json=BODY)).text.endswith("data: [DONE]\n\n")

    asyncio.run(run())


@pytest.mark.over_a_second
def test_a_terminal_that_is_closed_ends_it():
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", "0", "--upstream", "http://127.0.0.1:9/v1"]
    pid, terminal = pty.fork()
    if not pid:
        os.execv(command[0], command)
    output = b""
    while b'"serving"' not in output:
        output += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGTERM, -signal.SIGHUP)


@pytest.mark.over_a_second
def test_it_serves_where_nobody_reads_its_standard_error():
    """Its log and its address go nowhere: a closed pipe ends no server."""
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        port = placeholder.getsockname()[1]
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", str(port), "--upstream", "http://127.0.0.1:9/v1"]
    process = subprocess.Popen(command, stderr=writer)
    os.close(writer)
    try:
        retrying = httpx2.HTTPTransport(retries=8)  # until it listens
        with httpx2.Client(transport=retrying, trust_env=False, timeout=60) as client:
            assert client.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
