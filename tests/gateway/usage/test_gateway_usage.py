"""What keys used: counted whatever becomes of a request, in SQLite and in PostgreSQL, in the metrics and in a table."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from loopback_server import STREAM_HEAD, Answer, Exchange, event, hang_up, http_chunks, says, serve
from serving import ENDPOINTS, at, call_text, in_turn, run_gateway, texts

from toolspeak.cli.server_commands.usage_command import usage_command
from toolspeak.gateway.settings.api_keys import Key, digest
from toolspeak.gateway.settings.usage_settings import UsageSettings
from toolspeak.gateway.usage.usage_store import open_usage
from toolspeak.gateway.usage.usage_values import COLUMNS, Counts, UsageBatch, UsageRow, day_of

ALICE, ROOT = "alice" * 5, "root" * 5
CHAT, RESPONSES, MESSAGES = ENDPOINTS
KEYS = (Key("alice", digest(ALICE)), Key("root", digest(ROOT), metrics=True))
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hi."}], **more}


async def rows_of(store: str, *by: Any) -> list[UsageRow]:
    usage = open_usage(store)
    try:
        return [*await usage.rows(by or COLUMNS, "")]
    finally:
        await usage.aclose()


def counts_of(store: str) -> dict[str, Counts]:
    return {row.key: row.counts for row in asyncio.run(rows_of(store, "key"))}


def test_usage_is_counted_by_key_model_and_day(usage_store: str):
    answer = in_turn(texts(call_text("hermes", ("weather", {}))), texts("Hi."), texts("<tool_call>{", finish="stop"))

    async def run() -> str:
        usage = UsageSettings(usage_store)
        async with (
            serve(answer) as server,
            run_gateway(at(server, dialect="hermes"), keys=KEYS, usage=usage) as gateway,
        ):
            for key, more in ((ALICE, {"tools": [TOOL]}), (ROOT, {}), (ALICE, {"tools": [TOOL], "stream": True})):
                response = await gateway.client.post(CHAT, json=body(**more), headers=bearer(key))
                assert response.status_code == 200
            missing = await gateway.client.post(CHAT, json=body(model="nope" * 100), headers=bearer(ALICE))
            assert missing.status_code == 400
            return (await gateway.client.get("/metrics", headers=bearer(ROOT))).text

    metrics = asyncio.run(run())
    today = day_of(time.time())
    assert asyncio.run(rows_of(usage_store)) == [
        UsageRow(today, "alice", "(none)", Counts(requests=1, errors=1)),
        UsageRow(today, "alice", "m", Counts(requests=2, input=60, output=24, calls=1, malformed=1)),
        UsageRow(today, "root", "m", Counts(requests=1, input=30, output=12)),
    ]
    assert [row.model for row in asyncio.run(rows_of(usage_store, "model"))] == ["(none)", "m"]
    for line in (
        'toolspeak_key_requests_total{key="alice"} 3.0',
        'toolspeak_key_errors_total{key="alice"} 1.0',
        'toolspeak_key_tokens_total{key="alice",kind="input"} 60.0',
        'toolspeak_key_calls_total{key="alice"} 1.0',
        'toolspeak_key_malformed_calls_total{key="alice"} 1.0',
    ):
        assert line in metrics.splitlines()
    assert digest(ALICE)[:8] not in metrics


def failing(cut: bool) -> Answer:
    async def answer(exchange: Exchange) -> None:
        if not cut:
            await exchange.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}")
            return
        head = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
        await hang_up(head + http_chunks([event(says("Four letters a token"))]))(exchange)

    return answer


RELAYED_OR_READ = pytest.mark.parametrize("relayed", [True, False], ids=["relayed", "read"])
"""Requests without tools pass as they come where both sides speak one API."""


def chat_body(relayed: bool) -> dict[str, Any]:
    return body(stream=True) if relayed else body(stream=True, tools=[TOOL])


@RELAYED_OR_READ
def test_an_answer_that_breaks_off_is_counted_as_far_as_it_came(usage_store: str, relayed: bool):
    async def run(cut: bool) -> None:
        async with (
            serve(failing(cut)) as server,
            run_gateway(at(server), keys=KEYS, usage=UsageSettings(usage_store)) as gateway,
            gateway.client.stream("POST", CHAT, json=chat_body(relayed), headers=bearer(ALICE)) as response,
        ):
            assert response.status_code == (200 if cut else 400)
            await response.aread()

    asyncio.run(run(cut=False))
    assert counts_of(usage_store)["alice"] == Counts(requests=1, errors=1)  # the upstream refused it: no tokens
    asyncio.run(run(cut=True))
    counts = counts_of(usage_store)["alice"]
    assert (counts.requests, counts.errors) == (2, 2)
    assert 0 < counts.input < 100
    assert 0 < counts.output < 10


@RELAYED_OR_READ
def test_a_client_that_leaves_is_counted_and_is_no_error(usage_store: str, relayed: bool):
    departure = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([event(says("Four"))]))
        await exchange.reader.read()
        departure.set()

    async def run() -> None:
        async with (
            serve(answer) as server,
            run_gateway(at(server), keys=KEYS, usage=UsageSettings(usage_store)) as gateway,
        ):
            async with gateway.client.stream("POST", CHAT, json=chat_body(relayed), headers=bearer(ALICE)) as response:
                chunks = response.aiter_bytes()
                await anext(chunks)
            await departure.wait()

    asyncio.run(run())
    counts = counts_of(usage_store)["alice"]
    assert (counts.requests, counts.errors, counts.output) == (1, 0, 1)
    assert 0 < counts.input < 100


def test_embeddings_and_completions_are_counted(usage_store: str):
    async def answer(exchange: Exchange) -> None:
        content = json.dumps({"data": [], "model": "m", "usage": {"prompt_tokens": 7, "total_tokens": 7}}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        await exchange.send(head % len(content) + content)

    async def run() -> None:
        async with (
            serve(answer) as server,
            run_gateway(at(server), keys=KEYS, usage=UsageSettings(usage_store)) as gateway,
        ):
            request = {"model": "m", "input": "Hi."}
            assert (await gateway.client.post("/v1/embeddings", json=request, headers=bearer(ALICE))).status_code == 200

    asyncio.run(run())
    counts = counts_of(usage_store)["alice"]
    assert (counts.requests, counts.errors, counts.input, counts.output) == (1, 0, 7, 0)


def test_names_and_numbers_of_strangers_do_not_break_the_store(usage_store: str):
    huge = [
        event(says("x", "stop")),
        event({"choices": [], "usage": {"prompt_tokens": 10**30, "completion_tokens": 1}}),
    ]

    async def run() -> None:
        async with (
            serve(in_turn(*([*huge, event("[DONE]")] for _ in range(103)))) as server,
            run_gateway(at(server), keys=KEYS, usage=UsageSettings(usage_store)) as gateway,
        ):
            for name in ("a\x00b", "\ud800", "\x1b[2J", *(f"m{i}" for i in range(100))):
                content = json.dumps(body(model=name)).encode()
                headers = {**bearer(ALICE), "content-type": "application/json"}
                await gateway.client.post(CHAT, content=content, headers=headers)

    asyncio.run(run())
    rows = asyncio.run(rows_of(usage_store, "model"))
    assert sum(row.counts.requests for row in rows) == 103
    assert len(rows) <= 101
    assert all(row.model.isprintable() for row in rows)
    assert max(row.counts.input for row in rows) < 10**15


def test_a_store_that_was_away_loses_nothing(tmp_path: Path):
    store = tmp_path / "folder" / "usage.db"

    async def run() -> None:
        async with (
            serve(in_turn(texts("Hi."), texts("Hi."))) as server,
            run_gateway(at(server), keys=KEYS, usage=UsageSettings(str(store))) as gateway,
        ):
            elsewhere = tmp_path / "elsewhere"
            for _ in range(2):
                assert (await gateway.client.post(CHAT, json=body(), headers=bearer(ALICE))).status_code == 200
                assert not elsewhere.exists()

    asyncio.run(run())
    assert counts_of(str(store))["alice"].requests == 2


def test_several_workers_that_make_the_store_at_once_make_one(tmp_path: Path):
    """Again and again, for what happens in one of hundred times. Each store works in a thread of its own."""

    async def run() -> None:
        for number in range(40):
            stores = [open_usage(str(tmp_path / str(number) / "usage.db")) for _ in range(8)]
            await asyncio.gather(*(store.open() for store in stores))
            for store in stores:
                await store.aclose()

    asyncio.run(run())


def test_old_days_are_removed(usage_store: str):
    async def run() -> None:
        usage = open_usage(usage_store)
        await usage.settle(UsageBatch("w", 15, {("alice", "m"): Counts(requests=1)}, {}))
        await usage.prune(1)
        assert len(await usage.rows(COLUMNS, "")) == 1
        await usage.prune(-1)
        assert not await usage.rows(COLUMNS, "")
        await usage.aclose()

    asyncio.run(run())


# --- toolspeak usage ----------------------------------------------------------------------------------------------


def test_the_table_of_usage(usage_store: str, tmp_path: Path):
    async def fill() -> None:
        usage = open_usage(usage_store)
        counts = {
            ("alice", "coder"): Counts(requests=2, refused=1, input=1_234_567, output=24, calls=1),
            ("bob", "coder"): Counts(requests=1, errors=1),
        }
        await usage.settle(UsageBatch("w", 15, counts, {}))
        await usage.aclose()

    asyncio.run(fill())
    result = CliRunner().invoke(usage_command, ["--store", usage_store])
    assert result.exit_code == 0, result.output
    lines = [re.split(r"\s+", line.strip()) for line in result.output.splitlines() if line.strip()]
    assert lines[0] == ["key", "requests", "refused", "errors", "input", "output", "cached", "calls", "malformed"]
    assert lines[1:] == [
        ["alice", "2", "1", "0", "1,234,567", "24", "0", "1", "0"],
        ["bob", "1", "0", "1", "0", "0", "0", "0", "0"],
    ]
    wide = CliRunner().invoke(usage_command, ["--store", usage_store, "--by", "key", "--by", "model", "--by", "day"])
    assert re.split(r"\s+", wide.output.splitlines()[1].strip())[:3] == ["alice", "coder", day_of(time.time())]
    config = tmp_path / "gateway.toml"
    config.write_text(f'[usage]\nstore = "{usage_store}"\n')
    by = ["--by", "model", "--by", "day", "--json", "--config", str(config)]
    rows = json.loads(CliRunner().invoke(usage_command, by).output)
    assert [(row["model"], row["day"], row["requests"]) for row in rows] == [("coder", day_of(time.time()), 3)]
    assert json.loads(CliRunner().invoke(usage_command, [*by, "--since", "2999-01-01"]).output) == []


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path):
    store = tmp_path / "none.db"
    result = CliRunner().invoke(usage_command, ["--store", str(store)])
    assert "there is no usage store at" in str(result.exception)
    assert not store.exists()
