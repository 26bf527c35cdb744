"""Tools of pydantic-ai here, and ours in its agents, by the package itself (`make test-adapters`)."""

import asyncio
import json
from dataclasses import replace

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    FunctionToolset,
    ModelRetry,
    RunContext,
    Tool,
    ToolDenied,
    ToolReturn,
)
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

import toolspeak
from toolspeak import Effects, MemoryJournal, tool
from toolspeak.adapters import from_pydantic_ai, from_pydantic_ai_toolset, to_pydantic_ai
from toolspeak.data.events import ToolFinished
from toolspeak.data.messages import ImagePart
from toolspeak.errors import AgentStop, ToolDefinitionError
from toolspeak.testing import ScriptedProvider


def model(*calls):
    """A model that makes these calls in one turn, and then answers."""

    def reply(messages, info):
        if any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts):
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart(name, args, str(number)) for number, (name, args) in enumerate(calls)])

    return FunctionModel(reply)


def answers(result):
    parts = [part for message in result.all_messages() for part in message.parts]
    return [(part.content, part.outcome) for part in parts if isinstance(part, ToolReturnPart)]


@pytest.fixture
def log():
    return []


@pytest.fixture
def tools(log):
    @tool(effects=lambda path: Effects(writes={f"file:{path}"}))
    async def write(path: str) -> str:
        """Writes a file."""
        log.append(f"write {path}")
        await asyncio.sleep(0.01)
        log.append(f"wrote {path}")
        return f"wrote {path}"

    @tool(effects=lambda path: Effects(reads={f"file:{path}"}))
    def read(path: str) -> dict[str, str]:
        """Reads a file."""
        log.append(f"read {path}")
        return {"path": path}

    return [write, read]


CALLS = [("read", {"path": "b"}), ("write", {"path": "a"}), ("read", {"path": "a"}), ("read", {})]


@pytest.mark.parametrize("prefix", ["", "files"])
def test_the_calls_of_a_turn_are_one_batch(tools, log, prefix):
    toolset = to_pydantic_ai(tools, approve="all")
    calls = CALLS
    if prefix:
        toolset, calls = toolset.prefixed(prefix), [(f"{prefix}_{name}", args) for name, args in CALLS]
    result = asyncio.run(Agent(model(*calls), toolsets=[toolset]).run("go"))
    assert answers(result) == [
        ({"path": "b"}, "success"),
        ("wrote a", "success"),
        ({"path": "a"}, "success"),
        ("the arguments of 'read' do not fit:\n- path: required (string)", "failed"),
    ]
    assert log.index("wrote a") < log.index("read a")


def test_a_call_that_needs_approval_is_deferred(tools, log):
    toolset = to_pydantic_ai(tools, toolset_id="files")
    agent = Agent(model(*CALLS[:3]), toolsets=[toolset], output_type=[str, DeferredToolRequests])
    first = asyncio.run(agent.run("go"))
    requests = first.output
    assert [part.tool_call_id for part in requests.approvals] == ["1", "2"]
    assert requests.metadata["1"] == {"reason": "writes file:a"}
    assert "must run after 1" in requests.metadata["2"]["reason"]
    assert log == ["read b"]
    decisions = requests.build_results(approve_all=True)
    second = asyncio.run(agent.run(message_history=first.all_messages(), deferred_tool_results=decisions))
    assert second.output == "done"
    assert log == ["read b", "write a", "wrote a", "read a"]


def test_a_denied_call_does_not_run(tools, log):
    agent = Agent(model(CALLS[1]), toolsets=[to_pydantic_ai(tools)], output_type=[str, DeferredToolRequests])
    first = asyncio.run(agent.run("go"))
    decisions = first.output.build_results(approvals={"0": ToolDenied("not today")})
    second = asyncio.run(agent.run(message_history=first.all_messages(), deferred_tool_results=decisions))
    assert answers(second) == [("not today", "denied")]
    assert log == []


def test_an_approver_that_refuses_and_the_journal(tools, log):
    async def approve(request):
        return False

    journal = MemoryJournal()
    agent = Agent(model(*CALLS[1:3]), toolsets=[to_pydantic_ai(tools, approve=approve, journal=journal)])
    (refusal, outcome), read = answers(asyncio.run(agent.run("go")))
    assert (outcome, read, log) == ("failed", ({"path": "a"}, "success"), ["read a"])
    assert "rejected" in refusal
    (run,) = asyncio.run(journal.runs())
    records = asyncio.run(journal.read(run.run_id))
    assert sum(isinstance(record.event, ToolFinished) for record in records) == 2


def test_a_tool_gets_deps_and_the_memory_of_its_run():
    @tool(read_only=True)
    def count(ctx: toolspeak.RunContext[str]) -> str:
        ctx.memory["calls"] = ctx.memory.get("calls", 0) + 1
        return f"{ctx.deps} {ctx.memory['calls']}"

    def reply(messages, info):
        result_count = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
        return ModelResponse([TextPart("done")] if result_count == 2 else [ToolCallPart("count", {})])

    agent = Agent(FunctionModel(reply), deps_type=str, toolsets=[to_pydantic_ai([count])])
    for _ in range(2):
        assert [text for text, _ in answers(asyncio.run(agent.run("go", deps="you")))] == ["you 1", "you 2"]


def test_a_stop_ends_the_agent_and_an_image_is_an_image():
    @tool(read_only=True)
    def stop() -> str:
        raise AgentStop("enough")

    @tool(read_only=True)
    def screenshot() -> ImagePart:
        return ImagePart("image/png", b"PNG")

    toolset = to_pydantic_ai([stop, screenshot])
    with pytest.raises(AgentStop, match="enough"):
        asyncio.run(Agent(model(("stop", {})), toolsets=[toolset]).run("go"))
    ((content, _),) = answers(asyncio.run(Agent(model(("screenshot", {})), toolsets=[toolset]).run("go")))
    assert content == BinaryContent(b"PNG", media_type="image/png")


def test_their_test_model_calls_every_tool(tools, log):
    result = asyncio.run(Agent(TestModel(), toolsets=[to_pydantic_ai(tools, approve="all")]).run("go"))
    assert json.loads(result.output) == {"write": "wrote a", "read": {"path": "a"}}


# --- from pydantic-ai -------------------------------------------------------------------------------------------------


class SessionTip(BaseModel):
    name: str
    zoom: int = 3


def look(ctx: RunContext[str], place: SessionTip, times: int = 1) -> str:
    """Looks at a place.

    Args:
        ctx: The run.
        place: Where.
    """
    if place.name == "nowhere":
        raise ModelRetry("there is no such place")
    if place.name == "hell":
        raise ToolFailed("closed")
    return f"{ctx.deps} {place.name} {place.zoom} {times} {ctx.tool_call_id is not None}"


def run(tools, *calls, approve="all", **options):
    block = json.dumps([{"name": name, "args": args} for name, args in calls])
    agent = toolspeak.Agent(ScriptedProvider([f"<execute>{block}</execute>", "done"]), tools, approve=approve)
    result = agent.run_sync("go", **options)
    return [call.result for step in result.steps for call in step.executions]


def test_a_tool_of_pydantic_ai_is_a_tool():
    tools = from_pydantic_ai([look], effects={"look": lambda place: Effects(reads={f"place:{place.name}"})})
    (spec,) = tools.specs
    assert (spec.name, spec.description) == ("look", "Looks at a place.")
    assert spec.parameters["required"] == ["place"]
    assert spec.properties["place"]["description"] == "Where."
    rome, none, nowhere, hell = run(
        tools,
        *(("look", {"place": {"name": "Rome"}}), ("look", {"place": {"zoom": 1}})),
        *(("look", {"place": {"name": "nowhere"}}), ("look", {"place": {"name": "hell"}})),
        deps="you",
    )
    assert rome.text == "you Rome 3 1 True"
    assert none.text == "the arguments of 'look' do not fit:\n- place.name: required (string)"
    assert (nowhere.text, nowhere.status) == ("there is no such place", "failure")
    assert hell.text == "closed"
    look_tool = tools.get("look")
    read = look_tool.read_arguments({"place": {"name": "Rome"}})
    assert look_tool.effects_of(read) == Effects(reads={"place:Rome"})


def test_a_tool_that_is_not_named_may_touch_everything_and_one_that_requires_approval_asks():
    (spec,) = from_pydantic_ai([look]).specs
    assert (spec.effects.declared, spec.effects.needs_approval) == (False, True)
    asks = from_pydantic_ai([Tool(look, requires_approval=True)], effects={"look": Effects()})
    assert asks.specs[0].effects.needs_approval
    with pytest.raises(ToolDefinitionError, match="Did you mean 'look'"):
        from_pydantic_ai([look], effects={"lok": Effects()})


def test_async_tools_validators_and_media():
    async def check(ctx: RunContext[None], number: int) -> None:
        if number > 9:
            raise ModelRetry("too large")

    async def draw(ctx: RunContext[None], number: int) -> ToolReturn:
        """Draws."""
        return ToolReturn({"drawn": number}, content=["as asked", BinaryContent(b"PNG", media_type="image/png")])

    tools = from_pydantic_ai(FunctionToolset([Tool(draw, args_validator=check)]))
    drawing, large = run(tools, ("draw", {"number": 1}), ("draw", {"number": 10}))
    assert drawing.text == '{"drawn": 1}\nas asked'
    assert drawing.content[-1] == ImagePart("image/png", b"PNG")
    assert large.text == "too large"


def test_a_tool_that_defers_while_it_runs_fails_and_says_why():
    def pay() -> str:
        """Pays."""
        raise ApprovalRequired

    (result,) = run(from_pydantic_ai([pay]), ("pay", {}))
    assert "declare effects that need approval" in result.text


def test_a_toolset_is_listed_for_its_deps():
    async def only_for_you(ctx: RunContext[str], definition: ToolDefinition) -> ToolDefinition | None:
        return replace(definition, description="For you.") if ctx.deps == "you" else None

    toolset = FunctionToolset([Tool(look, prepare=only_for_you)]).prefixed("map")
    tools = asyncio.run(from_pydantic_ai_toolset(toolset, deps="you"))
    assert [(spec.name, spec.description) for spec in tools.specs] == [("map_look", "For you.")]
    assert len(asyncio.run(from_pydantic_ai_toolset(toolset, deps="me"))) == 0
    (result,) = run(tools, ("map_look", {"place": {"name": "Rome"}}), deps="you")
    assert result.text == "you Rome 3 1 True"
    with pytest.raises(ToolDefinitionError, match="from_pydantic_ai_toolset"):
        from_pydantic_ai([Tool(look, prepare=only_for_you)])
    with pytest.raises(ToolDefinitionError, match="external"):
        asyncio.run(from_pydantic_ai_toolset(ExternalToolset([ToolDefinition(name="outside")])))


def test_there_and_back():
    toolset = to_pydantic_ai(from_pydantic_ai([look], effects={"look": Effects()}))
    agent = Agent(model(("look", {"place": {"name": "Rome"}})), deps_type=str, toolsets=[toolset])
    assert answers(asyncio.run(agent.run("go", deps="you"))) == [("you Rome 3 1 True", "success")]
