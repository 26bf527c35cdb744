"""Draws the chart of a run as SVG. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from html import escape

from toolspeak.agent.charts.run_chart import Bar, RunChart, chart_of, middle_cut, short_label
from toolspeak.data.events import Record

MOST_BARS = 2_000
"""The most bars of a picture: those of the run's end are left out."""

NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML 1.0 cannot hold (section 2.2)."""

_WIDTH, _MARGIN, _RIGHT, _TOP, _LANE, _BAR = 1000, 12, 24, 62, 22, 16
_CHARACTER = 6.4  # the width of one, approximately
_STYLE = """\
svg { font: 12px system-ui, sans-serif; background: #fff; color: #1f2328 }
text { fill: currentColor } .faint { fill-opacity: .65 } .title { font-weight: 600 } .on { fill: #fff }
.grid { stroke: currentColor; opacity: .12 } .mark { stroke: #8250df; stroke-dasharray: 2 3 }
.turn { fill: #57606a } .cut { fill: #9a6700 } .reads { fill: #0969da } .writes { fill: #bc4c00 }
.wait { fill: currentColor; fill-opacity: .14 } .question { fill: #8250df }
.outside { fill: #8250df; fill-opacity: .35 } .failed { fill: #cf222e } .open { fill-opacity: .6 }
@media (prefers-color-scheme: dark) { svg { background: #0d1117; color: #e6edf3 } }"""


def run_svg(records: Iterable[Record], title: str = "toolspeak") -> str:
    """The picture of a run, of its records."""
    return as_chart_svg(chart_of(records), title)


def as_chart_svg(chart: RunChart, title: str = "toolspeak") -> str:
    """The chart as an SVG document: the model's turns above, the calls in lanes below.

    Calls that only read are blue, others orange, failed ones red. A pale bar is a wait, a violet one a question to a
    person. Dashed lines are what happened between: messages, pauses, takeovers, limits.
    """
    scale = (_WIDTH - _MARGIN - _RIGHT) / (chart.seconds or 1.0)
    height = _TOP + _LANE * chart.lanes + 24
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{_text(title)}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{_MARGIN}" y="20">{_text(title)}</text>',
    ]
    for tick in ticks(chart.seconds or 1.0):
        x = _MARGIN + tick * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height - 20}"/>')
        parts.append(f'<text class="faint" x="{x + 3:.1f}" y="{height - 8}">{seconds_text(tick)}</text>')
    free = 0.0
    for mark in chart.marks[:MOST_BARS]:
        x = _MARGIN + mark.at * scale
        parts.append(
            f'<line class="mark" x1="{x:.1f}" y1="{_TOP - 20}" x2="{x:.1f}" y2="{height - 20}">'
            f"<title>{_text(mark.label)}</title></line>"
        )
        if x >= free:  # a label that would cover another is left out: the line has it as its title
            label = mark.label[:28]
            anchor = "end" if x > _WIDTH - 200 else "start"
            parts.append(
                f'<text class="faint" x="{x:.1f}" y="{_TOP - 26}" text-anchor="{anchor}">{_text(label)}</text>'
            )
            free = x + _CHARACTER * len(label) + 8
    for bar in chart.bars[:MOST_BARS]:
        parts += _bar(bar, scale)
    if len(chart.bars) > MOST_BARS:
        rest = len(chart.bars) - MOST_BARS
        parts.append(f'<text class="faint" x="{_WIDTH - 200}" y="20">… {rest} more bars</text>')
    return "\n".join([*parts, "</svg>\n"])


def _bar(bar: Bar, scale: float) -> Iterator[str]:
    x, y = _MARGIN + bar.start * scale, _TOP + _LANE * bar.lane
    width = max(1.5, (bar.end - bar.start) * scale)
    kind = "failed" if bar.state == "failed" and bar.kind != "cut" else bar.kind
    title = ", ".join(filter(None, (bar.label, bar.detail, seconds_text(bar.seconds))))
    yield (
        f'<rect class="{kind}{" open" if bar.state == "open" else ""}" x="{x:.1f}" y="{y}" width="{width:.1f}"'
        f' height="{_BAR}" rx="3"><title>{_text(title)}</title></rect>'
    )
    room = int((width - 8) / _CHARACTER)
    if room >= 4:
        is_call = bar.lane > 0
        label = middle_cut(bar.label, room) if is_call or len(bar.label) <= room else bar.label[: room - 1] + "…"
        is_pale = bar.state == "open" or (bar.kind in ("wait", "outside") and kind != "failed")
        on = "" if is_pale else ' class="on"'
        yield f'<text{on} x="{x + 4:.1f}" y="{y + 12}">{_text(label)}</text>'


def _text(text: str) -> str:
    return escape(NOT_XML.sub("�", short_label(text) if len(text) > 400 else text))


def ticks(longest: float) -> Iterator[float]:
    """A few round times, starting at 0."""
    unit = 10.0 ** math.floor(math.log10(longest / 5))
    step = next(unit * times for times in (1, 2, 5, 10) if unit * times >= longest / 5)
    return (step * i for i in range(int(longest / step) + 1))


def seconds_text(seconds: float) -> str:
    """A time with its unit."""
    if seconds >= 1 or not seconds:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
