"""What the prompt says of approvals: which calls may wait for a yes, once, and only where somebody may be asked."""

import asyncio
import re

import pytest

from toolspeak import Agent, Approval, Effects, Rule, tool
from toolspeak.agent.drivers.react import ReActDriver
from toolspeak.dialects import DIALECTS
from toolspeak.execute import Decision
from toolspeak.execute.approval.policy_rules import may_need_approval
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import scripted_request


@tool(read_only=True)
def look() -> None: ...


@tool(effects=lambda: Effects(writes={"note:"}))
def write() -> None: ...


@tool(read_only=True, external=True)
def fetch() -> None: ...


@tool
def odd() -> None: ...


TOOLS = (look, write, fetch, odd)


async def yes(_request):
    return Decision(True)


def approval_lines(*tools, dialect="hermes", **options):
    """What the prompt says of approval; a template may begin the tools on the same line."""
    provider = ScriptedProvider(["Done."])
    Agent(provider, tools or TOOLS, dialect=dialect, **options).run_sync("Go on.")
    lines = [line for line in scripted_request(provider).system.splitlines() if "approve" in line or "confirm" in line]
    return [re.sub(r"(?<=approved it\.)<.*", "", line) for line in lines]


@pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
def test_it_is_said_once_whatever_the_dialect(dialect):
    assert approval_lines(dialect=dialect) == ["A call of write, fetch or odd may wait until the user has approved it."]


@pytest.mark.parametrize("approve", ["all", "all+repaired", "none"])
def test_nothing_is_said_where_nobody_is_asked(approve):
    assert approval_lines(approve=approve) == []


def test_an_approver_is_somebody():
    assert approval_lines(approve=yes) == ["A call of write, fetch or odd may wait until the user has approved it."]


def test_one_tool_and_all_tools():
    assert approval_lines(look) == []
    assert approval_lines(look, odd) == ["A call of odd may wait until the user has approved it."]
    assert approval_lines(write, odd) == ["A call of any tool may wait until the user has approved it."]


def test_react_says_it_too():
    provider = ScriptedProvider(['{"thought": "", "type": "final_answer", "answer": "Done."}'])
    Agent(ReActDriver(provider), [look, write]).run_sync("Go on.")
    assert "A call of write may wait until the user has approved it." in scripted_request(provider).system


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ([Rule("approve")], []),
        ([Rule("approve", "write")], ["fetch", "odd"]),
        ([Rule("reject", "o*"), Rule("terminate", "write")], ["fetch"]),
        ([Rule("escalate", "look"), Rule("approve")], ["look"]),
        ([Rule("approve", effects="writes")], ["fetch", "odd"]),
        ([Rule("approve", effects="external")], ["write", "odd"]),
        ([Rule("approve", effects="undeclared")], ["write", "fetch"]),
        ([Rule("approve", effects="reads"), Rule("approve", effects="destructive")], ["write", "fetch", "odd"]),
        ([Rule("approve", paths=("*.md",)), Rule("approve", after="look")], ["write", "fetch", "odd"]),
        ([Rule("approve", arguments={"a": "b"}), Rule("approve", definition="x")], ["write", "fetch", "odd"]),
        (lambda _request: None, ["write", "fetch", "odd"]),
    ],
)
def test_rules_that_leave_nothing_to_ask_are_known(rules, names):
    assert [each.name for each in TOOLS if may_need_approval(None, rules, each.spec)] == names


def test_rules_that_leave_nothing_to_ask_ask_nobody():
    """What `may_need_approval` says is what happens."""
    writing = '<tool_call>{"name": "%s", "arguments": {}}</tool_call>'
    for rules in ([Rule("approve")], [Rule("reject")], [Rule("approve", effects="writes")], [Rule("escalate")]):
        for each in TOOLS:
            agent = Agent(
                ScriptedProvider([writing % each.name, "Done."]),
                [each],
                dialect="hermes",
                approve=Approval(policy=rules),
            )
            waits = asyncio.run(agent.run("Go on.")).waiting != ()
            assert waits <= may_need_approval(None, rules, each.spec), (rules, each.name)
