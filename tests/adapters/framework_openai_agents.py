"""Tools of the OpenAI Agents SDK here, and ours in its agents, by the package itself (`make test-adapters`)."""

import asyncio
import json

import pytest
from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolExecutionConfig,
    ToolGuardrailFunctionOutput,
    WebSearchTool,
    function_tool,
    tool_input_guardrail,
)
from agents.items import ToolCallOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call

import toolspeak
from toolspeak import Approval, Effects, MemoryJournal, ToolError, tool
from toolspeak.adapters import from_openai_agents, to_openai_agents
from toolspeak.adapters.turn_batches import EXPECTED_SECONDS, GATHER_SECONDS
from toolspeak.data.deltas import ToolProgress
from toolspeak.data.messages import ImagePart
from toolspeak.errors import AgentStop, ToolDefinitionError
from toolspeak.execute import Escalate
from toolspeak.testing import ScriptedProvider

QUIET = RunConfig(tracing_disabled=True)


def agent(tools, *calls):
    """An agent whose model makes these calls in one turn, and then answers."""
    call_items = [
        function_call(name, json.dumps(args), call_id=str(number)) for number, (name, args) in enumerate(calls)
    ]
    return Agent(name="them", tools=tools, model=ScriptedModel([call_items, [assistant_message("done")]]))


def run_theirs(agent, task="go", **options):
    return asyncio.run(Runner.run(agent, task, run_config=QUIET, **options))


def outputs(result):
    return [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]


@pytest.fixture
def log():
    return []


@pytest.fixture
def tools(log):
    @tool(effects=lambda path: Effects(writes={f"file:{path}"}))
    async def write(path: str, text: str = "") -> str:
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


CALLS = [("write", {"path": "a"}), ("read", {"path": "a"}), ("read", {"path": "b"}), ("read", {})]


def test_the_calls_of_a_turn_are_one_batch(tools, log):
    journal = MemoryJournal()
    result = run_theirs(agent(to_openai_agents(tools, approve="all", journal=journal), *CALLS))
    assert result.final_output == "done"
    assert sorted(outputs(result)) == [
        "the arguments of 'read' do not fit:\n- path: required (string)",
        "wrote a",
        '{"path": "a"}',
        '{"path": "b"}',
    ]
    assert log.index("wrote a") < log.index("read a")
    assert len(asyncio.run(journal.runs())) == 1


class TimedLoop(asyncio.SelectorEventLoop):
    """A loop that keeps the waits for further calls that came to their end."""

    def __init__(self):
        super().__init__()
        self.delays = []

    def call_later(self, delay, callback, *args, context=None):
        def fire():
            if delay in (EXPECTED_SECONDS, GATHER_SECONDS):
                self.delays.append(delay)
            callback(*args)

        return super().call_later(delay, fire, context=context)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_batch_begins_when_the_last_call_has_come_and_waits_for_no_time(tools, log, is_streamed):
    journal = MemoryJournal()
    theirs = agent(to_openai_agents(tools, approve="all", journal=journal), *CALLS[:3])

    async def run():
        if not is_streamed:
            return await Runner.run(theirs, "go", run_config=QUIET)
        result = Runner.run_streamed(theirs, "go", run_config=QUIET)
        async for _ in result.stream_events():
            pass
        return result

    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        assert runner.run(run()).final_output == "done"
        assert runner.get_loop().delays == []
    assert len(asyncio.run(journal.runs())) == 1
    assert log.index("wrote a") < log.index("read a")


def test_calls_that_come_one_by_one_are_batches_of_their_own(tools, log):
    journal = MemoryJournal()
    theirs = agent(to_openai_agents(tools, approve="all", journal=journal), *CALLS[:3])
    one = RunConfig(tracing_disabled=True, tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1))
    assert asyncio.run(Runner.run(theirs, "go", run_config=one)).final_output == "done"
    assert len(asyncio.run(journal.runs())) == 3


def test_a_call_that_a_guardrail_refuses_is_not_waited_for_by_the_next_turn(tools, log):
    @tool_input_guardrail
    def refuse(data):
        return ToolGuardrailFunctionOutput.reject_content("no") if "b" in data.context.tool_arguments else allow

    allow = ToolGuardrailFunctionOutput.allow()
    write, read = to_openai_agents(tools, approve="all")
    read.tool_input_guardrails = [refuse]
    assert sorted(outputs(run_theirs(agent([write, read], *CALLS[1:3])))) == ["no", '{"path": "a"}']


def test_progress_is_passed_on():
    @tool(read_only=True)
    def dig(ctx: toolspeak.RunContext[None]) -> str:
        """Digs."""
        ctx.progress("half way")
        return "dug"

    lines = []
    result = run_theirs(agent(to_openai_agents([dig], on_progress=lines.append), ("dig", {})))
    assert (outputs(result), lines) == (["dug"], [ToolProgress("0", "half way")])


def test_a_call_that_needs_approval_interrupts_the_run(tools, log):
    theirs = agent(to_openai_agents(tools), CALLS[0], CALLS[2])
    first = run_theirs(theirs)
    (question,) = first.interruptions
    assert (question.name, log) == ("write", ["read b"])
    state = first.to_state()
    state.approve(question)
    assert run_theirs(theirs, state).final_output == "done"
    assert log == ["read b", "write a", "wrote a"]


def test_a_call_that_a_policy_escalates_does_not_run(tools, log):
    policy = Approval(policy=lambda request: Escalate("look first"))
    (output,) = outputs(run_theirs(agent(to_openai_agents(tools, approve=policy), CALLS[1])))
    assert "look first" in output
    assert log == []


def test_a_tool_gets_the_context_and_gives_an_image_and_its_errors_are_texts():
    @tool(read_only=True)
    def screenshot(ctx: toolspeak.RunContext[str]) -> ImagePart:
        deps.append(ctx.deps)
        return ImagePart("image/png", b"PNG")

    @tool(read_only=True)
    def fail() -> str:
        raise ToolError("no such thing")

    deps = []
    result = run_theirs(agent(to_openai_agents([screenshot, fail]), ("screenshot", {}), ("fail", {})), context="you")
    assert deps == ["you"]
    (image,), failure = outputs(result)
    assert image.image_url == "data:image/png;base64,UE5H"
    assert failure == "no such thing"


def test_a_stop_ends_the_run():
    @tool(read_only=True)
    def stop() -> str:
        raise AgentStop("enough")

    with pytest.raises(Exception, match="enough"):
        run_theirs(agent(to_openai_agents([stop]), ("stop", {})))


# --- from the OpenAI Agents SDK ---------------------------------------------------------------------------------------


@function_tool
def greet(ctx: RunContextWrapper[str], name: str, times: int = 1) -> str:
    """Greets somebody.

    Args:
        name: Whom.
    """
    return f"{ctx.context} greets {name} {times}"


def run_ours(tools, *calls, **options):
    block = json.dumps([{"name": name, "args": args} for name, args in calls])
    ours = toolspeak.Agent(ScriptedProvider([f"<execute>{block}</execute>", "done"]), tools, approve="all")
    return [call.result for step in ours.run_sync("go", **options).steps for call in step.executions]


def test_a_function_tool_is_a_tool():
    tools = from_openai_agents([greet], effects={"greet": lambda name: Effects(reads={f"name:{name}"})})
    (spec,) = tools.specs
    assert (spec.name, spec.description, spec.properties["name"]["description"]) == (
        "greet",
        "Greets somebody.",
        "Whom.",
    )
    greeting, wrong = run_ours(tools, ("greet", {"name": "Ada", "times": 2}), ("greet", {"times": 2}), deps="Bob")
    assert greeting.text == "Bob greets Ada 2"
    assert wrong.text == "the arguments of 'greet' do not fit:\n- \"name\" is a required property"


def test_one_that_is_not_named_may_touch_everything_and_a_hosted_one_is_none():
    assert from_openai_agents([greet]).specs[0].effects.declared is False
    with pytest.raises(ToolDefinitionError, match="WebSearchTool is hosted"):
        from_openai_agents([WebSearchTool()])


def test_one_that_needs_approval_always_asks():
    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pays."""
        return "paid"

    (spec,) = from_openai_agents([pay], effects={"pay": Effects()}).specs
    assert spec.effects.needs_approval


def test_there_and_back():
    tools_for_sdk = to_openai_agents(from_openai_agents([greet], effects={"greet": Effects()}))
    assert all(isinstance(each, FunctionTool) for each in tools_for_sdk)
    assert outputs(run_theirs(agent(tools_for_sdk, ("greet", {"name": "Ada", "times": 1})), context="Bob")) == [
        "Bob greets Ada 1"
    ]
