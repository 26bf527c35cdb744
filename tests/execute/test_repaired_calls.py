"""What repair made of a model's text runs unasked only if it reads; what was cut off never runs."""

import asyncio

import pytest
from executor_helpers import a_call, result_of, run_batch
from hypothesis import given
from hypothesis import strategies as st

from toolspeak import Agent, ToolCall
from toolspeak.data.messages import ToolResult
from toolspeak.data.tools import UNDECLARED_EFFECTS, Effects
from toolspeak.dialects import get_dialect, with_repair
from toolspeak.execute import Decision, Rule, StandingRules, approve_all
from toolspeak.execute.approval.approvers import approval_reason, approve_all_and_repaired
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn
from toolspeak.tools import tool

ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@tool(effects=lambda key: Effects(writes={key}))
async def put(key: str) -> str:
    "Puts."
    ran.append(key)
    return "put"


@tool(effects=lambda key: Effects(reads={key}))
async def look(key: str) -> str:
    "Looks."
    ran.append(key)
    return "seen"


@tool(effects=lambda key: Effects(reads={key}, external=True))
async def fetch(key: str) -> str:
    "Fetches."
    ran.append(key)
    return "fetched"


@tool
async def shell(key: str) -> str:
    "Says nothing of what it touches."
    ran.append(key)
    return "ran"


ALL = (put, look, fetch, shell)
RAW = "[{name: 'put', args: {key: 'k'}}]"


def call_of_repair(name):
    return ToolCall("c", name, {"key": "k"}, notes=("repaired",), repaired_from=RAW)


def yes_by_rule():
    rules = StandingRules()
    rules.add(Rule("approve"), "ann")
    return {"rules": rules}


WITHOUT_QUESTION = [
    ({}, approve_all),
    ({"policy": [Rule("approve")]}, approve_all),
    (yes_by_rule(), approve_all),
    ({"policy": lambda request: Decision(True)}, approve_all),
]


@pytest.mark.parametrize(("options", "approver"), WITHOUT_QUESTION)
@pytest.mark.parametrize("name", ["put", "fetch", "shell"])
def test_nobodys_yes_is_no_yes_for_a_repaired_call_that_does_more_than_read(name, options, approver):
    result = result_of(ALL, call_of_repair(name), approver=approver, options=options)
    assert result.code == "rejected"
    assert f'understood as {name} with {{"key": "k"}}' in result.text
    assert "write it again" in result.text
    assert ran == []


def test_it_runs_when_it_only_reads_or_somebody_said_so():
    assert result_of(ALL, call_of_repair("look"), approver=None).text == "seen"
    assert result_of(ALL, call_of_repair("put"), approver=approve_all_and_repaired).text == "put"
    assert result_of(ALL, a_call("put", key="k"), approver=approve_all).text == "put"


@pytest.mark.parametrize("options", [{}, {"policy": [Rule("approve")]}, yes_by_rule()])
def test_a_person_sees_what_the_model_wrote_and_decides(options):
    questions = []

    async def person(request):
        questions.append((request.call.arguments, request.repaired_from, request.reason))
        return Decision(True)

    assert result_of(ALL, call_of_repair("put"), approver=person, options=options).text == "put"
    assert questions == [({"key": "k"}, RAW, "writes k; the model's text was malformed, and was repaired")]
    batch = asyncio.run(run_batch(ALL, [call_of_repair("put")], approver=None, options=options))
    assert batch.pending[0].repaired_from == RAW


@given(
    st.builds(
        Effects,
        reads=st.sets(st.sampled_from("ab")),
        writes=st.sets(st.sampled_from("ab")),
        external=st.booleans(),
        declared=st.booleans(),
    )
    | st.just(UNDECLARED_EFFECTS),
    st.sampled_from(WITHOUT_QUESTION),
)
def test_without_a_person_a_repaired_call_runs_only_if_it_reads(effects, settings):
    @tool(effects=effects)
    async def act(key: str) -> str:
        return "acted"

    options, approver = settings
    result: ToolResult = result_of([act], call_of_repair("act"), approver=approver, options=options)
    assert (result.status == "success") == (approval_reason(effects) == "")


def an_agent(reply, finish="stop", **options):
    provider = ScriptedProvider([ScriptedTurn(reply, finish), "Done."])
    dialect = with_repair(get_dialect("cogency-json"))
    return provider, Agent(provider, [put, look], dialect=dialect, **options)


def test_in_a_run_the_model_is_asked_to_write_it_again():
    both = "<execute>\n[{name: 'put', args: {key: 'k'}}, {name: 'look', args: {key: 'a'}}]\n</execute>"
    provider, agent = an_agent(both, approve="all")
    result = agent.run_sync("go")
    assert (result.answer, ran) == ("Done.", ["a"])
    assert "write it again" in provider.requests[1].messages[-1].text
    _, agent = an_agent("<execute>\n[{name: 'put', args: {key: 'k'}}]\n</execute>", approve="all+repaired")
    agent.run_sync("go")
    assert ran == ["a", "k"]


def test_a_run_that_waits_shows_the_raw_text_beside_the_call():
    _, agent = an_agent("<execute>\n[{name: 'put', args: {key: 'k'}}]\n</execute>")
    (request,) = agent.run_sync("go").requests
    assert "{name: 'put', args: {key: 'k'}}" in request.call.repaired_from
    assert request.call.arguments == {"key": "k"}


WHOLE = '<execute>\n[{"name": "put", "args": {"key": "k"}}, {"name": "look", "args": {"key": "a"}}]\n</execute>'


@pytest.mark.parametrize("length", range(len("<execute>\n["), len(WHOLE) - len("\n</execute>"), 7))
def test_a_call_that_was_cut_off_never_runs(length):
    _, agent = an_agent(WHOLE[:length], "length", approve="all+repaired")
    agent.run_sync("go")
    assert ran == []
