"""Requests are sent again where that makes sense, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import logging
from email.utils import formatdate
from typing import Any

import pytest
from clocks import TestClock
from every_api import API_CASES, ApiCase, every_api, streamed_text
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_server import (
    Answer,
    Exchange,
    Server,
    event,
    hang_up,
    http_chunks,
    serve,
    stream,
    until_client_leaves,
    whole,
)
from openai_turns import CHUNKED_HEAD, EVENTS

from patience import in_time
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.providers.http_settings import Timeouts
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.providers.provider_failures import (
    BASE_SECONDS,
    CAP_SECONDS,
    LONGEST_SECONDS,
    RETRIES,
    SYSTEM_CLOCK,
    delay_before,
    requested_wait,
)

OPENAI = API_CASES["openai"]


def ask(api_case: ApiCase, *answers: Answer, turns: int = 1, **more: Any) -> tuple[list[str], Server, TestClock]:
    clock = TestClock()

    async def run() -> tuple[list[str], Server]:
        async with serve(*answers) as server:
            provider = api_case.make(f"http://127.0.0.1:{server.port}", clock=clock, **more)
            try:
                return [await streamed_text(provider) for _ in range(turns)], server
            finally:
                await provider.aclose()

    texts, server = asyncio.run(run())
    return texts, server, clock


def fail(api_case: ApiCase, *answers: Answer, **more: Any) -> tuple[ProviderError, int, list[float]]:
    """The error, how often the server was asked, and the seconds that were waited for."""
    exchanges: list[object] = []
    clock = TestClock()

    def count_requests(answer: Answer) -> Answer:
        async def count(exchange: Any) -> None:
            exchanges.append(exchange)
            await answer(exchange)

        return count

    async def run() -> None:
        async with serve(*map(count_requests, answers)) as server:
            provider = api_case.make(f"http://127.0.0.1:{server.port}", clock=clock, **more)
            try:
                await streamed_text(provider)
            finally:
                await provider.aclose()

    with pytest.raises(ProviderError) as raised_error:
        asyncio.run(run())
    return raised_error.value, len(exchanges), clock.sleeps


def refusal(status: int, message: str = "that is why", *headers: str) -> Answer:
    return whole(f"{status} X", json.dumps({"error": {"message": message}}).encode(), "application/json", *headers)


# --- what is asked again -----------------------------------------------------------------------------------------


@every_api
@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_status_that_may_pass(api_case: ApiCase, status: int):
    texts, server, clock = ask(api_case, refusal(status), refusal(status), api_case.turn)
    assert texts == ["Hél😀"]
    assert clock.sleeps == [0.25, 0.5]  # half of the longest, as chance says here
    assert len({exchange.body for exchange in server.exchanges}) == 1


def test_a_request_that_is_sent_again_is_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "toolspeak.providers")
    ask(OPENAI, refusal(503, "too busy"), OPENAI.turn)
    (record,) = [each for each in caplog.records if each.name == "toolspeak.providers"]
    assert record.levelno == logging.INFO
    assert "too busy" in record.getMessage()


@every_api
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 418, 422, 501])
def test_a_status_that_does_not_pass(api_case: ApiCase, status: int):
    error, requests, sleeps = fail(api_case, refusal(status), api_case.turn)
    assert (error.status, requests, sleeps) == (status, 1, [])


@every_api
def test_a_kept_connection_that_the_server_closes_when_the_next_request_comes(api_case: ApiCase):
    """A stale connection is no failing server: nothing is waited for, and it is no retry."""
    texts, server, clock = ask(api_case, api_case.turn, hang_up(), api_case.turn, turns=2, retries=0)
    assert texts == ["Hél😀"] * 2
    assert server.connections == 2
    assert clock.sleeps == []


def test_a_server_that_fails_on_a_new_connection_too_is_asked_as_any_that_fails():
    texts, server, clock = ask(OPENAI, OPENAI.turn, hang_up(), hang_up(), OPENAI.turn, turns=2)
    assert texts == ["Hél😀"] * 2
    assert server.connections == 3
    assert clock.sleeps == [0.25]


def test_each_of_several_kept_connections_may_be_stale():
    async def run() -> tuple[list[str], int]:
        both = asyncio.Barrier(3)

        async def waits(exchange: Exchange) -> None:
            await both.wait()
            await OPENAI.turn(exchange)

        async with serve(waits, waits, hang_up(), hang_up(), OPENAI.turn) as server:
            provider = OpenAIProvider("m", base_url=f"http://127.0.0.1:{server.port}", clock=TestClock(), retries=0)
            try:
                turns = [asyncio.create_task(streamed_text(provider)) for _ in range(2)]
                await both.wait()
                texts = [*await asyncio.gather(*turns), await streamed_text(provider)]
                return texts, server.connections
            finally:
                await provider.aclose()

    assert asyncio.run(run()) == (["Hél😀"] * 3, 3)


@every_api
def test_a_server_that_closes_every_connection_after_an_error(api_case: ApiCase):
    closing = hang_up(b"HTTP/1.1 500 X\r\ncontent-length: 4\r\nconnection: keep-alive\r\n\r\noops")
    assert ask(api_case, closing, api_case.turn, turns=2)[0] == ["Hél😀"] * 2


@every_api
def test_a_silent_server(api_case: ApiCase):
    silent = until_client_leaves(Server)

    def attempt(seconds: float) -> None:
        texts, server, _ = ask(api_case, silent, api_case.turn, timeout=Timeouts(60, first_byte=seconds, silence=60))
        assert texts == ["Hél😀"]
        assert server.connections == 2

    in_time(attempt, 0.5, 5, 30)


@every_api
def test_an_answer_that_drops_before_it_said_anything(api_case: ApiCase):
    cut = hang_up(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\n")
    if api_case is API_CASES["ollama"]:
        cut = hang_up(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ncontent-length: 9\r\n\r\n")
    assert ask(api_case, cut, api_case.turn)[0] == ["Hél😀"]


def test_nobody_listens_yet():
    clock = TestClock()

    async def run() -> str:
        async with serve(stream()) as former_server:
            base_url = former_server.base_url
        with pytest.raises(ProviderError) as raised_error:
            await streamed_text(OpenAIProvider("m", base_url=base_url, clock=clock))
        return str(raised_error.value)

    assert asyncio.run(run()).endswith("correct the base URL. Tried 3 times.")
    assert len(clock.sleeps) == RETRIES


def test_an_error_that_comes_first_inside_the_stream():
    overload_event = (
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}\n\n'
    )
    anthropic = API_CASES["anthropic"]
    assert ask(anthropic, stream(overload_event), anthropic.turn)[0] == ["Hél😀"]
    error_stream = stream(event({"error": {"message": "overheated", "code": 503}}))
    assert ask(OPENAI, error_stream, OPENAI.turn)[0] == ["Hél😀"]


@pytest.mark.parametrize(
    "cut",
    [
        hang_up(CHUNKED_HEAD, http_chunks(EVENTS[:1])),
        stream(EVENTS[0], event({"error": {"message": "overheated", "code": 503}})),
    ],
    ids=["drop", "error"],
)
def test_after_the_first_delta_nothing_is_asked_again(cut: Answer):
    error, requests, sleeps = fail(OPENAI, cut, OPENAI.turn)
    assert (requests, sleeps, error.retryable) == (1, [], True)
    assert "Asked" not in str(error)


def test_a_number_of_retries():
    error, requests, sleeps = fail(OPENAI, refusal(503))
    assert (requests, len(sleeps)) == (3, 2)
    assert str(error).endswith("if it fails again, read the server's log. Tried 3 times.")
    assert (error.status, error.retryable, error.code) == (503, True, "overloaded")
    error, requests, sleeps = fail(OPENAI, refusal(503), retries=0)
    assert (requests, sleeps) == (1, [])
    assert "Asked" not in str(error)
    assert ask(OPENAI, *[refusal(503)] * 5, OPENAI.turn, retries=5)[0] == ["Hél😀"]
    with pytest.raises(ConfigurationError, match="retries=-1 must be 0 or more"):
        OpenAIProvider("m", api_key="k", retries=-1)


# --- how long is waited ------------------------------------------------------------------------------------------

ERRORS = st.builds(
    ProviderError,
    st.just("why"),
    retryable=st.booleans(),
    retry_after=st.none() | st.floats(0, 1000),
)


@given(st.integers(1, 10_000), ERRORS, st.floats(0, 1, exclude_max=True))
@settings(deadline=None)
def test_the_delay_grows_to_its_cap_and_is_never_shorter_than_the_server_asks(
    attempt: int, error: ProviderError, chance: float
):
    delay = delay_before(attempt, error, chance)
    wait = error.retry_after or 0.0
    if not error.retryable or wait > LONGEST_SECONDS:
        assert delay is None
        return
    assert delay is not None
    assert wait <= delay <= wait + min(CAP_SECONDS, BASE_SECONDS * 2 ** min(attempt - 1, 20))
    longer = delay_before(attempt + 1, error, chance)
    assert longer is not None
    assert longer >= delay


def test_the_delays_are_spread_over_the_whole_span():
    error = ProviderError("why", retryable=True)
    assert [delay_before(n, error, 0.0) for n in (1, 9)] == [0.0, 0.0]
    assert [delay_before(n, error, 0.5) for n in range(1, 8)] == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_the_real_clock():
    assert 0 <= SYSTEM_CLOCK.random() < 1
    assert SYSTEM_CLOCK.now() > 1_700_000_000
    asyncio.run(SYSTEM_CLOCK.sleep(0))


NOW = TestClock().time
HEADERS = [
    ({"retry-after": "20"}, 20.0),
    ({"retry-after": "1.5"}, 1.5),
    ({"retry-after": "0"}, 0.0),
    ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
    ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0),
    ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ({"retry-after": "soon"}, None),
    ({"retry-after": "-3"}, None),
    ({"retry-after": "Mon, 99 Foo 2026 99:99:99 GMT"}, None),
    ({"retry-after": "1" * 400}, None),
    ({}, None),
]


@pytest.mark.parametrize(("headers", "seconds"), HEADERS)
def test_what_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None):
    assert requested_wait(headers, NOW) == seconds
    if seconds is not None:
        lines = [f"{name}: {value}" for name, value in headers.items()]
        texts, _, clock = ask(OPENAI, refusal(429, "x", *lines), OPENAI.turn)
        assert texts == ["Hél😀"]
        assert clock.sleeps == [pytest.approx(seconds + 0.25)]
        error, _, _ = fail(OPENAI, refusal(429, "x", *lines), retries=0)
        assert error.retry_after == seconds


def test_a_server_that_says_not_to_ask_again_is_not():
    error, requests, sleeps = fail(OPENAI, refusal(500, "x", "x-should-retry: false", "retry-after: 1"), OPENAI.turn)
    assert (requests, sleeps, error.code, error.retryable, error.retry_after) == (1, [], "overloaded", False, None)
    assert ask(OPENAI, refusal(500, "x", "x-should-retry: true"), OPENAI.turn)[0] == ["Hél😀"]


@pytest.mark.parametrize("after", ["61", formatdate(NOW + 3600, usegmt=True), "9" * 14])
def test_a_longer_wait_than_is_sensible_is_told_at_once(after: str):
    error, requests, sleeps = fail(OPENAI, refusal(429, "x", f"retry-after: {after}"), OPENAI.turn)
    assert (requests, sleeps, error.code, error.retryable) == (1, [], "rate_limit", True)
    assert error.retry_after in (61, 3600, 10**14 - 1)
    remedy = f"Retry-After: {error.retry_after:g} seconds. That is longer than toolspeak waits (60 seconds)"
    assert remedy in str(error)


@every_api
def test_a_cancelled_wait_ends_the_turn(api_case: ApiCase):
    async def run() -> None:
        waits = asyncio.Event()

        class StuckClock(TestClock):
            async def sleep(self, seconds: float) -> None:
                waits.set()
                await asyncio.Event().wait()

        async with serve(refusal(503), api_case.turn) as server:
            provider = api_case.make(f"http://127.0.0.1:{server.port}", clock=StuckClock())
            task = asyncio.create_task(streamed_text(provider))
            await waits.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
            assert len(server.exchanges) == 1
            await provider.aclose()

    asyncio.run(run())
