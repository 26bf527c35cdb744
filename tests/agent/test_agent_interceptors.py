"""Interceptors of model requests, steps and runs, and how a run ends that is told to stop."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest
from agent_helpers import WatchedJournal, add, adding, an_agent, assert_pairs, calling, play, texts

from toolspeak import (
    AgentStop,
    Decision,
    Effects,
    Execution,
    Interceptor,
    Message,
    ModelInterceptor,
    RunContext,
    RunInterceptor,
    StepInterceptor,
    tool,
)
from toolspeak.agent import Finish, RunStart, fold
from toolspeak.data.events import (
    InterceptorFailed,
    MetadataSet,
    ModelAnswered,
    RunFinished,
    StopRequested,
    ToolFinished,
)
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.execute import Answer, Block
from toolspeak.providers.scripted_provider import ScriptedProvider

ADDS = [adding(1, 2), "It is 3."]


def play_with(*interceptors, turns=ADDS, **options):
    result, journal, provider = play(turns, interceptors=interceptors, **options)
    assert fold(journal.records) == result.state
    assert_pairs(result.messages)
    return result, journal, provider


class Trace:
    """Writes down when it is entered, at any level."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    async def before(self, value, context):
        self.log.append(f"before {self.name}")
        return value

    async def around(self, value, proceed, context):
        self.log.append(f"enter {self.name}")
        outcome = await proceed(value)
        self.log.append(f"leave {self.name}")
        return outcome

    async def after(self, value, outcome, context):
        self.log.append(f"after {self.name}")
        return outcome


class TraceCall(Trace, Interceptor):
    pass


class TraceModel(Trace, ModelInterceptor):
    pass


class TraceStep(Trace, StepInterceptor):
    pass


class TraceRun(Trace, RunInterceptor):
    pass


def test_every_level_has_the_same_shape():
    log = []
    levels = (TraceCall("call", log), TraceModel("model", log), TraceStep("step", log), TraceRun("run", log))
    result, _, _ = play_with(*levels)
    model = ["before model", "enter model", "leave model", "after model"]
    call = ["before call", "enter call", "leave call", "after call"]
    assert log == [
        *("before run", "enter run"),
        *("before step", "enter step", *model, *call, "leave step", "after step"),
        *("before step", "enter step", *model, "leave step", "after step"),
        *("leave run", "after run"),
    ]
    assert result.answer == "It is 3."


def test_an_interceptor_of_no_level_is_refused():
    class Nowhere(Trace):
        level, priority = "tool", 0

    with pytest.raises(ConfigurationError, match=r"Nowhere\.level must be one of call, model, step, run"):
        an_agent(ADDS, interceptors=(Nowhere("x", []),))


def test_a_request_is_changed_for_its_turn_alone():
    class Hints(ModelInterceptor):
        async def before(self, request, context):
            if len(request.messages) > 1:
                return request
            return replace(request, messages=(*request.messages, Message.user("be brief")), instructions="Be kind.")

    result, _, provider = play_with(Hints())
    assert texts(provider.requests[0])[-1].endswith("be brief")
    assert texts(provider.requests[0])[0].startswith("Be kind.")
    assert "be brief" not in "".join(texts(provider.requests[1]))
    assert not texts(provider.requests[1])[0].startswith("Be kind.")
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_turn_is_answered_from_a_cache_or_changed():
    class Caches(ModelInterceptor):
        async def before(self, request, context):
            return Answer("from the cache")

        async def after(self, request, turn, context):
            raise AssertionError("nothing was asked")

    result, _, provider = play_with(Caches())
    assert (result.answer, provider.requests) == ("from the cache", [])

    class Shouts(ModelInterceptor):
        async def after(self, request, turn, context):
            return replace(turn, message=Message.assistant(turn.message.text.upper()))

    assert play_with(Shouts(), turns=["hello"])[0].answer == "HELLO"


def test_around_may_ask_a_model_that_failed_again():
    class Retries(ModelInterceptor):
        async def around(self, request, proceed, context):
            try:
                return await proceed(request)
            except ProviderError:
                return await proceed(request)

    class Flaky(ScriptedProvider):
        attempts = 0

        async def stream(self, request):
            self.attempts += 1
            if self.attempts == 1:
                raise ProviderError("busy", status=503)
            async for delta in super().stream(request):
                yield delta

    assert play_with(Retries(), turns=Flaky(["fine"]))[0].answer == "fine"
    with pytest.raises(ProviderError, match="busy"):
        play_with(TraceModel("model", []), turns=Flaky(["fine"]))


def test_a_step_may_go_on_after_the_answer():
    class Critic(StepInterceptor):
        async def after(self, step, end, context):
            return replace(end, say=("are you sure?",)) if end.state.answer and step.number == 1 else end

    result, _, provider = play_with(Critic(), turns=["3", "Yes, 3."])
    assert result.answer == "Yes, 3."
    assert texts(provider.requests[1])[-1] == "are you sure?"


def test_a_step_is_blocked_or_answered():
    class Only(StepInterceptor):
        def __init__(self, verdict):
            self.verdict = verdict

        async def before(self, step, context):
            return self.verdict if step.number == 2 else step

    result, _, _ = play_with(Only(Block("enough")))
    assert (result.status, result.reason, result.state.stop.message) == ("no_answer", "blocked", "enough")
    assert result.state.stop.by == "Only"
    result, _, _ = play_with(Only(Answer("seven")))
    assert (result.status, result.answer, result.reason) == ("answered", "seven", "stopped")


def test_a_run_is_changed_blocked_and_answered():
    class Starts(RunInterceptor):
        def __init__(self, verdict):
            self.verdict = verdict

        async def before(self, start, context):
            return self.verdict(start)

    def politely(start):
        return RunStart((*start.messages, Message.user("please")))

    assert texts(play_with(Starts(politely))[2].requests[0])[-1].endswith("please")
    result, _, provider = play_with(Starts(lambda start: Block("closed")))
    assert (result.status, result.reason, provider.requests) == ("no_answer", "blocked", [])
    result, _, provider = play_with(Starts(lambda start: Answer("known")))
    assert (result.status, result.answer, provider.requests) == ("answered", "known", [])


def test_a_runs_end_is_changed_and_a_failed_run_rescued():
    class Signs(RunInterceptor):
        async def after(self, start, finish, context):
            return Finish("answered", (finish.answer or "I could not be reached") + " - Bob", finish.reason)

    assert play_with(Signs())[0].answer == "It is 3. - Bob"

    class Down(ScriptedProvider):
        async def stream(self, request):
            raise ProviderError("down")
            yield

    result, journal, _ = play_with(Signs(), turns=Down([]))
    assert (result.status, result.answer) == ("answered", "I could not be reached - Bob")
    assert journal.all(RunFinished)[0].reason == "model_error"


def test_around_a_run_may_answer_without_proceeding():
    class Replaces(RunInterceptor):
        async def around(self, start, proceed, context):
            return Finish("answered", "nothing to do", "answer")

    result, _, provider = play_with(Replaces())
    assert (result.answer, provider.requests) == ("nothing to do", [])


@pytest.mark.parametrize("level", [ModelInterceptor, StepInterceptor, RunInterceptor])
@pytest.mark.parametrize("hook", ["before", "around", "after"])
def test_an_error_is_contained_named_and_recorded(level, hook):
    class Breaks(level):
        pass

    async def raise_error(self, *_):
        raise ValueError("oh no")

    setattr(Breaks, hook, raise_error)
    result, journal, _ = play_with(Breaks())
    assert (result.status, result.answer, result.reason) == ("failed", "", "interceptor_failure")
    (failure,) = journal.all(InterceptorFailed)
    assert (failure.interceptor, failure.level, failure.hook) == ("Breaks", level.level, hook)
    assert failure.error == "ValueError: oh no"
    assert "the interceptor Breaks failed" in result.state.stop.message


@pytest.mark.parametrize("level", [Interceptor, ModelInterceptor, StepInterceptor, RunInterceptor])
@pytest.mark.parametrize("hook", ["before", "around", "after"])
def test_what_gives_back_nothing_is_an_error(level, hook):
    class Forgets(level):
        pass

    async def nothing(self, *_):
        return None

    setattr(Forgets, hook, nothing)
    _, journal, _ = play_with(Forgets())
    assert [failure.hook for failure in journal.all(InterceptorFailed)] == [hook]


@pytest.mark.parametrize("level", [ModelInterceptor, StepInterceptor, RunInterceptor])
@pytest.mark.parametrize("hook", ["before", "around", "after"])
def test_a_stop_ends_the_run_with_its_answer(level, hook):
    class Stops(level):
        pass

    async def stop(self, *_):
        raise AgentStop("time for tea", answer="tea")

    setattr(Stops, hook, stop)
    result, journal, _ = play_with(Stops())
    assert (result.status, result.answer, result.reason) == ("answered", "tea", "stopped")
    assert journal.all(StopRequested)[0].by == "Stops"


def test_metadata_is_kept_across_calls_steps_and_levels_and_tools_see_it():
    snapshots = []

    @tool(read_only=True)
    async def look(ctx: RunContext) -> str:
        snapshots.append(dict(ctx.state.metadata))
        return "ok"

    class Budget(StepInterceptor):
        async def before(self, step, context):
            context.set("steps", context.metadata.get("steps", 0) + 1)
            return step

    class Restricts(Interceptor):
        async def after(self, call, result, context):
            context.set("allowed", ["look"])
            return result

    turns = [calling("cogency-json", ("look", {})) for _ in "ab"]
    result, journal, _ = play_with(Budget(), Restricts(), turns=[*turns, "done"], tools=[look])
    assert snapshots == [{"steps": 1}, {"steps": 2, "allowed": ["look"]}]
    assert result.state.metadata == {"steps": 3, "allowed": ["look"]}
    assert len(journal.all(MetadataSet)) == 5


def test_a_run_that_waits_leaves_its_frames_and_enters_them_again():
    @tool(effects=Effects(writes={"x"}))
    async def put() -> str:
        return "put"

    log, ends = [], []

    class Step(StepInterceptor):
        async def around(self, step, proceed, context):
            end = await proceed(step)
            ends.append((step.number, end.state.status))
            return end

        async def after(self, step, end, context):
            log.append(f"after step {step.number}")
            return end

    class Run(RunInterceptor):
        async def before(self, start, context):
            log.append("start")
            return start

        async def around(self, start, proceed, context):
            log.append((await proceed(start)).status)
            return Finish("answered", "", "")

        async def after(self, start, finish, context):
            log.append("end")
            return replace(finish, answer="done")

    turns = [calling("cogency-json", ("put", {})), "ok"]
    agent = an_agent(turns, [put], approve=None, interceptors=(Step(), Run()))

    async def main():
        waiting = await agent.run("go")
        assert waiting.status == "awaiting_approval"
        return await agent.resume(waiting, {"call_1_0": True})

    result = asyncio.run(main())
    assert ends == [(1, "awaiting_approval"), (1, "running"), (2, "running")]
    assert log == ["start", "awaiting_approval", "after step 1", "after step 2", "answered", "end"]
    assert result.answer == "done"


def test_cancelling_a_run_leaves_no_frame_behind():
    exits = []

    class Frame(RunInterceptor):
        async def around(self, start, proceed, context):
            try:
                return await proceed(start)
            finally:
                exits.append("left")

    async def main():
        agent = an_agent(ADDS, interceptors=(Frame(),))
        async with aclosing(agent.iterate("go")) as states:
            await anext(states)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert exits == ["left"]


# --- how runs end ------------------------------------------------------------------------------------------------


@tool(effects=Effects(writes={"x"}))
async def fail() -> str:
    "Fails."
    raise OSError("no disk")


@tool(read_only=True)
async def leave() -> str:
    "Ends it."
    raise AgentStop("goodbye", answer="the end")


def test_a_tool_stops_the_run_with_an_answer():
    turn = calling("cogency-json", ("add", {"a": 1, "b": 2}), ("leave", {}))
    result, journal, provider = play([turn, "never read"], [add, leave])
    assert (result.status, result.answer, result.reason) == ("answered", "the end", "stopped")
    assert [event.result.status for event in journal.all(ToolFinished)] == ["success", "success"]
    assert len(provider.requests) == 1
    assert_pairs(result.messages)
    assert fold(journal.records) == result.state


def test_throw_on_failure_fails_the_run_and_says_why():
    turn = calling("cogency-json", ("fail", {}), ("add", {"a": 1, "b": 2}))
    result, journal, _ = play([turn, "never read"], [add, fail], execution=Execution(throw_on_failure=True))
    assert (result.status, result.reason, result.state.stop.message) == ("failed", "tool_failure", "OSError: no disk")
    assert len(journal.all(ToolFinished)) == 2
    assert_pairs(result.messages)


def test_a_run_that_recovers_from_a_failed_or_blocked_call_is_answered():
    class Forbids(Interceptor):
        async def before(self, call, context):
            return Block("not that") if call.name == "add" else call

    turn = calling("cogency-json", ("fail", {}), ("add", {"a": 1, "b": 2}))
    result, _, provider = play([turn, "I gave up."], [add, fail], interceptors=(Forbids(),))
    assert (result.status, result.answer) == ("answered", "I gave up.")
    assert "not that" in texts(provider.requests[1])[-1]
    assert "no disk" in texts(provider.requests[1])[-1]


def test_a_decision_ends_the_run():
    turn = calling("cogency-json", ("fail", {}))
    journal = WatchedJournal()
    agent = an_agent([turn, "never read"], [fail], journal=journal, approve=None)

    async def main():
        waiting = await agent.run("go")
        decision = Decision(False, "stop it", "ann", ends_run=True)
        return await agent.resume(waiting, {"call_1_0": decision})

    result = asyncio.run(main())
    assert (result.status, result.reason, result.state.stop.by) == ("no_answer", "terminated", "ann")
    assert len(journal.all(ModelAnswered)) == 1
    assert fold(journal.records) == result.state
