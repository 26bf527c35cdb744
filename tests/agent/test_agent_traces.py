"""A developer finds out where a tool crashed, and why a run stopped."""

import asyncio
import logging

import pytest
from agent_helpers import adding, an_agent, calling, play

from toolspeak import (
    Agent,
    AgentStop,
    Approval,
    Decision,
    Execution,
    Interceptor,
    Limits,
    ProviderError,
    ToolError,
    tool,
)
from toolspeak.errors import ToolFailed
from toolspeak.execute import BatchContext, Executor, approve_all
from toolspeak.journal.memory_journal import MemoryJournal
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn
from toolspeak.tools import Toolset


@tool
def look_up(key: str) -> str:
    "Looks a key up."
    return {}[key]


@tool
async def look_up_later(key: str) -> str:
    "Looks a key up."
    await asyncio.sleep(0)
    return {}[key]


@tool
def decline(key: str) -> str:
    "Says that the key is not there."
    raise ToolError(f"{key} is not there: ask for another")


TOOLS = Toolset([look_up, look_up_later, decline])


def log_records(caplog, level, name="toolspeak.execute"):
    return [one for one in caplog.records if one.name == name and one.levelno == level]


def traceback_of(record):
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else record.getMessage()


@pytest.mark.parametrize("name", ["look_up", "look_up_later"])
def test_a_tool_that_raises_is_logged_with_its_traceback(caplog, name):
    play([calling("cogency-json", (name, {"key": "k"}), tools=TOOLS), "sorry"], TOOLS)
    (record,) = log_records(caplog, logging.WARNING)
    assert name in record.getMessage()
    traceback_text = traceback_of(record)
    assert "return {}[key]" in traceback_text
    assert "KeyError: 'k'" in traceback_text
    assert "toolspeak/execute" not in traceback_text  # the way of the call through the library says nothing


def test_a_tool_that_tells_the_model_something_is_no_bug(caplog):
    caplog.set_level(logging.DEBUG, "toolspeak")
    play([calling("cogency-json", ("decline", {"key": "k"}), tools=TOOLS), "sorry"], TOOLS)
    assert log_records(caplog, logging.WARNING) == []
    (record,) = log_records(caplog, logging.DEBUG)
    assert "k is not there" in traceback_of(record)


def test_no_secret_stands_in_a_traceback(caplog):
    @tool
    def sign_in(token: str) -> str:
        "Signs in."
        raise ConnectionError(f"the server does not take {token}")

    turns = [calling("cogency-json", ("sign_in", {"token": "{{secret:KEY}}"}), tools=Toolset([sign_in])), "no"]
    play(turns, [sign_in], secrets={"KEY": "sk-very-secret"})
    text = "".join(traceback_of(one) for one in log_records(caplog, logging.WARNING))
    assert "does not take {{secret:KEY}}" in text
    assert "sk-very-secret" not in caplog.text


def test_the_programs_beside_a_tool_are_logged_when_they_fail(caplog):
    class FailingAfter(Interceptor):
        async def after(self, call, result, context):
            raise LookupError("in the interceptor")

    def failing_effects(key):
        raise LookupError("in the effects")

    def preview_key(key):
        raise LookupError("in the preview")

    def policy(request):
        raise LookupError("in the policy")

    @tool(effects=failing_effects, preview=preview_key)
    def put(key: str) -> str:
        "Puts a key."
        return "put"

    async def approve(request):
        return Decision(True)

    calls = [calling("cogency-json", ("put", {"key": "k"}), tools=Toolset([put])), "done"]
    play(calls, [put], approve=Approval(approve, policy=policy), interceptors=[FailingAfter()])
    log_text = "\n".join(
        traceback_of(one) + one.getMessage() for one in caplog.records if one.levelno == logging.WARNING
    )
    for where in ("in the interceptor", "in the policy"):
        assert where in log_text
    assert (
        'raise LookupError("in the effects")' in log_text
    )  # the line, without what the message says: it may be secret
    assert 'raise LookupError("in the preview")' in log_text


def test_the_exception_is_the_cause_of_tool_failed_and_stands_in_the_execution():
    executor = Executor(TOOLS, throw_on_failure=True)
    agent = Agent(ScriptedProvider([calling("cogency-json", ("look_up", {"key": "k"}), tools=TOOLS)]), TOOLS)
    call = asyncio.run(agent.run("x")).requests[0].call

    async def emit(event):
        pass

    with pytest.raises(ToolFailed) as raised_error:
        asyncio.run(executor.run([call], emit=emit, context=BatchContext("run"), approver=approve_all))
    assert isinstance(raised_error.value.__cause__, KeyError)
    assert raised_error.value.execution.exception is raised_error.value.__cause__


def test_a_run_that_ends_at_a_failed_call_says_why_and_holds_the_call():
    turns = [calling("cogency-json", ("look_up", {"key": "k"}), tools=TOOLS)]
    result, _, _ = play(turns, TOOLS, execution=Execution(throw_on_failure=True))
    assert (result.status, result.reason, result.answer) == ("failed", "tool_failure", "")
    assert "look_up" in result.error
    assert "KeyError: 'k'" in result.error
    (failure,) = result.failures
    assert (failure.name, failure.args, failure.has_error) == ("look_up", {"key": "k"}, True)
    assert isinstance(failure.exception, KeyError)
    assert result.error in str(result)


def test_a_run_that_recovers_holds_its_failed_calls_too():
    result, _, _ = play([calling("cogency-json", ("look_up", {"key": "k"}), tools=TOOLS), adding(1, 2), "3"], TOOLS)
    assert (result.status, result.error, str(result)) == ("answered", "", "3")
    assert [one.result.code for one in result.failures] == ["exception", "unknown_tool"]
    assert result.failures[1].exception is None


def test_every_end_without_an_answer_says_why():
    class Stops(Interceptor):
        async def before(self, call, context):
            raise AgentStop("the disk is full")

    result, _, _ = play([adding(1, 2)], interceptors=[Stops()])
    assert (result.reason, result.error) == ("stopped", "the disk is full")
    result, _, _ = play(["", ""])
    assert "empty" in result.error
    result, _, _ = play([adding(1, 2), ScriptedTurn("")], limits=Limits(steps=1))
    assert (result.status, result.reason) == ("no_answer", "steps")
    assert "limit of 1 steps" in result.error
    agent = an_agent([ScriptedTurn("", error=ProviderError("the key is wrong", status=401))])
    with pytest.raises(ProviderError) as raised_error:
        asyncio.run(agent.run("x"))
    assert "the key is wrong" in raised_error.value.result.error


def test_a_resumed_run_still_holds_the_calls_that_failed_before():
    journal = MemoryJournal()
    turns = [
        calling("cogency-json", ("decline", {"key": "k"}), tools=TOOLS),
        calling("cogency-json", ("look_up", {"key": "k"}), tools=TOOLS),
        "done",
    ]
    provider = ScriptedProvider(turns)

    waiting = asyncio.run(
        an_agent(provider, TOOLS, journal=journal, approve=Approval(None, policy=yes_to_decline)).run("x")
    )
    assert (waiting.status, waiting.error) == ("awaiting_approval", "")
    assert [one.name for one in waiting.failures] == ["decline"]
    decisions = {waiting.waiting[0]: True}
    result = asyncio.run(
        an_agent(provider, TOOLS, journal=journal, approve=Approval("all", policy=yes_to_decline)).resume(
            waiting.run_id, decisions
        )
    )
    assert [one.name for one in result.failures] == ["decline", "look_up"]


def yes_to_decline(request):
    return Decision(True) if request.call.name == "decline" else None
