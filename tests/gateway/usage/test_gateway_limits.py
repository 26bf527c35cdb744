"""Limits of named keys, in SQLite and in PostgreSQL: what is refused, and what a client is told."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import STREAM_HEAD, Exchange, Server, event, http_chunks, says, serve
from serving import ENDPOINTS, PATIENCE, Gateway, at, events, run_gateway

from patience import in_time
from toolspeak.errors import ConfigurationError, JournalError
from toolspeak.gateway.app import Gateway as Application
from toolspeak.gateway.settings.api_keys import Key, digest, key_of_table
from toolspeak.gateway.settings.gateway_settings import (
    ResponseSettings,
    Settings,
    Upstream,
    checked_settings,
    read_config,
)
from toolspeak.gateway.settings.usage_settings import UsageSettings, default_store
from toolspeak.gateway.usage.usage_store import open_usage
from toolspeak.gateway.usage.usage_values import KeyUsage, StartRequest, UsageInProgress, usage_decision

ALICE, BOB = "alice" * 5, "bobby" * 5
CHAT, RESPONSES, MESSAGES = ENDPOINTS
UPSTREAM = '[[model]]\nname = "*"\nupstream = "http://127.0.0.1:9/v1"\n'


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def body(path: str, **more: object) -> dict[str, object]:
    field = "input" if path == RESPONSES else "messages"
    return {"model": "m", "max_tokens": 10, field: [{"role": "user", "content": "Hi."}], **more}


class Model:
    """Says the first half of an answer at once, and the second once `go_on` is set; `starts` counts the answers."""

    def __init__(self, *, waits: bool = False, usage: tuple[int, int] | None = (30, 12)) -> None:
        self.go_on = asyncio.Event()
        self.starts = asyncio.Semaphore(0)
        self._usage = usage
        if not waits:
            self.go_on.set()

    async def __call__(self, exchange: Exchange) -> None:
        if "/chat/completions HTTP" not in exchange.request_line:
            await exchange.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([event(says("One, "))]))
        self.starts.release()
        await self.go_on.wait()
        rest = [event(says("two.", "stop"))]
        if self._usage is not None:
            input_tokens, output_tokens = self._usage
            usage_fields = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens}
            rest.append(event({"choices": [], "usage": usage_fields}))
        await exchange.send(http_chunks([*rest, event("[DONE]")]), b"0\r\n\r\n")


@asynccontextmanager
async def run_limited_gateway(
    store: str, model: Model, key: Key, **settings: Any
) -> AsyncGenerator[tuple[Server, Gateway]]:
    usage = UsageSettings(store, **settings)
    keys = (key, Key("bob", digest(BOB)))
    async with serve(model) as upstream, run_gateway(at(upstream, dialect="hermes"), keys=keys, usage=usage) as gateway:
        try:
            yield upstream, gateway
        finally:
            model.go_on.set()


async def ask(gateway: Gateway, path: str = CHAT, key: str = ALICE, **more: Any):
    return await gateway.client.post(path, json=body(path, **more), headers=bearer(key))


async def until(gateway: Gateway, status: int) -> None:
    """Asks as clients do that are refused: again."""
    async with asyncio.timeout(PATIENCE):
        while (await ask(gateway)).status_code != status:  # noqa: ASYNC110 - the answer is what is waited for
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_more_requests_in_a_minute_are_refused_in_the_words_of_each_api(usage_store: str, path: str):
    async def run() -> None:
        alice = Key("alice", digest(ALICE), requests_per_minute=2)
        async with run_limited_gateway(usage_store, Model(), alice) as (upstream, gateway):
            for rest in ("1", "0"):
                answer = await ask(gateway, path, stream=rest == "0")
                assert answer.status_code == 200, answer.text
                start = "anthropic-ratelimit-requests-" if path == MESSAGES else "x-ratelimit-"
                end = "" if path == MESSAGES else "-requests"
                assert answer.headers[f"{start}limit{end}"] == "2"
                assert answer.headers[f"{start}remaining{end}"] == rest
                assert answer.headers[f"{start}reset{end}"]
            for _ in range(2):  # the second is not looked up again
                refusal = await ask(gateway, path)
                assert refusal.status_code == 429
                assert 0 < int(refusal.headers["retry-after"]) <= 60
                assert refusal.headers[f"{start}remaining{end}"] == "0"
                error = refusal.json()["error"]
                assert "may send 2 requests a minute (requests_per_minute)" in error["message"]
                if path == MESSAGES:
                    assert error["type"] == "rate_limit_error"
                else:
                    assert error["code"] == "requests_per_minute_exceeded"
            assert (await ask(gateway, path, BOB)).status_code == 200
            assert len(upstream.exchanges) == 3

    asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_so_many_answers_are_under_way_at_once(usage_store: str, stream: bool):
    async def run() -> None:
        model = Model(waits=True)
        async with run_limited_gateway(usage_store, model, Key("alice", digest(ALICE), streams=2)) as (_, gateway):
            running = [asyncio.create_task(ask(gateway, stream=stream)) for _ in range(2)]
            for _ in running:
                await model.starts.acquire()
            refusal = await ask(gateway, stream=stream)
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (429, "streams_exceeded")
            assert refusal.headers["retry-after"] == "1"
            model.go_on.set()
            for task in running:
                assert (await task).status_code == 200
            for _ in range(3):  # a client that has read the end may ask at once
                assert (await ask(gateway, stream=stream)).status_code == 200

    asyncio.run(run())


def test_a_client_that_leaves_gives_its_place_back(usage_store: str):
    async def run() -> None:
        model = Model(waits=True)
        async with run_limited_gateway(usage_store, model, Key("alice", digest(ALICE), streams=1)) as (_, gateway):
            async with gateway.client.stream(
                "POST", CHAT, json=body(CHAT, stream=True), headers=bearer(ALICE)
            ) as answer:
                chunks = answer.aiter_bytes()
                await anext(chunks)
                assert (await ask(gateway)).status_code == 429
            model.go_on.set()
            await until(gateway, 200)

    asyncio.run(run())


def test_the_day_is_over_once_its_tokens_are_used(usage_store: str):
    async def run() -> None:
        alice = Key("alice", digest(ALICE), tokens_per_day=80)
        async with run_limited_gateway(usage_store, Model(), alice) as (_, gateway):
            first, second, third = [await ask(gateway) for _ in range(3)]
            assert (first.status_code, second.status_code, third.status_code) == (200, 200, 429)  # 42 each
            assert int(first.headers["x-ratelimit-remaining-tokens"]) <= 80
            assert int(second.headers["x-ratelimit-remaining-tokens"]) <= 38
            assert third.json()["error"]["code"] == "tokens_per_day_exceeded"
            assert "may use 80 tokens a day in UTC" in third.json()["error"]["message"]
            assert 0 < int(third.headers["retry-after"]) <= 86400
            if int(third.headers["retry-after"]) > 60:
                assert third.headers["x-should-retry"] == "false"

    asyncio.run(run())


@pytest.mark.over_a_second
def test_what_is_under_way_counts_towards_the_day(usage_store: str):
    async def run() -> None:
        model = Model(waits=True)
        async with run_limited_gateway(usage_store, model, Key("alice", digest(ALICE), tokens_per_day=100)) as (
            _,
            gateway,
        ):
            long = [{"role": "user", "content": "word " * 200}]
            running = asyncio.create_task(ask(gateway, messages=long))
            await model.starts.acquire()
            refusal = await ask(gateway)
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (429, "tokens_per_day_exceeded")
            assert refusal.headers["retry-after"] == "1"
            model.go_on.set()
            assert (await running).status_code == 200
            await until(gateway, 200)  # it used 42, less than what was reserved for it

    asyncio.run(run())


def test_tokens_are_estimated_where_nobody_counts_them(usage_store: str):
    async def run() -> None:
        alice = Key("alice", digest(ALICE), tokens_per_day=3)
        async with run_limited_gateway(usage_store, Model(usage=None), alice) as (_, gateway):
            assert (await ask(gateway)).status_code == 200
            assert (await ask(gateway)).status_code == 429

    asyncio.run(run())


def test_limits_hold_in_all_gateways_with_the_same_store(usage_store: str):
    async def run() -> None:
        alice = Key("alice", digest(ALICE), requests_per_minute=10, streams=100)
        usage = UsageSettings(usage_store)
        async with (
            run_limited_gateway(usage_store, Model(), alice) as (upstream, one),
            run_gateway(at(upstream), keys=(alice,), usage=usage) as other,
        ):
            answers = await asyncio.gather(*(ask(each) for _ in range(15) for each in (one, other)))
            assert sorted(answer.status_code for answer in answers) == [200] * 10 + [429] * 20

    asyncio.run(run())


def test_a_limit_that_is_lowered_holds_at_once(usage_store: str):
    async def run() -> None:
        def alice(most: int) -> Key:
            return Key("alice", digest(ALICE), requests_per_minute=most)

        usage = UsageSettings(usage_store)
        async with (
            run_limited_gateway(usage_store, Model(), alice(5)) as (upstream, before),
            run_gateway(at(upstream), keys=(alice(2),), usage=usage) as after,
        ):
            for _ in range(4):
                assert (await ask(before)).status_code == 200
            refusal = await ask(after)
            assert (refusal.status_code, refusal.headers["x-ratelimit-remaining-requests"]) == (429, "0")
            assert 0 < int(refusal.headers["retry-after"]) <= 60
            assert (await ask(before)).status_code == 200

    asyncio.run(run())


def test_count_tokens_and_bodies_that_cannot_be_read_are_requests_too(usage_store: str):
    async def run() -> None:
        async with run_limited_gateway(usage_store, Model(), Key("alice", digest(ALICE), requests_per_minute=2)) as (
            _,
            gateway,
        ):
            count_response = await ask(gateway, "/v1/messages/count_tokens")
            assert count_response.status_code == 200, count_response.text
            refusal = await gateway.client.post(
                CHAT, content=b"{", headers={**bearer(ALICE), "content-type": "application/json"}
            )
            assert refusal.status_code == 400
            assert (await ask(gateway)).status_code == 429

    asyncio.run(run())


def test_a_response_in_the_background_is_one_request_and_one_stream(usage_store: str, tmp_path: Path):
    async def run() -> None:
        model = Model(waits=True)
        alice = Key("alice", digest(ALICE), requests_per_minute=3, streams=1)
        async with (
            serve(model) as upstream,
            run_gateway(
                at(upstream, dialect="hermes"),
                keys=(alice,),
                usage=UsageSettings(usage_store),
                responses=ResponseSettings(str(tmp_path / "r.db"), background=True),
            ) as gateway,
        ):
            background_response = await ask(gateway, RESPONSES, background=True)
            assert (background_response.status_code, background_response.headers["x-ratelimit-remaining-requests"]) == (
                200,
                "2",
            )
            await model.starts.acquire()
            assert (await ask(gateway)).json()["error"]["code"] == "streams_exceeded"
            model.go_on.set()
            path = f"{RESPONSES}/{background_response.json()['id']}"
            async with asyncio.timeout(PATIENCE):
                while (await gateway.client.get(path, headers=bearer(ALICE))).json()["status"] != "completed":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            statuses = [(await ask(gateway)).status_code for _ in range(3)]
            assert statuses == [200, 200, 429]

    asyncio.run(run())


@pytest.mark.over_a_second
def test_a_store_that_fails_lets_no_limited_key_in_and_all_others(tmp_path: Path):
    async def run() -> None:
        path = tmp_path / "usage.db"
        alice = Key("alice", digest(ALICE), streams=1)
        async with run_limited_gateway(str(path), Model(), alice) as (_, gateway):
            assert (await ask(gateway)).status_code == 200
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("BEGIN EXCLUSIVE")
                refusal = await ask(gateway)
                assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "limits_unavailable")
                assert "usage.db" not in refusal.text
                assert (await ask(gateway, key=BOB)).status_code == 200
                db.execute("ROLLBACK")
            await until(gateway, 200)

    asyncio.run(run())


def test_an_answer_in_the_stream_has_its_events_and_its_headers(usage_store: str):
    async def run() -> None:
        async with run_limited_gateway(usage_store, Model(), Key("alice", digest(ALICE), tokens_per_day=10**9)) as (
            _,
            gateway,
        ):
            answer = await ask(gateway, stream=True, stream_options={"include_usage": True})
            assert answer.headers["x-ratelimit-limit-tokens"] == "1000000000"
            assert events(answer.text)[-1] == "[DONE]"

    asyncio.run(run())


def test_an_answer_keeps_its_place_for_longer_than_a_lease(tmp_path: Path):
    async def run(seconds: float) -> None:
        model, store, alice = Model(waits=True), tmp_path / f"{seconds}.db", Key("alice", digest(ALICE), streams=1)
        async with run_limited_gateway(str(store), model, alice, lease_seconds=seconds) as (_, gateway):
            running = asyncio.create_task(ask(gateway))
            await model.starts.acquire()
            times: set[float] = set()
            with closing(sqlite3.connect(store)) as db:
                async with asyncio.timeout(PATIENCE):
                    while len(times) < 5:
                        times.update(until for (until,) in db.execute("SELECT until FROM loads"))
                        await asyncio.sleep(0.01)
            assert (await ask(gateway)).status_code == 429
            model.go_on.set()
            assert (await running).status_code == 200

    in_time(lambda seconds: asyncio.run(run(seconds)), 0.2, 5, 30)


def test_a_store_that_cannot_be_changes_nothing_when_settings_are_read_again():
    upstream = Upstream(url="http://127.0.0.1:9/v1", names=("m",))
    application = Application(Settings((upstream,)), environ={})
    with pytest.raises(ConfigurationError, match=r"usage\.store: mysql:// is not supported"):
        application.reload(Settings((replace(upstream, names=("other",)),), usage=UsageSettings("mysql://x")))
    assert application.current.router.names == ("m",)


LIMITS = st.none() | st.integers(1, 5)


@given(
    st.builds(Key, st.just("k"), st.just(""), requests_per_minute=LIMITS, streams=LIMITS, tokens_per_day=LIMITS),
    st.integers(0, 5),
    st.builds(
        KeyUsage,
        st.just(1e9),
        st.integers(0, 6),
        st.builds(UsageInProgress, st.integers(0, 6), st.integers(0, 6)),
        st.integers(0, 6),
        st.just(1e9 + 30),
        st.just(1e9 + 50),
    ),
)
def test_who_is_let_in_keeps_every_limit_and_who_is_refused_counts_nowhere(key: Key, tokens: int, standing: KeyUsage):
    verdict = usage_decision(StartRequest(key, tokens), standing)
    after = verdict.standing
    if verdict.limit is not None:
        assert after == standing
        assert getattr(key, verdict.limit) is not None
        assert 0 <= verdict.seconds <= 86400
        return
    assert (after.requests, after.load.streams) == (standing.requests + 1, standing.load.streams + 1)
    assert after.requests <= (key.requests_per_minute or after.requests)
    assert after.load.streams <= (key.streams or after.load.streams)
    assert standing.tokens + standing.load.tokens < (key.tokens_per_day or 10**9)


# --- the configuration --------------------------------------------------------------------------------------------


def test_the_tables_of_the_configuration(tmp_path: Path):
    path = tmp_path / "gateway.toml"
    key = f'[[key]]\nname = "alice"\nsha256 = "{digest(ALICE)}"\n'
    path.write_text(f'{UPSTREAM}{key}streams = 4\n[usage]\nstore = "u.db"\nretention_days = 7\nlease_seconds = 6\n')
    assert read_config(path).usage == UsageSettings(str(tmp_path / "u.db"), 7, 6.0)
    assert read_config(path).keys == (Key("alice", digest(ALICE), streams=4),)
    path.write_text(f"{UPSTREAM}[usage]\n")
    assert read_config(path).usage == UsageSettings(default_store())


def test_usage_is_counted_where_a_key_has_limits():
    plain_key, limited_key = Key("alice", digest(ALICE)), Key("alice", digest(ALICE), streams=1)
    assert checked_settings(Settings((Upstream(),), keys=(plain_key,))).usage is None
    assert checked_settings(Settings((Upstream(),), keys=(limited_key,))).usage == UsageSettings(default_store())
    usage_settings = UsageSettings("postgresql://db/x")
    assert checked_settings(Settings((Upstream(),), keys=(limited_key,), usage=usage_settings)).usage == usage_settings


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("usage = 1\n", "usage: expected a table"),
        ("[usage]\nstor = 'x'\n", "usage.stor: unknown key .*Did you mean 'store'"),
        ("[usage]\nstore = 3\n", "usage.store: expected text"),
        ("[usage]\nretention_days = 0\n", "usage.retention_days: expected 1 to 36500 days, found 0"),
        ("[usage]\nlease_seconds = nan\n", "usage.lease_seconds: nan is not a number"),
        ("[usage]\nlease_seconds = 4.5\n", "usage.lease_seconds: expected 5 to 3600 seconds"),
    ],
)
def test_a_table_that_cannot_be(tmp_path: Path, text: str, problem: str):
    path = tmp_path / "gateway.toml"
    path.write_text(text + UPSTREAM)
    with pytest.raises(ConfigurationError, match=problem):
        read_config(path)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3"])
def test_a_limit_that_cannot_be(value: object):
    row = {"name": "alice", "sha256": digest(ALICE), "tokens_per_day": value}
    with pytest.raises(ConfigurationError, match=r"key\[0\].tokens_per_day: expected a whole number from 1 on"):
        key_of_table(row, "key[0]", {})


def test_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"the store of usage: the folder .* cannot be made: .*\(usage\.store\)"):
        asyncio.run(open_usage(str(tmp_path / "file" / "folder" / "u.db")).open())
