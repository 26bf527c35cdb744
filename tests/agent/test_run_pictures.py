"""A run as a chart, and the chart as SVG."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from dataclasses import replace

from toolspeak import Agent, tool
from toolspeak.agent.charts.chart_svg import MOST_BARS, as_chart_svg, run_svg
from toolspeak.agent.charts.run_chart import LABEL, ChartBuilder, call_label, chart_of
from toolspeak.data.approvals import ApprovalDecided, ApprovalRequested
from toolspeak.data.events import (
    CallSuspended,
    Event,
    LimitReached,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Record,
    RetryScheduled,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolFinished,
    ToolStarted,
    UserMessageQueued,
    WaitEnded,
)
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult
from toolspeak.data.tools import Effects
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

SVG = "{http://www.w3.org/2000/svg}"
START = RunStarted((Message.user("go"),), "model")
ASK = ModelAsked("model", "a" * 64, "b" * 64)
READS = Effects(reads=frozenset({"file:a"}), external=False)


def calls(*names: str) -> ModelAnswered:
    parts = tuple(ToolCall(name, f"tool_{name}", {"path": name}) for name in names)
    return ModelAnswered(Message("assistant", (TextPart("I call."), *parts)), "tool_calls")


def tool_started(name: str, **fields) -> ToolStarted:
    return ToolStarted(name, f"tool_{name}", "key", effects=READS, **fields)


def tool_finished(name: str, status="success") -> ToolFinished:
    return ToolFinished(ToolResult(name, f"tool_{name}", status, (TextPart("x"),)))


def records(*events: tuple[float, Event]) -> list[Record]:
    return [Record(event, "r", seq, 1, 1000.0 + at) for seq, (at, event) in enumerate(events)]


def bars(*events: tuple[float, Event]):
    return [(bar.kind, bar.lane, bar.start, bar.end, bar.state) for bar in chart_of(records(*events)).bars]


def test_calls_that_run_at_once_have_lanes_of_their_own_and_lanes_are_used_again():
    events = [(0, START), (0, ASK), (1, calls("a", "b")), (1, tool_started("a")), (1, tool_started("b"))]
    events += [(2, tool_finished("a")), (4, tool_finished("b"))]
    more = [(4, ASK), (5, calls("c")), (6, tool_started("c", waited_for=("b",))), (7, tool_finished("c", "failure"))]
    assert bars(*events, *more) == [
        ("turn", 0, 0, 1, "done"),
        ("reads", 1, 1, 2, "done"),
        ("reads", 2, 1, 4, "done"),
        ("turn", 0, 4, 5, "done"),
        ("wait", 1, 5, 6, "done"),
        ("reads", 1, 6, 7, "failed"),
    ]
    chart = chart_of(records(*events, *more))
    assert (chart.seconds, chart.lanes, chart.records) == (7, 3, 11)
    assert chart.bars[-1].waited_for == ("b",)


def test_a_nights_wait_for_a_decision_takes_little_of_the_axis():
    call = ToolCall("a", "tool_a", {})
    question = ApprovalRequested("a", "writes", call, READS)
    events = [
        *((0, START), (0, ASK), (4, calls("a")), (5, question), (5, RunPaused("awaiting_approval", ("a",)))),
        *((36_005, ApprovalDecided("a", True, by="ann")), (36_005, RunResumed())),
        *((36_006, tool_started("a")), (36_010, tool_finished("a"))),
    ]
    chart = chart_of(records(*events))
    assert chart.idle == 36_000
    assert 10 < chart.seconds < 11
    (asks,) = [bar for bar in chart.bars if bar.kind == "question"]
    assert 0.5 < asks.end - asks.start < 0.7
    assert [mark.kind for mark in chart.marks] == ["paused", "resumed"]
    assert [bar.detail for bar in chart.bars if bar.kind == "wait"][-1] == "approved by ann"


def test_a_lost_process_and_a_turn_that_was_cut_off_are_seen():
    events = [(0, START), (0, ASK), (3, UserMessageQueued(Message.user("hello"))), (99, RunResumed()), (99, ASK)]
    chart = chart_of(records(*events, (100, ModelFailed("down")), (101, RunFinished("failed", "", "model_error"))))
    assert [(bar.kind, bar.state) for bar in chart.bars] == [("cut", "failed"), ("turn", "failed")]
    assert [mark.kind for mark in chart.marks] == ["message", "takeover", "failed", "end"]
    assert chart.idle == 96


def test_what_goes_on_is_open_and_what_waits_outside_is_seen():
    waits = [(0, START), (0, ASK), (1, calls("a")), (1, tool_started("a")), (2, CallSuspended("a", event="payment"))]
    assert bars(*waits)[-1] == ("outside", 1, 2, 2, "open")
    events = [*waits, (5, WaitEnded("a", "payment")), (5, LimitReached("steps", 1, 1)), (5, tool_started("a"))]
    assert [kind for kind, *_ in bars(*events)] == ["turn", "reads", "outside", "reads"]
    assert bars((0, START), (0, ASK)) == [("turn", 0, 0, 0, "open")]
    assert chart_of([]).bars == ()


def test_each_attempt_of_a_call_and_of_a_turn_is_a_bar_with_its_wait():
    turns = [(0, START), (0, ASK), (2, RetryScheduled("overloaded", 3.0, status=529)), (6, calls("a"))]
    call = [
        (6, tool_started("a")),
        (7, RetryScheduled("reset", 0.5, call_id="a")),
        (7.5, tool_started("a")),
        (8, tool_finished("a")),
    ]
    assert bars(*turns, *call) == [
        ("turn", 0, 0, 2, "failed"), ("wait", 0, 2, 5, "done"), ("turn", 0, 5, 6, "done"),
        ("reads", 1, 6, 7, "failed"), ("wait", 1, 7, 7.5, "done"), ("reads", 1, 7.5, 8, "done"),
    ]  # fmt: skip
    cut = [*turns[:3], (4, RunFinished("failed", "", "model_error"))]
    assert bars(*cut)[1:] == [("wait", 0, 2, 4, "done"), ("cut", 0, 4, 4, "failed")]
    builder = ChartBuilder()
    for record in records(*turns[:3]):
        builder.add(record)
    assert [(bar.kind, bar.end) for bar in builder.chart(1003.0).bars] == [("turn", 2), ("wait", 3)]
    assert [(bar.kind, bar.end) for bar in builder.chart(1007.0).bars] == [("turn", 2), ("wait", 5), ("turn", 7)]


def test_what_is_open_lasts_until_now_and_what_is_over_does_not():
    question = ApprovalRequested("a", "writes", ToolCall("a", "tool_a", {}), READS)
    asks = [(0, START), (0, ASK), (4, calls("a")), (5, question)]
    builder = ChartBuilder()
    for record in records(*asks):
        builder.add(record)
    assert [bar.seconds for bar in builder.chart().bars if bar.kind == "question"] == [0]
    chart = builder.chart(1065.0)
    assert [(bar.end - bar.start, bar.seconds) for bar in chart.bars if bar.kind == "question"] == [(60, 60)]
    assert chart.seconds == 65
    for record in records(*asks, (5, RunPaused("awaiting_approval", ("a",))))[4:]:
        builder.add(record)
    chart = builder.chart(1065.0)
    (bar,) = [bar for bar in chart.bars if bar.kind == "question"]
    assert (bar.seconds, chart.idle, bar.end - bar.start < 1) == (60, 60, True)
    builder.add(Record(RunFinished("no_answer", "", "stopped"), "r", 5, 1, 1070.0))
    assert builder.chart(9999.0) == builder.chart()


def test_labels_of_calls_that_begin_alike_differ_and_the_end_is_in_words():
    folder = "src/toolspeak/web_ui/static/" * 3
    labels = {
        call_label(ToolCall("a", "read_file", {"path": f"{folder}{name}.js", "start": 1})) for name in ("app", "dom")
    }
    assert len(labels) == 2
    assert all(len(label) <= LABEL and label.startswith("read_file(") for label in labels)
    ends = [("answered", "answer"), ("answered", "steps"), ("failed", "model_error"), ("no_answer", "something_new")]
    marks = [chart_of(records((0, START), (1, RunFinished(status, "", reason)))).marks[-1] for status, reason in ends]
    assert [mark.label for mark in marks] == [
        "answered", "answered: the limit of steps was reached", "failed: the model's API failed",
        "no answer: something new",
    ]  # fmt: skip


def test_a_chart_grows_as_its_records_come():
    events = [
        (0, START),
        (0, ASK),
        (1, calls("a", "b")),
        (2, tool_started("a")),
        (3, tool_finished("a")),
        (3, tool_started("b")),
    ]
    whole = records(*events, (4, tool_finished("b")))
    builder = ChartBuilder()
    for number, record in enumerate(whole, 1):
        builder.add(record)
        assert builder.chart() == chart_of(whole[:number])
    set_back = [replace(record, time=1000.0 - record.seq) for record in whole]
    assert all(bar.end >= bar.start for bar in chart_of(set_back).bars)


def test_a_picture_is_xml_whatever_the_run_says():
    odd = "<script>alert(1)</script> & \0 \x1b[31m \ud800 \u202e ]]> \uffff"
    nasty = ToolCall("a", odd, {odd: odd, "n": [odd] * 3})
    answer = ModelAnswered(Message("assistant", (TextPart(odd), nasty)), "tool_calls")
    failure = ToolFinished(ToolResult("a", odd, "failure", (TextPart(odd),)))
    tree = ET.fromstring(run_svg(records((0, START), (0, ASK), (1, answer), (1, tool_started("a")), (9, failure)), odd))
    assert len(tree.findall(f"{SVG}rect")) == 2
    assert not tree.findall(f".//{SVG}script")
    assert "<script>" in "".join(tree.itertext())


def test_a_picture_of_a_very_long_run_is_bounded():
    events = [(0.0, START)]
    for step in range(MOST_BARS):
        events += [
            (step, ASK),
            (step + 0.5, calls("a")),
            (step + 0.5, tool_started("a")),
            (step + 0.9, tool_finished("a")),
        ]
    chart = chart_of(records(*events))
    assert len(chart.bars) == 2 * MOST_BARS
    picture = as_chart_svg(chart)
    assert picture.count("<rect") == MOST_BARS
    assert f"… {MOST_BARS} more bars" in picture


def test_a_result_shows_its_run_in_a_notebook():
    @tool(read_only=True)
    def look() -> str:
        "Looks."
        return "here"

    turns = [ScriptedTurn("I look.", calls=(ScriptedCall("look", {}),)), "It is here."]
    result = asyncio.run(Agent(ScriptedProvider(turns), [look], dialect="native").run("Where?"))
    tree = ET.fromstring(result._repr_html_())
    assert tree.tag == f"{SVG}svg"
    titles = ["".join(each.itertext()) for each in tree.iter(f"{SVG}rect")]
    assert any(title.startswith("look()") for title in titles)
    assert any("I look." in title for title in titles)
