"""A call in doubt that is not run again after all: nobody says of it that it was not started."""

import asyncio

import pytest

from toolspeak import Effects, Executor, tool
from toolspeak.data.messages import ToolCall
from toolspeak.errors import AgentStop, ConfigurationError
from toolspeak.execute import BatchContext, CallsInDoubt, Decision, approve_all
from toolspeak.tools import Toolset

SAME = Effects(writes={"file:a"}, idempotent=True)


@tool(effects=SAME)
async def slow() -> str:
    await asyncio.Event().wait()
    return "never"


@tool(effects=SAME)
async def put() -> str:
    return "put"


def test_what_the_time_limit_skips_after_another_call_stays_in_doubt():
    async def main():
        facts = []

        async def emit(event):
            facts.append(event)

        batch = await Executor(Toolset([slow, put])).run(
            [ToolCall("a", "slow", {}), ToolCall("b", "put", {}), ToolCall("c", "put", {})],
            emit=emit,
            context=BatchContext("run"),
            approver=approve_all,
            doubtful_calls=CallsInDoubt({"b": None}),
            deadline=0.02,
        )
        return batch.results, [event.result for event in facts if hasattr(event, "result")]

    results, recorded_results = asyncio.run(main())
    assert [result.code for result in results] == ["timeout", "unknown_outcome", "skipped"]
    assert "time limit" in results[1].text
    assert sorted(recorded_results, key=lambda result: result.call_id) == list(results)


@pytest.mark.parametrize("ends_run", [False, True])
def test_what_an_answer_about_another_call_keeps_from_running_stays_in_doubt(ends_run):
    @tool
    async def change() -> str:
        return "changed"

    async def no(_request):
        return Decision(False, "not now", ends_run=ends_run)

    async def main():
        executor = Executor(Toolset([change, put]), stop_on_block=True)
        calls = [ToolCall("a", "change", {}), ToolCall("b", "put", {})]
        context, doubt = BatchContext("run"), CallsInDoubt({"b": None})
        try:
            batch = await executor.run(calls, emit=ignore, context=context, approver=no, doubtful_calls=doubt)
        except AgentStop as stop:
            batch = stop.batch
        return [result.code for result in batch.results]

    assert asyncio.run(main()) == ["rejected", "unknown_outcome"]


def sender(description="Sends a letter."):
    @tool(name="send", description=description, effects=lambda to: Effects(writes={f"box:{to}"}))
    async def send(to: str) -> str:
        return f"sent to {to}"

    return send


def result_in_doubt(pay):
    """The result of a call of this tool that was started before; without a decision it is reported."""

    async def main():
        async def emit(event):
            pass

        return await Executor(Toolset([pay])).run(
            [ToolCall("c", "pay", {})],
            emit=emit,
            context=BatchContext("run"),
            approver=approve_all,
            doubtful_calls=CallsInDoubt({"c": None}, "report"),
        )

    (result,) = asyncio.run(main()).results
    return result


def test_a_verify_that_fails_while_it_is_awaited_has_said_nothing():
    async def verdict() -> bool:
        await asyncio.sleep(0)
        raise ValueError("the bank does not answer")

    @tool(effects=Effects(writes={"bank:"}), verify=verdict)
    async def pay() -> str:
        return "paid"

    result = result_in_doubt(pay)
    assert result.code == "unknown_outcome"


def test_an_idempotent_call_runs_again_when_its_verify_cannot_tell():
    @tool(effects=Effects(writes={"bank:"}, idempotent=True), verify=lambda: None)
    async def pay() -> str:
        return "paid"

    result = result_in_doubt(pay)
    assert (result.status, result.text) == ("success", "paid")


def in_doubt(doubtful_tool, decision, **arguments):
    """A batch of one call that was started before; nobody is there to be asked."""
    call = ToolCall("c", "send", arguments or {"to": "ann"})
    doubtful_calls = CallsInDoubt({"c": decision})
    return asyncio.run(
        Executor(Toolset([doubtful_tool])).run(
            [call],
            emit=ignore,
            context=BatchContext("run"),
            approver=None,
            doubtful_calls=doubtful_calls,
        )
    )


async def ignore(_event):
    return None


def test_a_yes_to_run_it_again_holds_for_that_tool_and_those_arguments_alone():
    (question,) = in_doubt(sender(), None).pending
    yes = Decision(True, digest=question.digest)
    assert [result.text for result in in_doubt(sender(), yes).results] == ["sent to ann"]
    assert [request.call.arguments for request in in_doubt(sender(), yes, to="bob").pending] == [{"to": "bob"}]
    (again,) = in_doubt(sender("Sends a letter, and a bill."), yes).pending
    assert again.digest != question.digest
    assert "was started before" in again.reason


def test_a_no_is_for_that_question_alone_too():
    (question,) = in_doubt(sender(), None).pending
    no = Decision(False, digest=question.digest)
    assert [result.code for result in in_doubt(sender(), no).results] == ["unknown_outcome"]
    assert in_doubt(sender(), no, to="bob").pending


def test_a_yes_to_run_it_at_all_is_no_yes_to_run_it_again():
    batch = asyncio.run(
        Executor(Toolset([sender()])).run(
            [ToolCall("c", "send", {"to": "ann"})], emit=ignore, context=BatchContext("run"), approver=None
        )
    )
    (first,) = batch.pending
    assert in_doubt(sender(), Decision(True, digest=first.digest)).pending


def test_a_call_in_doubt_runs_again_as_it_was_or_not_at_all():
    (question,) = in_doubt(sender(), None).pending
    assert not question.can_be_revised
    with pytest.raises(ConfigurationError, match="cannot be changed"):
        asyncio.run(question.revise({"to": "bob"}))
