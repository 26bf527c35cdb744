"""Named keys: who may ask for which models, and what else they see."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from loopback_server import serve
from serving import ENDPOINTS, at, in_turn, run_gateway, texts

from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.api_keys import Key, digest, key_of_table, unnamed_key
from toolspeak.gateway.settings.gateway_settings import Settings, checked_settings, read_config
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.gateway.settings.usage_settings import UsageSettings

ALICE, ROOT = "alice" * 5, "root" * 5
CHAT = "/v1/chat/completions"
UPSTREAM = '[[model]]\nname = "*"\nupstream = "http://127.0.0.1:9/v1"\n'


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def body(path: str, model: str) -> dict[str, object]:
    field = "input" if path == "/v1/responses" else "messages"
    return {"model": model, "max_tokens": 10, field: [{"role": "user", "content": "Hi."}]}


def test_a_key_asks_for_its_own_models_and_knows_of_no_others():
    alice = Key("alice", digest(ALICE), models=("coder", "llama-*"))

    async def run() -> None:
        server_models = ("coder", "coder-secret", "llama-3")
        answer = in_turn(*(texts("Hi.") for _ in range(4)))
        async with (
            serve(answer) as server,
            run_gateway(at(server, names=server_models), keys=(alice, unnamed_key(digest(ROOT)))) as gateway,
        ):

            async def ask(key: str, method: str, path: str, **more: object):
                return await gateway.client.request(method, path, headers=bearer(key), **more)

            models = (await ask(ALICE, "GET", "/v1/models")).json()["data"]
            assert [row["id"] for row in models] == ["coder", "llama-3"]
            everything = (await ask(ROOT, "GET", "/v1/models")).json()["data"]
            assert [row["id"] for row in everything] == list(server_models)
            assert (await ask(ALICE, "GET", "/v1/models/coder")).status_code == 200
            for path in (*ENDPOINTS, "/v1/messages/count_tokens"):
                there = await ask(ALICE, "POST", path, json=body(path, "coder-secret"))
                nowhere = await ask(ALICE, "POST", path, json=body(path, "coder-nothing"))
                assert there.status_code == nowhere.status_code == 404
                # One that is there and one that is not look the same: neither is named besides the asked one.
                assert there.text.replace("coder-secret", "X") == nowhere.text.replace("coder-nothing", "X")
            for name in ("coder-secret", "coder-nothing"):
                assert (await ask(ALICE, "GET", f"/v1/models/{name}")).status_code == 404
            assert not [each for each in server.exchanges if each.request_line.startswith("POST")]
            assert (await ask(ALICE, "POST", CHAT, json=body(CHAT, "llama-3"))).status_code == 200
            assert (await ask(ROOT, "POST", CHAT, json=body(CHAT, "coder-secret"))).status_code == 200

    asyncio.run(run())


def test_metrics_name_all_models_and_keys_so_a_key_reads_them_only_where_that_is_said():
    keys = (Key("alice", digest(ALICE)), Key("prometheus", digest(ROOT), metrics=True))

    async def run() -> None:
        async with run_gateway(Upstream(url="http://127.0.0.1:9/v1"), keys=keys) as gateway:
            refusal = await gateway.client.get("/metrics", headers=bearer(ALICE))
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "metrics")
            assert "metrics = true" in refusal.text
            assert (await gateway.client.get("/metrics", headers=bearer(ROOT))).status_code == 200

    asyncio.run(run())


def test_a_key_is_refused_from_the_moment_it_expires():
    now = time.time()
    keys = (Key("alice", digest(ALICE), expires=now - 1), Key("root", digest(ROOT), expires=now + 3600))

    async def run() -> None:
        async with run_gateway(Upstream(url="http://127.0.0.1:9/v1", names=("m",)), keys=keys) as gateway:
            refusal = await gateway.client.get("/v1/models", headers=bearer(ALICE))
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (401, "expired_api_key")
            assert (await gateway.client.get("/v1/models", headers=bearer(ROOT))).status_code == 200

    asyncio.run(run())


def test_the_log_names_the_key(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "toolspeak.gateway")

    async def run() -> None:
        async with (
            serve(in_turn(texts("Hi."))) as server,
            run_gateway(at(server), keys=(Key("alice", digest(ALICE)),)) as gateway,
        ):
            assert (await gateway.client.post(CHAT, json=body(CHAT, "m"), headers=bearer(ALICE))).status_code == 200

    asyncio.run(run())
    (fields,) = [record.fields for record in caplog.records if record.getMessage() == "request"]
    assert fields["key"] == "alice"
    assert digest(ALICE)[:8] not in str(fields)


# --- the configuration --------------------------------------------------------------------------------------------


def test_keys_stand_in_the_configuration(tmp_path: Path):
    path = tmp_path / "gateway.toml"
    path.write_text(
        f"""{UPSTREAM}
        [[key]]
        name = "alice"
        sha256 = "{digest(ALICE).upper()}"
        models = ["coder", "llama-*"]
        requests_per_minute = 60
        streams = 4
        tokens_per_day = 1_000_000
        expires = 2027-01-31
        [[key]]
        name = "ci@build.example"
        env = "CI_KEY"
        metrics = true
        expires = 2027-01-31T12:00:00+02:00
        """
    )
    expires = datetime(2027, 1, 31, tzinfo=UTC)
    assert read_config(path, {"CI_KEY": ROOT}).keys == (
        Key("alice", digest(ALICE), ("coder", "llama-*"), 60, 4, 1_000_000, expires.timestamp()),
        Key("ci@build.example", digest(ROOT), expires=(expires + timedelta(hours=10)).timestamp(), metrics=True),
    )


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("sha256 = '00'", r"key\[0\]\.sha256: .*64 hexadecimal digits"),
        ("", "either sha256.*or env.*toolspeak keys new"),
        (f"sha256 = '{'0' * 64}'\nenv = 'CI_KEY'", "either sha256"),
        ("env = 'NOWHERE'", "the variable NOWHERE is not set"),
        ("env = 'SHORT'", "SHORT: an API key has at least 16 characters"),
        ("env = 'CI_KEY'\nstream = 3", r"key\[0\]\.stream: unknown key .*Did you mean 'streams'"),
        ("env = 'CI_KEY'\nstreams = 0", r"key\[0\]\.streams: .*from 1 on, found 0; leave it out"),
        ("env = 'CI_KEY'\nrequests_per_minute = true", "a whole number"),
        ("env = 'CI_KEY'\ntokens_per_day = 1.5", "a whole number"),
        ("env = 'CI_KEY'\nmodels = ['coder', 3]", "names of models"),
        ("env = 'CI_KEY'\nexpires = 2027-01-31T12:00:00", "with its zone"),
        ("env = 'CI_KEY'\nexpires = '2027-01-31'", "a day or a time"),
        ("env = 'CI_KEY'\nmetrics = 1", "true or false"),
        ("env = 'CI_KEY'\nname = 'a b'", "name"),
    ],
)
def test_a_key_that_cannot_be_is_named_and_never_shown(row: str, problem: str, tmp_path: Path):
    path = tmp_path / "gateway.toml"
    entry = row if "name = " in row else f"name = 'alice'\n{row}"
    path.write_text(f"{UPSTREAM}[[key]]\n{entry}\n")
    with pytest.raises(ConfigurationError, match=problem) as raised_error:
        read_config(path, {"CI_KEY": ROOT, "SHORT": "secret"})
    assert str(path) in str(raised_error.value)
    assert str(raised_error.value).endswith(("(the key 'alice')", "(the key 'a b')"))
    assert ROOT not in str(raised_error.value)
    assert "secret" not in str(raised_error.value)


def test_a_key_may_be_for_metrics_alone_and_counters_begin_at_0(tmp_path: Path):
    async def run() -> None:
        row = {"name": "prometheus", "sha256": digest(ROOT), "models": [], "metrics": True}
        keys = (Key("alice", digest(ALICE), requests_per_minute=3), key_of_table(row, "key[0]", {}))
        usage = UsageSettings(str(tmp_path / "usage.db"))
        async with serve(in_turn()) as upstream, run_gateway(at(upstream), keys=keys, usage=usage) as gateway:
            metrics = (await gateway.client.get("/metrics", headers=bearer(ROOT))).text
            for line in (
                'toolspeak_key_requests_total{key="alice"} 0.0',
                'toolspeak_key_refused_total{key="alice",limit="requests_per_minute"} 0.0',
            ):
                assert line in metrics
            assert "toolspeak_upstream_failures_total{" in metrics
            refusal = await gateway.client.post(CHAT, json=body(CHAT, "m"), headers=bearer(ROOT))
            assert refusal.status_code == 404
            assert upstream.exchanges == []

    asyncio.run(run())


def test_what_is_no_table_of_keys(tmp_path: Path):
    path = tmp_path / "gateway.toml"
    path.write_text(f"key = 3\n{UPSTREAM}")
    with pytest.raises(ConfigurationError, match=r"write a table \[\[key\]\]"):
        read_config(path)
    with pytest.raises(ConfigurationError, match=r"key\[0\]: expected a table"):
        key_of_table(3, "key[0]", {})


def test_keys_that_do_not_go_together():
    upstreams = (Upstream(("coder", "llama-*"), url="http://h/v1"),)
    alice = Key("alice", digest(ALICE), models=("coder", "llama-3", "qwen*"))

    def with_keys(*keys: Key) -> tuple[Key, ...]:
        return checked_settings(Settings(upstreams, keys=keys)).keys

    plain = unnamed_key(digest(ROOT))
    assert with_keys(alice, plain, plain) == (alice, plain)
    with pytest.raises(ConfigurationError, match="two keys have the name 'alice'"):
        with_keys(alice, Key("alice", digest(ROOT)))
    with pytest.raises(ConfigurationError, match=r"'alice' and .* are the same"):
        with_keys(alice, unnamed_key(alice.digest))
    with pytest.raises(ConfigurationError, match="'bob': no upstream serves its model 'codr'"):
        with_keys(alice, Key("bob", digest(ROOT), models=("codr",)))


def test_a_key_may_have_two_secrets_while_one_is_replaced(tmp_path: Path):
    async def run() -> None:
        row = {"name": "alice", "sha256": [digest(ALICE), digest(ROOT)], "requests_per_minute": 2}
        key = key_of_table(row, "key[0]", {})
        usage = UsageSettings(str(tmp_path / "usage.db"))
        async with (
            serve(in_turn(texts("Hi."), texts("Hi."))) as server,
            run_gateway(at(server), keys=(key,), usage=usage) as gateway,
        ):
            path = "/v1/chat/completions"
            answers = [
                await gateway.client.post(path, json=body(path, "m"), headers=bearer(secret))
                for secret in (ALICE, ROOT, ALICE, "a-key-of-nobody-012345")
            ]
            assert [answer.status_code for answer in answers] == [200, 200, 429, 401]
            assert "this key is not known here" in answers[-1].text
            assert "not known" not in (await gateway.client.post(path, json=body(path, "m"))).text

    asyncio.run(run())
