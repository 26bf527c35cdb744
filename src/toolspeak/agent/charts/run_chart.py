"""A run's turns and calls as bars in lanes over time: which ran at once, what waited, was asked, was repeated. Pure.

Times are seconds on the chart's axis. While no process drove the run, the axis stands still but for a short piece, so
that a night's wait for a decision does not hide the work.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Literal, cast

from toolspeak.data.end_reasons import end_words
from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallSuspended,
    HandedOff,
    HistoryCompacted,
    LimitReached,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelTextReceived,
    Record,
    RetryScheduled,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SubRunUsed,
    ToolFinished,
    ToolStarted,
    UserMessageQueued,
    WaitEnded,
)
from toolspeak.data.messages import JSON, ToolCall
from toolspeak.data.values import evolve, quick
from toolspeak.tools.files.text_format import visible

BarKind = Literal["turn", "cut", "reads", "writes", "wait", "question", "outside"]
"""A turn; one that was cut off; a call that only reads, or another; the time before its function starts, for which it
waits for other calls, for a person, or for an event or a time from outside."""

MarkKind = Literal["message", "paused", "resumed", "takeover", "limit", "compacted", "handoff", "failed", "end"]

LABEL = 46
"""The most characters of a bar's label."""

_LONGEST_GAP = 0.06
"""The longest piece of the axis for a pause, as a part of the time in which the run was driven."""

_VALUE = 24


@quick()
class Bar:
    """A span of time in a lane. Lane 0 has the turns, the others the calls.

    - `seq`: the number of the record that it begins with.
    - `state`: `open` has not ended yet.
    - `waited_for`: the calls that had to finish before.
    - `seconds`: how long it took, also where the axis stands still.
    """

    kind: BarKind
    lane: int
    start: float
    end: float
    seq: int
    label: str
    state: Literal["done", "failed", "open"] = "done"
    call_id: str = ""
    detail: str = ""
    waited_for: tuple[str, ...] = ()
    seconds: float = 0.0


@quick()
class Mark:
    """Something that happened at one time."""

    kind: MarkKind
    at: float
    seq: int
    label: str


@quick()
class RunChart:
    """What a picture of a run shows.

    - `seconds`: the length of the axis.
    - `lanes`: the number of lanes, that of the turns among them.
    - `records`: how many records the chart is made of.
    - `idle`: the seconds in which no process drove the run, of which the axis shows a piece only.
    """

    seconds: float = 0.0
    lanes: int = 1
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    records: int = 0
    idle: float = 0.0


class ChartBuilder:
    """Makes a chart of records as they come. Bars and marks have Unix seconds until `chart` fits them to the axis."""

    def __init__(self) -> None:
        self.records = 0
        self._bars: list[Bar] = []
        self._marks: list[Mark] = []
        self._pauses: list[tuple[float, float]] = []
        self._began = self._last = 0.0
        self._paused_at: float | None = None
        self._is_over = False
        self._turn: Record | None = None  # of the turn under way
        self._turn_start = 0.0  # that of its attempt under way
        self._turn_wait: Bar | None = None  # before that attempt
        self._calls: dict[str, ToolCall] = {}
        self._open: dict[str, Bar] = {}  # of the calls without a result, what they do now
        self._lanes: dict[str, int] = {}
        self._free: list[int] = []
        self._count = 1

    def add(self, record: Record) -> None:
        """Adds the run's next record."""
        if not self.records:
            self._began = self._last = record.time
        time = max(record.time, self._last)  # a clock may have been set back
        self.records += 1
        match record.event:
            case RunStarted(due=float()):
                self._paused_at = time
            case ModelAsked():
                self._cut(time)
                self._turn, self._turn_start = record, time
            case ModelAnswered() as answer:
                self._add_answer(record, answer, time)
            case ModelFailed(error):
                self._end_turn(time, "failed", short_label(error))
                self._mark("failed", time, record, short_label(error))
            case RetryScheduled(error, seconds, call_id=None):
                turn = self._turn
                self._end_turn(time, "failed", short_label(error))
                if turn is not None:
                    self._turn, self._turn_start = turn, time + seconds
                    label = f"again after {seconds:.1f} s"
                    self._turn_wait = Bar("wait", 0, time, time + seconds, record.seq, label, detail=short_label(error))
            case RetryScheduled(error, seconds, call_id=str(call_id)):
                detail = f"again after {seconds:.1f} s: {short_label(error)}"
                self._begin("wait", call_id, record, time, failed=True, detail=detail)
            case ApprovalRequested(call_id, _, call):
                self._calls.setdefault(call_id, call)
                self._begin("question", call_id, record, time)
            case ApprovalDecided(call_id, is_approved, by=by):
                detail = f"{'approved' if is_approved else 'refused'} by {visible(by) or 'someone'}"
                self._begin("wait", call_id, record, time, detail=detail)
            case ToolStarted() as start:
                if start.changed is not None:
                    self._calls[start.call_id] = start.changed
                reads = start.effects is not None and start.effects.read_only
                self._begin("reads" if reads else "writes", start.call_id, record, time, waited_for=start.waited_for)
            case CallSuspended(call_id, event=event):
                self._begin("outside", call_id, record, time, detail=visible(event or "a time"))
            case WaitEnded(call_id):
                self._begin("wait", call_id, record, time)
            case ToolFinished(result):
                self._end(result.call_id, time, failed=result.status == "failure")
            case UserMessageQueued(message):
                self._mark("message", time, record, short_label(message.text))
            case RunPaused(reason):
                self._paused_at = time
                self._mark("paused", time, record, reason.replace("_", " "))
            case RunResumed():
                self._add_resumption(record, time)
            case LimitReached(limit):
                self._mark("limit", time, record, f"limit of {limit}")
            case HistoryCompacted():
                self._mark("compacted", time, record, "history compacted")
            case HandedOff(_, agent):
                self._mark("handoff", time, record, f"{short_label(agent)} continues")
            case RunFinished(status, _, reason):
                self._cut(time)
                self._is_over = True
                self._mark("end", time, record, short_label(end_words(status, reason)))
            case ModelTextReceived() | SubRunUsed() | _:
                pass
        self._last = time

    def chart(self, now: float | None = None) -> RunChart:
        """The chart of the records until now. With `now` (Unix seconds) what goes on is drawn until then, unless the
        run is over."""
        last = self._last if now is None or self._is_over else max(now, self._last)
        bars = list(self._bars)
        if self._turn_wait is not None:
            bars.append(evolve(self._turn_wait, end=max(self._turn_wait.start, min(self._turn_wait.end, last))))
        if self._turn is not None and self._turn_start <= last:
            bars.append(Bar("turn", 0, self._turn_start, last, self._turn.seq, "", "open"))
        bars += [evolve(bar, end=last) for bar in self._open.values()]
        pauses = [*self._pauses, (self._paused_at, last)] if self._paused_at is not None else self._pauses
        idle = sum(end - start for start, end in pauses)
        driven_seconds = max(0.0, last - self._began - idle)
        axis = _Axis(self._began, pauses, _LONGEST_GAP * driven_seconds or 1.0)
        return RunChart(
            axis.place(last),
            self._count,
            tuple(
                evolve(bar, start=axis.place(bar.start), end=axis.place(bar.end), seconds=bar.end - bar.start)
                for bar in bars
            ),
            tuple(Mark(mark.kind, axis.place(mark.at), mark.seq, mark.label) for mark in self._marks),
            self.records,
            idle,
        )

    def _mark(self, kind: MarkKind, time: float, record: Record, label: str) -> None:
        self._marks.append(Mark(kind, time, record.seq, label))

    def _cut(self, time: float) -> None:
        """Ends a turn that was not read to its end: it is requested again, or the run is over."""
        self._end_turn(time, "failed", "cut off", kind="cut")

    def _end_turn(
        self, time: float, state: Literal["done", "failed"], detail: str, kind: BarKind = "turn", label: str = ""
    ) -> None:
        request, self._turn = self._turn, None
        wait, self._turn_wait = self._turn_wait, None
        if wait is not None:
            self._bars.append(evolve(wait, end=max(wait.start, min(wait.end, time))))
        if request is not None:
            label = label or f"step {request.step}"
            start = min(self._turn_start, time)
            self._bars.append(Bar(kind, 0, start, time, request.seq, label, state, detail=detail))

    def _add_answer(self, record: Record, answer: ModelAnswered, time: float) -> None:
        usage = answer.usage
        detail = f"{usage.input or 0:,} tokens in, {usage.output or 0:,} out"
        calls = answer.message.calls
        label = f"step {record.step}: {short_label(answer.message.text) or f'{len(calls)} calls'}"
        self._end_turn(time, "done", detail, label=label)
        self._calls = {call.id: call for call in calls if isinstance(call, ToolCall)}
        for call_id in self._calls:
            self._begin("wait", call_id, record, time)

    def _add_resumption(self, record: Record, time: float) -> None:
        if self._paused_at is None and self.records > 1:
            # No process drove the run since its last record: the one that did was lost.
            self._cut(self._last)
            self._pauses.append((self._last, time))
            self._mark("takeover", time, record, "taken over after a crash")
        elif self._paused_at is not None:
            self._pauses.append((self._paused_at, time))
            self._mark("resumed", time, record, "resumed")
        self._paused_at = None

    def _begin(
        self, kind: BarKind, call_id: str, record: Record, time: float, *, failed: bool = False, **fields: Any
    ) -> None:
        """Ends what a call did until now, and begins what it does next. `failed`: how the former ends."""
        earlier = self._open.pop(call_id, None)
        if earlier is not None and (time > earlier.start or failed):
            self._bars.append(evolve(earlier, end=time, state="failed" if failed else "done"))
        call = self._calls.get(call_id)
        label = visible(call_id) if call is None else call_label(call)
        self._open[call_id] = Bar(kind, self._lane(call_id), time, time, record.seq, label, "open", call_id, **fields)

    def _end(self, call_id: str, time: float, *, failed: bool) -> None:
        bar = self._open.pop(call_id, None)
        if bar is not None:
            self._bars.append(evolve(bar, end=time, state="failed" if failed else "done"))
        lane = self._lanes.pop(call_id, None)
        if lane is not None:
            heapq.heappush(self._free, lane)

    def _lane(self, call_id: str) -> int:
        """The lane of a call: one that no other call has until this one ends."""
        if call_id not in self._lanes:
            if self._free:
                self._lanes[call_id] = heapq.heappop(self._free)
            else:
                self._lanes[call_id] = self._count
                self._count += 1
        return self._lanes[call_id]


class _Axis:
    """Places on the axis for Unix seconds. Each pause takes `longest` seconds of it at most."""

    def __init__(self, began: float, pauses: Iterable[tuple[float, float]], longest: float) -> None:
        # Pieces of time: their starts, and the place and the scale of each.
        self._starts, self._pieces = [began], [(0.0, 1.0)]
        for start, end in pauses:
            if end > start:
                self._add(start, min(1.0, longest / (end - start)))
                self._add(end, 1.0)

    def _add(self, time: float, scale: float) -> None:
        self._pieces.append((self.place(time), scale))
        self._starts.append(time)

    def place(self, time: float) -> float:
        """The place of a time, in seconds from the beginning."""
        piece = max(0, bisect_right(self._starts, time) - 1)
        place, scale = self._pieces[piece]
        return max(0.0, place + (time - self._starts[piece]) * scale)


def chart_of(records: Iterable[Record]) -> RunChart:
    """The chart of a run."""
    builder = ChartBuilder()
    for record in records:
        builder.add(record)
    return builder.chart()


def call_label(call: ToolCall) -> str:
    """A call on one line: its name and its arguments. What is too long is left out in the middle: calls of one tool
    often begin alike."""
    return middle_cut(f"{call.name}({', '.join(_short(value) for value in call.arguments.values())})", LABEL)


def short_label(text: str) -> str:
    """The beginning of a text on one line, with everything visible that would change how it reads."""
    line = " ".join(visible(text[: 4 * LABEL]).split())
    return line if len(line) <= LABEL else line[: LABEL - 1] + "…"


def middle_cut(text: str, most: int) -> str:
    """A text on one line, with everything visible that would change how it reads. A long one has its beginning and its
    end, and so many characters at most."""
    part = text if len(text) <= 8 * most else f"{text[: 4 * most]}…{text[-4 * most :]}"
    line = " ".join(visible(part).split())
    tail = (most - 1) // 2
    return line if len(line) <= most else f"{line[: most - 1 - tail]}…{line[-tail:]}"


def _short(value: JSON) -> str:
    if isinstance(value, str):
        return f'"{middle_cut(value, _VALUE)}"'
    if isinstance(value, dict):
        return "{…}"
    if isinstance(value, list):
        return f"[{len(cast('list[JSON]', value))}]"
    return str(value)[:_VALUE]
