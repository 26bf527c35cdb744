"""OpenTelemetry's spans of requests to the gateway, with a collector at the loopback address."""

from __future__ import annotations

import asyncio

import pytest
from loopback_server import serve, whole
from otlp_receiver import OtlpCollector, attributes, collecting
from processes import CHAT, running_process
from serving import in_turn, texts

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{ID}-00f067aa0ba902b7-01"
BODY = {"model": "small", "messages": [{"role": "user", "content": "a question of mine"}]}
CALL = 'I look.\n<tool_call>\n{"name": "look", "arguments": {"place": "Rome"}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.mark.over_a_second
def test_each_request_has_a_span_below_the_clients_and_above_the_upstreams(monkeypatch, tmp_path):
    async def run(telemetry: OtlpCollector) -> list[dict[str, str]]:
        async with (
            serve(in_turn(texts(CALL), texts("Fine."))) as upstream,
            serve(whole("500 Down", b"{}")) as failing_upstream,
        ):
            config = f'[[model]]\nname = "small"\nupstream = "{upstream.base_url}"\ndialect = "hermes"\n'
            (tmp_path / "gateway.toml").write_text(config, "utf-8")
            async with running_process("--config", str(tmp_path / "gateway.toml"), "--workers", "2") as gateway:
                async with gateway.client() as client:
                    more = {"tools": [TOOL], "stream": True}
                    answer = await client.post(CHAT, json={**BODY, **more}, headers={"traceparent": PARENT})
                    assert answer.status_code == 200, answer.text
                    answer = await client.post("/v1/messages", json={**BODY, "max_tokens": 100})
                    assert answer.status_code == 200, answer.text
                    assert (await client.post(CHAT, json={"model": "small"})).status_code == 400
                    assert (await client.get("/v1/models")).status_code == 200
                gateway.process.terminate()
                await gateway.process.wait()  # what waits for its export is sent at the end
            async with running_process("--upstream", failing_upstream.base_url, "--model", "small") as gateway:
                async with gateway.client() as client:
                    assert (await client.post(CHAT, json=BODY)).status_code == 503
                gateway.process.terminate()
                await gateway.process.wait()
            return [each.headers for each in upstream.exchanges if each.request_line.startswith("POST ")]

    monkeypatch.setenv("TOOLSPEAK_TELEMETRY", "1")
    with collecting() as telemetry:
        for name, text in telemetry.environ.items():
            monkeypatch.setenv(name, text)
        headers = asyncio.run(run(telemetry))
        spans = sorted(telemetry.spans, key=lambda span: span.start_time_unix_nano)
        assert len(spans) == 4
        first, second, wrong, failed_span = spans
        assert first.trace_id.hex() == ID
        assert first.parent_span_id.hex() == "00f067aa0ba902b7"
        assert [span.name for span in spans] == ["chat small", "chat small", "chat small", "chat (other)"]
        parents = [each["traceparent"].split("-")[1:3] for each in headers]
        assert parents == [[span.trace_id.hex(), span.span_id.hex()] for span in (first, second)]
        span_attributes = attributes(first)
        assert span_attributes["gen_ai.operation.name"] == "chat"
        assert span_attributes["gen_ai.request.model"] == "small"
        assert span_attributes["http.response.status_code"] == 200
        assert span_attributes["url.path"] == CHAT
        assert span_attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
        assert span_attributes["toolspeak.dialect"] == "hermes"
        assert span_attributes["toolspeak.calls"] == 1
        assert span_attributes["toolspeak.gateway.request.id"].startswith("req_")
        assert attributes(second)["url.path"] == "/v1/messages"
        assert attributes(wrong)["http.response.status_code"] == 400
        assert attributes(failed_span)["error.type"]
        assert (wrong.status.code, failed_span.status.code) == (0, 2)
        assert {"gen_ai.server.request.duration", "gen_ai.server.time_to_first_token"} <= telemetry.metrics
        assert telemetry.services == {"toolspeak"}
        assert b"a question of mine" not in telemetry.bodies
        assert b"Rome" not in telemetry.bodies


@pytest.mark.over_a_second
def test_a_gateway_without_telemetry_exports_nothing(monkeypatch):
    async def run() -> None:
        async with (
            serve(in_turn(texts("Fine."))) as upstream,
            running_process("--upstream", upstream.base_url) as gateway,
        ):
            async with gateway.client() as client:
                headers = {"traceparent": PARENT}
                assert (await client.post(CHAT, json=BODY, headers=headers)).status_code == 200
            assert upstream.exchanges[0].headers["traceparent"] == PARENT
            gateway.process.terminate()
            await gateway.process.wait()

    monkeypatch.delenv("TOOLSPEAK_TELEMETRY", raising=False)
    with collecting() as telemetry:
        for name, text in telemetry.environ.items():
            monkeypatch.setenv(name, text)
        asyncio.run(run())
        assert (telemetry.spans, telemetry.metrics) == ([], set())
