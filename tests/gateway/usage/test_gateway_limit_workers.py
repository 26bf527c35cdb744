"""Limits and usage of keys over real processes: four workers, one database."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from loopback_server import STREAM_HEAD, Exchange, event, http_chunks, says, serve
from processes import CHAT, Process, Streams, is_to_be_asked_again, running_process
from serving import PATIENCE

from toolspeak.gateway.settings.api_keys import digest
from toolspeak.gateway.usage.usage_store import open_usage
from toolspeak.gateway.usage.usage_values import Counts

ALICE, BOB = "alice" * 5, "bobby" * 5
WORKERS = 4
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "How is it?"}]}


class Model:
    """Says the first half of an answer at once, and the second once `go_on` is set."""

    def __init__(self, *, waits: bool = False) -> None:
        self.go_on = asyncio.Event()
        if not waits:
            self.go_on.set()

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([event(says("One, "))]))
        await self.go_on.wait()
        usage_chunk = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 12}}
        await exchange.send(
            http_chunks([event(says("two.", "stop")), event(usage_chunk), event("[DONE]")]), b"0\r\n\r\n"
        )


def key(name: str, secret: str, limits: str = "") -> str:
    return f'[[key]]\nname = "{name}"\nsha256 = "{digest(secret)}"\n{limits}\n'


@asynccontextmanager
async def working(
    folder: Path, store: str, model: Model, *keys: str, workers: int = WORKERS
) -> AsyncGenerator[tuple[Path, str, Process]]:
    """The configuration's file, what it holds besides keys, and `toolspeak serve` that goes by it."""
    config = folder / "gateway.toml"
    async with serve(model) as server:
        rest = f'[[model]]\nname = "m"\nupstream = "{server.base_url}"\ndialect = "hermes"\n'
        rest += f'[usage]\nstore = "{store}"\nlease_seconds = 10\n' if store else ""
        config.write_text(rest + "".join(keys))
        async with running_process("--config", str(config), "--workers", str(workers)) as process:
            try:
                yield config, rest, process
            finally:
                model.go_on.set()


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}", "connection": "close"}  # so that every worker gets its share


async def ask(client: httpx2.AsyncClient, **more: Any) -> httpx2.Response:
    """The answer to a request, which is sent again while the store of limits does not respond."""
    async with asyncio.timeout(PATIENCE):
        while True:
            response = await client.post(CHAT, json=BODY, **more)
            if not await is_to_be_asked_again(response):
                return response


async def counts_of(store: str) -> dict[str, Counts]:
    usage = open_usage(store)
    try:
        return {row.key: row.counts for row in await usage.rows(("key",), "")}
    finally:
        await usage.aclose()


async def until_served(client: httpx2.AsyncClient) -> None:
    """Asks again until the answer comes: the leases of the killed workers have to end."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(httpx2.TransportError):  # a worker that is not there yet, or any more
                if (await ask(client)).status_code == 200:
                    return
            await asyncio.sleep(0.05)


@pytest.mark.over_a_second
@pytest.mark.parametrize("usage_store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_requests_a_minute_hold_over_four_workers(usage_store: str, tmp_path: Path):
    async def run() -> None:
        alice = key("alice", ALICE, "requests_per_minute = 40")
        async with (
            working(tmp_path, usage_store, Model(), alice) as (_, _, process),
            process.client(**bearer(ALICE)) as client,
        ):
            answers = await asyncio.gather(*(ask(client) for _ in range(100)))
            statuses = [answer.status_code for answer in answers]
            assert (statuses.count(200), statuses.count(429)) == (40, 60)
            process.process.send_signal(signal.SIGTERM)
            await process.process.wait()
        assert await counts_of(usage_store) == {"alice": Counts(requests=40, refused=60, input=1200, output=480)}

    asyncio.run(run())


@pytest.mark.over_a_second
@pytest.mark.parametrize("usage_store", ["postgresql", pytest.param("sqlite", marks=pytest.mark.slow)], indirect=True)
def test_streams_hold_over_four_workers_and_a_killed_worker_gives_its_own_back(usage_store: str, tmp_path: Path):
    async def run() -> None:
        model = Model(waits=True)
        async with (
            working(tmp_path, usage_store, model, key("alice", ALICE, "streams = 8")) as (_, _, process),
            process.client(**bearer(ALICE)) as client,
        ):
            streams = Streams(client, [BODY] * 40)
            await streams.until(
                lambda texts: sum("One, " in text or "streams_exceeded" in text for text in texts) == 40
            )
            assert (streams.statuses.count(200), streams.statuses.count(429)) == (8, 32)
            assert (await ask(client)).status_code == 429
            for line in await process.log_lines("serving", WORKERS):
                os.kill(line["pid"], signal.SIGKILL)
            await process.log_lines("serving", 2 * WORKERS)
            model.go_on.set()
            await until_served(client)
            await asyncio.gather(streams.read_to_end(), return_exceptions=True)

    asyncio.run(run())


@pytest.mark.slow
def test_a_key_that_is_revoked_is_refused_by_every_worker(tmp_path: Path):
    async def run() -> None:
        keys = (key("alice", ALICE, "streams = 8"), key("bob", BOB))
        async with (
            working(tmp_path, str(tmp_path / "u.db"), Model(), *keys) as (config, rest, process),
            process.client() as client,
        ):
            assert (await ask(client, headers=bearer(ALICE))).status_code == 200
            other = config.with_suffix(".new")
            other.write_text(rest + keys[1])
            other.replace(config)
            await process.log_lines("reloaded", WORKERS)
            for _ in range(20):
                assert (await ask(client, headers=bearer(ALICE))).status_code == 401
            assert (await ask(client, headers=bearer(BOB))).status_code == 200

    asyncio.run(run())


@pytest.mark.slow
def test_a_reload_that_gives_a_key_its_first_limit_opens_the_store(tmp_path: Path):
    async def run() -> None:
        async with (
            working(tmp_path, "", Model(), key("alice", ALICE)) as (config, rest, process),
            process.client(**bearer(ALICE)) as client,
        ):
            assert (await ask(client)).status_code == 200
            limited_key = key("alice", ALICE, "requests_per_minute = 3")
            config.with_suffix(".new").write_text(f'{rest}[usage]\nstore = "u.db"\n{limited_key}')
            config.with_suffix(".new").replace(config)
            for line in await process.log_lines("reloaded", WORKERS):
                assert "needs_restart" not in line
            answers = await asyncio.gather(*(ask(client) for _ in range(10)))
            assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 7

    asyncio.run(run())


@pytest.mark.over_a_second
def test_sigterm_loses_nothing_that_was_under_way(usage_store: str, tmp_path: Path):
    async def run() -> None:
        model = Model(waits=True)
        async with (
            working(tmp_path, usage_store, model, key("alice", ALICE), workers=1) as (config, _, process),
            process.client(**bearer(ALICE)) as client,
        ):
            config.write_text(config.read_text() + "[server]\ndrain_seconds = 0\n")
            await process.log_lines("reloaded")
            streams = Streams(client, [BODY] * 3)
            await streams.until(lambda texts: all("One, " in text for text in texts))
            process.process.send_signal(signal.SIGTERM)
            await process.process.wait()
            await asyncio.gather(streams.read_to_end(), return_exceptions=True)
        counts = (await counts_of(usage_store))["alice"]
        assert counts.requests == 3
        assert counts.input > 0
        assert counts.output > 0

    asyncio.run(run())
