"""Web pages of other origins, as browsers ask for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from loopback_server import Server, serve, whole
from serving import TOOLS, at, in_turn, run_gateway, texts

from toolspeak.data.messages import Message
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.api_keys import digest, unnamed_key
from toolspeak.gateway.settings.gateway_settings import Settings, checked_settings, read_config
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.wire.base import ModelRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT

CHAT = "/v1/chat/completions"
APP = "https://app.example"
KEY = "a-key-that-is-long-enough"
HEADERS = "authorization,content-type,x-api-key,anthropic-version,x-toolspeak-optional-tools,traceparent,x-stainless-os"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": HEADERS}
NOWHERE = Upstream(url="http://127.0.0.1:9/v1", retries=0)
OURS = "access-control-"


def names(response) -> list[str]:
    return [name for name in response.headers if name.startswith(OURS)]


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/models", "/healthz"])
def test_a_preflight_needs_no_key_and_names_what_the_page_may_send(path: str):
    async def run() -> None:
        async with run_gateway(NOWHERE, keys=(unnamed_key(digest(KEY)),), cors=(APP,)) as gateway:
            answer = await gateway.client.options(path, headers={"origin": APP, **PREFLIGHT})
            assert (answer.status_code, answer.content) == (204, b"")
            assert answer.headers["access-control-allow-origin"] == APP
            assert answer.headers["access-control-allow-headers"] == HEADERS
            assert "POST" in answer.headers["access-control-allow-methods"]
            assert answer.headers["vary"] == "origin"
            assert "access-control-allow-credentials" not in answer.headers
            metrics = await gateway.client.get("/metrics", headers={"x-api-key": KEY})
            assert "toolspeak_requests_total{" not in metrics.text  # it is no request of a client's

    asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_page_reads_the_answer_and_what_stands_beside_it(stream: bool):
    async def run(server: Server) -> None:
        async with run_gateway(at(server, dialect="hermes"), keys=(unnamed_key(digest(KEY)),), cors=(APP,)) as gateway:
            body = OPENAI_CHAT.encode_request(ModelRequest([Message.user("?")], TOOLS), model="m", stream=stream)
            headers = {"origin": APP, "x-api-key": KEY}
            answer = await gateway.client.post(CHAT, json=body, headers=headers)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == APP
            exposed_headers = answer.headers["access-control-expose-headers"]
            assert all(name in exposed_headers for name in ("x-request-id", "x-toolspeak-warning", "retry-after"))
            refusal = await gateway.client.post(CHAT, json=body, headers={"origin": APP})
            assert (refusal.status_code, refusal.headers["access-control-allow-origin"]) == (401, APP)
            other = await gateway.client.get("/v1/models", headers={**headers, "origin": "https://evil.example"})
            assert names(other) == []
            assert other.headers["vary"] == "origin"
            none = await gateway.client.get("/v1/models", headers={"x-api-key": KEY})
            assert (names(none), none.headers["vary"]) == ([], "origin")

    async def main() -> None:
        async with serve(in_turn(texts("Fine."))) as server:
            await run(server)

    asyncio.run(main())


def test_a_page_that_is_not_listed_gets_nothing():
    async def run() -> None:
        async with run_gateway(NOWHERE, cors=(APP,)) as gateway:
            for origin in ("https://evil.example", "null", f"{APP}.evil.example", f"{APP}:8443", "http://app.example"):
                answer = await gateway.client.options(CHAT, headers={"origin": origin, **PREFLIGHT})
                assert answer.status_code == 403
                assert names(answer) == []

    asyncio.run(run())


def test_a_listed_page_that_comes_by_another_name_of_this_machine_gets_nothing():
    """DNS rebinding: the guard stays for gateways without keys."""

    async def run() -> None:
        async with run_gateway(NOWHERE, cors=(APP,)) as gateway:
            headers = {"origin": APP, **PREFLIGHT, "host": "app.example"}
            answer = await gateway.client.options(CHAT, headers=headers)
            assert answer.status_code == 403
            assert "access-control-allow-methods" not in answer.headers
            assert (await gateway.client.options(CHAT, headers={**headers, "host": "localhost"})).status_code == 204

    asyncio.run(run())


def test_of_a_listed_page_a_form_is_taken_without_keys():
    """Browsers send forms without a preflight; of any other page they are refused."""

    async def run(server: Server) -> None:
        async with run_gateway(at(server), cors=(APP,)) as gateway:
            for origin, status in ((APP, 200), ("https://evil.example", 403)):
                answer = await gateway.client.post(
                    "/v1/audio/transcriptions",
                    data={"model": "m"},
                    files={"file": ("a.wav", b"RIFF")},
                    headers={"origin": origin},
                )
                assert answer.status_code == status
            assert len(server.exchanges) == 1

    async def main() -> None:
        async with serve(whole("200 OK", b'{"text": "Hi."}')) as server:
            await run(server)

    asyncio.run(main())


def test_it_is_off_unless_asked_for():
    async def run() -> None:
        async with run_gateway(NOWHERE) as gateway:
            answer = await gateway.client.options(CHAT, headers={"origin": APP, **PREFLIGHT})
            assert answer.status_code == 405
            assert names(answer) == []
            assert "vary" not in answer.headers

    asyncio.run(run())


def test_any_page_where_clients_have_keys():
    async def run() -> None:
        async with run_gateway(NOWHERE, keys=(unnamed_key(digest(KEY)),), cors=("*",)) as gateway:
            for origin in (APP, "null"):
                answer = await gateway.client.options(CHAT, headers={"origin": origin, **PREFLIGHT})
                assert answer.headers["access-control-allow-origin"] == origin

    asyncio.run(run())


def test_what_is_no_list_of_headers_is_not_sent_back():
    async def run() -> None:
        async with run_gateway(NOWHERE, cors=(APP,)) as gateway:
            for header_names in ("a b", "a\x01", "x," * 3000 + "x", "a, b;"):
                headers = {"origin": APP, **PREFLIGHT, "access-control-request-headers": header_names}
                answer = await gateway.client.options(CHAT, headers=headers)
                assert "access-control-allow-headers" not in answer.headers

    asyncio.run(run())


@pytest.mark.parametrize(
    ("origin", "problem"),
    [
        ("*", "lets every web page call the gateway, which has no API keys"),
        ("https://app.example/", "write scheme, host and port alone"),
        ("app.example", "is not an origin"),
        ("null", "is not an origin"),
        ("https://*.example", "is not an origin"),
        ("https://me@app.example", "is not an origin"),
        ("", "is not an origin"),
    ],
)
def test_what_is_no_origin_is_told(origin: str, problem: str):
    with pytest.raises(ConfigurationError, match=problem):
        checked_settings(Settings((NOWHERE,), cors=(origin,)))


def test_origins_are_those_that_browsers_write(tmp_path: Path):
    origins = ("HTTPS://App.Example", "https://b.example:443", "http://c.example:80", "http://[::1]:3000")
    expected = (APP, "https://b.example", "http://c.example", "http://[::1]:3000")
    assert checked_settings(Settings((NOWHERE,), cors=origins)).cors == expected
    path = tmp_path / "gateway.toml"
    rest = '[[model]]\nname = "m"\nupstream = "http://h/v1"\n'
    path.write_text(f'[server]\ncors = ["{APP}"]\n{rest}')
    assert read_config(path).server["cors"] == (APP,)
    path.write_text(f"[server]\ncors = [7]\n{rest}")
    with pytest.raises(ConfigurationError, match=r"server\.cors: expected text"):
        read_config(path)
