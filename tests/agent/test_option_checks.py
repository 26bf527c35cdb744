"""What cannot be meant is refused where it is given, with what belongs there."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from agent_helpers import add, adding, an_agent, calling

from toolspeak import (
    Agent,
    Approval,
    Concurrency,
    ConfigurationError,
    Decision,
    DialectSettings,
    Effects,
    Execution,
    Interceptor,
    Limits,
    MemoryJournal,
    Output,
    Rule,
    RunContext,
    Session,
    Toolset,
    tool,
)
from toolspeak.errors import ToolDefinitionError
from toolspeak.providers.scripted_provider import ScriptedProvider

TURNS = [adding(1, 2), "3"]

RUN_OPTIONS = [
    ({"banana": 2}, "no option 'banana'.*Known: deps, history, limits"),
    ({"limit": Limits()}, "Did you mean 'limits'"),
    ({"history": "hello"}, "history must be a list of Messages"),
    ({"history": [{"role": "user", "content": "hello"}]}, "history must be a list of Messages.*'role'"),
    ({"limits": 3}, r"Limits\(steps=20\)"),
    ({"limits": {"steps": 3}}, "limits must be a Limits"),
    ({"limits": Limits(steps="3")}, "steps='3'.*a number"),
    ({"limits": Limits(cost=-1)}, "a number from 0 up"),
    ({"setup": ["a"]}, "setup must be a dict of JSON"),
    ({"setup": {"a": object()}}, "setup must be a dict of JSON"),
    ({"principal": 7}, "principal must be a string"),
    ({"tool_choice": 3}, "tool_choice must be 'auto'"),
]


@pytest.mark.parametrize(("options", "problem"), RUN_OPTIONS)
def test_an_option_of_a_run_that_cannot_be_meant(options, problem):
    agent = an_agent(TURNS)
    with pytest.raises(ConfigurationError, match=problem):
        agent.run_sync("x", **options)
    with pytest.raises(ConfigurationError, match=problem):
        agent.start("x", **options)
    if "principal" not in options:
        with pytest.raises(ConfigurationError, match=problem):
            asyncio.run(Session(an_agent(TURNS, journal=MemoryJournal())).run("x", **options))


@pytest.mark.parametrize("task", [None, ["x"], {"role": "user", "content": "x"}])
def test_a_task_that_is_no_message(task):
    with pytest.raises(ConfigurationError, match=r"the task must be a string or a Message \(Message.user"):
        an_agent(TURNS).run_sync(task)


def refuse(request):
    return Decision(False)


async def look(event):
    return None


class Unasync(Interceptor):
    def before(self, call, context):
        return call


class SyncInterceptor:
    level = "model"

    def after(self, request, turn, context):
        return turn


SETTINGS = [
    ({"approve": lambda request: True}, "approve is an async function.*<lambda> is not async.*async def"),
    ({"approve": refuse}, "refuse is not async"),
    ({"approve": Approval(policy=look)}, "must be a plain function, and .*look.* is async"),
    ({"observers": [look]}, "must not be async, but .*look.* is"),
    ({"interceptors": [Unasync()]}, "Unasync.before is not async; write `async def before`"),
    ({"interceptors": [SyncInterceptor()]}, "SyncInterceptor.after is not async"),
    ({"tools": {"add": add}}, "tools must be a list of functions"),
    ({"tools": add}, r"tools=\[it\]"),
    ({"tools": "add"}, "tools must be a list of functions"),
    ({"tools": [{"type": "function", "function": {"name": "add"}}]}, "is a dict.*write a typed function"),
    ({"limits": 3}, "limits must be a Limits"),
    ({"execution": Execution(concurrency=4)}, r"Concurrency\(batch=4\)"),
    ({"interceptors": [Interceptor]}, "the class Interceptor; give an instance"),
    ({"observers": print}, r"observers=\[it\]"),
    ({"observers": [1]}, "an observer must be a function"),
    ({"journal": "x.db"}, r"SqliteJournal\(path\)"),
    ({"approve": Approval(policy=Rule("add", "approve"))}, "a function of a request, or a list of Rules"),
    ({"approve": Approval(policy=["add"])}, "a function of a request, or a list of Rules"),
    ({"approve": Approval(rules=[])}, "StandingRules"),
    ({"window": "8k"}, "a number of tokens"),
    ({"instructions": None}, "instructions must be a string"),
    ({"name": None}, "name must be a string"),
    ({"execution": Execution(tool_timeout=-1)}, "seconds above 0"),
    ({"execution": Execution(tool_timeout="5")}, "seconds above 0"),
    ({"prices": {"m": 3}}, "a Price"),
    ({"cassette": "x.jsonl"}, "a Cassette"),
    ({"secrets": ["hunter2"]}, "a dict of names and values"),
    ({"dialect": DialectSettings(starts_in="thinking")}, "'text' or 'reasoning'"),
    ({"secrets": {"KEY": 12345}}, "'KEY' must be a string, not int"),
    ({"tools": [add, None]}, "None is not a function"),
    ({"execution": Execution(early_start="no")}, "early_start must be True or False"),
    ({"execution": Execution(throw_on_failure="false")}, "throw_on_failure must be True or False"),
    ({"execution": Execution(stop_on_block=None)}, "stop_on_block must be True or False"),
    ({"execution": Execution(max_result_bytes="16k")}, "a number of bytes"),
    ({"output": Output(int, retries=-1)}, "a number from 0 up"),
    ({"clock": 0}, "a function that returns the Unix time"),
]


@pytest.mark.parametrize(("options", "problem"), SETTINGS)
def test_a_setting_of_an_agent_that_cannot_be_meant(options, problem):
    with pytest.raises(ConfigurationError, match=problem):
        Agent(ScriptedProvider(TURNS), **options)


def test_a_class_is_no_model_and_a_name_no_agent():
    with pytest.raises(ConfigurationError, match="the class ScriptedProvider; give an instance"):
        Agent(ScriptedProvider)
    with pytest.raises(ConfigurationError, match="needs an Agent"):
        Session("openai:gpt-5")


TOOLS_OF_NO_KIND = [
    # Each of these texts is a true value: the tool would have run unasked, or twice.
    ({"read_only": "false"}, "read_only='false' must be True or False"),
    ({"idempotent": "no"}, "idempotent='no'"),
    ({"external": 0}, "external=0"),
    ({"timeout": "5"}, "timeout='5'"),
    ({"max_concurrent": "2"}, "max_concurrent='2'"),
    ({"aliases": ["file"]}, "aliases=.*'other name': 'parameter'"),
    ({"name": 7}, "cannot be named 7"),
]


@pytest.mark.parametrize(("options", "problem"), TOOLS_OF_NO_KIND)
def test_an_option_of_a_tool_that_cannot_be_meant(options, problem):
    with pytest.raises(ToolDefinitionError, match=problem):

        @tool(**options)
        def put(path: str) -> str:
            "Puts."
            return path


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"writes": {Path("/srv")}}, "expected a string as key"),
        ({"reads": [1]}, "expected a string as key"),
        ({"external": "no"}, "True or False, not 'no'"),
        ({"declared": None}, "True or False, not None"),
    ],
)
def test_effects_that_cannot_be_meant(options, problem):
    with pytest.raises(ConfigurationError, match=problem):
        Effects(**options)


def test_effects_that_cannot_be_meant_are_undeclared():
    """Of one call, so that a person is asked, as where their function raises anything else."""

    @tool(effects=lambda path: Effects(reads={Path(path)}))
    def put(path: str) -> str:
        "Puts."
        return path

    turns = [calling("cogency-json", ("put", {"path": "a"}), tools=Toolset([put])), "done"]
    (request,) = Agent(ScriptedProvider(turns), [put]).run_sync("x").requests
    assert request.reason == "does not declare what it touches"


@pytest.mark.parametrize("tools", [add, None, "add", {"add": add}, 3, [None]])
def test_a_toolset_is_made_of_a_list(tools):
    with pytest.raises(ToolDefinitionError, match=r"a list of functions and tools|None is not a function"):
        Toolset(tools)


def test_a_scripted_model_has_a_list_of_turns_and_a_limit_is_a_number():
    for turns in ("Hello.", None):
        with pytest.raises(ConfigurationError, match="a list of turns"):
            ScriptedProvider(turns)
    with pytest.raises(ConfigurationError, match="a number from 1 up"):
        Concurrency(batch="2")


def test_decisions_are_by_call():
    with pytest.raises(ConfigurationError, match="a dict by call id"):
        asyncio.run(an_agent(TURNS, journal=MemoryJournal()).resume("r", ["call_1_0"]))


@pytest.mark.parametrize("early_start", [True, False])
@pytest.mark.parametrize("effects", [{"a"}, None, "a"])
def test_effects_that_are_none_end_the_run_with_what_belongs_there(early_start, effects):
    ran = []

    @tool(effects=lambda path: effects)
    def put(path: str) -> str:
        "Puts."
        ran.append(path)
        return path

    turns = [calling("cogency-json", ("put", {"path": "a"}), tools=Toolset([put])), "done"]
    with pytest.raises(ToolDefinitionError, match=r"tool 'put': effects returned a .*Effects\(writes="):
        an_agent(turns, [put], execution=Execution(early_start=early_start)).run_sync("x")
    assert ran == []


def test_what_can_be_meant_still_is():
    async def approve(request, answer):
        return Decision(answer)

    class Approver:
        def __call__(self, request):
            return approve(request, True)

    for each in (partial(approve, answer=True), Approver()):
        execution = Execution(concurrency=Concurrency(batch=1))
        assert an_agent(TURNS, approve=each, execution=execution, window=8_000).run_sync("x").answer == "3"


class Store:
    def get(self, key):
        return key


@tool(read_only=True)
def fetch(key: str, ctx: RunContext[Store]) -> str:
    "What is stored."
    return ctx.deps.get(key)


@tool(effects=Effects(writes={"x"}))
def maybe(key: str, ctx: RunContext[Store | None]) -> str:
    "What is stored, if there is a store."
    return "" if ctx.deps is None else ctx.deps.get(key)


def test_forgotten_deps_are_told_before_anything_is_asked():
    provider = ScriptedProvider([calling("cogency-json", ("fetch", {"key": "a"}), tools=Toolset([fetch])), "a"])
    agent = Agent(provider, [fetch, maybe, add], journal=MemoryJournal())
    with pytest.raises(ConfigurationError, match=r"fetch \(Store\).*agent.run\(task, deps=…\)"):
        agent.run_sync("x")
    with pytest.raises(ConfigurationError, match="no deps"):
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
