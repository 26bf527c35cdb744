"""The Grafana dashboard and the alerts of Prometheus use metrics that the gateway has."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from loopback_server import serve
from serving import at, in_turn, run_gateway, texts

DASHBOARD = Path(__file__).parents[3] / "contrib" / "grafana-dashboard.json"


ALERTS = DASHBOARD.with_name("prometheus-alerts.yml")


def test_every_metric_of_the_dashboard_and_of_the_alerts_is_one_of_the_gateway():
    async def run() -> str:
        async with serve(in_turn(texts("Hi."))) as server, run_gateway(at(server)) as gateway:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}
            assert (await gateway.client.post("/v1/chat/completions", json=body)).status_code == 200
            return (await gateway.client.get("/metrics")).text

    metric_names: set[str] = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", asyncio.run(run()), re.MULTILINE):
        metric_names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    metrics = {name for panel in panels for target in panel["targets"] for name in _names(target["expr"])}
    assert len(metrics) >= 10
    assert metrics <= metric_names
    alerting = set(_names(ALERTS.read_text(encoding="utf-8")))
    assert len(alerting) >= 4
    assert alerting <= metric_names


def _names(expression: str) -> list[str]:
    return re.findall(r"\btoolspeak_\w+", expression)
