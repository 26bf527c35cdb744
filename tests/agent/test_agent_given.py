"""What cannot be meant is refused where it is given, with what belongs there."""

import asyncio
from functools import partial

import pytest
from agent_helpers import add, adding, an_agent, calling

from toolspeak import (
    Agent,
    Concurrency,
    Decision,
    Effects,
    Executor,
    Interceptor,
    Limits,
    MemoryJournal,
    Rule,
    RunContext,
    Session,
    Toolset,
    UsageError,
    tool,
)
from toolspeak.errors import ToolDefinitionError
from toolspeak.providers.scripted import ScriptedProvider

TURNS = [adding(1, 2), "3"]

RUN_OPTIONS = [
    ({"banana": 2}, "no option 'banana'.*Known: deps, history, limits"),
    ({"limit": Limits()}, "Did you mean 'limits'"),
    ({"history": "hello"}, "history is a list of Messages"),
    ({"history": [{"role": "user", "content": "hello"}]}, "history is a list of Messages.*'role'"),
    ({"limits": 3}, r"Limits\(steps=20\)"),
    ({"limits": {"steps": 3}}, "limits is a Limits"),
    ({"limits": Limits(steps="3")}, "steps='3'.*a number"),
    ({"limits": Limits(cost=-1)}, "a number from 0 up"),
    ({"setup": ["a"]}, "setup is a dict of JSON"),
    ({"setup": {"a": object()}}, "setup is a dict of JSON"),
    ({"principal": 7}, "principal is a text"),
    ({"tool_choice": 3}, "tool_choice is 'auto'"),
]


@pytest.mark.parametrize(("options", "told"), RUN_OPTIONS)
def test_an_option_of_a_run_that_cannot_be_meant(options, told):
    agent = an_agent(TURNS)
    with pytest.raises(UsageError, match=told):
        agent.run_sync("x", **options)
    with pytest.raises(UsageError, match=told):
        agent.start("x", **options)
    if "principal" not in options:
        with pytest.raises(UsageError, match=told):
            asyncio.run(Session(an_agent(TURNS, journal=MemoryJournal())).run("x", **options))


@pytest.mark.parametrize("task", [None, ["x"], {"role": "user", "content": "x"}])
def test_a_task_that_is_no_message(task):
    with pytest.raises(UsageError, match=r"the task is a text or a Message \(Message.user"):
        an_agent(TURNS).run_sync(task)


def refuse(request):
    return Decision(False)


SETTINGS = [
    ({"approve": lambda request: True}, "approve is an async function.*<lambda> is not async.*async def"),
    ({"approve": refuse}, "refuse is not async"),
    ({"tools": {"add": add}}, "tools is a list of functions"),
    ({"tools": add}, r"tools=\[it\]"),
    ({"tools": "add"}, "tools is a list of functions"),
    ({"tools": [{"type": "function", "function": {"name": "add"}}]}, "is a dict.*a tool is a typed function"),
    ({"limits": 3}, "limits is a Limits"),
    ({"concurrency": 4}, r"Concurrency\(batch=4\)"),
    ({"interceptors": [Interceptor]}, "the class Interceptor; give an instance"),
    ({"observers": print}, r"observers=\[it\]"),
    ({"observers": [1]}, "an observer is a function"),
    ({"journal": "x.db"}, r"SqliteJournal\(path\)"),
    ({"policy": Rule("add", "approve")}, "a function of a request, or a list of Rules"),
    ({"policy": ["add"]}, "a function of a request, or a list of Rules"),
    ({"rules": []}, "StandingRules"),
    ({"window": "8k"}, "a number of tokens"),
    ({"instructions": None}, "instructions is a text"),
    ({"name": None}, "name is a text"),
    ({"tool_timeout": -1}, "seconds above 0"),
    ({"tool_timeout": "5"}, "seconds above 0"),
    ({"prices": {"m": 3}}, "a Price"),
    ({"cassette": "x.jsonl"}, "a Cassette"),
    ({"secrets": ["hunter2"]}, "a dict of names and values"),
    ({"starts_in": "thinking"}, "'text' or 'reasoning'"),
]


@pytest.mark.parametrize(("options", "told"), SETTINGS)
def test_a_setting_of_an_agent_that_cannot_be_meant(options, told):
    with pytest.raises(UsageError, match=told):
        Agent(ScriptedProvider(TURNS), **options)


def test_a_class_is_no_model_and_a_name_no_agent():
    with pytest.raises(UsageError, match="the class ScriptedProvider; give an instance"):
        Agent(ScriptedProvider)
    with pytest.raises(UsageError, match="an Agent's"):
        Session("openai:gpt-5")


def test_an_executor_has_a_toolset():
    with pytest.raises(UsageError, match=r"Executor\(Toolset"):
        Executor([add])


def test_decisions_are_by_call():
    with pytest.raises(UsageError, match="a dict by call id"):
        asyncio.run(an_agent(TURNS, journal=MemoryJournal()).resume("r", ["call_1_0"]))


@pytest.mark.parametrize("early_start", [True, False])
@pytest.mark.parametrize("given", [{"a"}, None, "a"])
def test_effects_that_are_none_end_the_run_with_what_belongs_there(early_start, given):
    ran = []

    @tool(effects=lambda path: given)
    def put(path: str) -> str:
        "Puts."
        ran.append(path)
        return path

    turns = [calling("cogency-json", ("put", {"path": "a"}), tools=Toolset([put])), "done"]
    with pytest.raises(ToolDefinitionError, match=r"tool 'put': effects gave a .*Effects\(writes="):
        an_agent(turns, [put], early_start=early_start).run_sync("x")
    assert ran == []


def test_what_can_be_meant_still_is():
    async def approve(request, answer):
        return Decision(answer)

    class Approver:
        def __call__(self, request):
            return approve(request, True)

    for each in (partial(approve, answer=True), Approver()):
        assert an_agent(TURNS, approve=each, concurrency=Concurrency(batch=1), window=8_000).run_sync("x").answer == "3"


class Store:
    def get(self, key):
        return key


@tool(read_only=True)
def stored(key: str, ctx: RunContext[Store]) -> str:
    "What is stored."
    return ctx.deps.get(key)


@tool(effects=Effects(writes={"x"}))
def maybe(key: str, ctx: RunContext[Store | None]) -> str:
    "What is stored, if there is a store."
    return "" if ctx.deps is None else ctx.deps.get(key)


def test_forgotten_deps_are_told_before_anything_is_asked():
    provider = ScriptedProvider([calling("cogency-json", ("stored", {"key": "a"}), tools=Toolset([stored])), "a"])
    agent = Agent(provider, [stored, maybe, add], journal=MemoryJournal())
    with pytest.raises(UsageError, match=r"stored \(Store\).*agent.run\(task, deps=…\)"):
        agent.run_sync("x")
    with pytest.raises(UsageError, match="no deps"):
        asyncio.run(agent.resume("r"))
    assert provider.requests == []
    assert agent.run_sync("x", deps=Store()).answer == "a"


def test_tools_that_can_do_without_deps_need_none():
    @tool(read_only=True)
    def plain(ctx: RunContext) -> str:
        "Plain."
        return str(ctx.deps)

    @tool(read_only=True)
    def anything(ctx: RunContext[object]) -> str:
        "Anything."
        return str(ctx.deps)

    tools = Toolset([plain, anything, maybe])
    assert an_agent([calling("cogency-json", ("plain", {}), tools=tools), "ok"], tools).run_sync("x").answer == "ok"
