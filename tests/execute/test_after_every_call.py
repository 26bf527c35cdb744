"""`after` gets every call that its `before` let pass, whatever keeps the call from running."""

import asyncio
from dataclasses import replace

import pytest
from executor_helpers import Recorder, a_call, results_of, run_batch

from toolspeak import Agent, AgentStop
from toolspeak.agent import Cassette, StepEnded
from toolspeak.data.events import ToolFinished
from toolspeak.data.messages import TextPart
from toolspeak.execute import ANSWERED_FROM, Answer, BatchContext, Block, Decision, Interceptor, ToolCallCompleted
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools import Effects, tool


@tool(effects=lambda page: Effects(reads={page}))
async def read(page: str) -> str:
    return f"page {page}"


@tool(effects=lambda page: Effects(writes={page}))
async def write(page: str) -> str:
    return "written"


class Audit(Interceptor):
    """Notes each call on its way in and out. `gate` is what its `before` returns instead of the call."""

    def __init__(self, name="audit", gate=None, note=None):
        self.name, self.gate, self.note, self.log = name, gate, note, []

    async def before(self, call, context):
        self.log.append(("before", call.name, call.arguments))
        return call if self.gate is None else self.gate(call)

    async def after(self, call, result, context):
        self.log.append(("after", call.name, result.code or "success"))
        return replace(result, content=(*result.content, TextPart(self.note))) if self.note else result

    @property
    def outcomes(self):
        return [code for hook, _, code in self.log if hook == "after"]


def through(*pipeline, calls, tools=(read, write), **arguments):
    options = {"interceptors": pipeline, **arguments.pop("options", {})}
    return results_of(tools, calls, options=options, **arguments)


def test_a_rejected_call_comes_to_after():
    async def person(request):
        return Decision(False, "not today")

    audit = Audit()
    (result,) = through(audit, calls=[a_call("write", page="a")], approver=person)
    assert audit.log == [("before", "write", {"page": "a"}), ("after", "write", "rejected")]
    assert result.text == "the call was rejected: not today"


def test_a_call_rejected_by_a_standing_approver_comes_to_after():
    for approve in ("none", None):
        audit = Audit()
        provider = ScriptedProvider([ScriptedTurn("", calls=[ScriptedCall("write", {"page": "a"})]), "Then not."])
        agent = Agent(provider, [write], approve=approve, interceptors=[audit])
        result = agent.run_sync("Write.", principal="ada")
        if result.requests:  # it waits, and is rejected later: `before` is called again, `after` once
            assert audit.outcomes == []
            result = asyncio.run(agent.resume(result, {result.requests[0].call_id: False}))
        assert audit.outcomes == ["rejected"]


def test_outer_interceptors_get_what_an_inner_one_blocks_answers_or_breaks():
    def breaks(call):
        raise ValueError("oh no")

    def stops(call):
        raise AgentStop("enough")

    verdicts = [
        (lambda call: Block("no"), "blocked"),
        (lambda call: Answer("known"), "success"),
        (breaks, "exception"),
    ]
    for gate, code in verdicts:
        outer, inner, innermost = Audit(), Audit(gate=gate), Audit()
        through(outer, inner, innermost, calls=[a_call("read", page="a")])
        assert (outer.outcomes, inner.outcomes, innermost.log) == ([code], [], [])
    outer = Audit()
    with pytest.raises(AgentStop, match="enough"):
        through(outer, Audit(gate=stops), calls=[a_call("read", page="a")])
    assert outer.outcomes == ["success"]  # the call whose interceptor ended the run


def test_after_gets_the_call_as_it_was_let_pass():
    outer = Audit(gate=lambda call: replace(call, arguments={"page": "b"}))
    inner = Audit(gate=lambda call: Block("no"))
    arguments = []

    class Sees(Interceptor):
        async def after(self, call, result, context):
            arguments.append(call.arguments)
            return result

    through(Sees(), outer, inner, calls=[a_call("read", page="a")])
    assert arguments == [{"page": "b"}]


def test_a_result_of_after_is_recorded_for_a_call_that_did_not_run():
    recorder, outer = Recorder(), Audit(note=" (ask Bob)")
    through(outer, Audit(gate=lambda call: Block("no")), calls=[a_call("read", "c", page="a")], emit=recorder)
    assert [event.result.text for event in recorder.events if isinstance(event, ToolFinished)] == ["no (ask Bob)"]


def test_a_read_answered_from_the_run_comes_to_after_and_is_not_changed_twice():
    audit, context, ran = Audit(note=" [checked]"), BatchContext("run"), []

    @tool(effects=lambda page: Effects(reads={page}))
    async def look(page: str) -> str:
        ran.append(page)
        return f"page {page}"

    def again(*pipeline):
        (result,) = through(*pipeline, calls=[a_call("look", page="a")], tools=[look], context=context)
        return result

    first, second, third = again(audit), again(audit), again(audit)
    assert ran == ["a"]
    assert audit.outcomes == ["success"] * 3
    assert ANSWERED_FROM not in first.extra
    assert first.text == "page a [checked]"
    for later in (second, third):
        assert ANSWERED_FROM in later.extra
        assert later.text.count("[checked]") == 1

    class Crashes(Interceptor):
        async def after(self, call, result, context):
            raise ValueError("oh no")

    assert again(Crashes()).text.startswith("the interceptor Crashes failed")


def test_calls_that_a_stop_or_a_decision_keeps_from_running_come_to_after():
    @tool(effects=lambda page: Effects(writes={page}))
    async def ends(page: str) -> str:
        raise AgentStop("that is all")

    audit, calls = Audit(), [a_call("ends", page="a"), a_call("write", page="a")]
    with pytest.raises(AgentStop) as stop:
        through(audit, calls=calls, tools=[ends, write])
    assert [result.code for result in stop.value.batch.results] == [None, "skipped"]
    assert audit.outcomes == ["success", "skipped"]

    async def person(request):
        return Decision(request.call.arguments["page"] == "a", ends_run=request.call.arguments["page"] == "b")

    audit, calls = Audit(), [a_call("write", page="a"), a_call("write", page="b")]
    with pytest.raises(AgentStop) as stop:
        through(audit, calls=calls, approver=person)
    assert [result.code for result in stop.value.batch.results] == ["skipped", "rejected"]
    assert sorted(audit.outcomes) == ["rejected", "skipped"]


def test_a_call_that_is_skipped_before_its_before_does_not_come_to_after():
    audit, gate = Audit(), Audit(gate=lambda call: Block("no") if call.name == "write" else call)
    calls = [a_call("write", page="a"), a_call("read", page="b")]
    results = through(audit, gate, calls=calls, options={"stop_on_block": True})
    assert [result.code for result in results] == ["blocked", "skipped"]
    assert audit.log == [("before", "write", {"page": "a"}), ("after", "write", "blocked")]


def test_a_stop_in_an_inner_after_does_not_hide_the_call_from_the_outer_ones():
    class Enough(Interceptor):
        async def after(self, call, result, context):
            raise AgentStop("enough", answer=result.text)

    outer, inner = Audit(), Audit(note=" (short)")
    with pytest.raises(AgentStop) as stop:
        through(outer, Enough(), inner, calls=[a_call("read", page="a")])
    assert stop.value.answer == "page a (short)"
    assert [result.text for result in stop.value.batch.results] == ["page a (short)"]
    assert outer.outcomes == ["success"]


def test_a_call_cut_off_by_the_runs_time_comes_to_after():
    pages_begun = []

    @tool(read_only=True)
    async def hangs(page: str) -> str:
        pages_begun.append(page)
        await asyncio.Event().wait()
        return "never"

    audit = Audit()
    (result,) = through(audit, calls=[a_call("hangs", page="a")], tools=[hangs], deadline=0.05)
    assert (result.code, audit.outcomes, pages_begun) == ("timeout", ["timeout"], ["a"])


def test_a_paused_batch_calls_no_after():
    async def waits():
        audit = Audit()
        executor_options = {"interceptors": (audit,)}
        batch = await run_batch([write], [a_call("write", page="a")], approver=None, options=executor_options)
        return batch, audit

    batch, audit = asyncio.run(waits())
    assert [request.call.name for request in batch.pending] == ["write"]
    assert audit.outcomes == []


def test_hooks_and_observers_know_the_principal_and_the_agent():
    principals, events = [], []

    class Who(Interceptor):
        async def before(self, call, context):
            principals.append((context.principal, context.agent))
            return call

    provider = ScriptedProvider([ScriptedTurn("", calls=[ScriptedCall("read", {"page": "a"})]), "Read."])
    agent = Agent(provider, [read], name="reader", interceptors=[Who()], observers=[events.append])
    agent.run_sync("Read.", principal="ada")
    assert principals == [("ada", "reader")]
    origins = [event.run for event in events if isinstance(event, StepEnded | ToolCallCompleted)]
    assert {(origin.principal, origin.agent) for origin in origins} == {("ada", "reader")}
    assert len(origins) == 3


def test_observers_learn_what_a_call_that_did_not_run_was_to_do():
    events = []
    texts = [
        '<tool_call>{"name": "read", "arguments": {"page": 7}}</tool_call>',
        '<tool_call>{"name": "read", "arguments": {"page": </tool_call>',
        "Read.",
    ]
    agent = Agent(ScriptedProvider(texts), [read], dialect="hermes", observers=[events.append])
    agent.run_sync("Read.")
    wrong, malformed_event = [event for event in events if isinstance(event, ToolCallCompleted)]
    assert (wrong.tool, wrong.args, wrong.result.code, wrong.raw) == ("read", {"page": 7}, "invalid_arguments", "")
    assert (malformed_event.tool, malformed_event.args, malformed_event.result.code) == ("", {}, "malformed")
    assert '{"name": "read", "arguments": {"page": ' in malformed_event.raw
    assert not malformed_event.success
    assert malformed_event.error == malformed_event.result.text != ""


def test_a_replay_calls_after_as_the_recording_did(tmp_path):
    def play(mode):
        calls = [ScriptedCall("read", {"page": "a"}), ScriptedCall("write", {"page": "b"})]
        turns = [ScriptedTurn("", calls=calls), ScriptedTurn("", calls=calls[:1]), "Read."]
        audit = Audit(note=" [checked]")
        cassette = getattr(Cassette, mode)(tmp_path / "run.jsonl")
        agent = Agent(ScriptedProvider(turns), [read, write], approve="none", interceptors=[audit], cassette=cassette)
        result = agent.run_sync("Read.")
        return audit.log, [message.results for message in result.messages if message.role == "tool"]

    recording = play("record")
    assert sorted(code for hook, _, code in recording[0] if hook == "after") == ["rejected", "success", "success"]
    assert play("replay") == recording
