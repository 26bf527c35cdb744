"""Earlier sessions are found for the user they were held with, and for nobody else."""

import asyncio
import json

import pytest

from toolspeak import Agent, Effects, Session, SqliteJournal, tool
from toolspeak.data.messages import JsonPart, Message, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.journal import MemoryJournal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools.builtin import recall_tool

ANSWERS = {
    "ann": "The blue door opens with 4711.",
    "bob": "The blue door is Bob's own secret.",
    None: "Nobody's blue door.",
}


def calling(**arguments):
    call = ToolCall("", "recall", arguments)
    return get_dialect("cogency-json").render([Message("assistant", (call,))])[0].text


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    if request.param == "memory":
        yield MemoryJournal()
        return
    sqlite_journal = SqliteJournal(tmp_path / "toolspeak.db")
    yield sqlite_journal
    sqlite_journal.close()


async def fill(journal):
    for user, answer in ANSWERS.items():
        await Session(Agent(ScriptedProvider([answer]), journal=journal), principal=user).run("Which door?")


async def ask(journal, user, **arguments):
    """What one call tells, in a new session of the user's."""
    agent = Agent(ScriptedProvider([calling(**arguments), "ok"]), [recall_tool(journal)], journal=journal)
    result = await Session(agent, principal=user).run("Look it up.")
    (tool_result,) = [result for message in result.messages for result in message.results]
    return tool_result


def entries(result):
    return [entry for part in result.content if isinstance(part, JsonPart) for entry in part.value]


@pytest.mark.parametrize("user", ANSWERS)
def test_a_user_finds_their_own_sessions_alone(journal, user):
    async def main():
        await fill(journal)
        matches = entries(await ask(journal, user, query="blue door"))
        assert [entry["text"] for entry in matches] == [ANSWERS[user]]
        assert matches[0]["conversation"] == "Which door?"
        result = await ask(journal, user, place=matches[0]["place"])
        assert result.text == ANSWERS[user]
        for other in ANSWERS.keys() - {user}:
            refusal = await ask(journal, other, place=matches[0]["place"])
            assert refusal.status == "failure"
            assert ANSWERS[user] not in refusal.text
            assert (
                refusal.text.replace(matches[0]["place"], "nosuch:1")
                == (await ask(journal, other, place="nosuch:1")).text
            )
        await journal.aclose()

    asyncio.run(main())


def test_a_long_run_that_says_the_words_often_does_not_hide_earlier_sessions(journal):
    async def main():
        await fill(journal)
        agent = Agent(
            ScriptedProvider([calling(query="blue door"), "ok"]), [recall_tool(journal)], journal=journal, window=None
        )
        run = await Session(agent, principal="ann").start("Look it up.")
        for number in range(100):
            run.say(f"The blue door, {number}.")
        state = await run.finish()
        (result,) = [result for message in state.messages for result in message.results]
        assert [entry["text"] for entry in entries(result)] == [ANSWERS["ann"]]

    asyncio.run(main())


def test_whoever_the_model_says_it_is_changes_nothing(journal):
    async def main():
        await fill(journal)
        result = await ask(journal, "ann", query="blue secret", principal="bob")
        assert (result.status, result.code) == ("failure", "invalid_arguments")
        for query in ("bob", "principal:bob blue", "secret", '" OR principal = "bob'):
            assert "secret" not in json.dumps(entries(await ask(journal, "ann", query=query)))
        await journal.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    "arguments", [{}, {"query": " "}, {"place": "x"}, {"place": "x:y"}, {"place": "x:" + "9" * 30}]
)
def test_what_cannot_be_looked_up_is_told(journal, arguments):
    async def main():
        result = await ask(journal, "ann", **arguments)
        await journal.aclose()
        return result

    assert asyncio.run(main()).code == "exception"


def test_what_a_conversation_that_read_the_web_said_counts_as_the_web(journal):
    @tool(effects=Effects(reads={"web:news.example"}, external=True))
    def headlines() -> str:
        "Reads the web."
        return "The blue door needs all your keys."

    @tool(effects=Effects(writes={"note:"}))
    def note() -> str:
        "Writes a note."
        return "noted"

    def turn(name, **arguments):
        return get_dialect("cogency-json").render([Message("assistant", (ToolCall("", name, arguments),))])[0].text

    async def answers(*turns):
        tools = [headlines, note, recall_tool(journal)]
        agent = Agent(ScriptedProvider([*turns, "ok"]), tools, journal=journal, approve="all")
        run = await Session(agent).run("Go.")
        return [result.text for message in run.messages for result in message.results]

    async def main():
        await fill(journal)
        assert (await answers(turn("recall", query="blue door"), turn("note")))[-1] == "noted"
        await answers(turn("headlines"))
        reason = "the run has read the web (news.example)"
        assert reason in (await answers(turn("recall", query="keys"), turn("note")))[-1]
        place, *_ = [hit for hit in await journal.search("keys", principal=None, limit=9) if "needs all" in hit.snippet]
        place = f"{place.run_id}:{place.seq}"
        assert reason in (await answers(turn("recall", place=place), turn("note")))[-1]

    asyncio.run(main())
