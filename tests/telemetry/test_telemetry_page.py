"""The reference names every span, attribute and metric that telemetry records, and no other metric."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider

from toolspeak.telemetry import convention_names
from toolspeak.telemetry.instruments import Instruments
from toolspeak.telemetry.journal_gauges import JournalGauges

CONTRIB = Path(__file__).parents[2] / "contrib"
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "telemetry.md").read_text("utf-8")


def instruments() -> list[Any]:
    meter = MeterProvider().get_meter("test")
    every = [*vars(Instruments(meter)).values(), *vars(JournalGauges(meter)).values()]
    return [each for each in every if hasattr(each, "unit")]


def test_every_metric_is_on_the_page_and_no_other():
    names = {instrument.name for instrument in instruments()}
    assert set(re.findall(r"^\| `([a-z_.]+)` \| (?:s|\{)", PAGE, re.MULTILINE)) == names


def test_every_attribute_is_on_the_page():
    values = (value for value in vars(convention_names).values() if isinstance(value, str))
    names = {value for value in values if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", value)}
    names -= {convention_names.__name__, convention_names.__package__}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()
    assert len(names) > 30


def test_the_dashboard_shows_every_metric_and_no_other():
    """By the names that Prometheus gives them (OpenTelemetry, "Prometheus and OpenMetrics Compatibility")."""
    names: dict[str, str] = {}
    for instrument in instruments():
        name = instrument.name.replace(".", "_") + ("_seconds" if instrument.unit == "s" else "")
        if isinstance(instrument, Counter):
            name += "_total"
        names[name] = "_(?:bucket|sum|count)" if isinstance(instrument, Histogram) else ""
    dashboard = json.loads((CONTRIB / "grafana-runs-dashboard.json").read_text("utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    panel_names = {name for query in queries for name in re.findall(r"([a-z_]+)\{", query)}
    unknown_names = {
        name for name in panel_names if not any(re.fullmatch(metric + end, name) for metric, end in names.items())
    }
    absent = {
        metric for metric, end in names.items() if not any(re.fullmatch(metric + end, name) for name in panel_names)
    }
    assert (unknown_names, absent) == (set(), set())
    labels = {label for query in queries for label in re.findall(r"by \((?:le, )?([a-z_]+)\)", query)}
    attributes = {str(value).replace(".", "_") for value in vars(convention_names).values()}
    assert labels - attributes == set()
