"""A recorded run as spans, beside the spans of the same run that were made while it went on."""

from __future__ import annotations

import asyncio
import json

import pytest
from otlp_receiver import attributes, collecting
from recorded_spans import Recording, recording
from test_run_spans import LOOK, agent, calls, fail, look, write
from test_telemetry_cli import toolspeak

from toolspeak import Agent, RunContext, SqliteJournal, tool
from toolspeak.errors import RunError
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.telemetry.recorded_trace import recorded_trace


class ExportedSpans(Recording):
    """Spans that were made of records, as `Recorded` reads them."""

    def __init__(self, spans) -> None:
        self._spans = spans

    @property
    def spans(self):
        return sorted(self._spans, key=lambda span: span.start_time or 0)


def export(path, run_id, *, content=False) -> ExportedSpans:
    async def work():
        journal = SqliteJournal(path)
        try:
            return ExportedSpans(await recorded_trace(journal, run_id, content=content))
        finally:
            await journal.aclose()

    return asyncio.run(work())


def facts(trace):
    """What spans say, besides their ids and times. A program does not record its dialect."""
    names = {span.context.span_id: span.name for span in trace.spans}

    def of(span):
        own = {**span.attributes}
        own.pop("toolspeak.dialect", None)
        parent = names.get(span.parent.span_id, "?") if span.parent is not None else ""
        return (span.name, span.kind.name, span.status.status_code.name, parent, json.dumps(own, sort_keys=True))

    return sorted(map(of, trace.spans))


def run(path, *turns, tools=(look, write, fail), **options):
    async def work():
        journal = SqliteJournal(path)
        try:
            return await agent(*turns, tools=tools, journal=journal, **options).run("go")
        finally:
            await journal.aclose()

    return asyncio.run(work())


@pytest.mark.parametrize("content", [False, True])
def test_the_spans_of_a_recorded_run_are_those_of_the_live_one(tmp_path, content):
    path = tmp_path / "runs.db"
    several = calls(("look", {"word": "moon"}), ("fail", {}), ("unknown", {}))
    with recording(content=content) as live:
        result = run(path, LOOK, several, "<execute>[nonsense]</execute>", "Done.", name="reader")
    after = export(path, result.run_id, content=content)
    # An agent's instructions and tools are not recorded, only their digests.
    left_out = {"gen_ai.system_instructions", "gen_ai.tool.definitions"}

    def without(facts):
        return [(*rest, {k: v for k, v in json.loads(text).items() if k not in left_out}) for *rest, text in facts]

    assert without(facts(after)) == without(facts(live))
    assert {span.context.trace_id for span in after.spans} == {span.context.trace_id for span in live.spans}
    (root,), (live_root,) = (
        [span for span in each.spans if span.name == "invoke_agent reader"] for each in (after, live)
    )
    assert root.context.span_id == live_root.context.span_id
    for span, other in ((root, live_root),):
        assert abs(span.start_time - other.start_time) < 1e9
        assert abs(span.end_time - other.end_time) < 1e9
    for span in after.spans:
        assert root.start_time <= span.start_time <= span.end_time <= root.end_time


def test_a_run_that_was_not_traced_has_the_same_ids_in_every_export(tmp_path):
    path = tmp_path / "runs.db"
    result = run(path, LOOK, "Done.")
    first, second = export(path, result.run_id), export(path, result.run_id)
    assert [span.context for span in first.spans] == [span.context for span in second.spans]
    assert first.tree() == ["invoke_agent agent", "  chat scripted", "  execute_tool look", "  chat scripted"]
    assert len({span.context.span_id for span in first.spans}) == 4


def test_a_caller_without_a_tracer_is_the_parent(tmp_path):
    path = tmp_path / "runs.db"
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"

    async def work():
        journal = SqliteJournal(path)
        result = await agent("Done.", journal=journal).run("go", traceparent=parent)
        await journal.aclose()
        return result.run_id

    spans = export(path, asyncio.run(work())).spans
    assert {f"{span.context.trace_id:032x}" for span in spans} == {parent.split("-")[1]}
    assert f"{spans[0].parent.span_id:016x}" == parent.split("-")[2]


def test_the_runs_that_tools_started_are_below_their_calls(tmp_path):
    path = tmp_path / "runs.db"

    async def work():
        journal = SqliteJournal(path)

        @tool(read_only=True)
        async def delegate(word: str, ctx: RunContext) -> str:
            "Asks another agent."
            script = ScriptedProvider([LOOK, f"About {word}."])
            helper = Agent(script, [look], dialect="cogency-json", name="helper", journal=journal)
            return (await helper.run(word, parent_run_id=ctx.run_id)).answer

        result = await agent(both, "Done.", tools=[delegate], journal=journal).run("go")
        await journal.aclose()
        return result

    both = calls(("delegate", {"word": "sun"}), ("delegate", {"word": "moon"}))
    with recording() as live:
        result = asyncio.run(work())
    after = export(path, result.run_id)
    assert facts(after) == facts(live)
    words = {}
    for span in after.spans:
        if span.name == "invoke_agent helper":
            (call,) = [each for each in after.spans if each.context.span_id == span.parent.span_id]
            words[call.attributes["gen_ai.tool.call.id"]] = span.attributes["toolspeak.run.id"]
    assert set(words) == {"call_1_0", "call_1_1"}
    assert len(set(words.values())) == 2


def test_each_drive_of_a_run_that_waited_is_a_span(tmp_path):
    path = tmp_path / "runs.db"

    async def work():
        journal = SqliteJournal(path)
        paused_run = await agent(calls(("write", {"path": "a"})), journal=journal).run("go")
        await agent("Done.", journal=journal).resume(paused_run.run_id, {"call_1_0": True})
        await journal.aclose()
        return paused_run.run_id

    with recording() as live:
        run_id = asyncio.run(work())
    after = export(path, run_id)
    assert facts(after) == facts(live)
    drives = [span for span in after.spans if span.name == "invoke_agent agent"]
    assert [span.attributes["toolspeak.run.status"] for span in drives] == ["awaiting_approval", "answered"]
    assert drives[1].parent.span_id == drives[0].context.span_id


def test_an_unknown_run_is_an_error(tmp_path):
    run(tmp_path / "runs.db", "Done.")
    with pytest.raises(RunError, match="no run nothing"):
        export(tmp_path / "runs.db", "nothing")


@pytest.mark.over_a_second
def test_the_command_exports_by_otlp_or_prints_json(tmp_path):
    result = run(tmp_path / "runs.db", LOOK, "A star.")
    arguments = ("trace", result.run_id[:8], "--journal", "runs.db")
    with collecting() as collector:
        process_result = toolspeak(tmp_path, *arguments, **collector.environ)
        assert process_result.returncode == 0, process_result.stderr
        assert "4 spans of the trace" in process_result.stderr
        assert collector.tree() == ["invoke_agent agent", "  chat scripted", "  execute_tool look", "  chat scripted"]
        assert collector.services == {"toolspeak"}
        assert {attributes(span)["toolspeak.run.id"] for span in collector.spans} == {result.run_id}
        assert b"A star" not in collector.bodies
        json_result = toolspeak(tmp_path, *arguments, "--json", "--content", **collector.environ)
        assert len(collector.spans) == 4  # nothing more was sent
    lines = [json.loads(line) for line in json_result.stdout.splitlines()]
    assert [line["name"] for line in lines] == [
        "chat scripted",
        "execute_tool look",
        "chat scripted",
        "invoke_agent agent",
    ]
    assert "A star." in json_result.stdout
    refusal = toolspeak(
        tmp_path, *arguments, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TIMEOUT="1"
    )
    assert refusal.returncode == 2
    assert "is a collector at OTEL_EXPORTER_OTLP_ENDPOINT" in refusal.stderr
