"""Calls whose preview says that they would fail: nobody is asked about them."""

from __future__ import annotations

import asyncio

import pytest
from agent_helpers import WatchedJournal

from toolspeak import Agent, Effects, RunContext, ToolError, tool
from toolspeak.agent import Cassette, fold
from toolspeak.data.events import ApprovalDecided, ApprovalRequested, ToolFinished, ToolStarted
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.sandbox.command_sandbox import CommandSandbox
from toolspeak.sandbox.no_sandbox import NoSandbox
from toolspeak.tools.builtin import Workspace, edit_tool, read_tool, replace_tool, shell_tool, write_tool
from toolspeak.tools.web import WebAccess, fetch_tool

MISSING = ("edit", {"path": "a.txt", "old": "three", "new": "3"})
TOO_MANY = ("edit", {"path": "a.txt", "old": "o", "new": "0"})
UNREAD = ("write", {"path": "a.txt", "content": "all new\n"})
NOWHERE = ("replace", {"old": "three", "new": "3"})
NO_FOLDER = ("shell", {"command": "ls", "cwd": "missing"})
WORKS = ("edit", {"path": "a.txt", "old": "two", "new": "2"})


class Person:
    """Approves everything, and remembers what it was asked."""

    def __init__(self):
        self.requests = []

    async def __call__(self, request):
        self.requests.append(request)
        return True


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "work"
    place.mkdir()
    (place / "a.txt").write_text("one\ntwo\n")
    return place


def agent_of(folder, *turns, **options):
    workspace = Workspace(folder)
    tools = [make(workspace) for make in (read_tool, write_tool, edit_tool, replace_tool, shell_tool)]
    script = [
        ScriptedTurn("", calls=[ScriptedCall(*call) for call in turn]) if isinstance(turn, list) else turn
        for turn in turns
    ]
    return Agent(ScriptedProvider([*script, "Done."], tools=True), tools, **options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (MISSING, "'old' occurs 0 times"),
        (TOO_MANY, "'old' occurs 2 times"),
        (UNREAD, "exists and was not read"),
        (NOWHERE, "occurs in none of the 1 files"),
        (NO_FOLDER, "is no folder of the workspace"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_model_reads_the_failure_and_nobody_is_asked(folder, call, words):
    person, journal = Person(), WatchedJournal()
    result = agent_of(folder, [call, WORKS], approve=person, journal=journal).run_sync("Go.")
    assert [request.call.name for request in person.requests] == ["edit"]
    assert person.requests[0].call.arguments == WORKS[1]
    failure, success = result.messages[2].results
    assert (failure.status, failure.code) == ("failure", "exception")
    assert words in failure.text
    assert success.status == "success"
    assert (folder / "a.txt").read_text() == "one\n2\n"
    # Nothing but its result is recorded of it.
    call_id = failure.call_id
    of_call = [
        event
        for event in journal.events
        if getattr(event, "call_id", "") == call_id or (isinstance(event, ToolFinished) and event.result == failure)
    ]
    assert [type(event) for event in of_call] == [ToolFinished]
    assert fold(journal.records) == result.state


def test_without_anybody_to_ask_the_run_goes_on(folder):
    result = agent_of(folder, [MISSING], approve=None).run_sync("Go.")
    assert (result.status, result.answer) == ("answered", "Done.")


def test_a_call_that_an_earlier_one_may_help_is_asked_about_with_all_of_its_arguments(folder):
    person = Person()
    then = ("edit", {"path": "a.txt", "old": "2", "new": "zwei " * 40})
    result = agent_of(folder, [WORKS, then], approve=person).run_sync("Go.")
    first, second = person.requests
    assert "-two\n+2\n" in first.preview
    assert second.preview.startswith("As things are now, this call would fail: 'old' occurs 0 times")
    assert not second.preview_parameters  # so each argument is shown whole
    assert [one.status for one in result.messages[2].results] == ["success", "success"]
    assert (folder / "a.txt").read_text() == f"one\n{'zwei ' * 40}\n"


def test_a_path_outside_is_refused_whatever_runs_before_it_and_one_inside_is_the_same_file(folder):
    person = Person()
    outside = ("write", {"path": f"{folder.parent}/b.txt", "content": "x"})
    inside = ("edit", {"path": f"{folder}/a.txt", "old": "one", "new": "1"})
    result = agent_of(folder, [WORKS, outside, inside], approve=person).run_sync("Go.")
    assert [request.call.arguments for request in person.requests] == [WORKS[1], inside[1]]
    assert person.requests[0].effects == person.requests[1].effects
    first, failure, last = result.messages[2].results
    assert [first.status, failure.status, last.status] == ["success", "failure", "success"]
    assert "is an absolute path: only files inside the workspace can be used" in failure.text
    assert (folder / "a.txt").read_text() == "1\n2\n"


def test_a_question_that_nobody_answered_and_that_would_fail_by_now_is_not_asked_again(folder):
    journal, person = WatchedJournal(), Person()

    async def main():
        result = await agent_of(folder, [WORKS], approve=None, journal=journal).run("Go.")
        assert result.status == "awaiting_approval"
        (folder / "a.txt").write_text("something else\n")
        return await agent_of(folder, approve=person, journal=journal).resume(result.run_id)

    result = asyncio.run(main())
    assert (result.status, result.answer, person.requests) == ("answered", "Done.", [])
    assert "'old' occurs 0 times" in result.messages[2].results[0].text
    assert journal.all(ToolStarted) == journal.all(ApprovalDecided) == []
    assert len(journal.all(ApprovalRequested)) == 1
    assert fold(journal.records) == result.state
    assert result.waiting == ()


def test_a_yes_to_a_question_counts_although_the_call_would_fail_by_now(folder):
    async def main():
        agent = agent_of(folder, [WORKS], approve=None)
        result = await agent.run("Go.")
        (folder / "a.txt").write_text("something else\n")
        return await agent.resume(result, {result.waiting[0]: True})

    result = asyncio.run(main())
    assert result.answer == "Done."
    assert "'old' occurs 0 times" in result.messages[2].results[0].text


def test_arguments_that_a_person_edits_into_a_failure_are_shown_with_it(folder):
    questions = []

    async def person(request):
        questions.append(await request.revise({**WORKS[1], "old": "three"}))
        return False

    agent_of(folder, [WORKS], approve=person).run_sync("Go.")
    assert questions[0].preview.startswith("As things are now, this call would fail: 'old' occurs 0 times")


def test_a_replay_asks_nobody_either(folder, tmp_path):
    path, person = tmp_path / "run.jsonl", Person()
    turns = [MISSING, WORKS], [MISSING]
    first = agent_of(folder, *turns, approve=person, cassette=Cassette.record(path)).run_sync("Go.")
    journal = WatchedJournal()
    again = agent_of(folder, approve=Person(), cassette=Cassette.replay(path), journal=journal).run_sync("Go.")
    assert list(again.messages) == list(first.messages)
    assert len(journal.all(ApprovalRequested)) == 1


def test_the_preview_of_ones_own_tool_may_say_it(folder):
    def would(amount: int, ctx: RunContext | None = None) -> str:
        if amount > 100:
            raise ToolError("the account has 100: pay less", extra={"balance": 100})
        return f"pays {amount}"

    @tool(effects=Effects(external=True), preview=would)
    def pay(amount: int) -> str:
        """Pays."""
        return "paid"

    person = Person()
    turns = [ScriptedTurn("", calls=[ScriptedCall("pay", {"amount": amount})]) for amount in (500, 50)]
    result = Agent(ScriptedProvider([*turns, "Done."], tools=True), [pay], approve=person).run_sync("Go.")
    (failure,) = result.messages[2].results
    assert (failure.text, failure.extra["balance"]) == ("the account has 100: pay less", 100)
    assert [request.preview for request in person.requests] == ["pays 50"]


@pytest.mark.parametrize(
    ("url", "asks"),
    [
        ("http://127.0.0.1:9721/page", False),
        ("http://[::1]/", False),
        ("http://localhost:8000/", False),
        ("http://10.0.0.7/", False),
        ("https://example.com:22/", False),
        ("http://127.0.0.1:9722/page", True),  # the operator allows it
        ("https://example.com/", True),
        ("http://localhost.example/", True),
    ],
)
def test_nobody_is_asked_about_an_address_that_is_certain_to_be_refused(url, asks):
    lookups, urls = [], []

    async def resolver(host, port):
        lookups.append(host)
        return ["127.0.0.1"]

    async def person(request):
        urls.append(request.call.arguments["url"])
        return False

    access = WebAccess(allow=("127.0.0.1:9722",), resolver=resolver)
    turns = [ScriptedTurn("", calls=[ScriptedCall("fetch", {"url": url})]), "Done."]
    result = Agent(ScriptedProvider(turns, tools=True), [fetch_tool(access)], approve=person).run_sync("Go.")
    assert urls == ([url] if asks else [])
    assert lookups == []
    assert ("was not fetched" in result.messages[2].results[0].text) != asks


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"network": True}, "no host is allowed here"),
        ({"writes": ["/etc"]}, "lies outside of the workspace"),
        ({"writes": ["missing"]}, "does not exist"),
        ({"command": "echo \0"}, "contains a NUL character"),
    ],
)
def test_nobody_is_asked_about_a_command_that_its_sandbox_would_refuse(folder, arguments, words):
    class Boundary(NoSandbox):
        level = "strict"

    person = Person()
    tool_ = shell_tool(Workspace(folder), sandbox=CommandSandbox(Boundary()))
    turns = [ScriptedTurn("", calls=[ScriptedCall("shell", {"command": "ls", **arguments})]), "Done."]
    result = Agent(ScriptedProvider(turns, tools=True), [tool_], approve=person).run_sync("Go.")
    assert person.requests == []
    assert words in result.messages[2].results[0].text
