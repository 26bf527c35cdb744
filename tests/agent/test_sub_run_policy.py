"""What a run's policy refuses is refused to the runs that its tools start, where it answers for them."""

import pytest

from toolspeak import Agent, Approval, Decision, Effects, Rule, RunContext, tool
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

purchases = []


@tool(effects=lambda thing: Effects(writes={f"order:{thing}"}))
def buy(thing: str) -> str:
    "Buys."
    purchases.append(thing)
    return "bought"


def family(**options):
    """A boss with these options, whose tool gives work to a buyer who has nobody to ask."""
    turns = [ScriptedTurn("", calls=[ScriptedCall("buy", {"thing": thing}) for thing in ("pear", "bomb")]), "Done."]
    buyer = Agent(ScriptedProvider(turns), [buy], name="buyer")

    @tool(read_only=True)
    async def ask(task: str, ctx: RunContext) -> str:
        "Asks the buyer."
        return (await buyer.run(task, parent_run_id=ctx.state.run_id)).answer

    boss = [ScriptedTurn("", calls=[ScriptedCall("ask", {"task": "Buy."})]), "Done."]
    purchases.clear()
    return Agent(ScriptedProvider(boss), [ask], **options)


async def yes(request):
    return Decision(True)


class Together:
    async def together(self, requests):
        return [Decision(True, digest=request.digest) for request in requests]


def no_bombs(request):
    return Decision(False, "no bombs") if "order:bomb" in request.effects.writes else None


@pytest.mark.parametrize("policy", [[Rule("reject", paths=("order:bomb",))], no_bombs])
@pytest.mark.parametrize("approve", ["all", yes, Together()])
def test_what_the_policy_refuses_is_refused_whoever_says_yes(approve, policy):
    assert family(approve=Approval(approve, policy=policy)).run_sync("go").answer == "Done."
    assert purchases == ["pear"]


def test_what_the_policy_refuses_is_not_asked():
    waiting = family(approve=Approval(policy=no_bombs)).run_sync("go")
    assert [request.call.arguments for request in waiting.requests] == [{"thing": "pear"}]


def test_what_the_policy_lets_pass_is_asked():
    """Its yes was said of the run's own calls."""
    waiting = family(approve=Approval(policy=[Rule("approve", tool="buy")])).run_sync("go")
    assert len(waiting.requests) == 2
    assert purchases == []


def test_what_the_policy_could_not_judge_is_let_pass_by_nobody():
    family(approve=Approval("all", policy=lambda request: request.nothing)).run_sync("go")
    assert purchases == []
