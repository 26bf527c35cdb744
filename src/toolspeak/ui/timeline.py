"""A run's records as lines of text: what happened, when, how long it took, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

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
    RunConfigured,
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
from toolspeak.data.messages import JSON, MalformedCall, ToolCall, ToolResult, Usage
from toolspeak.data.tools import FILES_CHANGED
from toolspeak.ui.format import argument_lines, compaction_text, count, money, one_line, result_lines, shorten

_TEXT = 100


class Timeline:
    """Turns records into lines, one after the other. `times=False` leaves out everything that differs between two runs
    that did the same: times, tokens and ids."""

    def __init__(self, *, times: bool = True) -> None:
        self._times = times
        self._start = self._asked_at = 0.0
        self._started_at: dict[str, float] = {}
        self._partial = ""
        self._calls: dict[str, ToolCall | MalformedCall] = {}

    def lines(self, record: Record) -> Iterator[str]:
        """The lines of the run's next record; none for a record without news."""
        if isinstance(record.event, RunStarted):
            self._start = record.time
        at = f"{record.time - self._start:9.2f} s  " if self._times else ""
        for number, line in enumerate(self._of(record)):
            yield (at if number == 0 else " " * len(at)) + line

    def _of(self, record: Record) -> Iterator[str]:
        match record.event:
            case RunStarted(messages, model):
                yield f"run started on {one_line(model)}"
                yield from (f"  {message.role}: {_short(message.text)}" for message in messages[-1:])
            case UserMessageQueued(message):
                yield f"user: {_short(message.text)}"
            case ModelTextReceived(text, reasoning):
                self._partial += text or reasoning
            case ModelAsked():
                yield from self._cut_off()
                self._asked_at = record.time
                yield f"step {record.step}"
            case ModelAnswered() as model_answer:
                yield from self._answer_lines(model_answer, record.time - self._asked_at)
            case RetryScheduled(error, seconds, call_id=call_id):
                after = f" after {seconds:.2f} s" if self._times else ""
                if call_id is None:
                    yield from self._cut_off()
                    yield f"✗ the model's API failed and is asked again{after}: {_short(error)}"
                else:
                    yield f"  ✗ {self._name(call_id)} failed and runs again{after}: {_short(error)}"
            case ModelFailed(error):
                yield from self._cut_off()
                yield f"✗ the model's API failed: {_short(error)}"
            case ApprovalRequested(call_id, reason, call):
                own = call_id in self._calls
                self._calls.setdefault(call_id, call)  # a sub-run's call is not known yet
                yield f"? {self._name(call_id)} needs approval: {'it ' if own else ''}{one_line(reason)}"
            case ApprovalDecided(call_id, is_approved, reason, by):
                suffix = f": {one_line(reason)}" if reason else ""
                yield f"  {self._name(call_id)} {'allowed' if is_approved else 'refused'} by {by or 'someone'}{suffix}"
            case ToolStarted(call_id):
                again = " again" if call_id in self._started_at else ""
                self._started_at[call_id] = record.time
                yield f"  {self._name(call_id)} started{again}"
            case CallSuspended(call_id, event=None):
                yield f"  {self._name(call_id)} waits for a run that it started"
            case CallSuspended(call_id, event=event, until=until):
                yield f"  {self._name(call_id)} waits for {one_line(event or 'a time')}{self._limit_of(until, record)}"
            case WaitEnded(call_id, event, expired=has_expired, by=by):
                news = (
                    f"{one_line(event)} {'did not come in time' if has_expired else 'has come'}"
                    if event
                    else "it is time"
                )
                yield f"  {self._name(call_id)}: {news}{f', from {one_line(by)}' if by else ''}"
            case ToolFinished(result):
                started_at = self._started_at.get(result.call_id)
                duration = f" in {record.time - started_at:.2f} s" if started_at is not None and self._times else ""
                is_failure = result.status == "failure"
                first = next(iter(result_lines(result)), "")
                yield f"  {'✗' if is_failure else '✓'} {self._name(result.call_id)}{duration}: {_short(first)}"
                if text := _changed_files(result):
                    yield f"    {text}"
            case LimitReached(limit, _, maximum):
                yield from self._cut_off()
                yield f"! the limit of {maximum:g} {limit} is reached"
            case HistoryCompacted() as event:
                yield f"· {compaction_text(event)}"
                if event.summary:
                    yield f"  summary: {_short(event.summary)}"
            case SubRunUsed() as usage_event:
                usage_note = (
                    f": {_usage(usage_event.usage, usage_event.usage_estimated, usage_event.cost)}"
                    if self._times
                    else ""
                )
                which = f" (run {one_line(usage_event.run_id)[:8]})" if self._times else ""
                yield f"  {one_line(usage_event.agent)}{which} ran for it{usage_note}"
            case HandedOff(_, agent, model):
                yield f"→ {one_line(agent)} continues ({one_line(model)})"
            case RunConfigured(model=model):
                yield "configured" if model is None else f"driven by {one_line(model)}"
            case RunPaused("suspended" | "queued" as reason):
                yield reason
            case RunPaused("waiting", call_ids, until):
                yield f"paused: {', '.join(map(self._name, call_ids))} wait{self._limit_of(until, record)}"
            case RunPaused(_, call_ids):
                yield f"paused: {', '.join(map(self._name, call_ids))} wait for approval"
            case RunResumed():
                yield "resumed"
            case RunFinished(status, answer, reason):
                yield from self._cut_off()
                yield f"{status.replace('_', ' ')} ({one_line(reason)}): {_short(answer)}"
            case _:
                yield f"{type(record.event).__name__}"

    def _limit_of(self, until: float | None, record: Record) -> str:
        """How long a call waits at most."""
        return f", at most {until - record.time:.0f} s" if until is not None and self._times else ""

    def _cut_off(self) -> Iterator[str]:
        """The text of a turn that did not finish."""
        text, self._partial = self._partial.strip(), ""
        if text:
            yield f"✂ cut off: {_short(text)}"

    def _answer_lines(self, event: ModelAnswered, duration: float) -> Iterator[str]:
        self._partial = ""
        self._calls = {call.id: call for call in event.message.calls}
        usage = _usage(event.usage, event.usage_estimated, event.cost)
        cost = f"  ({usage}, {duration:.2f} s)" if self._times else ""
        text = event.message.text.strip()
        yield f"model: {_short(text) or count(len(self._calls), 'call')}{cost}"
        for call in event.message.calls:
            if isinstance(call, MalformedCall):
                yield f"  ✗ malformed call: {_short(call.reason)}"
            else:
                arguments = argument_lines(call.arguments, _TEXT)
                yield f"  ▸ {one_line(call.name)} {_short(', '.join(arguments))}"

    def _name(self, call_id: str) -> str:
        call = self._calls.get(call_id)
        return one_line((call.name if call else None) or call_id)


def timeline(records: Iterable[Record], *, times: bool = True) -> Iterator[str]:
    """The lines of a whole run."""
    lines = Timeline(times=times)
    for record in records:
        yield from lines.lines(record)


def _changed_files(result: ToolResult) -> str:
    """Which files a call changed, and which it may have changed and nothing says so; "" if none."""
    fact: JSON = result.extra.get(FILES_CHANGED)
    if not isinstance(fact, dict):
        return ""
    fields = cast("dict[str, Any]", fact)
    total, paths, uncovered_paths = fields.get("count", 0), fields.get("paths", ()), fields.get("uncovered", ())
    if not total:
        return ""
    more = f" and {total - len(paths)} more" if total > len(paths) else ""
    note = f"; not covered: {', '.join(map(one_line, uncovered_paths))}" if uncovered_paths else ""
    return _short(f"changed {', '.join(map(one_line, paths))}{more}{note}")


def _short(text: str) -> str:
    return one_line(shorten(text, _TEXT))


def _usage(usage: Usage, estimated: bool, cost: float | None) -> str:
    about = "~" if estimated else ""
    parts = [f"{about}{usage.input or 0:,} tokens in{_part(usage.cached, 'cached')}"]
    parts.append(f"{about}{usage.output or 0:,} out{_part(usage.reasoning, 'reasoning')}")
    return ", ".join(parts if cost is None else [*parts, money(cost, estimated)])


def _part(tokens: int | None, of_them: str) -> str:
    return f" ({tokens:,} {of_them})" if tokens else ""
