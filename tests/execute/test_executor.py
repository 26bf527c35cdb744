import asyncio
import contextvars
import threading
from dataclasses import replace

import pytest
from executor_helpers import Recorder, a_call, result_of, results_of, run_batch

from toolspeak.data.events import ToolFinished, ToolStarted
from toolspeak.data.messages import MalformedCall, TextPart, ToolResult
from toolspeak.errors import ToolError
from toolspeak.execute import BatchContext
from toolspeak.tools import RunContext, tool


@tool(read_only=True)
async def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@tool(read_only=True)
def shout(text: str) -> str:
    return text.upper()


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError("no")


ERRORS = {
    "tool": ToolError("use a path below src/"),
    "value": ValueError("bad thing"),
    "silent": KeyError(),
    "unprintable": UnprintableError(),
    "timeout": TimeoutError("the server is slow"),
    "stop": StopIteration("done"),
    "group": ExceptionGroup("several", [ValueError("x")]),
    "cancelled": asyncio.CancelledError("gave up"),
}


def fail_with(kind):
    raise ERRORS[kind]


@tool(read_only=True)
async def fail_async(kind: str) -> None:
    fail_with(kind)


@tool(read_only=True)
def fail_in_thread(kind: str) -> None:
    fail_with(kind)


def test_results_are_complete_and_in_call_order():
    async def main():
        release_event = asyncio.Event()

        @tool(read_only=True)
        async def last(name: str) -> str:
            await release_event.wait()
            return name

        @tool(read_only=True)
        async def first(name: str) -> str:
            release_event.set()
            return name

        recorder = Recorder()
        batch = await run_batch(
            [first, last], [a_call("last", "a", name="a"), a_call("first", "b", name="b")], emit=recorder
        )
        return batch, recorder

    batch, recorder = asyncio.run(main())
    assert [result.text for result in batch.results] == ["a", "b"]
    assert recorder.finishes == ["b", "a"]
    assert batch.pending == ()


def test_an_empty_batch_has_no_results_and_no_events():
    recorder = Recorder()
    assert results_of([double], [], emit=recorder) == ()
    assert recorder.events == []


def test_what_cannot_run_fails_in_its_position():
    calls = [
        a_call("double", "a", number=2),
        MalformedCall("b", "{oops", "bad_json", "write one JSON object"),
        a_call("dubble", "c", number=2),
        a_call("double", "d", nummer=2),
        a_call("double", "e", number=4),
    ]
    recorder = Recorder()
    results = results_of([double, shout], calls, emit=recorder)
    assert [result.call_id for result in results] == ["a", "b", "c", "d", "e"]
    assert [result.code for result in results] == [None, "malformed", "unknown_tool", "invalid_arguments", None]
    assert results[1].text == "write one JSON object"
    assert "Did you mean 'double'" in results[2].text
    assert "shout" in results[2].text
    assert "number" in results[3].text
    assert [results[0].structured, results[4].structured] == [4, 8]
    assert sorted(recorder.finishes) == ["a", "b", "c", "d", "e"]
    assert recorder.starts == ["a", "e"]


def test_all_problems_of_the_arguments_are_in_one_message():
    @tool(read_only=True)
    async def move(source: str, target: str, times: int) -> None: ...

    result = result_of([move], a_call("move", source=1, times="often"))
    assert result.code == "invalid_arguments"
    assert all(word in result.text for word in ("source", "target", "times"))


def test_a_validator_that_raises_anything_fails_its_call_alone():
    def crash(arguments):
        raise RuntimeError("validator bug")

    odd = replace(double, read_arguments=crash)
    result = result_of([odd], a_call("double", number=1))
    assert result.code == "invalid_arguments"
    assert "RuntimeError: validator bug" in result.text


@pytest.mark.parametrize("name", ["fail_async", "fail_in_thread"])
@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("tool", "exception", "use a path below src/"),
        ("value", "exception", "ValueError: bad thing"),
        ("silent", "exception", "KeyError"),
        ("unprintable", "exception", "UnprintableError"),
        ("timeout", "exception", "TimeoutError: the server is slow"),
        ("group", "exception", "ExceptionGroup: several (1 sub-exception)"),
        ("cancelled", "cancelled", "the tool gave up: CancelledError: gave up"),
    ],
)
def test_a_tools_exception_is_the_failure_of_its_call_alone(name, kind, code, message):
    calls = [a_call("double", number=1), a_call(name, kind=kind), a_call("double", number=2)]
    before, failure_result, after = results_of([double, fail_async, fail_in_thread], calls)
    assert (failure_result.status, failure_result.code, failure_result.text) == ("failure", code, message)
    assert [before.structured, after.structured] == [2, 4]


def test_stop_iteration_does_not_escape():
    result = result_of([fail_in_thread], a_call("fail_in_thread", kind="stop"))
    assert (result.code, result.text) == ("exception", "StopIteration: done")


def test_a_call_whose_value_json_cannot_hold_has_run_and_is_a_success():
    @tool(read_only=True)
    async def odd():
        return object()

    result = result_of([odd], a_call("odd"), options={"throw_on_failure": True})
    assert (result.status, result.code) == ("success", None)
    assert "The call ran." in result.text
    assert "result is of type object" in result.text


def test_a_call_whose_value_fails_to_be_converted_has_run_and_is_a_success(caplog):
    class Row:
        def tolist(self):
            raise ZeroDivisionError("no rows")

    @tool
    def insert():
        return Row()

    result = result_of([insert], a_call("insert"))
    assert (result.status, result.code) == ("success", None)
    assert result.text == "[The call ran, but what it returned cannot be shown: ZeroDivisionError: no rows]"
    assert 'raise ZeroDivisionError("no rows")' in caplog.text


def test_the_log_of_a_tools_exception_is_text_that_a_file_can_hold(caplog):
    @tool
    def insert():
        raise ValueError("half \ud83d of it")

    result_of([insert], a_call("insert"))
    assert "half \\ud83d of it" in caplog.text
    caplog.text.encode("utf-8")


def test_a_synchronous_tool_that_returns_an_awaitable_is_awaited():
    async def later(number):
        return number + 1

    @tool(read_only=True)
    def soon(number: int):
        return later(number)

    assert result_of([soon], a_call("soon", number=1)).structured == 2


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_start_is_durable_before_the_function_is_entered(asynchronous):
    recorder = Recorder()

    def check():
        return len(recorder.events) == 1 and isinstance(recorder.events[0], ToolStarted)

    async def check_async():
        return check()

    check_tool = tool(check_async if asynchronous else check, name="check", read_only=True)
    assert result_of([check_tool], a_call("check"), emit=recorder).structured is True
    assert recorder.kinds == ["ToolStarted", "ToolFinished"]


def test_a_result_is_durable_before_a_later_call_starts():
    recorder = Recorder()

    @tool
    async def write() -> list[str]:
        return recorder.kinds

    second = results_of([write], [a_call("write"), a_call("write")], emit=recorder)[1]
    assert second.structured == ["ToolStarted", "ToolFinished", "ToolStarted"]


def test_the_recorded_result_is_the_returned_one():
    recorder = Recorder()
    result = result_of([shout], a_call("shout", text="a" * 100), emit=recorder, options={"max_result_bytes": 10})
    (call_end,) = [event for event in recorder.events if isinstance(event, ToolFinished)]
    assert call_end.result == result
    assert result.extra["truncated_bytes"] == 100


@pytest.mark.parametrize("asynchronous", [True, False])
def test_an_emit_that_raises_stops_the_run_without_entering_the_function(asynchronous):
    names = []

    async def note_async(name: str) -> None:
        names.append(name)

    def note_sync(name: str) -> None:
        names.append(name)

    note = tool(note_async if asynchronous else note_sync, name="note")
    recorder = Recorder(lambda event: isinstance(event, ToolStarted) and event.call_id == "b")
    calls = [a_call("note", name, name=name) for name in "abc"]
    with pytest.raises(OSError, match="disk is full"):
        results_of([note], calls, emit=recorder)
    assert names == ["a"]
    assert recorder.finishes == ["a"]


def test_an_emit_that_fails_on_a_result_stops_the_run():
    recorder = Recorder(lambda event: isinstance(event, ToolFinished))
    with pytest.raises(OSError, match="disk is full"):
        results_of([double], [a_call("double", number=1)], emit=recorder)


def test_an_emit_that_fails_for_a_refused_call_stops_the_run():
    recorder = Recorder(lambda event: isinstance(event, ToolFinished))
    with pytest.raises(OSError, match="disk is full"):
        results_of([double], [a_call("nothing")], emit=recorder)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_keyboard_interrupt_in_a_tool_ends_the_run(asynchronous):
    cancellations = []

    async def press_async() -> None:
        raise KeyboardInterrupt

    def press_sync() -> None:
        raise KeyboardInterrupt

    @tool(read_only=True)
    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancellations.append(True)

    press = tool(press_async if asynchronous else press_sync, name="press", read_only=True)

    async def main():
        # Caught inside: asyncio.run must not see one that is none of its own.
        with pytest.raises(KeyboardInterrupt):
            await run_batch([press, linger], [a_call("linger"), a_call("press")])

    asyncio.run(main())
    assert cancellations == [True]


def test_the_context_reaches_the_tool():
    contexts = {}

    @tool(read_only=True)
    def look(ctx: RunContext[str], word: str) -> None:
        contexts[word] = ctx
        ctx.memory["word"] = word
        ctx.progress(f"looking at {word}")

    lines, memory = [], {}

    def progress(call_id, line):
        lines.append((call_id, line, threading.current_thread() is threading.main_thread()))

    context = BatchContext("r1", 3, "deps", memory, None, progress)
    results_of([look], [a_call("look", "c7", word="x")], context=context)
    ctx = contexts["x"]
    assert (ctx.deps, ctx.call.id, ctx.idempotency_key) == ("deps", "c7", "r1:c7")
    assert memory == {"word": "x"}
    assert lines == [("c7", "looking at x", True)]
    assert ctx.is_cancelled() is True  # nothing of the call goes on once it is over


def test_the_idempotency_key_is_the_same_when_the_call_is_run_again():
    recorders = [Recorder(), Recorder()]
    for recorder in recorders:
        results_of([double], [a_call("double", "c1", number=1)], emit=recorder)
    first, second = (recorder.events[0].idempotency_key for recorder in recorders)
    assert first == second == "run:c1"


def test_calls_with_the_same_id_are_calls_of_their_own():
    recorder = Recorder()
    calls = [a_call("double", "same", number=number) for number in (1, 2, 3)]
    results = results_of([double], calls, emit=recorder)
    assert [result.structured for result in results] == [2, 4, 6]
    keys = {event.idempotency_key for event in recorder.events if isinstance(event, ToolStarted)}
    assert len(keys) == 3


def test_finished_calls_are_not_run_again():
    earlier = ToolResult("a", "double", "success", (TextPart("from before"),))
    recorder = Recorder()
    calls = [a_call("double", "a", number=1), a_call("double", "b", number=2)]
    results = results_of([double], calls, emit=recorder, earlier_results={"a": earlier})
    assert results[0] is earlier
    assert results[1].structured == 4
    assert recorder.starts == recorder.finishes == ["b"]
    assert results_of([double], calls[:1], emit=recorder, earlier_results={"a": earlier}) == (earlier,)


VARIABLE = contextvars.ContextVar("variable", default="unset")


def test_context_variables_reach_the_tools_and_do_not_leak_between_them():
    @tool
    async def change() -> str:
        before = VARIABLE.get()
        VARIABLE.set("changed by a call")
        return before

    @tool
    def read() -> str:
        return VARIABLE.get()

    async def main():
        VARIABLE.set("the caller's")
        return await run_batch([change, read], [a_call("change"), a_call("change"), a_call("read")])

    assert [result.text for result in asyncio.run(main()).results] == ["the caller's"] * 3


def test_max_calls_skips_the_calls_past_it():
    recorder = Recorder()
    calls = [MalformedCall("m", "", "x", "why"), *(a_call("double", f"c{n}", number=n) for n in range(4))]
    results = results_of([double], calls, emit=recorder, max_calls=2)
    assert [result.code for result in results] == ["malformed", None, None, "skipped", "skipped"]
    assert results[3].text == "the run's limit on calls is reached"
    assert recorder.starts == ["c0", "c1"]


def test_a_batch_of_ten_thousand_keeps_every_result():
    calls = [a_call("double", f"c{number}", number=number) for number in range(10_000)]
    results = results_of([double], calls)
    assert [result.structured for result in results] == [2 * number for number in range(10_000)]


def test_a_long_chain_survives_an_eager_event_loop():
    if not hasattr(asyncio, "eager_task_factory"):
        return

    @tool
    async def step(number: int) -> int:
        return number

    async def emit(event):
        return None

    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        return await run_batch([step], [a_call("step", number=n) for n in range(3_000)], emit=emit)

    assert len(asyncio.run(main()).results) == 3_000
