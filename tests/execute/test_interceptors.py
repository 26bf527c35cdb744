import asyncio
from dataclasses import replace

import pytest
from executor_helpers import Recorder, a_call, result_of, results_of, run_batch

from toolspeak.data.events import ToolFinished, ToolStarted
from toolspeak.data.messages import TextPart, ToolResult
from toolspeak.execute import Answer, BatchContext, Block, Decision, Interceptor
from toolspeak.tools import tool

ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@tool(read_only=True)
async def double(number: int) -> int:
    ran.append(number)
    return 2 * number


@tool(read_only=True)
async def negate(number: int) -> int:
    ran.append(number)
    return -number


@tool
async def write(number: int) -> str:
    ran.append(number)
    return "written"


def through(*pipeline, call=None, tools=(double, negate, write), **arguments):
    return result_of(tools, call or a_call("double", "c", number=2), options={"interceptors": pipeline}, **arguments)


class Before(Interceptor):
    def __init__(self, verdict):
        self.verdict = verdict

    async def before(self, call, context):
        return self.verdict(call) if callable(self.verdict) else self.verdict


def test_the_base_class_lets_calls_pass():
    class Nothing(Interceptor):
        pass

    assert through(Nothing()).structured == 4


def test_before_changes_the_call():
    assert through(Before(lambda call: replace(call, arguments={"number": 5}))).structured == 10
    assert through(Before(lambda call: replace(call, name="negate"))).structured == -2


def test_a_changed_call_is_resolved_and_validated_and_approved_again():
    assert through(Before(lambda call: replace(call, arguments={}))).code == "invalid_arguments"
    assert through(Before(lambda call: replace(call, name="dubble"))).code == "unknown_tool"
    tools = []

    async def person(request):
        tools.append(request.call.name)
        return Decision(False)

    assert through(Before(lambda call: replace(call, name="write")), approver=person).code == "rejected"
    assert tools == ["write"]
    assert ran == []


def test_before_blocks_with_a_reason():
    recorder = Recorder()
    result = through(Before(Block("not on Sundays")), emit=recorder)
    assert (result.status, result.code, result.text) == ("failure", "blocked", "not on Sundays")
    assert recorder.kinds == ["ToolFinished"]
    assert ran == []


def test_before_answers_with_a_value():
    recorder = Recorder()
    result = through(Before(Answer({"cached": True})), emit=recorder)
    assert (result.status, result.structured) == ("success", {"cached": True})
    assert recorder.kinds == ["ToolFinished"]
    assert through(Before(Answer(object()))).text.startswith("<object object>")
    assert ran == []


def test_before_sees_the_batch():
    class StateBody(Interceptor):
        async def before(self, call, context):
            return Answer([context.run_id, context.step])

    assert through(StateBody(), context=BatchContext("r", 7)).structured == ["r", 7]


class Trace(Interceptor):
    def __init__(self, name, log, priority=0):
        self.name, self.log, self.priority = name, log, priority

    async def before(self, call, context):
        self.log.append(f"before {self.name}")
        return call

    async def around(self, call, proceed, context):
        self.log.append(f"enter {self.name}")
        result = await proceed(call)
        self.log.append(f"leave {self.name}")
        return result

    async def after(self, call, result, context):
        self.log.append(f"after {self.name}")
        return result


def test_the_highest_priority_is_outermost_and_equals_keep_their_order():
    log = []
    through(Trace("b", log), Trace("c", log), Trace("a", log, priority=10))
    assert log == [
        *("before a", "before b", "before c"),
        *("enter a", "enter b", "enter c", "leave c", "leave b", "leave a"),
        *("after c", "after b", "after a"),
    ]


def test_what_after_returns_is_what_is_recorded():
    class Note(Interceptor):
        async def after(self, call, result, context):
            return replace(result, content=(TextPart("seen " + "x" * 100),), call_id="other")

    recorder = Recorder()
    result = through(Note(), emit=recorder)
    assert result.call_id == "c"
    assert [event.result for event in recorder.events if isinstance(event, ToolFinished)] == [result]


def test_around_may_answer_itself():
    class Cache(Interceptor):
        async def around(self, call, proceed, context):
            return ToolResult(call.id, call.name, "success", (TextPart("from the cache"),))

    recorder = Recorder()
    assert through(Cache(), emit=recorder).text == "from the cache"
    assert recorder.kinds == ["ToolFinished"]
    assert ran == []


def test_around_sees_a_tools_failure_as_a_result_and_may_try_again():
    attempts = []

    @tool(read_only=True)
    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("try later")
        return "at last"

    class Retry(Interceptor):
        async def around(self, call, proceed, context):
            result = await proceed(call)
            return result if result.status == "success" else await proceed(call)

    assert through(Retry(), call=a_call("flaky"), tools=[flaky]).text == "at last"


class FailsBefore(Interceptor):
    async def before(self, call, context):
        raise ValueError("broken")


class FailsAround(Interceptor):
    async def around(self, call, proceed, context):
        raise ValueError("broken")


class FailsAfter(Interceptor):
    async def after(self, call, result, context):
        raise ValueError("broken")


class ForgetsToReturn(Interceptor):
    async def before(self, call, context):
        return None


class ReturnsAValue(Interceptor):
    async def after(self, call, result, context):
        return 4


class ChangesTheId(Interceptor):
    async def before(self, call, context):
        return replace(call, id="other")


class Smuggles(Interceptor):
    async def around(self, call, proceed, context):
        return await proceed(replace(call, arguments={"number": 999}))


@pytest.mark.parametrize(
    ("kind", "message", "has_run"),
    [
        (FailsBefore, "ValueError: broken", False),
        (FailsAround, "ValueError: broken", False),
        (FailsAfter, "(the tool itself had run): ValueError: broken", True),
        (ForgetsToReturn, "before must return a ToolCall, a Block or an Answer, not NoneType", False),
        (ReturnsAValue, "around and after must return a ToolResult, not int", True),
        (ChangesTheId, "before must keep the call's id 'c'", False),
        (Smuggles, "around must proceed with the value it got", False),
    ],
)
def test_an_error_in_an_interceptor_fails_that_call_and_names_it(kind, message, has_run):
    class Only(kind):
        """Breaks one of the two calls."""

        async def before(self, call, context):
            return call if call.id == "fine" else await super().before(call, context)

        async def around(self, call, proceed, context):
            return await (proceed(call) if call.id == "fine" else super().around(call, proceed, context))

        async def after(self, call, result, context):
            return result if call.id == "fine" else await super().after(call, result, context)

    Only.__name__ = kind.__name__
    calls = [a_call("double", "c", number=1), a_call("double", "fine", number=2)]
    failure_result, fine = results_of([double], calls, options={"interceptors": (Only(),)})
    assert failure_result.code == "exception"
    assert failure_result.text.startswith(f"the interceptor {kind.__name__} failed")
    assert message in failure_result.text
    assert fine.structured == 4
    assert (1 in ran) is has_run


def test_an_interceptor_cannot_hide_that_a_fact_could_not_be_recorded():
    failures = []

    class Swallows(Interceptor):
        async def around(self, call, proceed, context):
            try:
                return await proceed(call)
            except OSError:
                return await proceed(call)

    with pytest.raises(OSError, match="disk is full"):
        through(Swallows(), emit=Recorder(lambda event: isinstance(event, ToolStarted) and not failures.append(1)))
    assert failures == [1]
    assert ran == []


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_interceptor_cannot_hold_a_cancelled_batch(goes_on):
    start_event, recorder = asyncio.Event(), Recorder()

    class Holds(Interceptor):
        async def around(self, call, proceed, context):
            start_event.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return await proceed(call) if goes_on else ToolResult(call.id, call.name, "success", ())

    async def main():
        task = asyncio.create_task(
            run_batch([double], [a_call("double", number=1)], emit=recorder, options={"interceptors": (Holds(),)})
        )
        await start_event.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ran == []
    assert recorder.events == []


def test_a_deadline_during_after_keeps_the_tools_result():
    class Slow(Interceptor):
        async def after(self, call, result, context):
            await asyncio.Event().wait()

    assert through(Slow(), deadline=0.05).structured == 4
