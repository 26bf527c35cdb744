"""A call in doubt that is not run again after all: nobody says of it that it was not started."""

import asyncio

from toolspeak import Effects, Executor, tool
from toolspeak.data.messages import ToolCall
from toolspeak.execute import BatchContext, Doubts, approve_all
from toolspeak.tools import Toolset

SAME = Effects(writes={"file:a"}, idempotent=True)


@tool(effects=SAME)
async def slow() -> str:
    await asyncio.Event().wait()
    return "never"


@tool(effects=SAME)
async def put() -> str:
    return "put"


def test_what_the_time_limit_skips_behind_another_call_stays_in_doubt():
    async def main():
        facts = []

        async def emit(event):
            facts.append(event)

        batch = await Executor(Toolset([slow, put])).run(
            [ToolCall("a", "slow", {}), ToolCall("b", "put", {}), ToolCall("c", "put", {})],
            emit=emit,
            context=BatchContext("run"),
            approver=approve_all,
            doubts=Doubts({"b": None}),
            deadline=0.02,
        )
        return batch.results, [event.result for event in facts if hasattr(event, "result")]

    results, recorded = asyncio.run(main())
    assert [result.code for result in results] == ["timeout", "unknown_outcome", "skipped"]
    assert "time limit" in results[1].text
    assert sorted(recorded, key=lambda result: result.call_id) == list(results)
