"""Draws a run's batches as lanes over time: when each call ran, and which calls it waited for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from toolspeak.agent.charts.chart_svg import NOT_XML, seconds_text, ticks
from toolspeak.data.events import ModelAnswered, Record, ToolFinished, ToolStarted
from toolspeak.data.messages import JSON, ToolCall
from toolspeak.data.values import quick
from toolspeak.ui.format import one_line, value_text

MAX_LANES = 200  # the most lanes of a batch: a picture of thousands is useless
_LABEL = 46  # characters


@quick()
class Lane:
    """One call. Times are in seconds since the batch's start."""

    call_id: str
    label: str
    started_at: float | None
    """None for a call that never ran."""
    finished_at: float
    failed: bool
    early: bool = False
    waited_for: tuple[str, ...] = ()
    read_only: bool = False


@quick()
class BatchLanes:
    """The calls of one turn, in the model's order."""

    step: int
    lanes: tuple[Lane, ...]
    seconds: float
    """From the first call's start to the last one's end."""
    left_out: int = 0
    """The number of calls beyond `MAX_LANES`."""
    name: str = ""
    """The heading; empty is the step."""


@dataclass(slots=True)
class _BatchTimes:
    """The times of a batch so far."""

    step: int
    began: float
    order: dict[str, str] = field(default_factory=dict[str, str])
    """The labels by call id, in the model's order."""
    starts: dict[str, tuple[float, ToolStarted]] = field(default_factory=dict[str, tuple[float, ToolStarted]])
    ends: dict[str, tuple[float, bool]] = field(default_factory=dict[str, tuple[float, bool]])


def batches(records: Iterable[Record]) -> tuple[BatchLanes, ...]:
    """The batches of a run. Turns without calls are left out."""
    finished_batches: list[_BatchTimes] = []
    times: _BatchTimes | None = None
    for record in records:
        match record.event:
            case ModelAnswered(message):
                times = _BatchTimes(record.step, record.time, {call.id: _label(call) for call in message.calls})
                if times.order:
                    finished_batches.append(times)
            case ToolStarted() as start if times is not None:
                times.starts[start.call_id] = (record.time, start)
            case ToolFinished(result) if times is not None:
                times.ends[result.call_id] = (record.time, result.status == "failure")
            case _:
                pass
    return tuple(_lanes(each) for each in finished_batches if each.ends)


def _lanes(times: _BatchTimes) -> BatchLanes:
    start_time = min((time for time, _ in times.starts.values()), default=times.began)
    end_time = max(time for time, _ in times.ends.values())
    lanes = [_lane(times, call_id, start_time, end_time) for call_id in [*times.order][:MAX_LANES]]
    return BatchLanes(times.step, tuple(lanes), max(0.0, end_time - start_time), max(0, len(times.order) - MAX_LANES))


def _lane(times: _BatchTimes, call_id: str, start_time: float, end_time: float) -> Lane:
    time, start = times.starts.get(call_id, (None, None))
    result_time, is_failure = times.ends.get(call_id, (end_time, True))
    return Lane(
        call_id,
        times.order[call_id],
        None if time is None else max(0.0, time - start_time),
        max(0.0, result_time - start_time),
        is_failure,
        start is not None and start.early,
        () if start is None else start.waited_for,
        start is not None and start.effects is not None and start.effects.read_only,
    )


def _label(call: object) -> str:
    if isinstance(call, ToolCall):
        values = ", ".join(_short(value) for value in call.arguments.values())
        label = NOT_XML.sub("�", one_line(f"{call.name}({values})"))
        return label if len(label) <= _LABEL else label[: _LABEL - 1] + "…"
    return "malformed call"


def _short(value: JSON) -> str:
    """A shortened value, without the number of the omitted characters, for which there is no space."""
    beginning, more, _ = value_text(value, 24).partition("… (+")
    return f"{beginning}…" if more else beginning


def as_text(batch: BatchLanes, *, width: int = 60, seconds: float = 0.0) -> Iterator[str]:
    """The lanes as lines of text: `█` ran, `░` waited, `✗` failed, `◂` started before its turn ended.

    `width` characters represent `seconds`, or the batch's time if that is longer.
    """
    longest = max(batch.seconds, seconds)
    scale = width / longest if longest else 0.0
    room = max((len(lane.label) for lane in batch.lanes), default=0)
    for lane in batch.lanes:
        if lane.started_at is None:
            bar = " " * min(width - 1, round(lane.finished_at * scale)) + ("✗" if lane.failed else "·")
        else:
            start = min(width - 1, round(lane.started_at * scale))
            end = max(start + 1, round(lane.finished_at * scale))
            bar = ("░" if lane.waited_for else " ") * start + "█" * (end - start)
            bar += ("✗" if lane.failed else "") + ("◂" if lane.early else "")
        yield f"{lane.label:<{room}} {bar}"
    if batch.left_out:
        yield f"… {batch.left_out} more calls"


_WIDTH, _LABEL_WIDTH, _RIGHT, _ROW, _HEAD, _BAR = 1000, 330, 70, 24, 44, 14
_STYLE = """\
svg { font: 12px system-ui, sans-serif; background: #fff; color: #1f2328 }
text { fill: currentColor } .faint { fill-opacity: .6 } .title { font-weight: 600 }
.grid { stroke: currentColor; opacity: .12 } .waits { stroke: currentColor; opacity: .35; stroke-dasharray: 2 3 }
.edge { fill: none; stroke: #8250df; opacity: .7 } .tip { fill: #8250df }
.reads { fill: #2f81f7 } .writes { fill: #e08a00 } .failed { fill: #d1242f } .early { stroke: #1a7f37; stroke-width: 2 }
@media (prefers-color-scheme: dark) { svg { background: #0d1117; color: #e6edf3 } }"""


def as_svg(lanes: Sequence[BatchLanes], title: str = "toolspeak") -> str:
    """The batches below each other, on the same time scale, as an SVG document.

    Calls that only read are blue, others orange, failed ones red. A dashed line is the time that a call waited, with an
    arrow from the call that it waited for. A green edge marks a call that started while the model was still writing.
    """
    longest = max((batch.seconds for batch in lanes), default=0.0) or 1.0
    scale = (_WIDTH - _LABEL_WIDTH - _RIGHT) / longest
    parts: list[str] = []
    top = 34
    for batch in lanes:
        parts += _draw(batch, top, scale, longest)
        top += _HEAD + _ROW * (len(batch.lanes) + bool(batch.left_out)) + 10
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}">\n'
        f"<style>{_STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'<text class="title" x="12" y="20">{escape(NOT_XML.sub("�", one_line(title)))}</text>'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def _draw(batch: BatchLanes, top: int, scale: float, longest: float) -> Iterator[str]:
    count = len(batch.lanes) + batch.left_out
    calls = "1 call" if count == 1 else f"{count} calls"
    name = escape(batch.name) or f"step {batch.step}"
    yield f'<text class="title" x="12" y="{top + 14}">{name}: {calls}, {seconds_text(batch.seconds)}</text>'
    bottom = top + _HEAD + _ROW * len(batch.lanes)
    for tick in ticks(longest):
        x = _LABEL_WIDTH + tick * scale
        yield f'<line class="grid" x1="{x:.1f}" y1="{top + 26}" x2="{x:.1f}" y2="{bottom}"/>'
        yield f'<text class="faint" x="{x + 3:.1f}" y="{top + 34}">{seconds_text(tick)}</text>'
    rows = {lane.call_id: (top + _HEAD + _ROW * row + _ROW / 2, lane) for row, lane in enumerate(batch.lanes)}
    for y, lane in rows.values():
        yield from _draw_lane(lane, y, scale)
        for earlier in lane.waited_for:
            if earlier in rows and lane.started_at is not None:
                yield _edge(rows[earlier], (y, lane), scale)
    for y, lane in rows.values():  # last, so that numbers are above arrows
        yield from _draw_seconds(lane, y, scale)
    if batch.left_out:
        yield f'<text class="faint" x="12" y="{bottom + 16}">… {batch.left_out} more calls</text>'


def _draw_lane(lane: Lane, y: float, scale: float) -> Iterator[str]:
    yield f'<text x="12" y="{y + 4:.1f}">{escape(lane.label)}</text>'
    if lane.started_at is None:
        kind = "failed" if lane.failed else "reads"
        yield f'<circle class="{kind}" cx="{_LABEL_WIDTH + lane.finished_at * scale:.1f}" cy="{y:.1f}" r="4"/>'
        return
    start = _LABEL_WIDTH + lane.started_at * scale
    if lane.waited_for:
        yield f'<line class="waits" x1="{_LABEL_WIDTH}" y1="{y:.1f}" x2="{start:.1f}" y2="{y:.1f}"/>'
    kind = "failed" if lane.failed else "reads" if lane.read_only else "writes"
    span = lane.finished_at - lane.started_at
    description = escape(f"{lane.label}: {seconds_text(span)}")
    yield (
        f'<rect class="{kind}{" early" if lane.early else ""}" x="{start:.1f}" y="{y - _BAR / 2:.1f}" '
        f'width="{max(2.0, span * scale):.1f}" height="{_BAR}" rx="3" aria-label="{description}"/>'
    )


def _draw_seconds(lane: Lane, y: float, scale: float) -> Iterator[str]:
    if lane.started_at is not None:
        span = lane.finished_at - lane.started_at
        x = _LABEL_WIDTH + lane.started_at * scale + max(2.0, span * scale) + 5
        yield f'<text class="faint took" x="{x:.1f}" y="{y + 4:.1f}">{seconds_text(span)}</text>'


def _edge(earlier: tuple[float, Lane], later: tuple[float, Lane], scale: float) -> str:
    (y1, before), (y2, after) = earlier, later
    # From below the bar's end, left of the number next to it, straight down and then to the right.
    x1, x2 = _LABEL_WIDTH + before.finished_at * scale - 3, _LABEL_WIDTH + (after.started_at or 0.0) * scale
    y1 += _BAR / 2
    return (
        f'<path class="edge" marker-end="url(#tip)" '
        f'd="M{x1:.1f} {y1:.1f}C{x1:.1f} {y2:.1f} {min(x1, x2 - 14):.1f} {y2:.1f} {x2:.1f} {y2:.1f}"/>'
    )
