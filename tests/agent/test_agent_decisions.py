"""Decisions are bound to what was asked, and may come in another process."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from agent_helpers import WatchedJournal, an_agent, assert_pairs, calling, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import fewer
from toolspeak import Decision, Effects, Interceptor, RunError, tool
from toolspeak.agent import fold
from toolspeak.data.codec import dumps, loads
from toolspeak.data.events import ApprovalDecided, ApprovalRequested, ToolStarted
from toolspeak.errors import FormatError, JournalError, RunBusy
from toolspeak.execute import Escalate, Rule
from toolspeak.providers.scripted_provider import ScriptedProvider

ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@tool(effects=lambda path: Effects(writes={f"note:{path}"}))
def note(path: str, text: str = "") -> str:
    "Writes a note."
    ran.append((path, text))
    return f"wrote {path}"


TURN = calling("cogency-json", ("note", {"path": "x", "text": "1"}))


def go(agent, decision, tools=None):
    """Runs to the question, then goes on with the decision; a second agent's tools if given."""

    async def main():
        waiting = await agent.run("go")
        other = agent if tools is None else an_agent(["Done."], tools, approve=None, journal=agent._journal)
        return await other.resume(waiting, dict.fromkeys(waiting.waiting, decision))

    return asyncio.run(main())


def an_asking_agent(turns=(TURN, "Done."), tools=(note,), **options):
    options.setdefault("approve", None)
    return an_agent(ScriptedProvider(list(turns)), list(tools), journal=WatchedJournal(), **options)


CHANGES = {
    "description": lambda one: replace(one, spec=replace(one.spec, description="Sends a note.")),
    "parameters": lambda one: replace(one, spec=replace(one.spec, parameters={**one.spec.parameters, "title": "x"})),
    "effects at most": lambda one: replace(one, spec=replace(one.spec, effects=Effects(writes={"note:"}))),
    "effects": lambda one: replace(one, effects_of=lambda _: Effects(writes={"mail:"})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_tool_that_changed_is_asked_about_again(change):
    agent = an_asking_agent()
    result = go(agent, True, [CHANGES[change](note)])
    assert (result.status, ran) == ("awaiting_approval", [])
    first, second = agent._journal.all(ApprovalRequested)
    assert first.digest != second.digest
    assert result.requests == (second,)
    assert fold(agent._journal.records) == result.state


def test_arguments_that_changed_are_asked_about_again():
    texts_given = iter("123")

    class Stamps(Interceptor):
        async def before(self, call, context):
            return replace(call, arguments={**call.arguments, "text": next(texts_given)})

    agent = an_asking_agent(interceptors=(Stamps(),))
    result = go(agent, True)
    assert (result.status, ran) == ("awaiting_approval", [])
    assert [event.call.arguments["text"] for event in agent._journal.all(ApprovalRequested)] == ["1", "2"]


@settings(max_examples=fewer(25), deadline=None)
@given(st.text(max_size=3), st.text(max_size=3), st.text(max_size=3), st.text(max_size=3))
def test_a_yes_is_for_the_exact_arguments(path, text, other_path, other_text):
    ran.clear()
    given_arguments = iter([{"path": path, "text": text}, {"path": other_path, "text": other_text}])

    class Changes(Interceptor):
        async def before(self, call, context):
            return replace(call, arguments=next(given_arguments))

    go(an_asking_agent(interceptors=(Changes(),)), True)
    assert ran == ([(path, text)] if (path, text) == (other_path, other_text) else [])


def test_a_decision_for_another_request_is_refused():
    with pytest.raises(RunError, match="was made for another call"):
        go(an_asking_agent(), Decision(True, digest="0" * 64))


def test_a_person_changes_the_arguments_and_the_model_is_told():
    agent = an_asking_agent()
    result = go(agent, Decision(True, "shorter", "ann", arguments={"path": "y", "text": "2"}))
    assert (result.answer, ran) == ("Done.", [("y", "2")])
    assert "changed before it ran (shorter)" in texts(agent.driver.provider.requests[1])[-1]
    (start,) = agent._journal.all(ToolStarted)
    assert start.changed.arguments == {"path": "y", "text": "2"}
    assert start.effects == Effects(writes={"note:y"})
    assert fold(agent._journal.records) == result.state


def test_always_is_kept_with_the_agent():
    turns = [TURN, calling("cogency-json", ("note", {"path": "z"})), "Done."]
    agent = an_asking_agent(turns)
    assert go(agent, Decision(True, by="ann", always=Rule("approve", "note"))).answer == "Done."
    assert ran == [("x", "1"), ("z", "")]
    (standing_rule,) = agent.rules
    assert (standing_rule.by, standing_rule.rule) == ("ann", Rule("approve", "note"))
    agent.rules.revoke(standing_rule.id)
    assert len(agent.rules) == 0


ALWAYS = Decision(True, by="ann", always=Rule("approve", "note"))


@pytest.mark.parametrize("by_id", [True, False])
def test_always_is_not_kept_when_another_process_drives_the_run(by_id):
    agent = an_asking_agent()

    async def main():
        waiting = await agent.run("go")
        await agent._journal.acquire(waiting.run_id, "another process", 30)
        with pytest.raises(RunBusy):
            await agent.resume(waiting.run_id if by_id else waiting, {"call_1_0": ALWAYS})

    asyncio.run(main())
    assert list(agent.rules) == []
    assert agent._journal.all(ApprovalDecided) == []


@pytest.mark.parametrize("by_id", [True, False])
def test_always_is_not_kept_when_the_decision_is_not_recorded(by_id):
    agent = an_asking_agent()

    def fails(record):
        if isinstance(record.event, ApprovalDecided):
            raise JournalError("the disk is full")

    agent._journal.look = fails

    async def main():
        waiting = await agent.run("go")
        with pytest.raises(JournalError):
            await agent.resume(waiting.run_id if by_id else waiting, {"call_1_0": ALWAYS})

    asyncio.run(main())
    assert list(agent.rules) == []
    assert ran == []


def test_what_an_approver_leaves_open_waits_and_what_it_decided_holds():
    async def unsure(request):
        return Escalate() if request.call.arguments["path"] == "b" else Decision(True, by="callback")

    turn = calling("cogency-json", ("note", {"path": "a"}), ("note", {"path": "b"}))
    agent = an_asking_agent([turn, "Done."], approve=unsure)

    async def main():
        waiting = await agent.run("go")
        assert (waiting.waiting, ran) == (("call_1_1",), [])
        return await agent.resume(waiting, {"call_1_1": Decision(False, "not b")})

    result = asyncio.run(main())
    assert (result.answer, ran) == ("Done.", [("a", "")])
    assert [event.by for event in agent._journal.all(ApprovalDecided)] == ["callback", ""]
    assert_pairs(result.messages)


OTHER_PROCESS = """
import asyncio, sys
from toolspeak import Agent, Effects, tool
from toolspeak.providers.scripted_provider import ScriptedProvider

@tool(effects=lambda path: Effects(writes={f"note:{path}"}))
def note(path: str, text: str = "") -> str:
    "Writes a note."
    print("ran", path, text)
    return f"wrote {path}"

async def main():
    agent = Agent(ScriptedProvider(["Done there."]), [note])
    waiting = await agent.loads(sys.stdin.read())
    result = await agent.resume(waiting, {waiting.requests[0].call_id: True})
    print(result.answer, waiting.memory)

asyncio.run(main())
"""


@pytest.mark.over_a_second
def test_a_run_goes_on_in_another_process():
    agent = an_asking_agent()

    async def pause():
        waiting = await agent.run("go")
        waiting.memory.update(seen={"a": "b"})
        return waiting, await waiting.dumps()

    waiting, text = asyncio.run(pause())
    assert all(json.loads(line) for line in text.splitlines())
    command = [sys.executable, "-c", OTHER_PROCESS]
    process = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60)
    assert process.stdout == "ran x 1\nDone there. {'seen': {'a': 'b'}}\n"
    assert loads(dumps(waiting.requests[0])) == waiting.requests[0]
    for bad_text in ("", "{}", text[: len(text) // 2], "\n".join(text.splitlines()[:-1])):
        with pytest.raises(FormatError):
            asyncio.run(agent.loads(bad_text))
