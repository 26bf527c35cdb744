"""W3C Trace Context of clients, as upstreams are sent it."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from loopback_server import serve
from serving import at, in_turn, run_gateway, texts

from toolspeak.gateway.observability import JsonLines

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{ID}-00f067aa0ba902b7-01"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}


@pytest.mark.parametrize(
    ("client_headers", "expected_headers"),
    [
        ([("traceparent", PARENT)], {"traceparent": PARENT}),
        ([("traceparent", PARENT), ("tracestate", "a=1, b@c=2")], {"traceparent": PARENT, "tracestate": "a=1,b@c=2"}),
        ([("traceparent", PARENT), ("tracestate", "a=1,a=2")], {"traceparent": PARENT}),
        ([("traceparent", PARENT), ("tracestate", "A=1")], {"traceparent": PARENT}),
        ([("traceparent", PARENT), ("tracestate", ",".join(f"k{i}=1" for i in range(33)))], {"traceparent": PARENT}),
        ([("traceparent", PARENT), ("baggage", "user=me")], {"traceparent": PARENT}),
        ([("traceparent", f"01{PARENT[2:]}-more")], {"traceparent": f"01{PARENT[2:]}-more"}),
        ([("traceparent", f"{PARENT}-more")], {}),
        ([("traceparent", PARENT.upper())], {}),
        ([("traceparent", f"ff{PARENT[2:]}")], {}),
        ([("traceparent", PARENT.replace(ID, "0" * 32))], {}),
        ([("traceparent", PARENT), ("traceparent", PARENT)], {}),
        ([("tracestate", "a=1")], {}),
    ],
)
def test_what_is_valid_of_a_trace_goes_to_the_upstream(
    client_headers: list[tuple[str, str]], expected_headers: dict[str, str], caplog
):
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLines().format(record))

    async def run() -> dict[str, str]:
        async with serve(in_turn(texts("Fine."), texts("Fine."))) as server, run_gateway(at(server)) as gateway:
            answer = await gateway.client.post("/v1/chat/completions", json=BODY, headers=client_headers)
            assert answer.status_code == 200
            assert (await gateway.client.post("/v1/chat/completions", json=BODY)).status_code == 200
            assert "traceparent" not in server.exchanges[1].headers  # the next request is not of that trace
            return server.exchanges[0].headers

    handler = Lines()
    logger = logging.getLogger("toolspeak.gateway")
    logger.addHandler(handler)
    try:
        with caplog.at_level("INFO", "toolspeak.gateway"):
            headers = asyncio.run(run())
    finally:
        logger.removeHandler(handler)
    assert {
        name: headers[name] for name in ("traceparent", "tracestate", "baggage") if name in headers
    } == expected_headers
    first, second = [json.loads(line) for line in lines if '"request"' in line]
    assert first.get("trace_id") == (ID if expected_headers else None)
    assert "trace_id" not in second
