"""The reference names every span, attribute and metric that telemetry records, and no other metric."""

from __future__ import annotations

import re
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider

from toolspeak.telemetry import convention_names
from toolspeak.telemetry.instruments import Instruments

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "telemetry.md").read_text("utf-8")


def test_every_metric_is_on_the_page_and_no_other():
    names = {instrument.name for instrument in vars(Instruments(MeterProvider().get_meter("test"))).values()}
    assert set(re.findall(r"^\| `([a-z_.]+)` \| (?:s|\{)", PAGE, re.MULTILINE)) == names


def test_every_attribute_is_on_the_page():
    values = (value for value in vars(convention_names).values() if isinstance(value, str))
    names = {value for value in values if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", value)}
    names -= {convention_names.__name__, convention_names.__package__}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()
    assert len(names) > 30
