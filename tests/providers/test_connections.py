"""Timeouts, proxies, CAs, and the connections of a provider from its first turn to its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from clocks import TestClock
from every_api import API_CASES, ApiCase, every_api, streamed_text
from loopback_server import (
    STREAM_HEAD,
    Answer,
    Exchange,
    Server,
    hang_up,
    http_chunks,
    serve,
    stream,
    tunnel,
    until_client_leaves,
)
from openai_turns import CHUNKED_HEAD, DELTAS, EVENTS, turn

from patience import in_time
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.providers.http_settings import Timeouts
from toolspeak.providers.openai import OpenAIProvider

TLS = Path(__file__).parent / "tls"
ANSWER = stream(*EVENTS)


def fail(*answers: Answer, **more: Any) -> ProviderError:
    async def run() -> None:
        async with serve(*answers) as server:
            provider = OpenAIProvider("m", base_url=server.base_url, retries=0, **more)
            try:
                await turn(provider)
            finally:
                await provider.aclose()

    with pytest.raises(ProviderError) as raised_error:
        asyncio.run(run())
    return raised_error.value


def hangs(*pieces: bytes) -> Answer:
    servers = [Server()]
    return until_client_leaves(lambda: servers[0], *pieces)


# --- timeouts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[], [CHUNKED_HEAD]], ids=["nothing", "the head"])
def test_the_first_byte_has_a_timeout_of_its_own(pieces: list[bytes]):
    error = fail(hangs(*pieces), timeout=Timeouts(10, first_byte=0.4, silence=20))
    assert "sent nothing for 0.4 seconds. Is it overloaded? `timeout` may be longer." in str(error)
    assert (error.code, error.retryable) == ("connection", True)


def test_silence_between_two_bytes_has_another():
    error = fail(hangs(CHUNKED_HEAD, http_chunks(EVENTS[:1])), timeout=Timeouts(10, first_byte=3600, silence=0.4))
    assert "sent nothing for 0.4 seconds after 2 characters of the answer" in str(error)


def pausing(pause: Callable[[], Any], *pieces: bytes) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await pause()
        await exchange.send(CHUNKED_HEAD)
        for piece in pieces:
            await exchange.send(http_chunks([piece]))
            await pause()
        await exchange.send(b"0\r\n\r\n")

    return answer


@pytest.mark.over_a_second
def test_a_slow_answer_is_no_silent_one():
    async def run(seconds: float) -> Any:
        slow = pausing(lambda: asyncio.sleep(0.2 * seconds), b": still here\n\n", b":\n\n", *EVENTS)
        async with serve(slow) as server:
            provider = OpenAIProvider("m", base_url=server.base_url, timeout=seconds, retries=0)
            try:
                return await turn(provider)  # takes longer in all
            finally:
                await provider.aclose()

    def attempt(seconds: float) -> None:
        assert asyncio.run(run(seconds)) == DELTAS

    in_time(attempt, 1.5, 15, 60)


def test_without_limits_nothing_is_cut():
    async def run() -> Any:
        async with serve(ANSWER) as server:
            provider = OpenAIProvider("m", base_url=server.base_url, timeout=None)
            try:
                return await turn(provider)
            finally:
                await provider.aclose()

    assert asyncio.run(run()) == DELTAS


@pytest.mark.parametrize("timeout", [0, -1.5, Timeouts(connect=0), Timeouts(silence=-1)])
def test_a_timeout_that_cannot_be(timeout: Any):
    with pytest.raises(ConfigurationError, match="must be more than 0 seconds, or None"):
        OpenAIProvider("m", api_key="k", timeout=timeout)


# --- CAs ---------------------------------------------------------------------------------------------------------


def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    return context


async def over_tls(api_case: ApiCase, host: str = "127.0.0.1", **more: Any) -> str:
    async with serve(api_case.turn, tls=tls()) as server:
        provider = api_case.make(f"https://{host}:{server.port}", clock=TestClock(), **more)
        try:
            return await streamed_text(provider)
        finally:
            await provider.aclose()


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@every_api
def test_a_ca_of_ones_own(api_case: ApiCase, no_settings: pytest.MonkeyPatch):
    assert asyncio.run(over_tls(api_case, ca_file=TLS / "ca.pem")) == "Hél😀"
    with pytest.raises(ProviderError, match="SSL_CERT_FILE or the option `ca_file`") as raised_error:
        asyncio.run(over_tls(api_case))
    assert (raised_error.value.code, raised_error.value.retryable) == ("connection", False)
    no_settings.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))
    assert asyncio.run(over_tls(api_case)) == "Hél😀"


def test_a_ca_file_that_cannot_be(tmp_path: Path, no_settings: pytest.MonkeyPatch):
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for path in (empty, tmp_path / "missing.pem"):
        with pytest.raises(ConfigurationError, match=r"the CA file .* cannot be read"):
            OpenAIProvider("m", api_key="k", ca_file=path)
        no_settings.setenv("SSL_CERT_FILE", str(path))
        with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
            asyncio.run(over_tls(API_CASES["openai"]))


# --- proxies -----------------------------------------------------------------------------------------------------


def test_a_proxy_for_http(no_settings: pytest.MonkeyPatch):
    async def run() -> Server:
        async with serve(ANSWER) as proxy:
            no_settings.setenv("HTTP_PROXY", f"http://me:hush@127.0.0.1:{proxy.port}")
            provider = OpenAIProvider("m", base_url="http://models.example/v1")
            assert await turn(provider) == DELTAS
            await provider.aclose()
            return proxy

    [exchange] = asyncio.run(run()).exchanges
    assert exchange.request_line == "POST http://models.example/v1/chat/completions HTTP/1.1"
    assert exchange.headers["proxy-authorization"].startswith("Basic ")


def test_a_proxy_for_https(no_settings: pytest.MonkeyPatch):
    async def run() -> Server:
        async with serve(ANSWER, tls=tls()) as server, serve(tunnel(server.port)) as proxy:
            no_settings.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
            provider = OpenAIProvider("m", base_url="https://models.example/v1", ca_file=TLS / "ca.pem")
            assert await turn(provider) == DELTAS
            await provider.aclose()
            assert server.exchanges[0].request_line == "POST /v1/chat/completions HTTP/1.1"
            return proxy

    [exchange] = asyncio.run(run()).exchanges
    assert exchange.request_line == "CONNECT models.example:443 HTTP/1.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_no_proxy_for_this_machine_and_for_what_is_excepted(host: str, no_settings: pytest.MonkeyPatch):
    async def run() -> None:
        async with serve() as proxy, serve(ANSWER) as server:
            no_settings.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
            no_settings.setenv("NO_PROXY", "127.0.0.2")
            if host == "127.0.0.2":  # another address of this machine, where it has it
                with pytest.raises(ProviderError, match="cannot connect"):
                    await turn(OpenAIProvider("m", base_url=f"http://{host}:{server.port}/v1", retries=0))
            else:
                provider = OpenAIProvider("m", base_url=f"http://{host}:{server.port}/v1")
                assert await turn(provider) == DELTAS
                await provider.aclose()
            assert not proxy.connections

    asyncio.run(run())


def test_a_proxy_that_does_not_answer(no_settings: pytest.MonkeyPatch):
    async def run() -> None:
        async with serve(ANSWER) as former_server:
            no_settings.setenv("HTTP_PROXY", f"http://127.0.0.1:{former_server.port}")
        await turn(OpenAIProvider("m", base_url="http://models.example/v1", clock=TestClock()))

    with pytest.raises(ProviderError, match=r"models.example.*a proxy.*Tried 3 times") as raised_error:
        asyncio.run(run())
    assert (raised_error.value.code, raised_error.value.retryable) == ("connection", True)
    no_settings.setenv("NO_PROXY", "models.example")
    with pytest.raises(ProviderError, match="cannot connect to") as raised_error:
        asyncio.run(run())
    assert "proxy" not in str(raised_error.value)


def test_proxy_settings_that_cannot_be(no_settings: pytest.MonkeyPatch):
    no_settings.setenv("HTTP_PROXY", "gopher://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="the proxy settings of the environment cannot be used"):
        asyncio.run(turn(OpenAIProvider("m", base_url="http://models.example/v1")))


# --- event loops -------------------------------------------------------------------------------------------------


def test_loops_that_run_at_the_same_time_have_a_client_each():
    """Two threads take turns with one provider: each keeps its connection."""

    async def run() -> int:
        async with serve(ANSWER) as server:
            provider = OpenAIProvider("m", base_url=server.base_url)
            other = asyncio.new_event_loop()
            thread = threading.Thread(target=other.run_forever)
            thread.start()
            try:
                for _ in range(3):
                    assert await turn(provider) == DELTAS
                    elsewhere = asyncio.run_coroutine_threadsafe(turn(provider), other)
                    assert await asyncio.wrap_future(elsewhere) == DELTAS
                connections = server.connections
                await provider.aclose()
            finally:
                other.call_soon_threadsafe(other.stop)
                await asyncio.to_thread(thread.join)
                other.close()
            return connections

    assert asyncio.run(run()) == 2


def test_closing_does_not_wait_for_a_loop_that_stands_still():
    other = asyncio.new_event_loop()
    providers: list[OpenAIProvider] = []

    async def use() -> None:
        async with serve(hang_up(STREAM_HEAD + b"connection: close\r\n\r\n", *EVENTS)) as server:
            providers.append(OpenAIProvider("m", base_url=server.base_url))
            assert await turn(providers[0]) == DELTAS

    other.run_until_complete(use())
    asyncio.run(providers[0].aclose())
    other.close()


@pytest.fixture
def new_objects_alone() -> None:
    """The garbage collector looks at what a test makes, not at all that the tests before have left."""
    gc.collect()
    gc.freeze()


def kept_requests() -> int:
    """How many requests the connections still know of."""
    gc.collect()
    return sum(isinstance(each, httpcore2.Request) for each in gc.get_objects())


@pytest.mark.usefixtures("new_objects_alone")
@pytest.mark.parametrize(
    "answer",
    [
        hang_up(STREAM_HEAD + b"connection: close\r\n\r\n", *EVENTS),
        ANSWER,
        hangs(CHUNKED_HEAD, http_chunks(EVENTS[:1])),
    ],
    ids=["closed by the server", "kept open", "in the middle"],
)
def test_a_turn_cancelled_at_any_moment_leaves_nothing_of_its_connection(answer: Answer):
    """Also while the response is being closed: that takes turns of the event loop, in each of which somebody may
    leave."""
    before = kept_requests()

    async def run() -> None:
        came = asyncio.Event()

        async def respond(exchange: Exchange) -> None:
            came.set()
            await answer(exchange)

        async with serve(respond) as server:
            provider = OpenAIProvider("m", base_url=server.base_url, retries=0)
            for passes in range(12):
                turning = asyncio.create_task(turn(provider))
                await came.wait()
                assert kept_requests() > before  # else this would prove nothing
                for _ in range(passes):
                    await asyncio.sleep(0)
                turning.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await turning
                came.clear()
                for _ in range(10):
                    await asyncio.sleep(0)
                assert kept_requests() == before, passes
            await provider.aclose()

    asyncio.run(run())
