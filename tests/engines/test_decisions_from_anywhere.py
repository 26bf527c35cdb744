"""Decisions about a run's calls that no process waits for: stored as facts, the first one counts."""

import asyncio

import pytest
from shop import agent, new_id, ship, task, until, working

from toolspeak import tool
from toolspeak.data.events import ApprovalDecided
from toolspeak.engines import RunClient
from toolspeak.errors import RunConflict, RunError
from toolspeak.execute import Decision

SHIP = task([("ship", {"order": "7"})])


def test_a_decision_is_stored_and_a_worker_goes_on(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop, client = agent(journal, [ship]), RunClient(open_store())
        await shop.submit(SHIP, run_id=run_id)
        async with working(shop):
            waiting = await until(journal, run_id, "awaiting_approval")
            assert waiting.waiting == ("call_1_0",)
            assert (await journal.run(run_id)).due is None
            await client.decide(run_id, "call_1_0", True, principal="ann")
            result = await client.result(run_id, 60)
        assert result.answer == "7 shipped"
        decision = next(each.event for each in result.run_records.records if isinstance(each.event, ApprovalDecided))
        assert (decision.approved, decision.by, decision.digest) == (True, "ann", waiting.requests[0].digest)
        await client.decide(run_id, "call_1_0", True)
        with pytest.raises(RunConflict, match="was approved by ann before"):
            await client.decide(run_id, "call_1_0", False)

    open_store.run(main)


def test_the_first_decision_counts(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop, client, other = agent(journal, [ship]), RunClient(journal), RunClient(open_store())
        await shop.run(SHIP, run_id=run_id)
        await client.decide(run_id, "call_1_0", Decision(False, "too dear", "ann"))
        await other.decide(run_id, "call_1_0", Decision(False, "too dear", "ann"))
        with pytest.raises(RunConflict, match="was refused by ann before"):
            await other.decide(run_id, "call_1_0", True)
        with pytest.raises(RunConflict, match="was refused by ann before"):
            await shop.resume(run_id, {"call_1_0": True})
        result = await shop.resume(run_id)
        assert "too dear" in result.answer

    open_store.run(main)


def test_a_question_is_open_until_its_decision_is_stored(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop, client = agent(journal, [ship]), RunClient(open_store())
        both = task([("ship", {"order": "1"}), ("ship", {"order": "2"})])
        paused_run = await shop.run(both, run_id=run_id)
        first, second = paused_run.waiting
        await client.decide(run_id, first, True)
        standing = await client.status(run_id)
        assert (standing.status, standing.waiting) == ("awaiting_approval", (second,))
        assert [each.call_id for each in standing.requests] == [second]
        await client.decide(run_id, second, False)
        standing = await RunClient(open_store()).status(run_id)
        assert (standing.status, standing.waiting, standing.requests) == ("awaiting_approval", (), ())
        assert (await shop.submit(both, run_id=run_id)).requests == ()
        assert [each.run_id for each in await journal.runs(status="awaiting_approval")] == [run_id]
        result = await shop.resume(run_id)
        assert (result.status, result.waiting) == ("answered", ())
        assert "1 shipped" in result.answer
        assert "2 shipped" not in result.answer

    open_store.run(main)


def test_rivals_get_one_decision(open_store):
    async def main():
        run_id = new_id()
        await agent(open_store(), [ship]).run(SHIP, run_id=run_id)
        clients = [RunClient(open_store()) for _ in range(4)]
        rivals = [each.decide(run_id, "call_1_0", number % 2 == 0) for number, each in enumerate(clients)]
        outcomes = await asyncio.gather(*rivals, return_exceptions=True)
        assert [type(each) for each in outcomes].count(RunConflict) == 2
        assert sorted(each for each in outcomes if isinstance(each, bool)) == [False, True]

    open_store.run(main)


def test_a_decision_holds_for_the_question_that_it_answers(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        client = RunClient(journal)
        waiting = await agent(journal, [ship]).run(SHIP, run_id=run_id)
        with pytest.raises(RunConflict, match="asks something else"):
            await client.decide(run_id, "call_1_0", True, digest="0" * 64)
        await client.decide(run_id, "call_1_0", True, digest=waiting.requests[0].digest)

        @tool(name="ship")
        def ship_otherwise(order: str, gift: bool = False) -> str:
            "Another tool under the old name."
            return "never"

        again = await agent(journal, [ship_otherwise]).resume(run_id)
        assert (again.status, again.waiting) == ("awaiting_approval", ("call_1_0",)), "it is asked about anew"
        await client.decide(run_id, "call_1_0", False)

    open_store.run(main)


def test_all_calls_of_a_batch_are_decided_one_by_one(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        shop, client = agent(journal, [ship]), RunClient(journal)
        await shop.submit(task([("ship", {"order": "1"}), ("ship", {"order": "2"})]), run_id=run_id)
        async with working(shop):
            waiting = await until(journal, run_id, "awaiting_approval")
            await client.decide(run_id, waiting.waiting[0], True)
            async with asyncio.timeout(60):
                async for _ in journal.follow(run_id):
                    waiting = await client.status(run_id)
                    if waiting.status == "awaiting_approval" and len(waiting.waiting) == 1:
                        break
            await client.decide(run_id, waiting.waiting[0], False)
            result = await client.result(run_id, 60)
        assert "1 shipped" in result.answer
        assert "2 shipped" not in result.answer

    open_store.run(main)


def test_a_sub_runs_question_is_decided_at_the_run_above(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        clerk = agent(journal, [ship], name="clerk", description="Ships.")
        boss = agent(journal, [clerk.as_tool()], name="boss", approve=None)
        await boss.submit(task([("clerk", {"task": SHIP})]), run_id=run_id)
        client = RunClient(journal)
        async with working(boss):
            async with asyncio.timeout(60):
                async for _ in journal.follow(run_id):
                    standing = await client.status(run_id)
                    for call_id in standing.waiting:
                        await client.decide(run_id, call_id, True, principal="ann")
                    if standing.status == "answered":
                        break
        assert standing.answer == "7 shipped"
        decisions = [each.event for each in await journal.read(run_id) if isinstance(each.event, ApprovalDecided)]
        assert {each.by for each in decisions} == {"ann"}
        assert any("/" in each.call_id for each in decisions), "a question of the sub-run"

    open_store.run(main)


def test_a_question_that_is_not_there_is_an_error(open_store):
    async def main():
        journal, run_id = open_store(), new_id()
        await agent(journal, [ship]).run(SHIP, run_id=run_id)
        client = RunClient(journal)
        with pytest.raises(RunError, match="no open question about call_9_9; call_1_0 waits"):
            await client.decide(run_id, "call_9_9", True)
        with pytest.raises(RunError, match="the journal has no run"):
            await client.decide("order-none", "call_1_0", True)

    open_store.run(main)
