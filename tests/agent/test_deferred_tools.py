"""Tools of which the model reads the names alone, until it finds them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from agent_helpers import WatchedJournal, calling

import sweeps
from toolspeak import Agent, Effects, Limits, RunContext, Session, SqliteJournal, Tool, Toolset, Window, tool
from toolspeak.data.events import HistoryCompacted, ToolStarted
from toolspeak.data.tools import MOST_FOUND
from toolspeak.dialects import DIALECTS
from toolspeak.errors import ToolDefinitionError
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools.tool_catalogue import ToolCatalogue


def natively(*calls):
    return ScriptedTurn("", calls=[ScriptedCall(*call) for call in calls])


def offered_tools(model: ScriptedProvider) -> list[list[str]]:
    """The names of the tools of each request."""
    return [[spec.name for spec in request.tools] for request in model.requests]


def results(agent_result):
    return [each.result for step in agent_result.steps for each in step.executions]


def finding(query: str, **more: str):
    return ("find_tools", {"query": query, **more})


class Shop:
    """Tools of a shop, and what they did."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.tools = Toolset([self.reading(name, text) for name, text in _READS] + [self.writing("invoice_delete")])

    def reading(self, name: str, description: str) -> Tool:
        @tool(name=name, description=description, read_only=True)
        def read(number: int) -> str:
            self.ran.append(name)
            return f"{name} {number}"

        return read

    def writing(self, name: str) -> Tool:
        @tool(name=name, description="Removes a bill.", effects=Effects(writes={"bills"}))
        def write(number: int) -> str:
            self.ran.append(name)
            return f"{name} {number}"

        return write


_READS = (
    ("stock_count", "How many pieces of an article there are."),
    ("invoice_show", "Shows a bill."),
    ("weather_now", "Shows the sky."),
)


def test_the_model_reads_names_and_finds_definitions_which_stay_at_the_end():
    shop = Shop()
    model = ScriptedProvider(
        [
            natively(finding("show a bill")),
            natively(("invoice_show", {"number": 3})),
            natively(finding("pieces of an article")),
            natively(("stock_count", {"number": 4})),
            "Done.",
        ],
        tools=True,
    )
    agent = Agent(model, shop.tools.defer(lambda each: each.name != "weather_now"))
    result = agent.run_sync("Go.")
    assert (result.answer, shop.ran) == ("Done.", ["invoice_show", "stock_count"])
    names = offered_tools(model)
    assert names[0] == ["weather_now", "find_tools"]
    assert names[1] == names[2] == ["weather_now", "find_tools", "invoice_show", "invoice_delete"]
    assert names[3] == names[4] == [*names[1], "stock_count"]
    definitions = [request.tools[1] for request in model.requests]
    assert all(each == definitions[0] for each in definitions), "the prompt's beginning stays the same"
    assert "invoice_*: show, delete" in definitions[0].description


@pytest.mark.over_a_second
def test_every_dialect_writes_the_definition_once_it_is_found():
    for dialect in (each.name for each in DIALECTS):
        with sweeps.case(dialect):
            shop = Shop()
            every = Toolset([*shop.tools, ToolCatalogue(shop.tools.specs).tool()])
            turns = [
                calling(dialect, finding("sky"), tools=every),
                calling(dialect, ("weather_now", {"number": 3}), tools=every),
                "Done.",
            ]
            model = ScriptedProvider(turns)
            result = Agent(model, shop.tools.defer(), dialect=dialect).run_sync("Go.")
            texts = ["\n".join(message.text for message in request.messages) for request in model.requests]
            assert shop.ran == ["weather_now"]
            assert len(results(result)) == 2
            counts = [text.count("Shows the sky.") for text in texts]
            assert counts[0] == 0
            assert counts[1] == counts[2] > 1, "in the result and among the tools"
            assert "pieces of an article" not in "".join(texts)


def test_a_read_that_was_not_found_runs_if_its_arguments_are_valid_and_is_listed_then():
    shop = Shop()
    model = ScriptedProvider(
        [natively(("invoice_show", {"number": "x"})), natively(("stock_count", {"number": 1})), "Done."], tools=True
    )
    result = Agent(model, shop.tools.defer()).run_sync("Go.")
    wrong, right = results(result)
    assert wrong.code == "invalid_arguments"
    assert "You had not read the definition of invoice_show." in wrong.text
    assert (right.text, shop.ran) == ("stock_count 1", ["stock_count"])
    assert offered_tools(model) == [
        ["find_tools"],
        ["find_tools", "invoice_show"],
        ["find_tools", "invoice_show", "stock_count"],
    ]


def test_a_write_that_was_not_found_does_not_run_even_if_all_is_approved():
    shop = Shop()
    call = natively(("invoice_delete", {"number": 3}))
    model = ScriptedProvider([call, call, "Done."], tools=True)
    result = Agent(model, shop.tools.defer(), approve="all").run_sync("Go.")
    first, second = results(result)
    assert (first.code, second.text) == ("unknown_tool", "invoice_delete 3")
    assert "did not run" in first.text
    assert shop.ran == ["invoice_delete"]
    starts = [each for each in result.run_records.records if isinstance(each.event, ToolStarted)]
    assert len(starts) == 1


def test_an_unknown_name_is_told_about_the_search():
    model = ScriptedProvider([natively(("invoice_print", {})), "Done."], tools=True)
    (refusal,) = results(Agent(model, Shop().tools.defer()).run_sync("Go."))
    assert refusal.text.endswith("find_tools finds others.")


def test_what_was_found_is_there_after_a_resume_elsewhere():
    async def work():
        journal = WatchedJournal()
        shop = Shop()
        model = ScriptedProvider(
            [natively(finding("remove a bill")), natively(("invoice_delete", {"number": 3}))], tools=True
        )
        paused_run = await Agent(model, shop.tools.defer(), journal=journal).run("Go.")
        assert (paused_run.status, shop.ran) == ("awaiting_approval", [])

        other, later = Shop(), ScriptedProvider(["Done."], tools=True)
        agent = Agent(later, other.tools.defer(), journal=journal)
        result = await agent.resume(paused_run.run_id, {paused_run.waiting[0]: True})
        assert (result.answer, other.ran) == ("Done.", ["invoice_delete"])
        assert offered_tools(later) == offered_tools(model)[1:]

    asyncio.run(work())


def test_what_was_found_is_there_for_the_session_even_after_a_compaction(tmp_path):
    async def work():
        async with aclosing(SqliteJournal(tmp_path / "j.db")) as journal:
            turns = [natively(finding("bill")), *["Done.", "A summary."] * 2, "Done."]
            model = ScriptedProvider(turns, tools=True)
            session = Session(Agent(model, Shop().tools.defer(), journal=journal))
            await session.run("Go.")
            small = Agent(model, Shop().tools.defer(), journal=journal, window=Window(500, keep=0.1))
            again = Session(small, session.session_id)
            run_ids = [(await again.run(task)).run_id for task in ("word " * 500, "And?")]
            names = ["find_tools", "invoice_show", "invoice_delete"]
            assert offered_tools(model) == [["find_tools"], *[names] * 5]
            records = [await journal.read(run_id) for run_id in run_ids]
            assert any(isinstance(each.event, HistoryCompacted) for each in records[0])
            assert [list(each[0].event.found_tools) for each in records] == [names[1:]] * 2

    asyncio.run(work())


def test_a_hundred_searches_add_a_bounded_number_of_tools():
    shop = Shop()
    many = Toolset([shop.reading(f"group{i}_tool", f"Does the thing number{i}.") for i in range(300)])
    turns = [natively(finding(f"{i} {i + 100} {i + 200}")) for i in range(100)]
    last = natively(("group0_tool", {"number": 1}))
    model = ScriptedProvider([*turns, last, "Done."], tools=True)
    result = Agent(model, many.defer(), limits=Limits(steps=200)).run_sync("Go.")
    assert result.answer == "Done."
    counts = [len(names) for names in offered_tools(model)]
    assert counts[1] == 4
    assert max(counts) == counts[-1] == MOST_FOUND + 1
    assert shop.ran == ["group0_tool"], "a tool that has left the list can still be called"
    assert offered_tools(model)[-1][-1] == "group0_tool"


def test_a_tool_choice_may_name_a_deferred_tool():
    shop = Shop()
    model = ScriptedProvider([natively(("invoice_show", {"number": 3})), "Done."], tools=True)
    Agent(model, shop.tools.defer(), tool_choice="invoice_show").run_sync("Go.")
    assert shop.ran == ["invoice_show"]
    assert offered_tools(model) == [["find_tools", "invoice_show"]] * 2


def test_memory_that_an_unfound_tool_keeps_is_recorded():
    @tool(read_only=True)
    def remember(word: str, ctx: RunContext) -> str:
        "Keeps a word."
        ctx.memory["word"] = word
        return "kept"

    model = ScriptedProvider([natively(("remember", {"word": "pear"})), "Done."], tools=True)
    result = Agent(model, Toolset([remember]).defer()).run_sync("Go.")
    assert result.memory["word"] == "pear"
    records = result.run_records.records
    assert any(change.path == ("word",) for each in records for change in getattr(each.event, "memory", ()))


def test_hand_offs_and_the_answer_keep_the_definitions_found_at_the_end():
    shop = Shop()
    other = Agent(ScriptedProvider(["From the other."]), name="other")
    model = ScriptedProvider([natively(finding("sky")), natively(("transfer_to_other", {}))], tools=True)
    result = Agent(model, shop.tools.defer(), handoffs=[other]).run_sync("Go.")
    assert result.answer == "From the other."
    assert offered_tools(model) == [
        ["find_tools", "transfer_to_other"],
        ["find_tools", "transfer_to_other", "weather_now"],
    ]


def test_no_two_tools_have_one_name():
    @tool(read_only=True)
    def find_tools() -> str:
        "Searches."
        return ""

    with pytest.raises(ToolDefinitionError, match="find_tools"):
        Toolset([find_tools, *Shop().tools]).defer(lambda each: each.name != "find_tools")


def test_without_a_deferred_tool_there_is_no_search():
    model = ScriptedProvider(["Done."], tools=True)
    shop = Shop()
    Agent(model, shop.tools.defer(lambda _: False)).run_sync("Go.")
    assert offered_tools(model) == [[each.name for each in shop.tools]]
