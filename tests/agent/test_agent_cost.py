"""What runs cost: by a table of prices, as a limit, and with the runs that their tools start."""

import asyncio

import pytest
from agent_helpers import WatchedJournal, add, adding, calling, play
from hypothesis import given, settings
from hypothesis import strategies as st

from toolspeak import Agent, ConfigurationError, Execution, Limits, MemoryJournal, RunContext, tool
from toolspeak.agent import fold
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.events import LimitReached, ModelAnswered, SubRunUsed
from toolspeak.data.messages import Usage
from toolspeak.data.prices import PRICES, Price, price_of, read_prices
from toolspeak.errors import SubRunPaused
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

TEST_PRICES = {"scripted": Price(100, 1000, 10)}  # USD per million tokens: 1,000 tokens in are 0.10, 100 out too
TURN = Usage(1000, 100)


def native(*calls):
    """A turn of 0.20 USD that makes these calls."""
    return ScriptedTurn("", calls=[ScriptedCall(name, arguments) for name, arguments in calls], usage=TURN)


def priced_turn(text):
    return ScriptedTurn(text, usage=TURN)


# --- the table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(1_000_000, 0), 3),
        (Usage(0, 1_000_000), 15),
        (Usage(1_000_000, 0, 1_000_000), 0.3),
        (Usage(1_000_000, 0, 0, None, 1_000_000), 3.75),
        (Usage(1_000_000, 0, 400_000, None, 100_000), 0.12 + 0.375 + 1.5),
        (Usage(0, 1_000_000, 0, 900_000), 15),  # reasoning is output
        (Usage(None, 5), None),
        (Usage(), None),
    ],
)
def test_each_token_has_its_price_once(usage, expected):
    cost = Price(3, 15, 0.3, 3.75).cost(usage)
    assert cost is None if expected is None else cost == pytest.approx(expected)


def test_a_model_without_a_price_has_an_unknown_cost_and_never_none_at_all():
    assert price_of("ollama:qwen3") is None
    assert price_of("openai:gpt-4o-2024-08-06") == PRICES["openai:gpt-4o"]
    assert price_of("openai:gpt-4o-audio") is None


def test_a_long_turn_has_its_own_price():
    price = Price(1, 2, long_above=10, long=Price(3, 4))
    assert price.cost(Usage(10, 1)) == pytest.approx(12e-6)
    assert price.cost(Usage(11, 1)) == pytest.approx(37e-6)


@settings(deadline=None)
@given(st.sampled_from(list(PRICES.values())), *[st.integers(0, 10**6)] * 4)
def test_a_cache_never_makes_a_turn_cost_more_than_writing_it_all(price, input_, output, cache_reads, cache_writes):
    cost = price.cost(Usage(input_, output, min(cache_reads, input_), None, min(cache_writes, input_)))
    dearest = price.cost(Usage(input_, output, 0, None, input_))
    assert cost is not None
    assert dearest is not None
    assert 0 <= cost <= dearest * 1.000001


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([], "p.json: expected an object"),
        ({"m": 3}, "p.json: m: expected an object"),
        ({"m": {"input": 3}}, "p.json: m.output: missing"),
        ({"m": {"input": -1, "output": 2}}, "p.json: m.input: expected a number"),
        ({"m": {"input": 1, "output": 2, "in": 1}}, "p.json: m: unknown field 'in'; known: input, output"),
        ({"m": {"input": 1, "output": 2, "long": {"input": 2, "output": 3}}}, "long and long_above go together"),
    ],
)
def test_prices_that_cannot_be_read_name_the_place(value, place):
    with pytest.raises(ConfigurationError) as raised_error:
        read_prices(value, "p.json")
    assert place in str(raised_error.value)


def test_prices_are_read_from_json():
    entry = {"input": 1, "output": 2, "cached": 0.1, "long_above": 10, "long": {"input": 2, "output": 3}}
    assert read_prices({"m": entry}, "p") == {"m": Price(1, 2, 0.1, None, 10, Price(2, 3))}


# --- runs ---------------------------------------------------------------------------------------------------------


def test_a_run_costs_what_its_turns_cost():
    result, journal, _ = play(
        [ScriptedTurn(adding(1, 2), usage=TURN), priced_turn("3")], tools=[add], prices=TEST_PRICES
    )
    assert [event.cost for event in journal.all(ModelAnswered)][-1] == pytest.approx(0.2)
    assert result.cost == pytest.approx(sum(event.cost for event in journal.all(ModelAnswered)))
    assert fold(journal.records).totals.cost == result.cost


def test_without_a_price_the_cost_is_unknown():
    result, journal, _ = play([priced_turn("3")])
    assert (result.cost, journal.all(ModelAnswered)[0].cost) == (None, None)


def test_a_limit_in_dollars_ends_in_a_wrap_up_answer():
    result, journal, provider = play(
        [native(("add", {"a": n, "b": n})) for n in range(3)] + [priced_turn("as far as I came")],
        dialect="native",
        prices=TEST_PRICES,
        limits=Limits(cost=0.55),
    )
    assert (result.answer, result.reason) == ("as far as I came", "cost")
    (limit,) = journal.all(LimitReached)
    assert (limit.used, limit.allowed) == (pytest.approx(0.6), 0.55)
    assert "The limit of 0.55 US dollars is reached." in provider.requests[-1].messages[-1].text
    assert result.cost == pytest.approx(0.8)


def test_a_limit_in_dollars_needs_a_price():
    provider = ScriptedProvider(["never"])
    with pytest.raises(ConfigurationError, match=r"price of 'scripted' is not known.*Agent\(prices="):
        Agent(provider, limits=Limits(cost=1)).run_sync("Go.")
    assert provider.requests == []


def test_a_limit_in_dollars_needs_a_price_when_the_run_is_resumed_too():
    journal = MemoryJournal()
    first = Agent(ScriptedProvider([native(("note", {}))]), [note], prices=TEST_PRICES, journal=journal)
    waiting = first.run_sync("Go.", limits=Limits(cost=1))
    assert waiting.status == "awaiting_approval"
    second = Agent(ScriptedProvider(["x"]), [note], journal=journal)
    with pytest.raises(ConfigurationError, match="price of 'scripted'"):
        asyncio.run(second.resume(waiting.run_id, {waiting.waiting[0]: True}))


@tool()
def note() -> str:
    "Notes."
    return "noted"


# --- sub-runs -----------------------------------------------------------------------------------------------------


def family(child_turns, parent_turns, *, sync=False, own_loop=False, child_prices=TEST_PRICES, **options):
    """A parent whose tool `ask` gives its question to a child; the parent's result and journal."""
    child = Agent(ScriptedProvider(child_turns), [note], name="child", prices=child_prices)
    journal = WatchedJournal()

    if sync:

        @tool(read_only=True)
        def ask(question: str, ctx: RunContext) -> str:
            "Asks."
            if own_loop:
                return asyncio.run(child.run(question, parent_run_id=ctx.state.run_id)).answer
            return child.run_sync(question, parent_run_id=ctx.state.run_id).answer

    else:

        @tool(read_only=True)
        async def ask(question: str, ctx: RunContext) -> str:
            "Asks."
            return (await child.run(question, parent_run_id=ctx.state.run_id)).answer

    parent = Agent(
        ScriptedProvider(parent_turns), [ask], dialect="native", journal=journal, prices=TEST_PRICES, **options
    )
    return parent.run_sync("Go."), journal


ASKING = native(("ask", {"question": "What is it?"}))


@pytest.mark.parametrize(
    "how", [{}, {"sync": True}, {"sync": True, "own_loop": True}, {"execution": Execution(early_start=False)}]
)
def test_what_a_sub_run_uses_counts_as_its_parents(how):
    result, journal = family([priced_turn("Four.")], [ASKING, priced_turn("It is four.")], **how)
    assert result.answer == "It is four."
    (event,) = journal.all(SubRunUsed)
    assert (event.agent, event.usage.input, event.usage.output) == ("child", 1000, 100)
    assert event.cost == pytest.approx(0.2)
    assert (result.usage.input, result.state.totals.tokens) == (3000, 3300)
    assert result.cost == pytest.approx(0.6)
    assert fold(record for record in journal.records if record.run_id == result.run_id) == result.state


def test_the_limit_of_a_parent_counts_its_sub_runs():
    turns = [ASKING, ASKING, priced_turn("Enough.")]
    result, journal = family([priced_turn("Four."), priced_turn("Five.")], turns, limits=Limits(cost=0.75))
    assert (result.reason, len(journal.all(SubRunUsed))) == ("cost", 2)


def test_a_sub_run_without_a_price_makes_the_cost_unknown():
    result, _ = family([priced_turn("Four.")], [ASKING, priced_turn("It is four.")], child_prices={})
    assert (result.cost, result.state.totals.known_cost) == (None, pytest.approx(0.4))


def test_a_sub_run_that_fails_or_pauses_has_cost_what_it_has():
    result, _ = family([native(("note", {}))], [ASKING, priced_turn("Nothing.")])
    assert (result.status, result.cost) == ("awaiting_approval", pytest.approx(0.4))
    parent_result, _ = family([ASKING], [ASKING, priced_turn("Nothing.")])  # the second turn is not in its playbook
    assert parent_result.cost == pytest.approx(0.6)


def test_sub_runs_of_sub_runs_count_once():
    grandchild = Agent(ScriptedProvider([priced_turn("Deep.")]), prices=TEST_PRICES)

    @tool(read_only=True)
    async def dig(ctx: RunContext) -> str:
        "Digs."
        return (await grandchild.run("Dig.", parent_run_id=ctx.state.run_id)).answer

    child = Agent(ScriptedProvider([native(("dig", {})), priced_turn("Dug.")]), [dig], prices=TEST_PRICES)

    @tool(read_only=True)
    async def ask(question: str, ctx: RunContext) -> str:
        "Asks."
        return (await child.run(question, parent_run_id=ctx.state.run_id)).answer

    result = Agent(ScriptedProvider([ASKING, priced_turn("Done.")]), [ask], prices=TEST_PRICES).run_sync("Go.")
    assert (result.state.totals.tokens, result.cost) == (5500, pytest.approx(1.0))


def test_a_sub_run_that_is_resumed_tells_only_what_is_new():
    journal, child_journal = WatchedJournal(), MemoryJournal()
    turns = [native(("note", {})), priced_turn("Noted.")]
    child = Agent(ScriptedProvider(turns), [note], prices=TEST_PRICES, journal=child_journal)

    @tool(read_only=True)
    async def ask(question: str, ctx: RunContext) -> str:
        "Asks."
        with pytest.raises(SubRunPaused) as pause_error:
            await child.run(question, parent_run_id=ctx.state.run_id)
        waiting = pause_error.value.result
        return (await child.resume(waiting.run_id, dict.fromkeys(waiting.waiting, True))).answer

    parent = Agent(ScriptedProvider([ASKING, priced_turn("Done.")]), [ask], prices=TEST_PRICES, journal=journal)
    result = parent.run_sync("Go.")
    assert [event.usage.total for event in journal.all(SubRunUsed)] == [1100, 1100]
    assert result.cost == pytest.approx(0.8)
    again = asyncio.run(load_state(journal, result.run_id))
    assert again.totals.cost == result.cost


def test_a_sub_run_that_outlives_its_parent_is_not_recorded_after_its_end():
    gate, tasks, journal = asyncio.Event(), [], WatchedJournal()

    class Slow(ScriptedProvider):
        async def stream(self, request):
            await gate.wait()
            async for delta in super().stream(request):
                yield delta

    child = Agent(Slow([priced_turn("Late.")]), prices=TEST_PRICES)

    @tool(read_only=True)
    async def ask(question: str, ctx: RunContext) -> str:
        "Asks."
        tasks.append(asyncio.create_task(child.run(question, parent_run_id=ctx.state.run_id)))
        return "later"

    async def scenario():
        parent = Agent(ScriptedProvider([ASKING, priced_turn("Done.")]), [ask], prices=TEST_PRICES, journal=journal)
        result = await parent.run("Go.")
        gate.set()
        assert (await tasks[0]).answer == "Late."
        return result

    result = asyncio.run(scenario())
    assert journal.kinds[-1] == "RunFinished"
    assert result.cost == pytest.approx(0.4)


def test_calls_written_in_a_dialect_are_estimated_and_have_a_cost():
    result, _, _ = play([calling("cogency-json", ("add", {"a": 1, "b": 2})), "3"], prices=TEST_PRICES)
    assert result.state.totals.estimated
    assert result.cost > 0
