"""Rules and decisions that are mistyped: refused where they are given, and no yes to anything."""

import asyncio
from dataclasses import replace

import pytest
from agent_helpers import calling

from toolspeak import Agent, Approval, ConfigurationError, Decision, Effects, Rule, tool
from toolspeak.execute import Escalate, StandingRules
from toolspeak.providers.scripted_provider import ScriptedProvider

ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@tool(effects=lambda path: Effects(writes={f"file:{path}"}))
def write(path: str) -> str:
    "Writes a file."
    ran.append(path)
    return "wrote"


def an_agent(*paths, **options):
    turns = [calling("cogency-json", *(("write", {"path": path}) for path in paths or ["/etc/passwd"])), "Done."]
    return Agent(ScriptedProvider(turns), [write], **options)


RULES = [
    # '/tmp/*' is a sequence of texts, the last of which fits everything.
    (Rule("approve", paths="/tmp/*"), r"paths=\('/tmp/\*',\)"),
    (Rule("approve", begins="make"), r"begins=\('make',\)"),
    (Rule("reject", paths=["*.pem", None]), "None is not a string"),
    # Those that would refuse, and fit nothing.
    (Rule("reject", effects="write"), "no 'write'. Did you mean 'writes'"),
    (Rule("Reject"), "no 'Reject'. Did you mean 'reject'"),
    (Rule("deny", tool="write"), "no 'deny'.*Known: approve"),
    (Rule("reject", tool=["write"]), r"tool=\['write'\].*expected a string"),
    (Rule("reject", tool=write), "expected a string"),
    (Rule("reject", arguments=["path"]), "a dict keyed by argument name"),
    (Rule("modify", change=[1]), "a dict keyed by argument name"),
    (Rule("approve", exact="no"), "True or False"),
    (Rule("reject", reason=None), "expected a string"),
]


@pytest.mark.parametrize(("rule", "problem"), RULES)
def test_a_rule_that_is_mistyped_is_refused(rule, problem):
    with pytest.raises(ConfigurationError, match=problem):
        an_agent(approve=Approval(policy=[rule]))
    with pytest.raises(ConfigurationError, match=problem):
        StandingRules().add(rule)


DECISIONS = [
    (Decision("no"), "approved='no'.*True or False"),
    (Decision(1), "approved=1"),
    (Decision(True, 5), "reason=5.*expected a string"),
    (Decision(True, arguments=["/tmp/x"]), "a dict keyed by argument name"),
    (Decision(False, ends_run="no"), "ends_run='no'"),
    (Decision(True, always=True), r"request\.always\(\)"),
    (Decision(True, always=Rule("approve", paths="/tmp/*")), r"paths=\('/tmp/\*',\)"),
]


@pytest.mark.parametrize(("decision", "problem"), DECISIONS)
def test_a_decision_that_is_mistyped_is_no_yes(decision, problem):
    async def approve(request):
        return decision

    with pytest.raises(ConfigurationError, match=problem):
        an_agent(approve=approve).run_sync("go")
    agent = an_agent()
    waiting = agent.run_sync("go")
    with pytest.raises(ConfigurationError, match=problem):
        asyncio.run(agent.resume(waiting, {waiting.waiting[0]: decision}))
    result = an_agent(approve=Approval(policy=lambda request: decision)).run_sync("go")
    assert result.status == "awaiting_approval"
    assert "the policy failed" in result.requests[0].reason
    assert ran == []


def test_a_yes_to_another_request_is_refused():
    """As of a service that takes the answers of two questions for each other."""

    class MixedUpApprover:
        async def together(self, requests):
            yes, no = requests
            return [Decision(False, digest=no.digest), Decision(True, digest=yes.digest)]

    async def another(request):
        return Decision(True, digest=replace(request, digest="0" * 64).digest)

    for approve in (MixedUpApprover(), another):
        with pytest.raises(ConfigurationError, match="made for another call"):
            an_agent("/tmp/a", "/etc/b", approve=approve).run_sync("go")
    assert ran == []


@pytest.mark.parametrize(
    "policy", [lambda request: request.nothing, lambda request: "no", lambda request: Escalate("look", person=True)]
)
def test_what_a_policy_could_not_judge_is_let_pass_by_a_person_alone(policy):
    """Neither by a yes to everything nor by a rule that was kept."""
    result = an_agent(approve=Approval("all", policy=policy)).run_sync("go")
    assert "no one to ask" in result.messages[2].results[0].text
    rules = StandingRules()
    rules.add(Rule("approve", tool="write"))
    assert an_agent(approve=Approval(policy=policy, rules=rules)).run_sync("go").status == "awaiting_approval"
    assert ran == []

    async def approve(request):
        return Decision(True)

    an_agent(approve=Approval(approve, policy=policy)).run_sync("go")
    assert ran == ["/etc/passwd"]


def test_what_a_policy_escalates_is_answered_by_a_standing_yes():
    an_agent(approve=Approval("all", policy=[Rule("escalate", tool="write")])).run_sync("go")
    assert ran == ["/etc/passwd"]
