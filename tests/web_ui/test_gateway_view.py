"""The gateway in the web view: what the API says of it, and `toolspeak serve --ui`."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import httpx2
import pytest
from click.testing import CliRunner
from gateway_processes import KEY, SECOND_KEY, TOOLS, gateway
from prometheus_client import CollectorRegistry, Counter, Histogram
from web_view import check_answer, events_of, viewing

from toolspeak.cli.main import cli
from toolspeak.errors import ConfigurationError
from toolspeak.gateway.app import Gateway
from toolspeak.gateway.running_streams import (
    MOST_STREAMS,
    RunningStream,
    StreamTable,
    oldest_streams,
    publish_streams,
    streams_of_workers,
)
from toolspeak.gateway.server import GatewayObserver
from toolspeak.gateway.settings.api_keys import Key, digest
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.web_ui.access import UiKey
from toolspeak.web_ui.api_operations import OPERATIONS, ROOT
from toolspeak.web_ui.gateway_monitor import GatewayMonitor
from toolspeak.web_ui.gateway_status import MOST_ROWS
from toolspeak.web_ui.metric_history import MetricHistory, percentile

PATIENCE = 60.0
NASTY = "<script>alert(1)</script>\u202e\n\x1b[31m"


@asynccontextmanager
async def gateway_view(settings: Settings, **options):
    """A view of a gateway of this process, which nobody asks; its metrics can be changed."""
    gateway = Gateway(settings, {})
    monitor = GatewayMonitor(
        GatewayObserver(
            lambda: gateway.current.settings, gateway.metrics.families, partial(oldest_streams, gateway.streams)
        )
    )
    async with viewing(None, gateway=monitor, **options) as view:
        yield view, gateway.metrics
    await gateway.aclose()


def upstreams(*names: str, count: int = 1) -> tuple[Upstream, ...]:
    return tuple(
        Upstream(names=names, url=f"http://127.0.0.1:{9 + number}/v1", dialect="hermes") for number in range(count)
    )


@pytest.mark.over_a_second
def test_the_status_is_that_of_the_metrics():
    key = Key("alice", "0" * 64, expires=2e9)

    async def main():
        settings = Settings((*upstreams("m", NASTY, count=2), *upstreams("other")), keys=(key,))
        async with gateway_view(settings) as (view, metrics):
            metrics.upstream_active.labels("m", "127.0.0.1:9").inc()
            metrics.show_load(10_000, 7)
            metrics.calls.labels(NASTY, "hermes").inc(3)
            metrics.malformed_calls.labels(NASTY, "hermes").inc(2)
            metrics.key_requests.labels("alice").inc(4)
            metrics.key_tokens.labels("alice", "input").inc(50)
            metrics.rejections.labels("invalid_api_key").inc(6)
            # What the view read at its start holds for two seconds.
            async with asyncio.timeout(PATIENCE):
                while (status := await view.get("/gateway"))["active"] == 0:  # noqa: ASYNC110 - the answer is what is waited for
                    await asyncio.sleep(0.05)
            assert (status["active"], status["queued"], status["rejected"]) == (10_000, 7, {"invalid_api_key": 6})
            by_label = {(each["model"], each["upstream"]): each for each in status["upstreams"]}
            assert by_label.keys() == {("m", "127.0.0.1:9"), ("m", "127.0.0.1:10"), ("other", "127.0.0.1:9")}
            assert by_label["m", "127.0.0.1:9"]["states"] == {"up": 1}
            assert by_label["m", "127.0.0.1:9"]["active"] == 1
            (dialect,) = status["dialects"]
            assert (dialect["model"], dialect["calls"], dialect["malformed"]) == (NASTY, 3, 2)
            (key_row,) = status["keys"]
            assert (key_row["name"], key_row["requests"], key_row["input_tokens"], key_row["expires"]) == (
                "alice",
                4,
                50,
                2e9,
            )
            assert key.digest not in json.dumps(status)
            async with view.client.stream("GET", f"{ROOT}/gateway/events") as response:
                async for name, _, data in events_of(response.aiter_lines()):
                    assert (name, data["active"]) == ("gateway", 10_000)
                    break

    asyncio.run(main())


def test_without_a_journal_nothing_is_said_of_runs_and_without_a_gateway_nothing_of_it():
    async def main():
        async with gateway_view(Settings(upstreams("m"))) as (view, _):
            assert (await view.get("/session"))["shows"] == ["gateway"]
            for one in OPERATIONS:
                if one.is_about_runs:
                    path = ROOT + one.path.format(run_id="x", seq=0, session_id="s")
                    response = await view.client.request(one.method, path, json={} if one.body else None)
                    assert (response.status_code, response.json()["error"]["code"]) == (404, "no_journal"), one.name
        async with viewing(None) as view:
            for path in ("/gateway", "/gateway/events"):
                error = await view.get(path, 404)
                assert error["error"]["code"] == "no_gateway"

    asyncio.run(main())


def test_a_key_of_one_principal_does_not_see_the_gateway_and_one_without_a_role_does():
    keys = (UiKey("me", digest("a" * 24), principal="me"), UiKey("look", digest("b" * 24)))

    async def main():
        async with gateway_view(Settings(upstreams("m")), keys=keys, login="") as (view, _):
            for path in ("/gateway", "/gateway/events"):
                view.client.headers["authorization"] = f"Bearer {'a' * 24}"
                assert (await view.get(path, 403))["error"]["code"] == "principal"
                view.client.headers["authorization"] = "Bearer wrong"
                await view.get(path, 401)
            view.client.headers["authorization"] = f"Bearer {'b' * 24}"
            await view.get("/gateway")
            assert (await view.get("/session"))["shows"] == ["gateway"]

    asyncio.run(main())


@pytest.mark.over_a_second
def test_lists_are_bounded_and_those_with_most_requests_come_first():
    names = [f"model-{number}" for number in range(MOST_ROWS + 20)]

    async def main():
        settings = Settings(tuple(each for name in names for each in upstreams(name)))
        async with gateway_view(settings) as (view, metrics):
            metrics.upstream_requests.labels(names[-1], "127.0.0.1:9").inc()
            async with asyncio.timeout(PATIENCE):
                while (status := await view.get("/gateway"))["upstreams"][0]["model"] != names[-1]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert len(status["upstreams"]) == len(status["models"]) == MOST_ROWS
            assert status["left_out"] == 40

    asyncio.run(main())


def test_the_requests_that_are_listed_are_those_that_began_first():
    streams = [
        RunningStream(f"req_{number}", NASTY, "127.0.0.1:9", "", False, 1000.0 + number, 0)
        for number in range(MOST_STREAMS + 5)
    ]
    table: StreamTable = {partial(replace, stream): None for stream in streams}
    assert oldest_streams(table) == streams[:MOST_STREAMS]
    del table[next(iter(table))]
    assert oldest_streams(table) == streams[1 : MOST_STREAMS + 1]
    assert not oldest_streams({})


@pytest.mark.over_a_second
def test_a_worker_lists_its_requests_for_the_process_that_shows_them_while_it_looks(tmp_path):
    stream = RunningStream("req_1", f"\ud800{NASTY}", "127.0.0.1:9", "alice", True, 1.0, 7)
    streams: StreamTable = {lambda: stream: None}

    async def main():
        async with publish_streams(streams, str(tmp_path)), asyncio.timeout(PATIENCE):
            while not (oldest := streams_of_workers(str(tmp_path))):  # noqa: ASYNC110 - as below
                await asyncio.sleep(0.05)
            assert oldest == [stream]
            streams.clear()
            while streams_of_workers(str(tmp_path)):  # noqa: ASYNC110 - the file is what is waited for
                await asyncio.sleep(0.05)

    asyncio.run(main())


def test_what_is_recent_goes_back_to_a_sample_and_no_further():
    registry = CollectorRegistry()
    counter = Counter("asked", "", ["model"], registry=registry)
    latency = Histogram("seconds", "", registry=registry, buckets=(1, 2, 4))
    history = MetricHistory(("asked_total", "seconds_bucket"), seconds=300, every=10)
    counter.labels("m").inc(5)
    for second in range(0, 1_000, 2):
        counter.labels("m").inc(1)
        points, window = history.read(float(second), registry.collect())
    (point,) = points["asked_total"]
    assert (point.value, point.recent, window) == (505, 154, 308)
    counter.labels("new").inc(3)
    for value in (0.5, 1.5, 1.5, 3.0):
        latency.observe(value)
    points, _ = history.read(1_000.0, registry.collect())
    assert [each.recent for each in points["asked_total"] if each.labels == {"model": "new"}] == [3]
    buckets = {float(each.labels["le"]): each.recent for each in points["seconds_bucket"]}
    assert [percentile(buckets, share) for share in (0.25, 0.5, 1.0)] == [1.0, 1.5, 4.0]
    latency.observe(100.0)
    points, _ = history.read(1_002.0, registry.collect())
    buckets = {float(each.labels["le"]): each.recent for each in points["seconds_bucket"]}
    assert percentile(buckets, 1.0) == 4.0, "above the last bound nothing more is known"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--ui-port", "0"], "--ui-port is for the web view: add --ui"),
        (["--journal", "runs.db"], "--journal is for the web view: add --ui"),
        (["--ui", "--ui-host", "0.0.0.0"], "give people keys"),
        (["--ui", "--ui-keys", "missing.toml"], "missing.toml"),
        (["--ui", "--journal", "none"], "a journal in memory has no runs of other processes"),
    ],
)
def test_options_that_do_not_work_are_refused_before_anything_is_served(options, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["serve", "--upstream", "http://127.0.0.1:9/v1", *options])
    assert isinstance(result.exception, ConfigurationError)
    assert problem in str(result.exception)


@pytest.mark.over_a_second
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_process_shows_the_gateway_and_its_workers(tmp_path, workers):
    with (
        gateway(tmp_path, workers=workers) as (server, models),
        httpx2.Client(base_url=server.base, timeout=PATIENCE) as client,
    ):
        secret = server.view.partition("#token=")[2]
        assert client.get(f"{ROOT}/gateway").status_code == 401
        assert client.post(f"{ROOT}/session", json={"secret": secret}).status_code == 200
        assert "default-src 'none'" in client.get("/gateway").headers["content-security-policy"]
        with ExitStack() as streams:
            for _ in range(3):
                streams.enter_context(server.stream("hold"))
            assert server.ask("one too many").status_code == 429
            assert server.ask("bad", SECOND_KEY, tools=TOOLS).status_code == 200
            while True:  # an answer may be two seconds old
                keys = {each["name"]: each for each in client.get(f"{ROOT}/gateway").json()["keys"]}
                if {each["limit"]: each["usage"] for each in keys["alice"]["limits"]}["streams"] == 3:
                    break
            while True:  # workers list their requests from the first look on
                status = check_answer("GET", "/gateway", 200, client.get(f"{ROOT}/gateway"))
                if len(status["streams"]) == 3 and all(each["tokens"] for each in status["streams"]):
                    break
            for each in status["streams"]:
                assert (each["model"], each["key"], each["is_streamed"], each["tokens"]) == ("fast", "alice", True, 1)
                assert each["upstream"] in {f"127.0.0.1:{model.port}" for model in models}
                assert 0 <= status["time"] - each["began"] < PATIENCE
            assert "hold" not in json.dumps(status)
            models[0].kill()
            for _ in range(8 * workers):
                assert server.ask("go on", SECOND_KEY).status_code == 200
            while True:
                status = check_answer("GET", "/gateway", 200, client.get(f"{ROOT}/gateway"))
                keys = {each["name"]: each for each in status["keys"]}
                if keys["bob"]["requests"] == 1 + 8 * workers and keys["alice"]["refusals"]:
                    break
        by_label = {each["upstream"]: each for each in status["upstreams"]}
        dead, alive = (by_label[f"127.0.0.1:{model.port}"] for model in models)
        assert dead["failures"]["connection"] >= 1
        assert alive["failovers"] >= 1
        assert sum(alive["states"].values()) == workers
        assert (keys["alice"]["refusals"], keys["bob"]["malformed"]) == (1, 1)
        assert not any(text in json.dumps(status) for text in (KEY, SECOND_KEY, digest(KEY)))
