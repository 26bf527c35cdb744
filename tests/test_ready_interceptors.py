"""The ready interceptors, in runs of an agent and in an executor alone."""

import asyncio
import threading

import pytest

from toolspeak import (
    Agent,
    ConfigurationError,
    Effects,
    Executor,
    MemoryJournal,
    ProviderError,
    RunContext,
    ToolCall,
    ToolError,
    tool,
)
from toolspeak.agent import stream_text
from toolspeak.data.events import InterceptorFailed, RetryScheduled, ToolFinished, ToolStarted
from toolspeak.data.interceptor_events import MOST_ERROR_CHARACTERS
from toolspeak.execute import BatchContext, Interceptor
from toolspeak.interceptors import (
    Cache,
    HumanFeedback,
    ModelRateLimit,
    ModelRetry,
    RateLimit,
    Retry,
    Timeout,
)
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn
from toolspeak.ui.timeline import timeline


class FakeClock:
    """A clock that moves only while something sleeps."""

    def __init__(self):
        self.time = 1000.0
        self.pauses = []

    def now(self):
        return self.time

    def random(self):
        return 1.0

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        await asyncio.sleep(0)
        self.time += seconds


class Flaky:
    """A tool that fails a few times, each time with the next error."""

    def __init__(self, *errors):
        self.errors = [*errors]
        self.runs = 0

    def tool(self, **effects):
        def fetch(page: str) -> str:
            "Fetches a page."
            self.runs += 1
            if self.errors:
                raise self.errors.pop(0)
            return f"{page} {self.runs}"

        return tool(fetch, **effects)


def run(tools, interceptors, *calls, executor=None, context=None):
    executor = executor or Executor(tools, approve="all", interceptors=tuple(interceptors))
    tool_calls = [ToolCall(str(number), name, arguments) for number, (name, arguments) in enumerate(calls)]
    return asyncio.run(executor.run(tool_calls, context=context or BatchContext())).results


FETCH = ("fetch", {"page": "a"})

# --- retries


@pytest.mark.parametrize("effects", [{"read_only": True}, {"idempotent": True}])
def test_a_call_that_may_run_twice_runs_again(effects):
    flaky, clock = Flaky(OSError("reset"), OSError("reset")), FakeClock()
    (result,) = run([flaky.tool(**effects)], [Retry(clock=clock)], FETCH)
    assert (result.status, result.text, flaky.runs) == ("success", "a 3", 3)
    assert clock.pauses == [0.5, 1.0]  # random() is 1


@pytest.mark.parametrize(
    "effects",
    [{}, {"effects": Effects(writes={"page:a"})}, {"effects": Effects(external=True)}],
)
def test_a_call_that_may_not_run_twice_runs_once(effects):
    flaky = Flaky(OSError("reset"))
    (result,) = run([flaky.tool(**effects)], [Retry(clock=FakeClock())], FETCH)
    assert (result.code, flaky.runs) == ("exception", 1)


def test_an_error_that_a_tool_reports_is_not_retried():
    flaky = Flaky(ToolError("there is no such page"))
    (result,) = run([flaky.tool(read_only=True)], [Retry(clock=FakeClock())], FETCH)
    assert (result.text, flaky.runs) == ("there is no such page", 1)
    flaky = Flaky(ToolError("busy"), ToolError("busy"))
    retry = Retry(2, when=lambda result: result.text == "busy", clock=FakeClock())
    assert (run([flaky.tool(read_only=True)], [retry], FETCH)[0].text, flaky.runs) == ("busy", 2)


def test_the_log_has_one_line_for_a_failure_that_a_retry_repaired(caplog):
    caplog.set_level("INFO", logger="toolspeak.execute")
    flaky = Flaky(OSError("reset"), OSError("reset"))
    run([flaky.tool(read_only=True)], [Retry(clock=FakeClock())], FETCH)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "the tool fetch is called again in the call 0: OSError: reset")
    ] * 2
    assert not any(record.exc_info for record in caplog.records)
    caplog.clear()
    flaky = Flaky(OSError("reset"), OSError("gone"))
    run([flaky.tool(read_only=True)], [Retry(2, clock=FakeClock())], FETCH)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert caplog.records[1].getMessage() == "the tool fetch raised in the call 0"
    assert str(caplog.records[1].exc_info[1]) == "gone"


def test_attempts_are_recorded_with_one_idempotency_key_and_one_result():
    flaky, journal = Flaky(OSError("reset")), MemoryJournal()
    block = '<execute>[{"name": "fetch", "args": {"page": "a"}}]</execute>'
    agent = Agent(
        ScriptedProvider([block, "Done."]),
        [flaky.tool(read_only=True)],
        journal=journal,
        interceptors=[Retry(clock=FakeClock())],
    )
    result = agent.run_sync("go")
    events = [record.event for record in asyncio.run(journal.read(result.run_id))]
    starts = [event for event in events if isinstance(event, ToolStarted)]
    assert len(starts) == 2
    retries = [event for event in events if isinstance(event, RetryScheduled)]
    assert retries == [RetryScheduled("OSError: reset", 0.5, 1, "Retry", "call_1_0")]
    kinds = [type(event).__name__ for event in events]
    assert kinds[3:7] == ["ToolStarted", "RetryScheduled", "ToolStarted", "ToolFinished"]
    assert starts[0].idempotency_key == starts[1].idempotency_key
    assert [event.result.text for event in events if isinstance(event, ToolFinished)] == ["a 2"]
    assert result.steps[0].executions[0].exception is None
    assert result.failures == ()


def test_the_errors_of_retries_are_short_and_have_placeholders_and_only_around_tries_again():
    class Again(Interceptor):
        async def around(self, call, proceed, context):
            await context.retry("the key sk-secret-4711 is wrong " * 100, 0.0, 1)
            return await proceed(call)

    class Early(Interceptor):
        async def before(self, call, context):
            await context.retry("too early", 0.0, 1)
            return call

    def events_of(interceptor):
        journal, block = MemoryJournal(), '<execute>[{"name": "fetch", "args": {"page": "a"}}]</execute>'
        agent = Agent(
            ScriptedProvider([block, "Done."]),
            [Flaky().tool(read_only=True)],
            journal=journal,
            interceptors=[interceptor],
            secrets={"KEY": "sk-secret-4711"},
        )
        result = agent.run_sync("go")
        return [record.event for record in asyncio.run(journal.read(result.run_id))]

    (retry,) = [event for event in events_of(Again()) if isinstance(event, RetryScheduled)]
    assert len(retry.error) <= MOST_ERROR_CHARACTERS + 100
    assert "sk-" not in retry.error
    events = events_of(Early())
    assert not any(isinstance(event, RetryScheduled) for event in events)
    assert any("can try again" in event.error for event in events if isinstance(event, InterceptorFailed))


def test_a_turn_that_breaks_off_is_requested_again():
    error, clock = ProviderError("reset", retryable=True, retry_after=2.0), FakeClock()
    model = ScriptedProvider([ScriptedTurn("Hel", error=error), "Hello."])

    async def watch(*, accumulated: bool):
        model = ScriptedProvider([ScriptedTurn("Hel", error=error), "Hello."])
        run = Agent(model, interceptors=[ModelRetry(clock=clock)]).start("Hi.")
        return [text async for text in stream_text(run, accumulated=accumulated)]

    assert Agent(model, interceptors=[ModelRetry(clock=clock)]).run_sync("Hi.").answer == "Hello."
    assert clock.pauses == [2.5]
    journal = MemoryJournal()
    model = ScriptedProvider([ScriptedTurn("Hel", error=ProviderError("reset", status=503, retryable=True)), "Hello."])
    result = Agent(model, journal=journal, interceptors=[ModelRetry(clock=clock)]).run_sync("Hi.")
    events = [record.event for record in asyncio.run(journal.read(result.run_id))]
    assert [type(event).__name__ for event in events[1:-1]] == [
        "ModelAsked", "ModelTextReceived", "RetryScheduled", "ModelAnswered",
    ]  # fmt: skip
    assert events[3] == RetryScheduled("reset", 0.5, 1, "ModelRetry", status=503)
    assert "✗ the model's API failed and is asked again after 0.50 s: reset" in "\n".join(
        timeline(asyncio.run(journal.read(result.run_id)))
    )
    texts = asyncio.run(watch(accumulated=True))
    assert texts[0] == "Hel"
    assert "" in texts
    assert texts[-1] == "Hello."
    assert "".join(asyncio.run(watch(accumulated=False))) == "Hel\n\nHello."


@pytest.mark.parametrize("error", [ProviderError("no key"), ProviderError("busy", retryable=True, retry_after=60.0)])
def test_a_permanent_failure_is_raised(error):
    model = ScriptedProvider([ScriptedTurn("", error=error), "Hello."])
    with pytest.raises(ProviderError):
        Agent(model, interceptors=[ModelRetry(clock=FakeClock())]).run_sync("Hi.")


# --- the cache


class Pages:
    def __init__(self):
        self.reads = []
        self.version = ""

    def tools(self):
        def effects(page: str) -> Effects:
            return Effects(reads={f"page:{page}"}, version=self.version)

        @tool(effects=effects)
        def read(page: str) -> str:
            "Reads a page."
            self.reads.append(page)
            return f"{page} {len(self.reads)}"

        @tool(effects=lambda page: Effects(writes={f"page:{page}"}))
        def write(page: str) -> str:
            "Writes a page."
            return "written"

        @tool
        def anything() -> str:
            "Does anything."
            return "done"

        @tool(effects=Effects(external=True, idempotent=True))
        def ask(question: str) -> str:
            "Asks a server."
            self.reads.append(question)
            return "asked"

        return [read, write, anything, ask]


READ_A, READ_B = ("read", {"page": "a"}), ("read", {"page": "b"})


def test_a_repeated_read_is_answered_across_runs():
    pages, cache = Pages(), Cache()
    assert [run(pages.tools(), [cache], READ_A)[0].text for _ in range(3)] == ["a 1"] * 3
    assert run(pages.tools(), [cache], READ_B)[0].text == "b 2"
    assert pages.reads == ["a", "b"]


@pytest.mark.parametrize(("change", "again"), [(("write", {"page": "a"}), ["a"]), (("anything", {}), ["a", "b"])])
def test_a_write_drops_the_results_that_it_may_change(change, again):
    pages, cache = Pages(), Cache()
    run(pages.tools(), [cache], READ_A, READ_B)
    run(pages.tools(), [cache], change)
    pages.reads.clear()
    run(pages.tools(), [cache], READ_A, READ_B)
    assert sorted(pages.reads) == again


def test_a_new_version_or_its_age_ends_a_cached_result():
    pages, clock = Pages(), FakeClock()
    cache = Cache(seconds=60, clock=clock)
    run(pages.tools(), [cache], READ_A)
    clock.time += 59
    run(pages.tools(), [cache], READ_A)
    assert pages.reads == ["a"]
    clock.time += 1
    run(pages.tools(), [cache], READ_A)
    pages.version = "2"
    run(pages.tools(), [cache], READ_A)
    assert pages.reads == ["a"] * 3


def test_the_cache_is_bounded_and_drops_the_least_used_result_first():
    pages, cache = Pages(), Cache(max_results=2)
    for page in ("a", "b", "a", "c", "a", "b"):
        run(pages.tools(), [cache], ("read", {"page": page}))
    assert pages.reads == ["a", "b", "c", "b"]


def test_calls_that_leave_the_machine_are_cached_only_on_request():
    for external, count in ((False, 2), (True, 1)):
        pages, cache = Pages(), Cache(external=external)
        for _ in range(2):
            run(pages.tools(), [cache], ("ask", {"question": "x"}))
        assert len(pages.reads) == count


def test_a_read_beside_a_write_is_not_cached():
    async def play():
        cache, start, go_on = Cache(), asyncio.Event(), asyncio.Event()

        @tool(effects=Effects(reads={"page:a"}))
        async def read() -> str:
            "Reads."
            start.set()
            await go_on.wait()
            return "old"

        @tool(effects=Effects(writes={"page:a"}))
        async def write() -> str:
            "Writes."
            return "written"

        executor = Executor([read, write], approve="all", interceptors=(cache,))
        reading = asyncio.create_task(executor.run([ToolCall("1", "read", {})], context=BatchContext()))
        await start.wait()
        await executor.run([ToolCall("2", "write", {})], context=BatchContext())
        go_on.set()
        await reading
        start.clear()
        await executor.run([ToolCall("3", "read", {})], context=BatchContext())
        return start.is_set()

    assert asyncio.run(play())


class Slow:
    """A read that waits until it may continue, and then ends with its next outcome."""

    def __init__(self, *outcomes):
        self.outcomes, self.began, self.go_on = [*outcomes], [], asyncio.Event()
        self.has_begun = asyncio.Event()

    def tool(self):
        async def fetch(page: str) -> str:
            "Fetches a page."
            self.began.append(page)
            self.has_begun.set()
            await self.go_on.wait()
            outcome = self.outcomes.pop(0) if self.outcomes else "fine"
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return tool(fetch, effects=lambda page: Effects(reads={page}))


def test_equal_calls_at_the_same_time_run_once():
    async def play(*outcomes):
        slow = Slow(*outcomes)
        executor = Executor([slow.tool()], interceptors=(Cache(),))
        calls = [ToolCall(str(number), "fetch", {"page": page}) for number, page in enumerate("aaab")]
        batch = asyncio.create_task(executor.run(calls, context=BatchContext()))
        await slow.has_begun.wait()
        other = asyncio.create_task(executor.run(calls[:1], context=BatchContext()))
        await asyncio.sleep(0)
        slow.go_on.set()
        results = [*(await batch).results, *(await other).results]
        return slow.began, [(result.call_id, result.text) for result in results]

    began, results = asyncio.run(play("one", "two"))
    assert began == ["a", "b"]
    assert results == [("0", "one"), ("1", "one"), ("2", "one"), ("3", "two"), ("0", "one")]
    began, results = asyncio.run(play(OSError("reset"), "two"))
    assert began == ["a", "b"]
    assert [text for _, text in results[:4]] == ["OSError: reset"] * 3 + ["two"]


def test_another_call_runs_if_the_running_one_is_cut_off():
    async def play():
        slow = Slow()
        executor = Executor([slow.tool()], interceptors=(Cache(),))
        call = ToolCall("1", "fetch", {"page": "a"})
        first = asyncio.create_task(executor.run([call], context=BatchContext()))
        await slow.has_begun.wait()
        slow.has_begun.clear()
        second = asyncio.create_task(executor.run([call], context=BatchContext()))
        await asyncio.sleep(0)
        first.cancel()
        await slow.has_begun.wait()
        slow.go_on.set()
        return (await second).results[0].text, slow.began

    assert asyncio.run(play()) == ("fine", ["a", "a"])


def test_a_read_that_begins_after_a_write_does_not_join_one_from_before_it():
    async def play():
        slow, cache = Slow("old", "new"), Cache()

        @tool(effects=Effects(writes={"a"}))
        async def write() -> str:
            "Writes."
            return "written"

        executor = Executor([slow.tool(), write], approve="all", interceptors=(cache,))
        call = ToolCall("1", "fetch", {"page": "a"})
        first = asyncio.create_task(executor.run([call], context=BatchContext()))
        await slow.has_begun.wait()
        slow.has_begun.clear()
        await executor.run([ToolCall("2", "write", {})], context=BatchContext())
        second = asyncio.create_task(executor.run([call], context=BatchContext()))
        await slow.has_begun.wait()
        slow.go_on.set()
        return [(await each).results[0].text for each in (first, second)]

    assert asyncio.run(play()) == ["old", "new"]


def test_a_cached_call_inside_another_one_does_not_wait_for_it():
    cache = Cache()

    @tool(effects=lambda depth: Effects(reads={"tree"}))
    async def look(depth: str, ctx: RunContext[list[str]]) -> str:
        "Looks."
        ctx.deps.append(depth)
        if len(ctx.deps) > 1:
            return "leaf"
        inner = await executor.run([ToolCall("2", "look", {"depth": depth})], context=BatchContext(deps=ctx.deps))
        return f"node of {inner.results[0].text}"

    executor = Executor([look], interceptors=(cache,))
    (result,) = run([], [], ("look", {"depth": "x"}), executor=executor, context=BatchContext(deps=[]))
    assert result.text == "node of leaf"


# --- rates and times


def test_calls_wait_for_a_token():
    pages, clock = Pages(), FakeClock()
    run(pages.tools(), [RateLimit(2, seconds=10, clock=clock)], *[("read", {"page": each}) for each in "abcd"])
    assert clock.pauses[0] == pytest.approx(5)
    assert len(clock.pauses) == 2
    assert len(pages.reads) == 4


def test_each_tool_may_have_a_bucket_of_its_own_and_others_none():
    pages, clock = Pages(), FakeClock()
    calls = [READ_A, ("ask", {"question": "x"}), ("write", {"page": "c"})]
    run(pages.tools(), [RateLimit(1, seconds=10, each=True, clock=clock)], *calls)
    run(pages.tools(), [RateLimit(1, seconds=10, tools=["ask"], clock=clock)], READ_A, READ_B, READ_A)
    assert clock.pauses == []


def test_requests_to_the_model_wait_for_a_token():
    clock = FakeClock()
    agent = Agent(ScriptedProvider(["One.", "Two."]), interceptors=[ModelRateLimit(1, seconds=60, clock=clock)])
    agent.run_sync("1")
    agent.run_sync("2")
    assert clock.pauses == [60]


def test_a_call_ends_at_its_time_limit():
    async def endless() -> str:
        "Never ends."
        await asyncio.Event().wait()
        return ""

    pages = Pages()
    tools = [tool(endless, read_only=True), *pages.tools()]
    slow, read = run(tools, [Timeout({"endless": 0.01})], ("endless", {}), READ_A)
    assert (slow.code, slow.text) == ("timeout", "endless did not finish within 0.01 seconds")
    assert read.text == "a 1"


def test_a_synchronous_call_may_still_run():
    end = threading.Event()

    @tool(read_only=True)
    def endless() -> str:
        "Waits."
        end.wait(60)
        return ""

    try:
        (result,) = run([endless], [Timeout(0.01), Retry(clock=FakeClock())], ("endless", {}))
    finally:
        end.set()
    assert result.text.endswith("it may still be running")
    assert result.extra["still_running"] is True


def test_a_time_limit_that_passes_while_a_call_is_recorded_ends_only_that_call():
    async def play():
        async def emit(event):
            if isinstance(event, ToolStarted) and event.call_id == "1":
                await asyncio.Event().wait()  # a disk that does not answer

        pages = Pages()
        executor = Executor(pages.tools(), interceptors=(Timeout({"read": 0.01}),), approve="all")
        calls = [ToolCall("1", *READ_A), ToolCall("2", "ask", {"question": "b"})]
        return [result.code for result in (await executor.run(calls, emit=emit)).results], pages.reads

    assert asyncio.run(play()) == (["timeout", None], ["b"])


# --- people


def test_a_persons_answer_replaces_the_result():
    questions, pages = [], Pages()

    async def ask(call, result):
        questions.append((call.name, result))
        return "Say hello." if call.arguments["page"] == "a" else None

    first, second = run(pages.tools(), [HumanFeedback(ask, when="instead", tools=["read"])], READ_A, READ_B)
    assert (first.text, second.text, pages.reads) == ("Say hello.", "b 1", ["b"])
    assert questions == [("read", None), ("read", None)]


def test_a_person_says_something_about_a_result():
    at_once = 0

    async def ask(call, result):
        nonlocal at_once
        at_once += 1
        assert at_once == 1  # one question at a time
        await asyncio.sleep(0)
        at_once -= 1
        return f"{result.text} is old." if call.arguments["page"] == "a" else None

    first, second = run(Pages().tools(), [HumanFeedback(ask, tools=["read"])], READ_A, READ_B)
    read = first.content[0].text  # "a 1" or "a 2": both pages are read at the same time
    assert first.text == f"{read}\n[A person says about this: {read} is old.]"
    assert "person" not in second.text


# --- together


def test_a_cached_answer_takes_no_token_and_each_attempt_takes_one():
    flaky, clock = Flaky(OSError("reset")), FakeClock()
    interceptors = [Timeout(60), RateLimit(1, seconds=100, clock=clock), Retry(clock=clock), Cache(clock=clock)]
    for _ in range(2):
        (result,) = run([flaky.tool(read_only=True)], interceptors, FETCH)
    assert result.text == "a 2"
    assert clock.pauses == [0.5, pytest.approx(99.5)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(0),
        lambda: Retry(base_seconds=-1),
        lambda: ModelRetry(0),
        lambda: Cache(seconds=0),
        lambda: Cache(max_results=0),
        lambda: RateLimit(0),
        lambda: ModelRateLimit(1, seconds=0),
        lambda: Timeout(0),
        lambda: Timeout({"read": -1}),
        lambda: HumanFeedback(None, when="later"),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ConfigurationError):
        make()
