"""Tools of LangChain here, and ours in LangChain and LangGraph, by the packages themselves (`make test-adapters`)."""

import asyncio
import json
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.tools import InjectedState, InjectedToolCallId, ToolException, ToolRuntime
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from toolspeak import Agent, Approval, Effects, Execution, Interceptor, MemoryJournal, RunContext, ToolError, tool
from toolspeak.adapters import from_langchain, to_langchain
from toolspeak.data.events import ToolFinished
from toolspeak.data.messages import ImagePart
from toolspeak.errors import ConfigurationError, ToolDefinitionError
from toolspeak.testing import ScriptedProvider


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self


def model(*calls):
    """A model that makes these calls in one turn, and then answers."""
    tool_calls = [{"name": name, "args": args, "id": str(number)} for number, (name, args) in enumerate(calls)]
    return Model(messages=iter([AIMessage("", tool_calls=tool_calls), AIMessage("done")]))


def invoke(graph, graph_input, way, **options):
    if way == "sync":
        return graph.invoke(graph_input, **options)
    return asyncio.run(graph.ainvoke(graph_input, **options))


def answers(result):
    return [(each.text, each.status) for each in result["messages"] if isinstance(each, ToolMessage)]


TASK = {"messages": ["go"]}
THREAD = {"configurable": {"thread_id": "1"}}
WAYS = pytest.mark.parametrize("way", ["sync", "async"])


@pytest.fixture
def log():
    return []


@pytest.fixture
def tools(log):
    @tool(effects=lambda path: Effects(writes={f"file:{path}"}))
    async def write(path: str, config: str = "") -> str:
        """Writes a file."""
        log.append(f"write {path}")
        await asyncio.sleep(0.01)
        log.append(f"wrote {path}")
        return f"wrote {path}{config}"

    @tool(effects=lambda path: Effects(reads={f"file:{path}"}))
    async def read(path: str) -> dict[str, str]:
        """Reads a file."""
        log.append(f"read {path}")
        return {"path": path}

    return [write, read]


CALLS = [("read", {"path": "b"}), ("write", {"path": "a", "config": "!"}), ("read", {"path": "a"}), ("read", {})]


@WAYS
def test_the_calls_of_a_turn_are_one_batch(tools, log, way):
    graph = create_agent(model(*CALLS), to_langchain(tools, approve="all"))
    assert answers(invoke(graph, TASK, way)) == [
        ('{"path": "b"}', "success"),
        ("wrote a!", "success"),
        ('{"path": "a"}', "success"),
        ("the arguments of 'read' do not fit:\n- path: required (string)", "error"),
    ]
    assert log.index("wrote a") < log.index("read a")


@WAYS
def test_a_call_that_needs_approval_interrupts_the_graph(tools, log, way):
    graph = create_agent(model(*CALLS[:3]), to_langchain(tools), checkpointer=InMemorySaver())
    result = invoke(graph, TASK, way, config=THREAD)
    questions = {each.value["call"]["name"]: each for each in result["__interrupt__"]}
    assert questions["write"].value == {
        "call": {"id": "1", "name": "write", "args": {"path": "a", "config": "!"}},
        "reason": "writes file:a",
    }
    assert "must run after 1" in questions["read"].value["reason"]
    assert log == ["read b"]
    resume = {each.id: True for each in questions.values()}
    result = invoke(graph, Command(resume=resume), way, config=THREAD)
    assert [text for text, _ in answers(result)] == ['{"path": "b"}', "wrote a!", '{"path": "a"}']
    assert log == ["read b", "write a", "wrote a", "read a"]
    assert [each.artifact for each in result["messages"] if isinstance(each, ToolMessage)] == [
        {"path": "b"},
        None,
        {"path": "a"},
    ]


def test_a_refused_call_is_an_error_for_the_model(tools, log):
    graph = create_agent(model(CALLS[1]), to_langchain(tools), checkpointer=InMemorySaver())
    graph.invoke(TASK, THREAD)
    result = graph.invoke(Command(resume={"approved": False, "reason": "not today"}), THREAD)
    ((text, status),) = answers(result)
    assert (status, log) == ("error", [])
    assert "not today" in text


def test_an_answer_that_is_none_is_refused(tools):
    graph = create_agent(model(CALLS[1]), to_langchain(tools), checkpointer=InMemorySaver())
    graph.invoke(TASK, THREAD)
    with pytest.raises(ConfigurationError, match="answer the call of write with True, False"):
        graph.invoke(Command(resume="yes"), THREAD)


@WAYS
def test_where_nobody_can_be_asked_the_error_says_so(tools, way):
    with pytest.raises(ConfigurationError, match=r"writes file:a.*checkpointer"):
        invoke(create_agent(model(CALLS[1]), to_langchain(tools)), TASK, way)
    with pytest.raises(ConfigurationError, match="approve="):
        invoke(to_langchain(tools)[0], {"path": "a"}, way)


def test_a_tool_alone_answers(tools):
    assert to_langchain(tools)[1].invoke({"path": "a"}) == '{"path": "a"}'


def test_a_policy_interceptors_a_timeout_and_the_journal_apply():
    @tool(read_only=True)
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    @tool(read_only=True)
    def secret() -> str:
        return "12345"

    class Note(Interceptor):
        async def around(self, call, proceed, context):
            call_names.append(call.name)
            return await proceed(call)

    call_names, journal = [], MemoryJournal()
    ours = to_langchain(
        [slow, secret],
        approve=Approval("all", policy=lambda request: None),
        execution=Execution(tool_timeout=0.05),
        interceptors=[Note()],
        secrets={"pin": "12345"},
        journal=journal,
    )
    result = create_agent(model(("slow", {}), ("secret", {})), ours).invoke(TASK)
    (late, late_status), (secret_answer, _) = answers(result)
    assert late_status == "error"
    assert "0.05 seconds" in late
    assert "12345" not in secret_answer
    assert sorted(call_names) == ["secret", "slow"]
    (run,) = asyncio.run(journal.runs())
    records = asyncio.run(journal.read(run.run_id))
    assert sum(isinstance(record.event, ToolFinished) for record in records) == 2


def test_a_tool_gets_the_context_and_gives_an_artifact_and_an_image():
    @tool(read_only=True)
    def screenshot(ctx: RunContext[str]) -> ImagePart:
        deps.append(ctx.deps)
        return ImagePart("image/png", b"PNG")

    deps = []
    graph = create_agent(model(("screenshot", {})), to_langchain([screenshot]), context_schema=str)
    (message,) = [m for m in graph.invoke(TASK, context="you")["messages"] if isinstance(m, ToolMessage)]
    assert deps == ["you"]
    assert message.content == [{"type": "image", "base64": "UE5H", "mime_type": "image/png"}]
    assert message.artifact is None


# --- from LangChain ---------------------------------------------------------------------------------------------------


@langchain_tool
def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    if a == 13:
        raise ToolException("thirteen is not added")
    return a + b


@langchain_tool
async def whoami(call_id: Annotated[str, InjectedToolCallId], runtime: ToolRuntime[str, Any], greeting: str) -> str:
    """Says who asks."""
    return f"{greeting} {runtime.context} {runtime.tool_call_id == call_id}"


def run(tools, *calls, **options):
    block = json.dumps([{"name": name, "args": args} for name, args in calls])
    agent = Agent(ScriptedProvider([f"<execute>{block}</execute>", "done"]), tools, approve="all")
    result = agent.run_sync("go", **options)
    return [call.result for step in result.steps for call in step.executions]


def test_a_tool_of_langchain_is_a_tool():
    tools = from_langchain([add], effects={"add": lambda a: Effects(reads={f"number:{a}"})})
    (spec,) = tools.specs
    assert (spec.name, spec.description) == ("add", "Adds two numbers.")
    assert spec.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"default": 2, "type": "integer"}},
        "required": ["a"],
    }
    results = run(tools, ("add", {"a": 1}), ("add", {"a": "x"}), ("add", {"a": 13}))
    assert [result.text for result in results] == [
        "3",
        "the arguments of 'add' do not fit:\n- a: expected an integer, got \"x\" (string)",
        "thirteen is not added",
    ]
    add_tool = tools.get("add")
    assert add_tool.effects_of(add_tool.read_arguments({"a": 1})) == Effects(reads={"number:1"})


def test_a_tool_that_is_not_named_may_touch_everything():
    tools = from_langchain([add])
    assert tools.specs[0].effects.declared is False
    with pytest.raises(ToolDefinitionError, match="Did you mean 'add'"):
        from_langchain([add], effects={"ad": Effects()})


def test_a_runtime_and_a_call_id_are_injected():
    (result,) = run(from_langchain([whoami]), ("whoami", {"greeting": "hello"}), deps="you")
    assert result.text == "hello you True"


def test_what_cannot_be_injected_is_refused():
    @langchain_tool
    def look(state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Looks."""
        return str(state)

    with pytest.raises(ToolDefinitionError, match=r"tool 'look'.*parameter 'state'"):
        from_langchain([look])


def test_a_subclass_and_a_json_schema_and_an_answer_of_several_parts():
    class Search(BaseTool):
        name: str = "search"
        description: str = "Searches."

        def _run(self, query: str) -> str:
            return f"found {query}"

    def parts(**arguments):
        return [{"type": "text", "text": str(arguments)}, {"type": "image", "base64": "UE5H", "mime_type": "image/png"}]

    schema = {"type": "object", "properties": {"self": {"type": "integer"}}, "title": "x"}
    by_schema = StructuredTool.from_function(parts, name="parts", description="Parts.", args_schema=schema)
    search_result, several = run(from_langchain([Search(), by_schema]), ("search", {"query": "a"}), ("parts", {"x": 1}))
    assert search_result.text == "found a"
    assert several.text == "{'x': 1}"
    assert several.content[1] == ImagePart("image/png", b"PNG")


@WAYS
def test_there_and_back(way):
    tools = to_langchain(from_langchain([add], effects={"add": Effects()}))
    graph = create_agent(model(("add", {"a": 40}), ("add", {"a": 13})), tools)
    assert answers(invoke(graph, TASK, way)) == [("42", "success"), ("thirteen is not added", "error")]


def test_a_tool_error_is_an_error_for_the_model():
    @tool(read_only=True)
    def fail() -> str:
        raise ToolError("no such thing")

    assert answers(create_agent(model(("fail", {})), to_langchain([fail])).invoke(TASK)) == [("no such thing", "error")]
