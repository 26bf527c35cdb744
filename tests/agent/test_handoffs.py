"""Hand-offs: another agent goes on with the run, and whoever resumes it knows which."""

from __future__ import annotations

import asyncio

import pytest
from agent_helpers import WatchedJournal

from toolspeak import (
    Agent,
    Approval,
    ConfigurationError,
    Effects,
    Executor,
    Limits,
    Rule,
    RunContext,
    RunError,
    Session,
    ToolChoice,
    tool,
)
from toolspeak.agent import Cassette, ModelInterceptor, fold, result_of
from toolspeak.data.codec import dumps, loads
from toolspeak.data.events import HandedOff, ModelAsked, RunFinished, SubRunUsed
from toolspeak.data.messages import Usage
from toolspeak.execute import Secrets
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools import Toolset
from toolspeak.ui.timeline import timeline


def calling(*names: str, usage: Usage = Usage(10, 1), **arguments) -> ScriptedTurn:
    return ScriptedTurn("", calls=[ScriptedCall(name, arguments) for name in names], usage=usage)


def saying(text: str) -> ScriptedTurn:
    return ScriptedTurn(text, usage=Usage(10, 1))


TO_BILLING = calling("transfer_to_billing")
TO_RECEPTION = calling("transfer_to_reception")


class Desks:
    """A reception that hands off to billing and back. Each plays its turns of one conversation; `payments` is what was
    paid."""

    def __init__(self, *turns, journal=None, billing=None, **options):
        self.payments = []
        self.model = ScriptedProvider(turns, follow=True, tools=True, name="front")
        self.billing_model = ScriptedProvider(turns, follow=True, tools=True, name="back")

        @tool(effects=Effects(writes={"account"}))
        def refund(amount: int = 1) -> str:
            "Refunds."
            self.payments.append(amount)
            return f"refunded {amount}"

        @tool(effects=Effects(reads={"account"}))
        def look() -> str:
            "Looks at the account."
            return "the account of billing"

        @tool(effects=Effects(reads={"account"}), name="look")
        def look_at_desk() -> str:
            "Looks at the desk."
            return "the desk of reception"

        self.billing = Agent(
            self.billing_model,
            [refund, look],
            name="billing",
            description="Refunds money.",
            instructions="You do the accounts.",
            handoffs=["reception"],
            **(billing or {}),
        )
        self.reception = Agent(
            self.model,
            [look_at_desk],
            name="reception",
            instructions="You greet people.",
            handoffs=[self.billing],
            journal=journal,
            **options,
        )


def test_the_run_goes_on_as_the_other_agent():
    desks = Desks(TO_BILLING, calling("refund", amount=3), saying("Done."), approve="all")
    result = desks.reception.run_sync("My money, please.")
    assert (result.answer, result.agent, desks.payments) == ("Done.", "billing", [3])
    first, second = desks.model.requests[0], desks.billing_model.requests[0]
    assert [spec.name for spec in first.tools] == ["look", "transfer_to_billing"]
    assert "Refunds money." in first.tools[1].description
    assert [spec.name for spec in second.tools] == ["refund", "look", "transfer_to_reception"]
    assert "You do the accounts." in second.messages[0].text
    assert not any("You greet" in message.text for message in second.messages)
    assert second.messages[-1].results[0].text == "billing continues the conversation."
    assert result.usage.total == 33
    assert [record.agent for record in result.run_records.records if isinstance(record.event, ModelAsked)] == [
        "reception",
        "billing",
        "billing",
    ]
    assert {record.run_id for record in result.run_records.records} == {result.run_id}
    assert result.state.model == desks.billing.driver.name


def test_without_a_hand_off_the_first_agent_answers():
    result = Desks(saying("Hello.")).reception.run_sync("Hello?")
    assert (result.agent, result.state.agent) == ("reception", None)


def test_a_conversation_goes_back_and_forth():
    desks = Desks(TO_BILLING, TO_RECEPTION, saying("Bye."))
    result = desks.reception.run_sync("Hello?")
    assert (result.answer, result.agent) == ("Bye.", "reception")
    assert "You greet people." in desks.model.requests[-1].messages[0].text


def test_cycles_end_at_the_limits():
    turns = [TO_BILLING, TO_RECEPTION] * 20
    by_repeats = Desks(*turns, limits=Limits()).reception.run_sync("Hello?")
    assert by_repeats.state.limit == "repeats"
    by_steps = Desks(*turns, limits=Limits(steps=3, repeats=None)).reception.run_sync("Hello?")
    assert (by_steps.state.limit, len(by_steps.steps)) == ("steps", 4)
    by_tokens = Desks(*turns, limits=Limits(tokens=40, repeats=None)).reception.run_sync("Hello?")
    assert by_tokens.state.limit == "tokens"


def test_the_other_calls_of_the_turn_run_first_and_one_hand_off_counts():
    desks = Desks(calling("look", "transfer_to_billing", "transfer_to_billing"), saying("Done."))
    result = desks.reception.run_sync("Hello?")
    look_call, first, second = result.steps[0].executions
    assert look_call.result.text == "the desk of reception"
    assert first.result.status == "success"
    assert (second.result.status, second.result.code) == ("failure", "blocked")
    assert "another call has handed the conversation to billing" in second.result.text
    assert result.agent == "billing"


def test_a_tool_of_the_same_name_is_the_other_agents():
    """A read that nothing has changed is answered from memory, but not from another tool's."""
    desks = Desks(calling("look"), TO_BILLING, calling("look"), saying("Done."))
    result = desks.reception.run_sync("Hello?")
    assert result.steps[2].executions[0].result.text == "the account of billing"


@pytest.mark.parametrize("decision", [True, False])
def test_a_pause_after_a_hand_off_resumes_as_the_right_agent(decision: bool):
    async def work():
        desks = Desks(TO_BILLING, calling("refund"), saying("Done."), journal=(journal := WatchedJournal()))
        result = await desks.reception.run("My money, please.")
        assert (result.status, result.agent, desks.payments) == ("awaiting_approval", "billing", [])
        again = Desks(TO_BILLING, calling("refund"), saying("Done."), journal=journal)
        resumed_result = await again.reception.resume(result.run_id, {result.waiting[0]: decision})
        assert (resumed_result.answer, resumed_result.agent, again.payments) == (
            "Done.",
            "billing",
            [1] if decision else [],
        )
        assert again.model.requests == []
        assert fold(await journal.read(result.run_id)).agent == "billing"

    asyncio.run(work())


def test_a_hand_off_may_be_refused():
    policy = [Rule("reject", "transfer_to_*", reason="not today")]
    desks = Desks(TO_BILLING, saying("Sorry."), approve=Approval(policy=policy))
    result = desks.reception.run_sync("My money, please.")
    assert (result.answer, result.agent) == ("Sorry.", "reception")


def test_an_interceptor_sees_the_turns_of_its_own_agent():
    names = []

    class Watch(ModelInterceptor):
        def __init__(self, name):
            self.name = name

        async def before(self, request, context):
            names.append(self.name)
            return request

    desks = Desks(
        TO_BILLING,
        TO_RECEPTION,
        saying("Bye."),
        interceptors=[Watch("reception")],
        billing={"interceptors": [Watch("billing")]},
    )
    desks.reception.run_sync("Hello?")
    assert names == ["reception", "billing", "reception"]


def test_each_agents_own_approver_answers_and_else_the_first_agents():
    turns = (TO_BILLING, calling("refund"), saying("Done."))
    own = Desks(*turns, approve="all", billing={"approve": "none"})
    own.reception.run_sync("My money, please.")
    assert own.payments == []
    first = Desks(*turns, approve="none")
    first.reception.run_sync("My money, please.")
    assert first.payments == []
    back = Desks(TO_BILLING, TO_RECEPTION, saying("Bye."), billing={"approve": "all"})
    assert back.reception.run_sync("Hello?").agent == "reception"


def test_the_tool_choice_is_that_of_the_agent_that_goes_on():
    desks = Desks(
        TO_BILLING, saying("No."), calling("look"), saying("Done."), billing={"tool_choice": "look"}, tool_choice="auto"
    )
    result = desks.reception.run_sync("Hello?")
    assert desks.billing_model.requests[0].choice == ToolChoice("specific", "look")
    assert result.steps[2].executions[0].name == "look"


def test_a_killed_run_goes_on_as_the_right_agent():
    """Killed before each of its records, it comes to the same answer, and pays once."""
    turns = (calling("look", "transfer_to_billing"), calling("refund"), TO_RECEPTION, saying("Bye."))

    async def until(number: int | None):
        def look(record):
            if record.seq == number:
                raise KeyboardInterrupt

        journal = WatchedJournal(look)
        desks = Desks(*turns, journal=journal, approve="all")
        try:
            result = await desks.reception.run("My money, please.")
        except KeyboardInterrupt:
            journal.look = lambda record: None
            again = Desks(*turns, journal=journal, approve="all")
            result = await again.reception.resume(journal.records[0].run_id)
            desks.payments += again.payments
        return result, desks.payments

    whole, _ = asyncio.run(until(None))
    for number in range(1, len(whole.run_records.records)):
        event = whole.run_records.records[number].event
        killed_run, payments = asyncio.run(until(number))
        assert (killed_run.answer, killed_run.agent) == ("Bye.", "reception"), event
        assert len(payments) == 1 or "unknown" in str(killed_run.messages), event
        agents = [each.event.agent for each in killed_run.run_records.records if isinstance(each.event, HandedOff)]
        assert agents == ["billing", "reception"], event


def test_a_run_does_not_resume_with_a_stranger():
    async def work():
        desks = Desks(TO_BILLING, calling("refund"), saying("Done."), journal=(journal := WatchedJournal()))
        run = (await desks.reception.run("My money, please.")).run_id
        stranger = Agent(desks.model, name="stranger", journal=journal)
        with pytest.raises(RunError, match=r"handed to the agent 'billing'.*\(known: stranger\)"):
            await stranger.resume(run)
        waiting = await desks.reception.resume(run)
        assert (waiting.status, waiting.agent) == ("awaiting_approval", "billing")

    asyncio.run(work())


def test_a_result_as_text_goes_on_in_another_process():
    async def work():
        turns = (TO_BILLING, calling("refund"), saying("Done."))
        text = await (await Desks(*turns).reception.run("My money, please.")).dumps()
        desks = Desks(*turns)
        waiting = await desks.reception.loads(text)
        assert waiting.agent == "billing"
        resumed_result = await desks.reception.resume(waiting, {waiting.waiting[0]: True})
        assert (resumed_result.answer, desks.payments) == ("Done.", [1])

    asyncio.run(work())


def test_a_run_that_is_suspended_after_a_hand_off_continues():
    async def work():
        desks = Desks(TO_BILLING, saying("Done."))
        run = desks.reception.start("Hello?")
        async for _ in run.states():
            run.suspend()
        assert run.state.status == "suspended"
        resumed_result = await desks.reception.resume(result_of(run))
        assert (resumed_result.answer, resumed_result.agent) == ("Done.", "billing")

    asyncio.run(work())


def test_a_sub_run_that_was_handed_over_counts_for_its_parent():
    desks = Desks(TO_BILLING, saying("Done."))
    boss = ScriptedProvider([calling("reception", task="Ask."), saying("Good.")], tools=True)
    result = Agent(boss, [desks.reception.as_tool(description="Greets.")]).run_sync("Go.")
    assert result.answer == "Good."
    assert result.usage.total == 44
    events = [each.event for each in result.run_records.records if isinstance(each.event, SubRunUsed)]
    assert [each.usage.total for each in events] == [22]


def test_the_next_run_of_a_session_begins_with_the_sessions_agent():
    async def work():
        desks = Desks(TO_BILLING, saying("Done."), saying("Hello again."), journal=WatchedJournal())
        session = Session(desks.reception)
        assert (await session.run("My money, please.")).agent == "billing"
        assert (await session.run("Hello?")).agent == "reception"

    asyncio.run(work())


def test_the_record_is_plain_json_and_the_timeline_shows_it():
    desks = Desks(TO_BILLING, saying("Done."))
    records = desks.reception.run_sync("Hello?").run_records.records
    (record,) = [each for each in records if isinstance(each.event, HandedOff)]
    assert record.event == HandedOff("call_1_0", "billing", desks.billing.driver.name)
    assert record.call_id == "call_1_0"
    assert loads(dumps(record)) == record
    assert "→ billing continues (back)" in "\n".join(timeline(records))
    assert isinstance(records[-1].event, RunFinished)


def test_deps_of_all_agents_are_asked_for_at_the_start():
    @tool(read_only=True)
    def rows(ctx: RunContext[dict]) -> int:
        "Counts rows."
        return len(ctx.deps)

    model = ScriptedProvider([calling("transfer_to_data"), calling("rows"), saying("1.")], follow=True, tools=True)
    data = Agent(model, [rows], name="data", deps_type=dict)
    front = Agent(model, name="front", handoffs=[data])
    with pytest.raises(ConfigurationError, match=r"rows \(dict\)"):
        front.run_sync("How many?")
    assert front.run_sync("How many?", deps={"a": 1}).steps[1].executions[0].result.text == "1"


def test_what_cannot_go_together_is_refused(tmp_path):
    model = ScriptedProvider([], tools=True)
    one, other = Agent(model, name="one"), Agent(model, name="one")
    with pytest.raises(ConfigurationError, match="two agents are named 'one'"):
        Agent(model, handoffs=[one, Agent(model, name="two", handoffs=[other])])
    with pytest.raises(ConfigurationError, match="two agents are named 'agent'"):
        Agent(model, handoffs=[Agent(model)])
    with pytest.raises(ConfigurationError, match="different output types"):
        Agent(model, output=int, handoffs=[one])
    with pytest.raises(ConfigurationError, match="give both the same object, secrets=Secrets"):
        Agent(model, secrets={"KEY": "12345"}, handoffs=[one])
    with pytest.raises(ConfigurationError, match="have different cassettes"):
        Agent(model, cassette=Cassette.record(tmp_path / "x"), handoffs=[one])
    with pytest.raises(ConfigurationError, match=r"write handoffs=\[it\]"):
        Agent(model, handoffs=one)
    with pytest.raises(ConfigurationError, match="handoffs are Agents, or names of agents, not 3"):
        Agent(model, handoffs=[3])
    with pytest.raises(ConfigurationError, match="by a tool that the executor does not have"):
        Agent(model, handoffs=[one], execution=Executor(Toolset()))
    with pytest.raises(ConfigurationError, match="'agent' hands off to 'nobody', which no agent that 'agent' leads to"):
        Agent(model, handoffs=["nobody"]).run_sync("Hello?")


def test_agents_with_the_same_secrets_hand_off():
    secrets = Secrets({"KEY": "12345"})
    model = ScriptedProvider([TO_BILLING, saying("The key is 12345.")], follow=True, tools=True)
    billing = Agent(model, name="billing", secrets=secrets)
    result = Agent(model, secrets=secrets, handoffs=[billing]).run_sync("Hello?")
    assert result.answer == "The key is {{secret:KEY}}."
