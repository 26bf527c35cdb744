"""A run's batches as lanes: what ran when, and what waited for what."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from toolspeak.data.events import ModelAnswered, Record, ToolFinished, ToolStarted
from toolspeak.data.messages import MalformedCall, Message, TextPart, ToolCall, ToolResult, failure
from toolspeak.data.tools import Effects
from toolspeak.ui.lanes import MAX_LANES, as_svg, as_text, batches

READ, WRITE = Effects(reads={"file:a"}), Effects(writes={"file:a"})
SVG = "{http://www.w3.org/2000/svg}"


def record(time, event, step=1):
    return Record(event, "run", 0, step, time)


def success(call_id):
    return ToolFinished(ToolResult(call_id, "x", "success", (TextPart("ok"),)))


def a_run():
    calls = (
        ToolCall("a", "read", {"path": "x"}),
        ToolCall("b", "write", {"path": "x"}),
        MalformedCall("c", "{", "no_json", "write JSON"),
    )
    return [
        record(10.0, ModelAnswered(Message("assistant", calls), "stop")),
        record(10.1, ToolFinished(failure(calls[2], "malformed", "write JSON"))),
        record(10.1, ToolStarted("a", "read", "k", (), READ, early=True)),
        record(10.5, success("a")),
        record(10.5, ToolStarted("b", "write", "k", ("a",), WRITE)),
        record(11.1, success("b")),
        record(12.0, ModelAnswered(Message.assistant("done"), "stop"), 2),
    ]


def test_each_call_has_a_lane_in_the_order_the_model_wrote_them():
    (batch,) = batches(a_run())
    assert (batch.step, round(batch.seconds, 6)) == (1, 1.0)
    read, write, bad_call = batch.lanes
    assert (read.label, read.started_at, read.early, read.read_only) == ('read("x")', 0.0, True, True)
    assert (round(write.started_at, 6), write.waited_for, write.failed) == (0.4, ("a",), False)
    assert (bad_call.started_at, bad_call.failed) == (None, True)


def test_lanes_as_text():
    (batch,) = batches(a_run())
    assert list(as_text(batch, width=10)) == [
        'read("x")      ████◂',
        'write("x")     ░░░░██████',
        "malformed call ✗",
    ]
    assert next(as_text(batch, width=10, seconds=2.0)) == 'read("x")      ██◂'


def test_the_picture_shows_bars_and_who_waited_for_whom():
    root = ElementTree.fromstring(as_svg(batches(a_run()), "<the task>"))
    bars = root.findall(f"{SVG}rect")
    assert [bar.get("class") for bar in bars] == ["reads early", "writes"]
    first, second = ((float(bar.get("x")), float(bar.get("width"))) for bar in bars)
    assert abs(first[0] + first[1] - second[0]) < 0.2  # the second begins where the first ends
    assert len(root.findall(f"{SVG}path")) == 1
    assert [dot.get("class") for dot in root.findall(f"{SVG}circle")] == ["failed"]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[0] == "<the task>"
    assert "step 1: 3 calls, 1 s" in texts


def test_no_arrow_is_drawn_over_a_number_and_a_batch_may_have_a_name():
    (batch,) = batches(a_run())
    elements = list(ElementTree.fromstring(as_svg([replace(batch, name="a < b")])))
    last_arrow = max(place for place, one in enumerate(elements) if one.tag == f"{SVG}path")
    numbers = [place for place, one in enumerate(elements) if "took" in one.get("class", "")]
    assert len(numbers) == 2
    assert min(numbers) > last_arrow
    assert "a < b: 3 calls, 1 s" in [one.text for one in elements]


def test_a_long_value_is_cut_without_a_count():
    call = ToolCall("a", "read", {"path": "a" * 100})
    records = [record(0.0, ModelAnswered(Message("assistant", (call,)), "stop")), record(0.0, success("a"))]
    assert batches(records)[0].lanes[0].label == f'read("{"a" * 24}"…)'


def test_a_batch_of_thousands_is_cut_and_says_so():
    calls = tuple(ToolCall(str(i), "read", {}) for i in range(5_000))
    records = [record(0.0, ModelAnswered(Message("assistant", calls), "stop"))]
    records += [
        record(i / 1e3, event) for i in range(5_000) for event in (ToolStarted(str(i), "r", "k"), success(str(i)))
    ]
    (batch,) = batches(records)
    assert (len(batch.lanes), batch.left_out) == (MAX_LANES, 5_000 - MAX_LANES)
    assert f"… {5_000 - MAX_LANES} more calls" in as_svg([batch])


def test_a_run_without_calls_is_an_empty_picture():
    assert batches(a_run()[-1:]) == ()
    ElementTree.fromstring(as_svg(()))


@given(st.text(), st.text())
def test_whatever_the_model_wrote_the_picture_is_xml(name, value):
    records = [record(0.0, ModelAnswered(Message("assistant", (ToolCall("a", name, {"x": value}),)), "stop"))]
    records += [record(0.0, ToolStarted("a", name, "k")), record(0.0, success("a"))]
    ElementTree.fromstring(as_svg(batches(records), value).encode())
