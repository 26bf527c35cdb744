"""How the gateway's processes end: what clients get, what the log says, and the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loopback_server import STREAM_HEAD, Exchange, event, http_chunks, says, serve
from processes import CHAT, running_process
from serving import PATIENCE

MESSAGES, RESPONSES, COMPLETIONS = "/v1/messages", "/v1/responses", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Go on."}]},
    MESSAGES: {"max_tokens": 9, "messages": [{"role": "user", "content": "Go on."}]},
    RESPONSES: {"input": "Go on."},
    COMPLETIONS: {"prompt": "Go on."},
}
WORKERS = 2
NOT_STARTED = 3
"""Uvicorn's exit code for a server whose application does not start."""


class Model:
    """Says the beginning of an answer, and nothing more until `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self._streams, self._more = 0, asyncio.Condition()

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([event(says("One, "))]))
        async with self._more:
            self._streams += 1
            self._more.notify_all()
        await self.go_on.wait()

    async def has_begun(self, count: int) -> None:
        async with self._more:
            await self._more.wait_for(lambda: self._streams == count)


@pytest.mark.over_a_second
@pytest.mark.parametrize("workers", [1, WORKERS])
def test_what_is_under_way_when_the_time_to_drain_is_over_gets_an_error(workers: int, tmp_path: Path):
    async def run() -> None:
        model = Model()
        async with serve(model) as server, contextlib.AsyncExitStack() as ends:
            ends.callback(model.go_on.set)
            config = tmp_path / "gateway.toml"
            config.write_text(
                f"[server]\ndrain_seconds = 0\n"
                f'[[model]]\nname = "text"\nupstream = "{server.base_url}"\ndialect = "hermes"\n'
                f'[[model]]\nname = "native"\nupstream = "{server.base_url}"\ndialect = "native"\n'
            )
            async with (
                running_process("--config", str(config), "--workers", str(workers)) as process,
                process.client() as client,
            ):
                streams = [(path, model) for path in BODIES for model in ("text", "native")]
                has_begun = {stream: asyncio.Event() for stream in streams}

                async def stream(path: str, model: str) -> tuple[int, str]:
                    body = {**BODIES[path], "model": model, "stream": True}
                    text = ""
                    async with client.stream("POST", path, json=body) as response:
                        async for piece in response.aiter_text():
                            text += piece
                            if "One, " in text:
                                has_begun[path, model].set()
                    return response.status_code, text

                open_streams = [asyncio.create_task(stream(*each)) for each in streams]
                whole = asyncio.create_task(client.post(CHAT, json={**BODIES[CHAT], "model": "text"}))
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*(each.wait() for each in has_begun.values()))
                    await model.has_begun(len(streams) + 1)
                process.process.send_signal(signal.SIGTERM)
                for (path, model), each in zip(streams, open_streams, strict=True):
                    status, text = await each
                    assert status == 200, (path, model)
                    assert "the gateway stopped" in text.rstrip().splitlines()[-1], (path, model, text)
                answer = await whole
                assert (answer.status_code, answer.headers["retry-after"]) == (502, "1")
                assert answer.json()["error"]["code"] == "gateway_stopped"
                await process.process.wait()
                assert sum(line["ended"] for line in process.lines if line["event"] == "drained") == len(streams) + 1
                assert not [line for line in process.lines if line["level"] == "error"]

    asyncio.run(run())


@pytest.mark.over_a_second
@pytest.mark.parametrize("workers", [1, pytest.param(WORKERS, marks=pytest.mark.slow)])
def test_a_gateway_that_does_not_start_says_so_by_its_exit_code(workers: int, tmp_path: Path):
    config = tmp_path / "gateway.toml"
    config.write_text(
        f"[server]\nworkers = {workers}\n"
        f'[[model]]\nname = "m"\nupstream = "http://127.0.0.1:9/v1"\ndialect = "hermes"\n'
        f'[usage]\nstore = "{tmp_path}"\n'
    )
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", "0", "--config", str(config)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == NOT_STARTED, result.stderr
    assert "toolspeak serves at" not in result.stderr
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert "it is a folder" in next(line["problem"] for line in lines if line["event"] == "start_failed")


@pytest.mark.slow
def test_a_worker_that_cannot_start_anew_leaves_the_others_at_work(tmp_path: Path):
    """The store is away while a worker is replaced, say: the others go on, and it starts once that is over."""

    async def run() -> None:
        async with serve(Model()) as server:
            config, store = tmp_path / "gateway.toml", tmp_path / "usage.db"
            config.write_text(
                f'[[model]]\nname = "text"\nupstream = "{server.base_url}"\ndialect = "hermes"\n'
                f'[usage]\nstore = "{store}"\n'
            )
            async with running_process("--config", str(config), "--workers", str(WORKERS)) as process:
                for path in list(tmp_path.glob("usage.db*")):  # noqa: ASYNC240
                    path.unlink()
                store.mkdir()
                first, _ = await process.log_lines("serving", WORKERS)
                os.kill(first["pid"], signal.SIGKILL)
                await process.log_lines("worker_ended", 2)  # the one that was killed, and the first that took its place
                async with process.client(connection="close") as client:
                    assert (await client.get("/healthz")).status_code == 200
                store.rmdir()
                await process.log_lines("serving", WORKERS + 1)

    asyncio.run(run())


@pytest.mark.over_a_second
def test_a_worker_that_stands_still_holds_up_neither_the_others_nor_the_end():
    """Nobody waits for its answer, for which it has half a minute."""

    async def run() -> None:
        async with (
            serve(Model()) as server,
            running_process("--upstream", server.base_url, "--workers", "2") as process,
        ):
            one, other = (line["pid"] for line in await process.log_lines("serving", WORKERS))
            killed_pids: list[int] = []
            for number in (1, 2):  # the supervisor looks at one before the other: each stands still once
                os.kill(one, signal.SIGSTOP)
                os.kill(other, signal.SIGKILL)
                killed_pids.append(other)
                lines = await process.log_lines("serving", WORKERS + number)
                assert [line["pid"] for line in await process.log_lines("worker_ended", number)] == killed_pids
                os.kill(one, signal.SIGCONT)
                one, other = lines[-1]["pid"], one
            process.process.send_signal(signal.SIGTERM)
            assert await process.process.wait() == 0
            assert len(await process.log_lines("worker_ended")) == 2

    asyncio.run(run())
