"""What a program may put in place of the loop's own parts, and what it hears of them."""

import asyncio
import json
from contextlib import aclosing, nullcontext
from dataclasses import replace

import pytest
from agent_helpers import TOOLS, WatchedJournal, add, adding, an_agent, calling, play

from toolspeak import (
    Agent,
    Approval,
    ConfigurationError,
    Decision,
    Execution,
    Executor,
    MemoryJournal,
    Output,
    ProviderError,
    Rule,
    RunContext,
    Toolset,
    tool,
)
from toolspeak.agent import ModelInterceptor, ReActDriver, StepEnded
from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.events import (
    ApprovalDecided,
    ApprovalRequested,
    ModelAnswered,
    ModelAsked,
    Record,
    RunFinished,
    RunStarted,
    SubRunUsed,
    ToolFinished,
    ToolStarted,
)
from toolspeak.data.messages import Message, ToolCall, ToolResult
from toolspeak.dialects import get_dialect
from toolspeak.execute import BatchResult, StandingRules, ToolCallCompleted, ToolCallStarted
from toolspeak.execute.calls.observe import DecisionTaken, DecisionValidationFailed
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedProvider


def kinds(items):
    return [type(each.event if isinstance(each, Record) else each) for each in items]


# --- one subscription to everything --------------------------------------------------------------------------------


def test_observers_are_told_of_turns_steps_calls_and_approvals():
    async def yes(request):
        return Decision(True)

    observations = []
    turns = [calling("cogency-json", ("note", {"path": "a"})), "done"]
    result, journal, _ = play(turns, observers=[observations.append], approve=yes)
    assert [each.event for each in observations if isinstance(each, Record)] == journal.events
    assert kinds(observations) == [
        RunStarted, ModelAsked, ModelAnswered, ApprovalRequested, ApprovalDecided, ToolStarted, ToolCallStarted,
        ToolFinished, StepEnded, ToolCallCompleted, ModelAsked, ModelAnswered, StepEnded, RunFinished,
    ]  # fmt: skip
    assert tuple(each.step for each in observations if isinstance(each, StepEnded)) == result.steps


def test_the_events_of_a_run_are_what_observers_are_told():
    observed_items, items = [], []

    async def go():
        run = an_agent([adding(1, 2), "3"], observers=[observed_items.append]).start("x")
        items.extend([event async for event in run.events()])
        return run

    run = asyncio.run(go())
    assert run.state.answer == "3"
    assert items == observed_items
    assert kinds(items)[-1] is RunFinished


def test_an_observer_hears_of_the_runs_that_tools_start():
    child = Agent(ScriptedProvider([adding(3, 4), "7"]), [add], name="child")

    @tool(read_only=True)
    async def delegate(task: str, context: RunContext) -> str:
        "Has somebody else do it."
        return (await child.run(task, parent_run_id=context.state.run_id)).answer

    observations = []
    tools = Toolset([delegate])
    result, _, _ = play([calling("cogency-json", ("delegate", {"task": "3+4"}), tools=tools), "7"], tools,
                        observers=[observations.append])  # fmt: skip
    theirs = [each for each in observations if isinstance(each, Record) and each.parent_run_id == result.run_id]
    assert [type(each.event) for each in theirs] == [
        RunStarted, ModelAsked, ModelAnswered, ToolStarted, ToolFinished, ModelAsked, ModelAnswered, RunFinished,
    ]  # fmt: skip
    assert {each.agent for each in theirs} == {"child"}
    assert SubRunUsed in kinds(observations)
    agents = [each.run.agent for each in observations if isinstance(each, ToolCallStarted)]
    assert sorted(agents) == ["agent", "child"]


def test_an_observer_that_fails_changes_nothing(caplog):
    def failing_observer(event):
        raise LookupError("oh")

    result, _, _ = play([adding(1, 2), "3"], observers=[failing_observer])
    assert result.answer == "3"
    assert "LookupError: oh" in caplog.text


# --- ReAct ----------------------------------------------------------------------------------------------------------


def test_a_react_driver_of_ones_own_prompt_and_schema():
    """Decisions of another form: a plan, and the step to take."""

    def prompt(tools):
        return "Plan first. Tools: " + ", ".join(spec.name for spec in tools)

    def schema(tools):
        act = {"enum": [*(spec.name for spec in tools), "finish"]}
        return {
            "type": "object",
            "properties": {"plan": {"type": "array"}, "act": act, "with": {}},
            "required": ["act"],
        }

    def read(fields):
        if fields.get("act") == "finish":
            return {"type": "final_answer", "answer": fields.get("with")}
        return {"type": "call_tool", "tool": fields.get("act"), "args": fields.get("with"), "thought": "planned"}

    replies = [
        {"plan": ["add", "say"], "act": "add", "with": {"a": 1}},
        {"plan": ["add", "say"], "act": "add", "with": {"a": 1, "b": 2}},
        {"plan": ["say"], "act": "finish", "with": "3"},
    ]
    provider = ScriptedProvider([json.dumps(reply) for reply in replies], capabilities=Capabilities(output=True))
    observations = []
    driver = ReActDriver(provider, prompt=prompt, schema=schema, read=read)
    result = Agent(driver, [add], observers=[observations.append]).run_sync("1+2?")
    assert (result.answer, result.steps[0].executions[0].value) == ("3", 3)
    assert provider.requests[0].messages[0].text == "Plan first. Tools: add"
    assert provider.requests[0].output.schema == schema([add.spec])
    decisions = [each for each in observations if isinstance(each, DecisionTaken | DecisionValidationFailed)]
    assert [type(each) for each in decisions] == [DecisionValidationFailed, DecisionTaken, DecisionTaken]
    assert decisions[0].errors == ("\"args\" lacks 'b', which 'add' requires",)
    assert (decisions[1].tool, decisions[1].attempt, decisions[1].decision) == ("add", 2, replies[1])
    assert (decisions[2].type, decisions[2].decision["plan"]) == ("final_answer", ["say"])


# --- an executor of one's own ---------------------------------------------------------------------------------------


class Counting:
    """Goes around another executor."""

    def __init__(self, inner):
        self.inner, self.batches = inner, []
        self.tools = inner.tools

    async def run(self, calls, **how):
        self.batches.append([call.name for call in calls])
        return await self.inner.run(calls, **how)


def test_an_agent_runs_its_calls_with_the_executor_it_is_given():
    executor = Counting(Executor(TOOLS, max_result_bytes=50))
    result, journal, _ = play([adding(1, 2), "3"], (), execution=executor)
    assert (result.answer, executor.batches) == ("3", [["add"]])
    assert [one.structured for one in journal.results()] == [3]
    result, _, _ = play([adding(1, 2), "3"], (), execution=Executor(TOOLS))
    assert result.steps[0].executions[0].value == 3


def test_results_that_an_executor_does_not_record_are_recorded_for_it():
    class Remote:
        async def run(self, calls, **how):
            return BatchResult(tuple(ToolResult(call.id, call.name, "success", ()) for call in calls))

    result, journal, _ = play([adding(1, 2), "3"], execution=Remote())
    assert result.answer == "3"
    assert [type(event) for event in journal.events].count(ToolFinished) == 1

    class Forgets:
        async def run(self, calls, **how):
            return BatchResult(())

    with pytest.raises(ConfigurationError, match=r"Forgets\.run gave no result for call_1_0"):
        play([adding(1, 2), "3"], execution=Forgets())


def test_an_executor_of_ones_own_keeps_calls_waiting_for_a_yes():
    executor = Counting(Executor(TOOLS))
    turns = [calling("cogency-json", ("note", {"path": "a"})), "done"]
    agent = an_agent(ScriptedProvider(turns), (), execution=executor, approve=None)
    waiting = agent.run_sync("x")
    assert waiting.status == "awaiting_approval"
    result = asyncio.run(agent.resume(waiting, dict.fromkeys(waiting.waiting, True)))
    assert (result.answer, len(executor.batches)) == ("done", 2)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"approve": Approval(policy=[Rule("approve")])}, "policy: pass it to the executor"),
        ({"approve": Approval(rules=StandingRules())}, "rules: pass it to the executor"),
        ({"execution": object()}, "or an executor with a method `run`"),
        ({"execution": Executor}, "or an executor with a method `run`"),
        ({"output": Output(int, mode="tool")}, "mode='prompted'"),
    ],
)
def test_settings_that_the_executor_has_are_not_said_twice(options, problem):
    with pytest.raises(ConfigurationError, match=problem):
        Agent(ScriptedProvider([]), **{"execution": Executor(TOOLS), **options})


# --- a driver of one's own ------------------------------------------------------------------------------------------


class Looks:
    """Looks something up by itself in each turn, before it answers."""

    name, starts_early = "mine", False

    def __init__(self, *calls):
        self.calls, self.turns, self.sums = calls, 0, []

    def prompt(self, request):
        return request.instructions

    def open(self, run):
        self.run = run
        return self

    async def turn(self, request):
        self.turns += 1
        if not any(message.results for message in request.messages):
            self.run.notify("looking")
            executions = await self.run.run_tools([ToolCall("", name, arguments) for name, arguments in self.calls])
            self.sums += [each.value for each in executions]
            yield TextDelta(f"{self.sums} for {request.state.principal}")
        else:
            yield TextDelta("already looked up")
        yield TurnEnded("stop")

    async def aclose(self):
        pass


def test_a_driver_runs_tools_within_its_turn():
    driver, observations, journal = Looks(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), [], WatchedJournal()
    agent = Agent(driver, TOOLS, observers=[observations.append], journal=journal)
    result = agent.run_sync("x", principal="ann")
    assert result.answer == "[3, 7] for ann"
    assert [[each.value for each in step.executions] for step in result.steps] == [[3, 7], []]
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert "looking" in observations
    assert driver.turns == 1
    assert journal.kinds.count("ToolFinished") == 2


def test_the_calls_of_a_driver_wait_for_a_yes_and_the_turn_is_asked_for_anew():
    driver = Looks(("note", {"path": "a"}))
    agent = Agent(driver, TOOLS, journal=MemoryJournal())
    waiting = agent.run_sync("x")
    assert (waiting.status, driver.sums, len(waiting.waiting)) == ("awaiting_approval", [], 1)
    result = asyncio.run(agent.resume(waiting.run_id, dict.fromkeys(waiting.waiting, True)))
    assert (result.status, result.answer, driver.turns) == ("answered", "already looked up", 2)
    assert result.steps[0].executions[0].value == "wrote a"


def test_a_driver_whose_call_ends_the_run_is_left_there():
    driver = Looks(("nosuch", {}))
    result = Agent(driver, TOOLS, execution=Execution(throw_on_failure=True)).run_sync("x")
    assert (result.status, result.reason, driver.sums) == ("failed", "tool_failure", [])
    assert "no tool is called 'nosuch'" in result.error


class Talks:
    """A driver whose conversations count their turns, and note when they are closed."""

    name, starts_early = "mine", False

    def __init__(self, *turns):
        self.turns, self.talks, self.closed_talks = iter(turns), [], []

    def prompt(self, request):
        return ""

    def open(self, run):
        talk = Talk(self)
        self.talks.append(talk)
        return talk

    async def aclose(self):
        pass


class Talk:
    def __init__(self, driver):
        self.driver, self.read = driver, []

    async def turn(self, request):
        self.read.append(len(request.messages))
        text = next(self.driver.turns)
        if text is None:
            raise ProviderError("down")
        for delta in get_dialect("cogency-json").parser(request.tools).feed(text):
            yield delta
        yield TurnEnded("stop")

    async def aclose(self):
        self.driver.closed_talks.append(self)


@pytest.mark.parametrize("end", ["answered", "failed", "left"])
def test_a_run_has_one_conversation_with_its_driver_and_closes_it(end):
    call = '<execute>[{"name": "add", "args": {"a": 1, "b": 2}}]</execute>'
    driver = Talks(call, call, None if end == "failed" else "3")
    agent = Agent(driver, TOOLS)

    async def go():
        if end != "left":
            await agent.run("x")
            return
        async with aclosing(agent.iterate("x")) as states:
            async for state in states:
                if state.step == 2:
                    return

    with pytest.raises(ProviderError) if end == "failed" else nullcontext():
        asyncio.run(go())
    (talk,) = driver.talks
    assert talk.read == ([1, 3] if end == "left" else [1, 3, 5])
    assert driver.closed_talks == [talk]


def test_messages_that_an_interceptor_changed_get_a_conversation_of_their_own():
    class Shortens(ModelInterceptor):
        async def before(self, request, context):
            return replace(request, messages=request.messages[-1:]) if len(request.messages) > 1 else request

    call = '<execute>[{"name": "add", "args": {"a": 1, "b": 2}}]</execute>'
    driver = Talks(call, call, "3")
    Agent(driver, TOOLS, interceptors=[Shortens()]).run_sync("x")
    assert [talk.read for talk in driver.talks] == [[1], [1], [1]]
    assert sorted(map(id, driver.closed_talks)) == sorted(map(id, driver.talks))


def test_history_of_messages_is_what_the_next_run_goes_on_with():
    result = Agent(Looks(("add", {"a": 1, "b": 2})), TOOLS).run_sync("x")
    again, _, _ = play(["fine"], run={"history": result.messages})
    assert [message.role for message in again.messages][:4] == ["user", "assistant", "tool", "assistant"]
    assert Message.user("do it") in again.messages
