"""The spans and metrics of runs, as the SDK's exporters get them."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from loopback_server import event, says, serve, stream, whole
from mcp_helpers import mcp_servers, program
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode
from recorded_spans import Recording, recording, total

from toolspeak import Agent, ConfigurationError, Effects, Limits, telemetry, tool
from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.errors import ProviderError
from toolspeak.execute import Decision
from toolspeak.journal.memory_journal import MemoryJournal
from toolspeak.providers import Capabilities
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.providers.scripted_provider import ScriptedProvider


def calls(*each: tuple[str, dict]) -> str:
    return f"<execute>{json.dumps([{'name': name, 'args': args} for name, args in each])}</execute>"


@tool(read_only=True)
def look(word: str) -> str:
    "Looks a word up."
    return f"{word}: a word"


@tool(effects=lambda path: Effects(writes={f"file:{path}"}))
def write(path: str) -> str:
    "Writes a file."
    return f"wrote {path}"


@tool(read_only=True)
def fail() -> str:
    "Fails."
    raise OSError("the disk is full")


def agent(*turns: str, tools=(look, write, fail), **options) -> Agent:
    return Agent(ScriptedProvider(list(turns)), list(tools), dialect="cogency-json", **options)


def ran(*turns: str, task: str = "go", **options):
    return agent(*turns, **options).run_sync(task)


LOOK = calls(("look", {"word": "sun"}))


def test_a_run_is_a_tree_of_spans_named_by_the_conventions():
    with recording() as trace:
        result = ran(LOOK, "Done.", name="reader")
    assert trace.tree() == ["invoke_agent reader", "  chat scripted", "  execute_tool look", "  chat scripted"]
    run, chat, call = (trace.spans[index] for index in (0, 1, 2))
    assert {key: run.attributes[key] for key in ("gen_ai.operation.name", "gen_ai.agent.name", "toolspeak.run.id")} == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "reader",
        "toolspeak.run.id": result.run_id,
    }
    assert run.attributes["toolspeak.run.status"] == "answered"
    assert run.attributes["toolspeak.steps"] == 2
    assert run.attributes["gen_ai.usage.input_tokens"] == result.usage.input
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("closed_by_us",)
    assert chat.attributes["toolspeak.dialect"] == "cogency-json"
    assert chat.kind.name == "CLIENT"
    assert call.attributes["gen_ai.tool.name"] == "look"
    assert call.attributes["gen_ai.tool.call.id"] == "call_1_0"
    assert call.attributes["toolspeak.call.status"] == "success"
    assert {span.status.status_code for span in trace.spans} == {StatusCode.UNSET}


def test_a_tool_runs_in_the_span_of_its_call():
    """This holds in its thread and in the event loop, so the spans of its own requests belong to the call."""

    @tool(read_only=True)
    def in_thread() -> str:
        "Runs in a thread."
        with recorded_trace.span("request A"):
            return "a"

    @tool(read_only=True)
    async def in_loop() -> str:
        "Runs in the event loop."
        with recorded_trace.span("request B"):
            await asyncio.sleep(0)
            return "b"

    with recording() as recorded_trace:
        ran(calls(("in_thread", {}), ("in_loop", {})), "Done.", tools=[in_thread, in_loop])
        assert not trace.get_current_span().get_span_context().is_valid  # nothing of it stays in the caller
    for name, parent in (("request A", "execute_tool in_thread"), ("request B", "execute_tool in_loop")):
        assert recorded_trace.find(name).parent.span_id == recorded_trace.find(parent).context.span_id


def test_a_call_that_starts_early_has_one_span_below_the_run():
    began = asyncio.Event()

    @tool(read_only=True)
    async def note() -> str:
        "Begins while the model still writes."
        began.set()
        return "noted"

    class GatedModel:
        """A model that ends its turn once its call has begun."""

        name, capabilities = "gated", Capabilities()

        def __init__(self) -> None:
            self.turns = 0

        async def stream(self, request):
            self.turns += 1
            if self.turns == 1:
                yield TextDelta('<tool_call>\n{"name": "note", "arguments": {}}\n</tool_call>\n')
                yield TextDelta('<tool_call>\n{"name": "note", "arguments": ')
                await began.wait()
                yield TextDelta("{}}\n</tool_call>")
            else:
                yield TextDelta("Done.")
            yield TurnEnded("stop")

        async def aclose(self) -> None:
            pass

    with recording() as trace:
        asyncio.run(Agent(GatedModel(), [note], dialect="hermes").run("go"))
    early, late = [span for span in trace.spans if span.name == "execute_tool note"]
    assert (early.attributes.get("toolspeak.call.early"), late.attributes.get("toolspeak.call.early")) == (True, None)
    assert {span.parent.span_id for span in (early, late)} == {trace.find("invoke_agent agent").context.span_id}
    assert {span.attributes["toolspeak.call.status"] for span in (early, late)} == {"success"}


def test_content_is_exported_only_on_request():
    def spans_json(trace: Recording) -> str:
        return "\n".join(span.to_json() for span in trace.spans)

    task, answer = "What is the sun? My number is 12345.", "The sun is a star; 67890."
    for content, expected in ((None, False), (False, False), (True, True)):
        with recording(content=content) as trace:
            ran(LOOK, answer, task=task, instructions="Be brief, 24680.")
        text = spans_json(trace)
        for word in ("12345", "67890", "24680", "sun: a word"):
            assert (word in text) is expected, (content, word)
    run, first, call, last = trace.spans
    assert json.loads(run.attributes["gen_ai.system_instructions"])[0]["content"].startswith("Be brief")
    assert json.loads(run.attributes["gen_ai.tool.definitions"])[0]["name"] == "look"
    assert json.loads(first.attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": task}]}
    ]
    (message,) = json.loads(last.attributes["gen_ai.output.messages"])
    assert message == {"role": "assistant", "parts": [{"type": "text", "content": answer}], "finish_reason": "stop"}
    assert json.loads(call.attributes["gen_ai.tool.call.arguments"]) == {"word": "sun"}
    assert "sun: a word" in call.attributes["gen_ai.tool.call.result"]


def test_the_environment_asks_for_content(monkeypatch):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    with recording() as trace:
        ran("Done.", task="a word")
    assert "a word" in trace.find("chat scripted").attributes["gen_ai.input.messages"]


def test_a_secret_is_never_exported():
    secret = "hunter2-hunter2"

    @tool(read_only=True)
    def leak(word: str) -> str:
        "Returns what it gets."
        assert word == secret
        return f"the word is {word}"

    @tool(read_only=True)
    def crash() -> str:
        "Fails."
        raise OSError(f"{secret} is wrong")

    with recording(content=True) as trace:
        ran(
            calls(("leak", {"word": "{{secret:password}}"}), ("crash", {})),
            f"It is {secret}.",
            tools=[leak, crash],
            task=f"say {secret}",
            instructions=f"never say {secret}",
            secrets={"password": secret},
        )
    text = "\n".join(span.to_json() for span in trace.spans) + str(trace.metrics())
    assert "the word is" in text
    assert secret not in text


def test_a_call_that_fails_or_does_not_run_is_an_error():
    turn = calls(("fail", {}), ("look", {}), ("no_such_tool", {}), ("write", {"path": "a"}))
    with recording() as trace:
        ran(turn, "Done.", approve="none")
    spans = {span.name: span for span in trace.spans if span.name.startswith("execute_tool")}
    assert {name: span.attributes["error.type"] for name, span in spans.items()} == {
        "execute_tool fail": "exception",
        "execute_tool look": "invalid_arguments",
        "execute_tool _OTHER": "unknown_tool",
        "execute_tool write": "rejected",
    }
    assert {span.status.status_code for span in spans.values()} == {StatusCode.ERROR}
    assert (
        total(trace.metrics()["toolspeak.calls"], toolspeak_call_status="unknown_tool", gen_ai_tool_name="_OTHER") == 1
    )


def test_a_model_that_fails_ends_the_run_as_failed():
    async def run() -> None:
        refuses = whole("401 Unauthorized", b'{"error": {"message": "no"}}')
        async with serve(refuses) as server, Agent(OpenAIProvider("m", base_url=server.base_url)) as asking:
            with pytest.raises(ProviderError, match="401"):
                await asking.run("go")

    with recording() as trace:
        asyncio.run(run())
    run_span, chat = trace.spans
    assert chat.attributes["error.type"] == "401"
    assert run_span.attributes["toolspeak.run.status"] == "failed"
    assert [span.status.status_code for span in (run_span, chat)] == [StatusCode.ERROR] * 2


def test_requests_to_the_model_carry_the_span_of_their_turn_and_retries_are_counted():
    async def run() -> list[str]:
        busy = whole("503 Service Unavailable", b"{}", "application/json", "retry-after: 0")
        answer_stream = stream(event(says("Done.", "stop")), event("[DONE]"))
        async with serve(busy, answer_stream) as server, Agent(OpenAIProvider("m", base_url=server.base_url)) as asking:
            await asking.run("go")
            return [exchange.headers["traceparent"] for exchange in server.exchanges]

    with recording() as trace:
        first, second = asyncio.run(run())
    chat = trace.find("chat m")
    assert (
        first == second == f"00-{chat.context.trace_id:032x}-{chat.context.span_id:016x}-{chat.context.trace_flags:02x}"
    )
    assert chat.attributes["gen_ai.provider.name"] == "openai"
    assert chat.attributes["toolspeak.retries"] == 1
    assert [span_event.name for span_event in chat.events] == ["toolspeak.retry"]
    assert total(trace.metrics()["toolspeak.retries"], gen_ai_request_model="m") == 1


def test_a_call_of_an_mcp_server_carries_the_span_of_its_call(tmp_path):
    async def run() -> str:
        async with mcp_servers(program(tmp_path)) as servers:
            result = await agent(calls(("s__traceparent", {})), "Done.", tools=servers.tools).run("go")
            return result.steps[0].executions[0].result.text

    with recording() as trace:
        traceparent = asyncio.run(run())
    assert traceparent.split("-")[1:3] == [
        f"{(call := trace.find('execute_tool s__traceparent')).context.trace_id:032x}",
        f"{call.context.span_id:016x}",
    ]


def test_a_run_is_a_child_of_its_caller_or_of_the_trace_that_it_is_given():
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with recording() as trace, trace.span("request"):
        ran("One.", name="one")
        agent("Two.", name="two").run_sync("go", traceparent=parent)
    request, one, two = (trace.find(name) for name in ("request", "invoke_agent one", "invoke_agent two"))
    assert one.parent.span_id == request.context.span_id
    assert f"{two.parent.trace_id:032x}-{two.parent.span_id:016x}" == parent[3:-3]
    assert [link.context.span_id for link in two.links] == [request.context.span_id]


def test_a_sub_run_is_below_the_call_that_started_it():
    writer = agent(LOOK, "A star.", name="writer", description="Writes.")
    with recording() as trace:
        ran(calls(("writer", {"task": "sun"})), "Done.", tools=[writer.as_tool()], name="editor", approve="all")
    assert trace.tree() == [
        "invoke_agent editor",
        "  chat scripted",
        "  execute_tool writer",
        "    invoke_agent writer",
        "      chat scripted",
        "      execute_tool look",
        "      chat scripted",
        "  chat scripted",
    ]
    inner, outer = trace.find("invoke_agent writer"), trace.find("invoke_agent editor")
    assert inner.attributes["toolspeak.run.parent_id"] == outer.attributes["toolspeak.run.id"]


def test_an_agent_that_continues_after_a_hand_off_has_a_span_of_its_own():
    second = agent(LOOK, "Done.", name="second", description="Goes on.")
    first = agent(calls(("transfer_to_second", {})), name="first", handoffs=[second])
    with recording() as trace:
        first.run_sync("go")
    assert trace.tree() == [
        "invoke_agent first",
        "  chat scripted",
        "  execute_tool transfer_to_second",
        "  invoke_agent second",
        "    chat scripted",
        "    execute_tool look",
        "    chat scripted",
    ]
    assert trace.find("invoke_agent second").attributes["toolspeak.handoff.from"] == "first"


def test_a_question_is_a_span_until_its_answer():
    async def approve(request):
        return Decision(request.call.arguments["path"] == "a")

    with recording() as trace:
        ran(calls(("write", {"path": "a"}), ("write", {"path": "b"})), "Done.", approve=approve)
        metrics = trace.metrics()
    spans = [span for span in trace.spans if span.name == "approval write"]
    assert [span.attributes["toolspeak.approval.decision"] for span in spans] == ["approved", "rejected"]
    assert {span.parent.span_id for span in spans} == {trace.find("invoke_agent agent").context.span_id}
    assert total(metrics["toolspeak.approvals"], toolspeak_approval_decision="approved") == 1
    assert total(metrics["toolspeak.approvals.waiting"]) == 0


def test_a_run_that_waits_and_continues_stays_in_its_trace():
    journal = MemoryJournal()
    with recording() as trace:
        asking = agent(calls(("write", {"path": "a"})), "Done.", journal=journal)
        paused_run = asking.run_sync("go")
        assert paused_run.status == "awaiting_approval"
        with trace.span("click"):
            result = asyncio.run(asking.resume(paused_run.run_id, {paused_run.waiting[0]: True}))
        metrics = trace.metrics()
    first, second = [span for span in trace.spans if span.name == "invoke_agent agent"]
    assert result.answer == "Done."
    assert first.attributes["toolspeak.run.status"] == "awaiting_approval"
    assert second.attributes["toolspeak.run.resumed_from"] == "awaiting_approval"
    assert second.parent.span_id == first.context.span_id
    assert [link.context.span_id for link in second.links] == [trace.find("click").context.span_id]
    assert trace.find("approval write").attributes["toolspeak.approval.decision"] == "pending"
    assert "takeover" not in trace.names
    statuses = {
        status: total(metrics["toolspeak.runs"], toolspeak_run_status=status)
        for status in ("answered", "awaiting_approval")
    }
    assert statuses == {"answered": 1, "awaiting_approval": 1}
    assert total(metrics["toolspeak.runs.active"]) == 0
    records = asyncio.run(journal.read(paused_run.run_id))
    assert {record.traceparent.split("-")[1] for record in records} == {f"{first.context.trace_id:032x}"}


def test_a_run_that_is_cancelled_ends_its_spans():
    entry = asyncio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        "Waits for ever."
        entry.set()
        await asyncio.Event().wait()
        return ""

    async def run() -> None:
        task = asyncio.create_task(agent(calls(("wait", {})), tools=[wait]).run("go"))
        await entry.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with recording() as trace:
        asyncio.run(run())
        metrics = trace.metrics()
    span = trace.find("invoke_agent agent")
    assert (span.attributes["toolspeak.run.status"], span.attributes["error.type"]) == ("broken_off", "cancelled")
    assert trace.find("execute_tool wait").attributes["toolspeak.call.status"] == "dropped"
    assert total(metrics["toolspeak.runs.active"]) == 0


def test_a_run_that_was_cancelled_and_is_resumed_exports_each_span_once():
    """The first drive ended its own span, so the second drive does not export that span as lost."""
    entry, goes_on = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        "Waits for ever, the first time."
        entry.set()
        await goes_on.wait()
        return "waited"

    async def run() -> None:
        journal = MemoryJournal()
        task = asyncio.create_task(agent(calls(("wait", {})), tools=[wait], journal=journal).run("go"))
        await entry.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        goes_on.set()
        (info,) = await journal.runs()
        assert (await agent("Done.", tools=[wait], journal=journal).resume(info.run_id)).answer == "Done."

    with recording() as trace:
        asyncio.run(run())
        metrics = trace.metrics()
    first, second = [span for span in trace.spans if span.name == "invoke_agent agent"]
    assert first.context.trace_id == second.context.trace_id
    assert first.attributes["toolspeak.run.status"] == "broken_off"
    assert second.attributes["toolspeak.run.resumed_from"] == "broken_off"
    assert len({span.context.span_id for span in trace.spans}) == len(trace.spans)
    assert "takeover" not in trace.names
    assert "toolspeak.takeovers" not in metrics


def test_malformed_calls_are_counted_by_dialect():
    with recording() as trace:
        ran("<execute>[{nonsense]</execute>", "Done.")
        metrics = trace.metrics()
    assert total(metrics["toolspeak.malformed_calls"], toolspeak_dialect="cogency-json") == 1
    chat = trace.spans[1]
    assert chat.attributes["toolspeak.malformed_calls"] == 1
    assert [span_event.name for span_event in chat.events] == ["toolspeak.malformed_call"]


def test_limits_are_events_of_the_run():
    with recording() as trace:
        ran(LOOK, LOOK, "Done.", limits=Limits(steps=1))
    run = trace.find("invoke_agent agent")
    assert [(each.name, dict(each.attributes)) for each in run.events] == [
        ("toolspeak.limit_reached", {"toolspeak.limit": "steps"})
    ]


def test_metrics_hold_no_run_and_no_text():
    """Their attributes have few values each, whatever a user or a model writes."""
    with recording(content=True) as trace:
        for number in range(3):
            ran(
                calls(("look", {"word": f"w{number}"}), (f"made_up_{number}", {})),
                f"Answer {number}.",
                task=f"t{number}",
            )
        metrics = trace.metrics()
    assert {name for name in metrics if name.startswith("gen_ai")} == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_agent.duration",
    }
    for name, points in metrics.items():
        assert len(points) <= 3, name
    assert total(metrics["gen_ai.invoke_agent.duration"]) == 3
    assert total(metrics["toolspeak.step.duration"]) == 6


def test_sampled_out_spans_are_not_made_and_their_trace_is_passed_on():
    async def run() -> str:
        answer_stream = stream(event(says("Done.", "stop")), event("[DONE]"))
        async with serve(answer_stream) as server, Agent(OpenAIProvider("m", base_url=server.base_url)) as asking:
            result = await asking.run("go")
            (exchange,) = server.exchanges
            assert {record.traceparent for record in result.run_records.records} == {exchange.headers["traceparent"]}
            return exchange.headers["traceparent"]

    with recording(sampler=ALWAYS_OFF) as trace:
        assert not int(asyncio.run(run())[-2:], 16) & 1  # the flag "sampled"
        assert trace.spans == []
        assert total(trace.metrics()["gen_ai.invoke_agent.duration"]) == 1


def test_an_agent_can_have_telemetry_of_its_own():
    trace = Recording()
    own = telemetry.Telemetry(tracer_provider=trace.tracers, meter_provider=trace.meters)
    inner = agent("A star.", name="inner", description="Writes.")
    ran(calls(("inner", {"task": "x"})), "Done.", tools=[inner.as_tool()], observers=[own], name="outer", approve="all")
    ran("Done.", name="another")
    assert [name for name in trace.names if "invoke" in name] == ["invoke_agent outer", "invoke_agent inner"]


def test_without_an_sdk_nothing_is_recorded():
    telemetry.instrument()  # the process has no providers but those of the API
    try:
        result = ran(LOOK, "Done.")
    finally:
        telemetry.uninstrument()
    assert {record.traceparent for record in result.run_records.records} == {None}


def test_without_the_extra_the_error_names_it(monkeypatch):
    """The test hides `opentelemetry`, as if it were not installed."""
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "toolspeak.telemetry."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'toolspeak\[otel\]'"):
        telemetry.instrument()


def test_the_turns_of_a_program_are_no_requests_to_a_model():
    code = "await look('sun')\nawait look('moon')"
    with recording() as trace:
        agent(calls(("run_code", {"code": code})), "Done.", code_mode=True).run_sync("go")
    assert trace.tree() == [
        "invoke_agent agent",
        "  chat scripted",
        "  execute_tool run_code",
        "    invoke_agent program",
        "      execute_tool look",
        "      execute_tool look",
        "  chat scripted",
    ]
