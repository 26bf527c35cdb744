import asyncio
from dataclasses import replace

import pytest
from executor_helpers import Recorder, a_call, result_of, results_of, run_batch

from toolspeak.data.tools import READ_ANYTHING, UNDECLARED_EFFECTS, Effects
from toolspeak.errors import ConfigurationError
from toolspeak.execute import Decision, Interceptor, approve_all, approve_none, resolve_approver
from toolspeak.execute.approval.approvers import approval_reason
from toolspeak.tools import tool

ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@tool(effects=lambda path: Effects(writes={f"file:{path}"}), preview=lambda path, text: f"+{text}")
async def write(path: str, text: str) -> str:
    ran.append(path)
    return f"wrote {path}"


@tool(effects=lambda path: Effects(reads={f"file:{path}"}))
async def read(path: str) -> str:
    ran.append(path)
    return f"read {path}"


WRITES = [
    a_call("write", "w1", path="a", text="1"),
    a_call("read", "r1", path="b"),
    a_call("write", "w2", path="c", text="2"),
]


class Person:
    """Answers from a list and remembers what was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    async def __call__(self, request):
        self.requests.append(request)
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        (READ_ANYTHING, ""),
        (Effects(reads={"file:a"}), ""),
        (Effects(), ""),
        (Effects(writes={"file:b", "file:a"}), "writes file:a, file:b"),
        (Effects(writes={"file:a"}, idempotent=True, destructive=False), "writes file:a"),
        (Effects(reads={"web:"}, external=True), "leaves this machine"),
        (Effects(writes={"web:"}, external=True), "writes web: and leaves this machine"),
        (UNDECLARED_EFFECTS, "does not declare what it touches"),
    ],
)
def test_what_needs_a_yes_and_why(effects, expected):
    assert approval_reason(effects) == expected


def test_an_approver_is_asked_in_call_order_before_anything_runs():
    ran_when_asked = []

    class Watcher(Person):
        async def __call__(self, request):
            ran_when_asked.append(list(ran))
            return await super().__call__(request)

    person, recorder = Watcher(Decision(True, by="ann"), Decision(False, "not that file", by="ann")), Recorder()
    results = results_of([write, read], WRITES, approver=person, emit=recorder)
    assert [request.call.id for request in person.requests] == ["w1", "w2"]
    assert ran_when_asked == [[], []]
    assert sorted(ran) == ["a", "b"]
    assert [result.code for result in results] == [None, None, "rejected"]
    assert results[2].text == "the call was rejected: not that file"
    assert recorder.kinds[:4] == ["ApprovalRequested", "ApprovalDecided"] * 2
    assert recorder.events[3].reason == "not that file"
    first = person.requests[0]
    assert (first.preview, first.reason, first.tool.name) == ("+1", "writes file:a", "write")
    assert first.effects == Effects(writes={"file:a"})


def test_without_an_approver_nothing_runs_and_the_calls_wait():
    recorder = Recorder()
    calls = [*WRITES, a_call("nothing")]
    batch = asyncio.run(run_batch([write, read], calls, approver=None, emit=recorder))
    assert batch.results == ()
    assert [request.call.id for request in batch.pending] == ["w1", "w2"]
    assert recorder.kinds == ["ApprovalRequested"] * 2
    assert recorder.events[0].preview == "+1"
    assert ran == []


def digests(tools=(write, read), calls=WRITES):
    """What decisions are bound to, by call id."""
    batch = asyncio.run(run_batch(tools, calls, approver=None))
    return {request.call.id: request.digest for request in batch.pending}


def test_decisions_are_used_without_asking():
    decisions = {"w1": Decision(True, digest=digests()["w1"]), "w2": Decision(False, "no")}
    results = results_of([write, read], WRITES, approver=None, decisions=decisions)
    assert [result.code for result in results] == [None, None, "rejected"]
    assert sorted(ran) == ["a", "b"]


def test_one_decision_missing_keeps_the_batch_waiting():
    batch = asyncio.run(
        run_batch([write, read], WRITES, approver=None, decisions={"w1": Decision(True, digest=digests()["w1"])})
    )
    assert [request.call.id for request in batch.pending] == ["w2"]
    assert ran == []


def test_a_no_holds_for_a_call_that_would_not_have_needed_a_yes():
    assert result_of([read], WRITES[1], decisions={"r1": Decision(False)}).code == "rejected"
    assert ran == []


def test_read_only_calls_run_without_an_approver():
    assert result_of([read], WRITES[1], approver=None).text == "read b"


def test_invalid_calls_are_not_asked_about():
    person = Person()
    result = result_of([write], a_call("write", path="a"), approver=person)
    assert result.code == "invalid_arguments"
    assert person.requests == []


def test_standing_answers_ask_nobody():
    recorder = Recorder()
    assert result_of([write], WRITES[0], approver=approve_all, emit=recorder).status == "success"
    assert recorder.kinds == ["ToolStarted", "ToolFinished"]
    refusal = result_of([write], WRITES[0], approver=approve_none("look, do not touch"))
    assert (refusal.code, refusal.text) == ("rejected", "the call was rejected: look, do not touch")
    assert ran == ["a"]


def test_resolve_approver():
    person = Person()
    assert resolve_approver(None) is None
    assert resolve_approver("all") is approve_all
    assert resolve_approver("none") == approve_none()
    assert resolve_approver(person) is person
    with pytest.raises(ConfigurationError, match="'all', 'all\\+repaired', 'none'"):
        resolve_approver("yes")


def test_an_approver_that_fails_ends_the_run_and_nothing_runs():
    class CrashingPerson(Person):
        async def __call__(self, request):
            raise ConnectionError("nobody there")

    with pytest.raises(ConnectionError, match="nobody there"):
        results_of([write, read], WRITES, approver=CrashingPerson())
    assert ran == []


@pytest.mark.parametrize("answer", [1, None, "yes"])
def test_only_a_decision_is_an_answer(answer):
    with pytest.raises(ConfigurationError, match="answers with a bool, a Decision"):
        results_of([write], WRITES[:1], approver=Person(answer))
    with pytest.raises(ConfigurationError, match="answers with a bool, a Decision"):
        results_of([write], WRITES[:1], approver=lambda request: answer)
    assert ran == []


def test_a_bool_counts_from_an_async_approver_alone():
    with pytest.raises(ConfigurationError, match="an approver is async"):
        results_of([write], WRITES[:1], approver=lambda request: True)
    assert ran == []


def test_a_preview_that_fails_does_not_prevent_the_question():
    def crash(arguments, context=None):
        raise OSError("no such file")

    person = Person(Decision(True))
    results_of([replace(write, preview=crash)], WRITES[:1], approver=person)
    assert person.requests[0].preview == "(no preview: OSError: no such file)"


def test_a_long_preview_is_whole_or_not_there():
    person = Person(Decision(True), Decision(True))
    results_of([write], [a_call("write", path="a", text="x" * 1_000_000)], approver=person)
    assert person.requests[0].preview == "+" + "x" * 1_000_000
    results_of([write], [a_call("write", path="a", text="x" * 17_000_000)], approver=person)
    assert person.requests[1].preview.startswith("(no preview: it has 17,000,001 characters")


class Slow(Person):
    """Answers once the event loop's clock has gone on by `seconds`."""

    def __init__(self, seconds, *answers):
        super().__init__(*answers)
        self.seconds = seconds

    async def __call__(self, request):
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(self.seconds, later.set)
        await later.wait()
        return await super().__call__(request)


def test_time_at_a_question_does_not_count():
    person = Slow(0.15, Decision(True), Decision(True))
    batch = asyncio.run(run_batch([write, read], WRITES, approver=person, deadline=0.1))
    assert [result.status for result in batch.results] == ["success"] * 3
    assert batch.approval_seconds >= 0.29


def test_after_a_question_the_deadline_still_holds():
    @tool(effects=Effects(writes={"here"}))
    async def endless() -> None:
        await asyncio.Event().wait()

    batch = asyncio.run(run_batch([endless], [a_call("endless")], approver=Slow(0.1, Decision(True)), deadline=0.05))
    assert [result.code for result in batch.results] == ["timeout"]
    assert batch.approval_seconds >= 0.09


def test_what_is_not_a_question_still_counts():
    class Ponders(Interceptor):
        async def before(self, call, context):
            await asyncio.Event().wait()

    batch = asyncio.run(
        run_batch([write], WRITES[:1], approver=Person(), deadline=0.05, options={"interceptors": (Ponders(),)})
    )
    assert [result.code for result in batch.results] == ["skipped"]
    assert batch.approval_seconds == 0


@pytest.mark.parametrize("approver", [None, approve_all])
def test_nobody_asked_is_nobody_waited_for(approver):
    assert asyncio.run(run_batch([write, read], WRITES, approver=approver)).approval_seconds == 0


def test_a_question_ends_when_the_batch_is_cancelled():
    question = asyncio.Event()

    class Absent(Person):
        async def __call__(self, request):
            question.set()
            await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(run_batch([write], WRITES[:1], approver=Absent(), deadline=0.05))
        await question.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ran == []
