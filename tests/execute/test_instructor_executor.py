"""The tool executor of InstructorPHP's page, and that its reference implementation's defects are not here."""

import asyncio
from dataclasses import replace

import pytest
from executor_helpers import Recorder, a_call, results_of, run_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak import AgentStop, RunContext, tool
from toolspeak.data.events import MetadataSet, StopRequested, ToolFinished
from toolspeak.data.messages import MalformedCall, TextPart, ToolResult
from toolspeak.data.tools import Effects
from toolspeak.errors import ToolFailed
from toolspeak.execute import (
    BatchContext,
    Block,
    Decision,
    Interceptor,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
    approve_none,
)

ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@tool(effects=lambda key: Effects(writes={key}))
async def put(key: str) -> str:
    ran.append(key)
    return f"put {key}"


@tool(effects=lambda key: Effects(writes={key}))
async def crash(key: str) -> str:
    ran.append(key)
    raise OSError("disk")


@tool(effects=lambda key: Effects(writes={key}))
async def stop(key: str) -> str:
    ran.append(key)
    raise AgentStop("that is all", answer="42")


class Forbids(Interceptor):
    def __init__(self, *names):
        self.names = names

    async def before(self, call, context):
        return Block(f"no {call.name} today") if call.name in self.names else call


def outcome(calls, tools=(put, crash, stop), *, observers=(), **options):
    """The batch, what it raised, and what was recorded."""
    recorder, arguments = Recorder(), {}
    for name in ("approver", "context", "decided"):
        if name in options:
            arguments[name] = options.pop(name)
    options = {**options, "observers": observers}
    try:
        return asyncio.run(run_batch(tools, calls, emit=recorder, options=options, **arguments)), None, recorder
    except (AgentStop, ToolFailed) as error:
        return error.batch, error, recorder


def codes(batch):
    return [result.code for result in batch.results]


SAME = [a_call("put", "a", key="k"), a_call("crash", "b", key="k"), a_call("put", "c", key="k")]


def test_failures_are_collected_by_default():
    batch, error, _ = outcome(SAME)
    assert (codes(batch), error, ran) == ([None, "exception", None], None, ["k"] * 3)


def test_throw_on_failure_ends_the_batch_and_loses_nothing():
    batch, error, recorder = outcome(SAME, throw_on_failure=True)
    assert isinstance(error, ToolFailed)
    assert (codes(batch), len(ran)) == ([None, "exception", "skipped"], 2)
    assert (error.execution.call.id, error.execution.error_message) == ("b", "OSError: disk")
    assert recorder.finishes == ["a", "b", "c"]
    (stop_event,) = [event for event in recorder.events if isinstance(event, StopRequested)]
    assert (stop_event.reason, stop_event.call_id) == ("tool_failure", "b")
    assert recorder.events.index(stop_event) < recorder.events.index(ToolFinished(batch.results[1]))


@pytest.mark.parametrize(
    "call", [a_call("nothing", "b"), a_call("put", "b"), MalformedCall("b", "{", "cut", "cut off")]
)
def test_a_call_that_cannot_run_throws_too_and_what_came_before_it_runs(call):
    batch, error, _ = outcome([SAME[0], call, SAME[2]], throw_on_failure=True)
    assert isinstance(error, ToolFailed)
    assert error.execution.call.id == "b"
    assert (codes(batch)[0], codes(batch)[2], ran) == (None, "skipped", ["k"])


def test_a_failure_that_after_rescues_does_not_throw():
    class Rescues(Interceptor):
        async def after(self, call, result, context):
            return ToolResult(call.id, call.name, "success", (TextPart("never mind"),))

    batch, error, _ = outcome(SAME, throw_on_failure=True, interceptors=(Rescues(),))
    assert (codes(batch), error) == ([None] * 3, None)


def test_a_block_does_not_throw():
    _, error, _ = outcome(SAME[:1], throw_on_failure=True, interceptors=(Forbids("put"),))
    assert error is None


@pytest.mark.parametrize("by", ["interceptor", "approver"])
def test_stop_on_block_skips_the_rest_and_keeps_every_pair(by):
    call_ids = []

    async def person(request):
        call_ids.append(request.call.id)
        return Decision(request.call.name != "crash", "no crash today")

    how = {"interceptors": (Forbids("crash"),)} if by == "interceptor" else {"approver": person}
    batch, error, recorder = outcome(SAME, stop_on_block=True, **how)
    assert codes(batch) == [None, "blocked" if by == "interceptor" else "rejected", "skipped"]
    assert "no crash today" in batch.results[1].text
    assert (error, ran) == (None, ["k"])
    assert sorted(recorder.finishes) == ["a", "b", "c"]
    assert "c" not in call_ids
    ran.clear()
    batch, _, _ = outcome(SAME, **how)
    assert (codes(batch)[2], ran) == (None, ["k", "k"])


def test_a_stop_is_raised_again_once_the_results_are_recorded():
    calls = [a_call("put", "a", key="k"), a_call("stop", "b", key="k"), a_call("put", "c", key="k")]
    batch, error, recorder = outcome(calls)
    assert (type(error), str(error), error.answer) == (AgentStop, "that is all", "42")
    assert [result.status for result in batch.results] == ["success", "success", "failure"]
    assert (codes(batch)[2], ran, recorder.finishes) == ("skipped", ["k", "k"], ["a", "b", "c"])


@pytest.mark.parametrize("hook", ["before", "around", "after"])
def test_an_interceptor_may_stop_the_run(hook):
    class Stops(Interceptor):
        async def before(self, call, context):
            return self.at("before", call, call)

        async def around(self, call, proceed, context):
            return self.at("around", call, await proceed(call))

        async def after(self, call, result, context):
            return self.at("after", call, result)

        def at(self, name, call, value):
            if name == hook and call.id == "b":
                raise AgentStop("enough")
            return value

    calls = [a_call("put", "a", key="k"), a_call("put", "b", key="k"), a_call("put", "c", key="k")]
    batch, error, _ = outcome(calls, interceptors=(Stops(),))
    assert (type(error), codes(batch)) == (AgentStop, [None, None, "skipped"])
    assert batch.results[1].text == ("enough" if hook == "before" else "put k")
    assert ran == ["k"] * (1 if hook == "before" else 2)


def test_independent_calls_that_are_under_way_are_not_torn_down():
    start_event = asyncio.Event()

    @tool(effects=Effects(writes={"slow"}))
    async def slow() -> str:
        start_event.set()
        await asyncio.sleep(0.01)
        return "slow is done"

    @tool(effects=Effects(writes={"quick"}))
    async def quick() -> str:
        await start_event.wait()
        raise AgentStop

    batch, error, _ = outcome([a_call("slow"), a_call("quick")], [slow, quick])
    assert isinstance(error, AgentStop)
    assert [result.text for result in batch.results] == ["slow is done", "the run stops here"]


def test_executions_say_what_was_called_and_what_came_of_it():
    calls = [a_call("put", "a", key="x"), a_call("crash", "b", key="y"), a_call("stop", "c", key="z")]
    batch, _, _ = outcome([*calls[:2], a_call("put", "d", key="w")], interceptors=(Forbids("stop"),))
    first, second, _ = batch.executions
    assert (first.id, first.name, first.args, first.value) == ("run:a", "put", {"key": "x"}, "put x")
    assert (first.has_error, first.error_message, first.was_blocked) == (False, "", False)
    assert (second.value, second.has_error, second.error_message) == (None, True, "OSError: disk")
    assert 1e9 < first.started_at <= first.completed_at
    batch, _, _ = outcome([calls[2]], interceptors=(Forbids("stop"),))
    (blocked_call,) = batch.executions
    assert (blocked_call.was_blocked, blocked_call.has_error, blocked_call.error_message) == (
        True,
        True,
        "no stop today",
    )
    assert blocked_call.started_at == blocked_call.completed_at
    batch, _, _ = outcome(calls[:1], approver=approve_none())
    assert batch.executions[0].was_blocked


def test_values_are_what_the_tool_returned():
    @tool(read_only=True)
    async def value(which: str) -> object:
        return {"none": None, "list": [1, {"a": 2}], "false": False, "text": "t"}[which]

    for which, expected in (("none", None), ("list", [1, {"a": 2}]), ("false", False), ("text", "t")):
        batch, _, _ = outcome([a_call("value", which=which)], [value])
        assert batch.executions[0].value == expected


def test_observers_are_told_with_ids_and_final_results():
    class Improves(Interceptor):
        async def after(self, call, result, context):
            return replace(result, content=(TextPart("improved"),))

    events = []
    calls = [
        a_call("put", "a", key="x"),
        a_call("crash", "b", key="y"),
        a_call("stop", "c", key="z"),
        a_call("gone", "d"),
    ]
    context = BatchContext("r", 3, agent="Bob", parent_run_id="p")
    pipeline = (Improves(), Forbids("stop"))
    _, _, _ = outcome(calls, observers=(events.append,), context=context, interceptors=pipeline)
    by_call = {name: [event for event in events if event.tool_call_id == name] for name in "abcd"}
    start, completion = by_call["a"]
    assert isinstance(start, ToolCallStarted)
    assert (start.tool, start.args, start.at) == ("put", {"key": "x"}, completion.started_at)
    assert (start.run.run_id, start.run.step, start.run.agent, start.run.parent_run_id) == ("r", 3, "Bob", "p")
    assert isinstance(completion, ToolCallCompleted)
    assert (completion.tool, completion.args, completion.raw) == ("put", {"key": "x"}, "")
    assert (completion.success, completion.error, completion.result.text) == (True, "", "improved")
    assert completion.duration_ms == 1000 * (completion.completed_at - completion.started_at) >= 0
    assert [type(event) for event in by_call["b"]] == [ToolCallStarted, ToolCallCompleted]
    (blocked_call,) = by_call["c"]
    assert isinstance(blocked_call, ToolCallBlocked)
    assert (blocked_call.tool, blocked_call.args, blocked_call.reason, blocked_call.hook) == (
        "stop",
        {"key": "z"},
        "improved",
        "Forbids",
    )
    (unknown_call,) = by_call["d"]
    assert (unknown_call.success, unknown_call.result.code) == (False, "unknown_tool")


def test_an_observer_that_fails_is_logged_and_changes_nothing(caplog):
    def fails(event):
        raise ValueError("no room")

    observations = []
    batch, _, _ = outcome(SAME[:1], observers=(fails, observations.append))
    assert (codes(batch), len(observations)) == ([None], 2)
    assert [record.exc_info[1].args for record in caplog.records] == [("no room",)] * 2


class Counts(Interceptor):
    """Keeps which calls it saw, before and after."""

    async def before(self, call, context):
        context.set("before", [*context.metadata.get("before", []), call.id])
        return call

    async def after(self, call, result, context):
        context.set(f"after {call.id}", context.metadata["before"])
        context.set("last", call.id)
        return result


def test_what_interceptors_set_is_kept_in_call_order_whatever_finished_first():
    first_done = asyncio.Event()

    @tool(effects=Effects(writes={"one"}))
    async def one() -> str:
        await first_done.wait()
        return "1"

    @tool(effects=Effects(writes={"two"}))
    async def two() -> str:
        first_done.set()
        return "2"

    _, _, recorder = outcome([a_call("one", "a"), a_call("two", "b")], [one, two], interceptors=(Counts(),))
    entries = [(event.values, event.by, event.call_id) for event in recorder.events if isinstance(event, MetadataSet)]
    assert entries == [
        ({"before": ["a"]}, "Counts", "a"),
        ({"before": ["a", "b"]}, "Counts", "b"),
        ({"after a": ["a", "b"]}, "Counts", "a"),
        ({"last": "a"}, "Counts", "a"),
        ({"after b": ["a", "b"]}, "Counts", "b"),
        ({"last": "b"}, "Counts", "b"),
    ]
    assert recorder.kinds[:2] == ["MetadataSet"] * 2
    assert recorder.kinds[-4:] == ["MetadataSet"] * 4
    assert recorder.finishes == ["b", "a"]


@settings(max_examples=fewer(20), deadline=None)
@given(st.permutations("abcd"))
def test_what_calls_that_run_at_once_add_up_is_what_it_would_be_one_by_one(order):
    end_events = {name: asyncio.Event() for name in order}

    @tool(effects=lambda key: Effects(writes={key}))
    async def act(key: str) -> str:
        place = order.index(key)
        if place:
            await end_events[order[place - 1]].wait()
        return key

    class Adds(Interceptor):
        async def after(self, call, result, context):
            context.update("seen", lambda names: [*(names or []), call.id])
            end_events[call.id].set()
            return result

    _, _, recorder = outcome([a_call("act", name, key=name) for name in "abcd"], [act], interceptors=(Adds(),))
    assert recorder.finishes == list(order)
    assert recorder.events[-1].values == {"seen": ["a", "b", "c", "d"]}


def test_nothing_is_kept_twice_because_a_batch_waited():
    _, _, waiting = outcome(SAME[:1], interceptors=(Counts(),), approver=None)
    assert waiting.kinds == ["ApprovalRequested"]


def test_only_json_can_be_kept():
    class Keeps(Interceptor):
        async def before(self, call, context):
            context.set("x", object())
            return call

    batch, _, recorder = outcome(SAME[:1], interceptors=(Keeps(),))
    assert codes(batch) == ["exception"]
    failure = recorder.events[0]
    assert (failure.interceptor, failure.level, failure.hook, failure.call_id) == ("Keeps", "call", "before", "a")


def test_context_is_injected_by_type_and_cannot_be_given_by_the_model():
    @tool(read_only=True)
    async def who(word: str, ctx: RunContext[dict]) -> list:
        return [word, ctx.call.id, ctx.deps["x"], ctx.idempotency_key]

    assert list(who.spec.properties) == ["word"]
    call = a_call("who", "c", word="w")
    assert results_of([who], [call], context=BatchContext("r", deps={"x": 1}))[0].structured == ["w", "c", 1, "r:c"]
    smuggling_call = a_call("who", "c", word="w", ctx={"deps": 2})
    assert results_of([who], [smuggling_call])[0].code == "invalid_arguments"
