"""Interceptors see every call of a run, whatever becomes of it."""

from dataclasses import replace

import pytest
from agent_helpers import TOOLS, add, adding, calling, play, texts

from toolspeak import AgentStop, Execution, Interceptor, ModelInterceptor
from toolspeak.data.events import StopRequested, ToolStarted, UserMessageQueued
from toolspeak.data.messages import TextPart


class HookLog(Interceptor):
    def __init__(self):
        self.before_, self.after_ = [], []

    async def before(self, call, context):
        self.before_.append(call.name)
        return call

    async def after(self, call, result, context):
        self.after_.append((call.name, result.code))
        return result


BAD_CALLS = '<execute>[{"name": "add", "args": {"a": 1}}, {"name": "nosuch", "args": {}}, 7]</execute>'


def test_unknown_invalid_and_malformed_calls_are_seen():
    log = HookLog()
    result, _, _ = play([BAD_CALLS, "ok"], interceptors=[log])
    assert log.before_ == ["add", "nosuch"]
    assert log.after_ == [("add", "invalid_arguments"), ("nosuch", "unknown_tool"), ("", "malformed")]
    assert [one.code for one in result.messages[2].results] == ["invalid_arguments", "unknown_tool", "malformed"]


def test_before_reroutes_a_call_of_an_unknown_tool():
    class Alias(Interceptor):
        async def before(self, call, context):
            return replace(call, name="add") if call.name == "plus" else call

    result, journal, _ = play([calling("cogency-json", ("plus", {"a": 1, "b": 2})), "3"], interceptors=[Alias()])
    (step, _) = result.steps
    assert [(each.name, each.value) for each in step.executions] == [("add", 3)]
    assert journal.all(ToolStarted)[0].changed.name == "add"


def test_after_rescues_a_call_that_could_not_run():
    class Rescue(Interceptor):
        async def after(self, call, result, context):
            context.set("rescued", call.extra.get("malformed") or call.name)
            return replace(result, status="success", code=None, content=(TextPart("never mind"),))

    result, journal, provider = play(
        [BAD_CALLS, "ok"], interceptors=[Rescue()], execution=Execution(throw_on_failure=True)
    )
    assert (result.answer, journal.all(StopRequested)) == ("ok", [])
    assert texts(provider.requests[1])[-1].count("never mind") == 3
    assert result.state.metadata["rescued"] == "7"


def test_after_may_end_the_run_at_a_call_that_could_not_run():
    class Enough(Interceptor):
        async def after(self, call, result, context):
            raise AgentStop("enough", answer=result.code)

    for turn, code in ((BAD_CALLS, "invalid_arguments"), ("<execute>[7]</execute>", "malformed")):
        result, _, _ = play([turn, "never"], interceptors=[Enough()])
        assert (result.status, result.answer) == ("answered", code)


@pytest.mark.parametrize("turn", [adding(1, 2), BAD_CALLS])
def test_an_after_that_fails_at_any_call_is_contained(turn):
    class FailingAfter(Interceptor):
        async def after(self, call, result, context):
            raise LookupError("oh")

    result, _, _ = play([turn, "ok"], [add] if turn != BAD_CALLS else TOOLS, interceptors=[FailingAfter()])
    assert result.answer == "ok"
    assert {one.code for one in result.messages[2].results} == {"exception"}


def test_a_hook_of_a_call_changes_the_run_it_belongs_to():
    """Messages and metadata; the prompt and the tools of the next turn are a ModelInterceptor's, which reads them."""

    class Watches(Interceptor):
        async def before(self, call, context):
            context.say("Be careful with {{secret:KEY}}.")
            context.set("calls", context.metadata.get("calls", 0) + 1)
            return call

        async def after(self, call, result, context):
            context.say(f"{call.name} is done: hunter2hunter2")
            return result

    class Careful(ModelInterceptor):
        async def before(self, request, context):
            return replace(request, instructions=f"{context.metadata.get('calls', 0)} calls so far.")

    turns = [adding(1, 2), "3"]
    options = {"interceptors": [Watches(), Careful()], "secrets": {"KEY": "hunter2hunter2"}}
    result, journal, provider = play(turns, **options)
    queued_texts = [event.message.text for event in journal.all(UserMessageQueued)]
    assert queued_texts == ["Be careful with {{secret:KEY}}.", "add is done: {{secret:KEY}}"]
    read = "\n".join(texts(provider.requests[1]))
    assert 0 < read.index(queued_texts[0]) < read.index(queued_texts[1])
    assert "1 calls so far." in texts(provider.requests[1])[0]
    assert result.state.metadata == {"calls": 1}
