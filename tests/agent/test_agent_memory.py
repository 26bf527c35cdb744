"""What tools keep with a run is recorded with their results, and is there when it is resumed."""

import asyncio
import copy
from contextlib import aclosing

import pytest
from agent_helpers import WatchedJournal, an_agent, calling
from hypothesis import given, settings
from hypothesis import strategies as st

from toolspeak import Agent, Execution, RunContext, tool
from toolspeak.agent import fold
from toolspeak.agent.state.steps import Memory, memory_after
from toolspeak.data.codec import dumps, loads
from toolspeak.data.events import MemoryChanged, ToolFinished
from toolspeak.errors import ToolDefinitionError
from toolspeak.execute import Interceptor, Secrets
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import Toolset
from toolspeak.tools.builtin import workspace_tools

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | numbers | st.text(max_size=3)
trees = st.recursive(
    values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
memories = st.dictionaries(st.sampled_from("abc"), trees | st.dictionaries(st.sampled_from("xyz"), trees), max_size=3)


def without_empty(memory):
    """A mapping that holds nothing is as good as none."""
    return {key: value for key, value in memory.items() if value != {}}


@given(st.lists(memories, max_size=4))
@settings(deadline=None)
def test_the_changes_of_any_memory_give_it_again(stages):
    stored_memory, all_changes = {}, []
    memory = Memory(stored_memory, (), Secrets())
    for stage in stages:
        stored_memory.clear()
        stored_memory.update(copy.deepcopy(stage))
        changes, refusals = memory.changes()
        assert not refusals
        all_changes += changes
        assert all(loads(dumps(change)) == change for change in all_changes)
        assert without_empty(memory_after(all_changes)) == without_empty(stage)
        assert memory.changes() == ((), {}), "what has not changed is told again"
        assert Memory(stored_memory, all_changes, Secrets()).changes() == ((), {})


@tool(read_only=True)
def count(key: str, ctx: RunContext) -> str:
    "Counts under a key."
    counts = ctx.memory.setdefault("counts", {})
    counts[key] = counts.get(key, 0) + 1
    ctx.memory.setdefault("order", []).append(key)
    return f"{key}: {counts[key]}, order {''.join(ctx.memory['order'])}"


async def stop_after(run, step):
    """Leaves a run where it is behind a step, as a process that is killed: nothing of the object is used any more."""
    async with aclosing(run.states()) as states:
        async for state in states:
            if state.step == step:
                return


def test_what_a_tool_kept_is_there_when_a_killed_run_is_resumed(tmp_path):
    turns = [calling("cogency-json", *[("count", {"key": k}) for k in keys], tools=Toolset([count]))
             for keys in (["a"], ["b"], ["a"])]  # fmt: skip
    provider = ScriptedProvider([*turns, "Done."], follow=True)

    async def main():
        async with (
            aclosing(SqliteJournal(tmp_path / "t.db")) as journal,
            aclosing(SqliteJournal(tmp_path / "t.db")) as another,
        ):
            run = Agent(provider, [count], journal=journal, execution=Execution(early_start=False)).start("go")
            await stop_after(run, 2)
            result = await Agent(provider, [count], journal=another).resume(run.run_id)
            return result, await journal.read(run.run_id)

    result, records = asyncio.run(main())
    assert result.memory == {"counts": {"a": 2, "b": 1}, "order": ["a", "b", "a"]}
    texts = [record.event.result.text for record in records if isinstance(record.event, ToolFinished)]
    assert texts[-1] == "a: 2, order aba"
    changes = [record.event.memory for record in records if isinstance(record.event, ToolFinished)]
    assert MemoryChanged(("counts", "b"), 1) in changes[1]
    assert not any(change.path == ("counts", "a") for change in changes[1]), "recorded anew although unchanged"
    assert memory_after(fold(records).memory) == result.memory


def test_a_file_that_was_read_may_be_written_by_the_resumed_run(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {i}\n" for i in range(900)))
    tools = workspace_tools(tmp_path)
    call_list = [("read", {"path": "a.txt", "lines": 500}), ("read", {"path": "a.txt", "start": 501})]  # two pages
    call_list.append(("write", {"path": "a.txt", "content": "two\n"}))
    provider = ScriptedProvider(
        [*[calling("cogency-json", one, tools=tools) for one in call_list], "Done."], follow=True
    )
    journal = WatchedJournal()

    async def main():
        agents = [Agent(provider, workspace_tools(tmp_path), journal=journal, approve="all") for _ in range(3)]
        run = agents[0].start("go")
        await stop_after(run, 1)
        await stop_after(agents[1].reopen(run.run_id), 2)
        return await agents[2].resume(run.run_id)

    assert asyncio.run(main()).answer == "Done."
    assert [each.status for each in journal.results()] == ["success"] * 3, journal.results()[-1].text
    assert (tmp_path / "a.txt").read_text() == "two\n"


def test_what_is_no_json_is_refused_with_the_key_and_the_tool_and_the_result_is_kept():
    @tool()
    def connect(ctx: RunContext) -> str:
        "Connects."
        ctx.memory["fine"] = 1
        ctx.memory["pool"] = {"main": object()}
        return "connected"

    journal = WatchedJournal()
    agent = an_agent([calling("cogency-json", ("connect", {}), tools=Toolset([connect]))], [connect], journal=journal)
    with pytest.raises(ToolDefinitionError, match=r"connect stored a value in RunContext.memory\['pool'\].*deps"):
        asyncio.run(agent.run("go"))
    (tool_finish,) = journal.all(ToolFinished)
    assert tool_finish.result.text == "connected"
    assert tool_finish.memory == (MemoryChanged(("fine",), 1),)


def test_what_an_interceptor_keeps_there_survives_too():
    class Last(Interceptor):
        async def after(self, call, result, context):
            context.memory["last"] = result.text
            return result

    @tool(read_only=True)
    def plain() -> str:
        "Says something."
        return "said"

    journal = WatchedJournal()
    turns = [calling("cogency-json", ("plain", {}), tools=Toolset([plain])), "Done."]
    asyncio.run(an_agent(turns, [plain], journal=journal, interceptors=[Last()]).run("go"))
    assert journal.all(ToolFinished)[0].memory == (MemoryChanged(("last",), "said"),)


def test_a_secret_is_kept_as_its_placeholder_and_is_there_again():
    @tool(read_only=True)
    def login(ctx: RunContext) -> str:
        "Logs in."
        tokens = ctx.memory.setdefault("tokens", [])
        tokens.append("sk-secret-4711")
        return f"{len(set(tokens))} of {len(tokens)}"

    journal = WatchedJournal()
    turns = [calling("cogency-json", ("login", {}), tools=Toolset([login]))] * 2
    provider = ScriptedProvider([*turns, "Done."], follow=True)
    agent = Agent(provider, [login], journal=journal, secrets={"KEY": "sk-secret-4711"})

    async def main():
        run = agent.start("go")
        await stop_after(run, 1)
        return await agent.resume(run.run_id)

    result = asyncio.run(main())
    assert not any("sk-secret" in dumps(record) for record in journal.records)
    assert journal.results()[-1].text == "1 of 2"
    assert result.memory == {"tokens": ["sk-secret-4711"] * 2}
