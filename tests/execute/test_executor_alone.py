"""An executor in a program that has its own loop: `await Executor(tools, approve=…).run(calls)`."""

import asyncio

import pytest

from toolspeak import Agent, Decision, Effects, Executor, ToolCall, Toolset, ToolSpec, tool
from toolspeak.errors import ConfigurationError, ToolDefinitionError
from toolspeak.execute import ANSWERED_FROM, BatchContext
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import RunContext
from toolspeak.tools.builtin import read_result_tool


def look_up(item: str) -> str:
    "Looks an item up."
    return f"{item}: 3"


read = tool(look_up, read_only=True)


class Shop:
    def __init__(self):
        self.orders = []

    def order(self, item: str) -> str:
        "Orders an item."
        self.orders.append(item)
        return "ordered"


def call(name, call_id="1", **arguments):
    return ToolCall(call_id, name, arguments)


def run(executor, *calls, **options):
    return asyncio.run(executor.run(list(calls), **options))


def test_functions_an_approver_and_calls_are_all_it_needs():
    shop = Shop()
    batch = run(Executor([read, shop.order], approve="all"), call("look_up", item="a"), call("order", "2", item="b"))
    assert [(result.call_id, result.text) for result in batch.results] == [("1", "a: 3"), ("2", "ordered")]
    assert shop.orders == ["b"]


def test_an_async_function_is_asked_about_each_write():
    tools, shop = [], Shop()

    async def approve(request):
        tools.append(request.call.name)
        return request.call.arguments["item"] == "b"

    executor = Executor([read, shop.order], approve=approve)
    batch = run(executor, call("look_up", item="a"), call("order", "2", item="b"), call("order", "3", item="c"))
    assert tools == ["order", "order"]
    assert [result.code for result in batch.results] == [None, None, "rejected"]
    assert shop.orders == ["b"]


def test_without_an_approver_the_calls_wait_and_run_with_a_decision():
    shop = Shop()
    executor, order = Executor([shop.order]), call("order", item="b")
    batch = run(executor, order)
    assert (batch.results, shop.orders) == ((), [])
    (question,) = batch.pending
    batch = run(executor, order, decisions={"1": Decision(True, digest=question.digest)})
    assert (batch.results[0].text, shop.orders) == ("ordered", ["b"])


def test_the_approver_of_one_batch_goes_before_the_executors():
    async def refuse(request):
        return False

    shop = Shop()
    batch = run(Executor([shop.order], approve="all"), call("order", item="b"), approver=refuse)
    assert (batch.results[0].code, shop.orders) == ("rejected", [])


def test_batches_without_a_context_are_one_conversation():
    @tool(read_only=True)
    def count(ctx: RunContext[None]) -> int:
        "Counts."
        ctx.memory["count"] = ctx.memory.get("count", 0) + 1
        return ctx.memory["count"]

    @tool(effects=lambda page: Effects(reads={f"page:{page}"}))
    def fetch(page: str) -> str:
        "Reads a page."
        return page

    executor = Executor([count, fetch])
    first = run(executor, call("count"), call("fetch", "2", page="a"))
    again = run(executor, call("count"), call("fetch", "2", page="a"))
    assert (first.results[0].text, again.results[0].text) == ("1", "2")
    assert ANSWERED_FROM in again.results[1].extra
    assert first.run_id != again.run_id  # equal ids of calls are no equal idempotency keys
    assert run(Executor([count]), call("count")).results[0].text == "1"


def test_long_results_of_equal_ids_have_handles_of_their_own():
    @tool(read_only=True)
    def write_out(letter: str) -> str:
        "Writes a letter often."
        return letter * 1000

    executor = Executor([write_out, read_result_tool()], max_result_bytes=300)
    first, second = (run(executor, call("write_out", letter=letter)).results[0] for letter in "ab")
    assert first.extra["handle"] != second.extra["handle"]
    page = run(executor, call("read_result", handle=first.extra["handle"])).results[0]
    assert "aaa" in page.text
    assert "bbb" not in page.text


def test_a_context_of_ones_own_brings_deps():
    @tool(read_only=True)
    def owner(ctx: RunContext[str]) -> str:
        "Names the owner."
        return ctx.deps

    assert run(Executor([owner]), call("owner"), context=BatchContext(deps="Bob")).results[0].text == "Bob"


def test_an_agent_asks_the_approver_of_its_executor():
    shop = Shop()
    block = '<execute>[{"name": "order", "args": {"item": "b"}}]</execute>'
    executor = Executor([shop.order], approve="all")
    result = Agent(ScriptedProvider([block, "Done."]), execution=executor).run_sync("go")
    assert (result.answer, shop.orders) == ("Done.", ["b"])


@pytest.mark.parametrize(
    ("tools", "options", "problem"),
    [
        (look_up, {}, "takes a list of functions and tools"),
        ("read", {}, "takes a list of functions and tools"),
        ([None], {}, "None is not a function"),
        ([read], {"approve": "yes"}, "approve is 'all'"),
        ([read], {"approve": look_up}, "write `async def"),
    ],
)
def test_what_is_no_list_of_tools_or_no_approver_is_refused(tools, options, problem):
    with pytest.raises((ConfigurationError, ToolDefinitionError), match=problem):
        Executor(tools, **options)


def test_a_toolset_stays_what_it_is():
    tools = Toolset([read])
    assert Executor(tools).tools is tools
    assert all(isinstance(spec, ToolSpec) for spec in Executor([read]).tools.specs)
