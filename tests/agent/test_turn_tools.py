"""Tools that a function of the run returns before each turn."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from agent_helpers import WatchedJournal, add, calling, note

from toolspeak import (
    Agent,
    ConfigurationError,
    Decision,
    Effects,
    Executor,
    Output,
    RunContext,
    Tool,
    Toolset,
    tool,
)
from toolspeak.agent import Cassette
from toolspeak.data.events import ModelAsked, ToolStarted
from toolspeak.errors import ReplayDiverged, ToolDefinitionError, UnknownTool
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn

BOTH = Toolset([add, note])
ADDING = ("add", {"a": 1, "b": 2})
NOTING = ("note", {"path": "a"})


def natively(*calls):
    return ScriptedTurn("", calls=[ScriptedCall(*call) for call in calls])


def offered_tools(model: ScriptedProvider) -> list[list[str]]:
    """The names of the tools of each request."""
    return [[spec.name for spec in request.tools] for request in model.requests]


def results(agent_result) -> list[str]:
    return [each.result.text for step in agent_result.steps for each in step.executions]


def first_add_then_note(ctx: RunContext):
    return [add] if ctx.state.step == 0 else [note]


def test_a_function_gives_the_tools_of_each_turn():
    model = ScriptedProvider([natively(ADDING), natively(NOTING), "Done."], tools=True)
    result = Agent(model, first_add_then_note, approve="all").run_sync("Go.")
    assert offered_tools(model) == [["add"], ["note"], ["note"]]
    assert results(result) == ["3", "wrote a"]
    events = [each.event for each in result.run_records.records if isinstance(each.event, ModelAsked)]
    digests = [each.tools_digest for each in events]
    assert digests == [Toolset([add]).digest, Toolset([note]).digest, Toolset([note]).digest]


@pytest.mark.parametrize("dialect", ["cogency-json", "cogency-xml", "hermes", "tool-call"])
def test_calls_as_text_are_read_and_run_with_the_tools_of_their_turn(dialect: str):
    turns = [calling(dialect, ADDING), calling(dialect, NOTING), "Done."]
    model = ScriptedProvider(turns)
    result = Agent(model, first_add_then_note, dialect=dialect, approve="all").run_sync("Go.")
    assert results(result) == ["3", "wrote a"]
    texts = ["\n".join(message.text for message in request.messages) for request in model.requests]
    assert ["Adds two numbers." in text for text in texts] == [True, False, False]
    assert ["Writes a note." in text for text in texts] == [False, True, True]
    assert all("wrote a" in text or index < 2 for index, text in enumerate(texts))


def test_a_definition_that_changes_under_one_name_changes_the_prompt():
    def lookup(description: str) -> Tool:
        @tool(name="lookup", description=description, read_only=True)
        def function(place: str) -> str:
            return f"{place} is quiet"

        return function

    kinds = [lookup("Looks in the archive."), lookup("Looks in the cellar.")]
    model = ScriptedProvider([calling("hermes", ("lookup", {"place": "Rome"}))] * 3 + ["Done."])
    Agent(model, lambda ctx: [kinds[ctx.state.step % 2]], dialect="hermes", approve="all").run_sync("Go.")
    texts = ["\n".join(message.text for message in request.messages) for request in model.requests]
    assert ["the archive." in text for text in texts] == [True, False, True, False]
    assert ["the cellar." in text for text in texts] == [False, True, False, True]


def test_an_async_function_gets_deps_state_and_memory():
    contexts = []

    @tool(read_only=True)
    def learn(word: str, ctx: RunContext) -> str:
        "Learns."
        ctx.memory["word"] = word
        return "learned"

    async def tools(ctx: RunContext[str]) -> Toolset:
        await asyncio.sleep(0)
        contexts.append((ctx.deps, ctx.state.step, ctx.memory.get("word")))
        ctx.memory["word"] = "lost"
        return Toolset([learn])

    model = ScriptedProvider([natively(("learn", {"word": "pear"})), "Done."], tools=True)
    result = Agent(model, tools, deps_type=str).run_sync("Go.", deps="Ada")
    assert contexts == [("Ada", 0, None), ("Ada", 1, "pear")]
    assert result.memory["word"] == "pear"


def test_a_filter_selects_from_a_toolset():
    async def allowed(ctx: RunContext[set[str]], each: Tool) -> bool:
        return each.name in ctx.deps

    model = ScriptedProvider(["Hello."] * 2, tools=True)
    agent = Agent(model, BOTH.filter_per_turn(allowed), deps_type=set)
    agent.run_sync("Hello?", deps={"add", "note"})
    agent.run_sync("Hello?", deps={"note"})
    assert offered_tools(model) == [["add", "note"], ["note"]]
    agent_with_choice = Agent(ScriptedProvider([]), BOTH.filter_per_turn(lambda ctx, each: True), tool_choice="add")
    assert agent_with_choice is not None
    with pytest.raises(UnknownTool, match="there is no tool 'ad'"):
        Agent(ScriptedProvider([]), BOTH.filter_per_turn(lambda ctx, each: True), tool_choice="ad")


@pytest.mark.parametrize("native", [True, False])
def test_a_call_of_a_tool_that_the_turn_does_not_have_fails_and_the_run_goes_on(native: bool):
    turns = (
        [natively(ADDING), natively(ADDING), "Done."]
        if native
        else [calling("hermes", ADDING), calling("hermes", ADDING), "Done."]
    )
    model = ScriptedProvider(turns, tools=native)
    dialect = "auto" if native else "hermes"
    result = Agent(model, first_add_then_note, dialect=dialect, approve="all").run_sync("Go.")
    assert result.answer == "Done."
    assert results(result) == ["3", "no tool of this turn is called 'add'. Known: note."]


def test_no_tools_at_all_in_a_turn():
    model = ScriptedProvider([natively(ADDING), "Done."], tools=True)
    result = Agent(model, lambda ctx: [add] if ctx.state.step == 0 else []).run_sync("Go.")
    assert (offered_tools(model), result.answer) == ([["add"], []], "Done.")


def test_the_tools_of_the_answer_and_of_hand_offs_are_always_there():
    other = Agent(ScriptedProvider(["From the other."]), name="other")
    turns = [natively(ADDING), natively(("transfer_to_other", {}))]
    model = ScriptedProvider(turns, tools=True)
    result = Agent(model, first_add_then_note, handoffs=[other], approve="all").run_sync("Go.")
    assert offered_tools(model) == [["add", "transfer_to_other"], ["note", "transfer_to_other"]]
    assert (result.answer, result.agent) == ("From the other.", "other")

    answering = ScriptedProvider([natively(("final_answer", {"answer": 3}))], tools=True)
    agent = Agent(answering, first_add_then_note, output=Output(int, mode="tool"))
    assert agent.run_sync("What is 1 + 2?").output == 3
    assert offered_tools(answering) == [["add", "final_answer"]]


def test_the_other_agent_of_a_hand_off_computes_its_own_tools():
    model = ScriptedProvider([natively(("transfer_to_other", {}))], tools=True)
    others = ScriptedProvider([natively(ADDING), natively(NOTING), "Done."], tools=True)
    other = Agent(others, lambda ctx: [add] if ctx.state.step == 1 else [note], name="other")
    result = Agent(model, [note], handoffs=[other], approve="all").run_sync("Go.")
    assert (offered_tools(others), result.answer) == ([["add"], ["note"], ["note"]], "Done.")


class Desk:
    """An agent whose function offers `note` in the first turn, and after that what `later` says."""

    def __init__(self, journal, later=None, **options):
        self.calls = 0
        self.ran = []
        self.description = "Writes a note."
        self.model = ScriptedProvider([natively(NOTING), "Done."], tools=True, follow=True)

        def tools(ctx: RunContext):
            self.calls += 1
            assert ctx.state.step in (0, 1)

            def note(path: str) -> str:
                self.ran.append(path)
                return f"wrote {path}"

            offers = tool(note, description=self.description, effects=Effects(writes={"note"}))
            return [offers] if ctx.state.step == 0 or later is None else later

        self.agent = Agent(self.model, tools, journal=journal, **options)


def test_a_resumed_run_asks_the_function_for_the_tools_of_the_turn_it_left():
    async def work():
        journal = WatchedJournal()
        first, second = Desk(journal, later=[add]), Desk(journal, later=[add])
        paused_run = await first.agent.run("Go.")
        assert (paused_run.status, first.calls) == ("awaiting_approval", 1)
        result = await second.agent.resume(paused_run.run_id, {paused_run.waiting[0]: True})
        assert (result.answer, first.ran, second.ran) == ("Done.", [], ["a"])
        assert second.calls == 2  # for the calls that were left, and before the next turn
        assert offered_tools(second.model) == [["add"]]
        assert first.model.requests[0].tools != second.model.requests[0].tools

    asyncio.run(work())


def test_an_approval_holds_for_the_tool_that_was_shown():
    async def work():
        journal = WatchedJournal()
        first, second = Desk(journal), Desk(journal)
        paused_run = await first.agent.run("Go.")
        second.description = "Writes a note, and sends it to everybody."
        again = await second.agent.resume(
            paused_run.run_id, {paused_run.waiting[0]: Decision(True, digest=_digest(paused_run))}
        )
        assert (again.status, second.ran) == ("awaiting_approval", [])
        result = await second.agent.resume(again.run_id, {again.waiting[0]: True})
        assert (result.answer, second.ran) == ("Done.", ["a"])

    asyncio.run(work())


def _digest(paused_run):
    return paused_run.requests[0].digest


def test_a_tool_that_is_gone_when_its_call_was_approved_fails_cleanly():
    async def work():
        journal = WatchedJournal()
        first = Desk(journal)
        paused_run = await first.agent.run("Go.")
        model = ScriptedProvider([natively(NOTING), "Done."], tools=True, follow=True)
        result = await Agent(model, lambda ctx: [add], journal=journal).resume(
            paused_run.run_id, {paused_run.waiting[0]: True}
        )
        assert results(result) == ["no tool of this turn is called 'note'. Known: add."]
        assert (result.answer, journal.all(ToolStarted)) == ("Done.", [])

    asyncio.run(work())


def test_an_error_of_the_function_leaves_a_run_that_can_be_resumed():
    async def work():
        journal, errors = WatchedJournal(), [LookupError("no rights")]
        model = ScriptedProvider([natively(ADDING), "Done."], tools=True, follow=True)

        def tools(_: RunContext):
            if errors:
                raise errors.pop()
            return [add]

        agent = Agent(model, tools, journal=journal)
        with suppress(LookupError):
            await agent.run("Go.")
        assert (await agent.resume(journal.records[0].run_id)).answer == "Done."

    asyncio.run(work())


def test_a_repeated_read_is_answered_from_memory_only_while_the_tool_is_the_same():
    ran = []

    def reading(place: str) -> Tool:
        def look() -> str:
            ran.append(place)
            return place

        return tool(look, description="Looks.", effects=Effects(reads={"place"}))

    here, there = reading("here"), reading("there")
    looks = [natively(("look", {})) for _ in range(4)]
    model = ScriptedProvider([*looks, "Done."], tools=True)
    sets = [[here, add], [here], [add], [there]]
    result = Agent(model, lambda ctx: sets[min(ctx.state.step, 3)]).run_sync("Go.")
    assert ran == ["here", "there"]
    assert [text.splitlines()[-1] for text in results(result)] == [
        "here",
        "here",
        "no tool of this turn is called 'look'. Known: add.",
        "there",
    ]


def test_a_cassette_records_the_tools_of_each_turn_and_calls_the_function_when_it_plays(tmp_path):
    def agent(cassette, tools=first_add_then_note):
        turns = [natively(ADDING), natively(NOTING), "Done."] if not cassette.replays else []
        return Agent(ScriptedProvider(turns, tools=True), tools, approve="all", cassette=cassette)

    recording = agent(Cassette.record(tmp_path / "run.jsonl")).run_sync("Go.")
    replay = agent(Cassette.replay(tmp_path / "run.jsonl")).run_sync("Go.")
    assert results(replay) == results(recording) == ["3", "wrote a"]
    with pytest.raises(ReplayDiverged, match="tools"):
        agent(Cassette.replay(tmp_path / "run.jsonl"), lambda ctx: [add]).run_sync("Go.")


def test_an_executor_of_your_own_runs_the_tools_of_the_turn():
    model = ScriptedProvider([natively(ADDING), natively(NOTING), "Done."], tools=True)
    agent = Agent(model, first_add_then_note, execution=Executor([], approve="all"))
    assert results(agent.run_sync("Go.")) == ["3", "wrote a"]


def test_as_a_tool_it_may_touch_what_a_filter_can_give_and_anything_if_only_the_function_knows():
    def of(tools):
        return Agent(ScriptedProvider([]), tools, name="clerk", description="Helps.").as_tool().spec.effects

    assert of(Toolset([add]).filter_per_turn(lambda ctx, each: False)).read_only
    assert not of(lambda ctx: [add]).declared


def test_what_the_function_returns_is_checked():
    def run(tools, **options):
        return Agent(ScriptedProvider(["Done."], tools=True), tools, **options).run_sync("Go.")

    @tool(read_only=True)
    def wants(ctx: RunContext[int]) -> int:
        "Wants deps."
        return ctx.deps

    with pytest.raises(ConfigurationError, match="the function must return a list of functions and tools"):
        run(lambda ctx: add)
    with pytest.raises(ConfigurationError, match="or a Toolset, not None"):
        run(lambda ctx: None)
    with pytest.raises(ToolDefinitionError, match="two tools are named 'add'"):
        run(lambda ctx: [add, add])
    with pytest.raises(ConfigurationError, match=r"these tools need them: wants \(int\)"):
        run(lambda ctx: [wants])
    with pytest.raises(UnknownTool, match="there is no tool 'add'"):
        run(lambda ctx: [note], tool_choice="add")
    with pytest.raises(ConfigurationError, match="'required' needs a tool"):
        run(lambda ctx: [], tool_choice="required")


def test_a_tool_without_a_list_around_it_is_not_taken_for_such_a_function():
    def read(path: str) -> str:
        "Reads."
        return path

    def now() -> str:
        "Says the time."
        return "noon"

    for one in (add, read, now):
        with pytest.raises(ConfigurationError, match=r"write tools=\[it\]"):
            Agent(ScriptedProvider([]), one)


def test_reads_start_early_with_the_tools_of_their_turn():
    turns = [natively(ADDING, ADDING), "Done."]
    model = ScriptedProvider(turns, tools=True)
    result = Agent(model, lambda ctx: [add]).run_sync("Go.")
    assert results(result) == ["3", "3"]
