"""What a model was sent, made again of the records, is what the server got: over each API, as text, in any run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from api_servers import APIS, KEY, Api, ReachableModel, Status, each_api, reach, turn

from toolspeak import Agent, Session, SqliteJournal, tool
from toolspeak.agent.drivers.request_parts import DRIVER
from toolspeak.agent.sent_requests import SentRequest, recorded_parts, sent_request
from toolspeak.data.events import ModelAsked
from toolspeak.data.messages import ImagePart, Message, TextPart
from toolspeak.errors import ProviderError
from toolspeak.execute import Interceptor
from toolspeak.journal import Journal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.wire.openai_chat import openai_chat

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))


@tool(read_only=True)
def look_up(city: str) -> str:
    "Looks up the weather of a city."
    return f"rain in {city} 😀\n" + "drop " * 40


@tool()
def paint(what: str) -> str:
    "Paints something."
    return f"painted {what}"


TOOLS = [look_up, paint]
LOOK = turn("", ("look_up", {"city": "Oslo"}))
PAINT = turn("", ("paint", {"what": "rain"}))


def call_turn(name: str, **arguments: str) -> Any:
    return turn(f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>")


@asynccontextmanager
async def journal_at(path):
    journal = SqliteJournal(path)
    try:
        yield journal
    finally:
        await journal.aclose()


async def requests_of(journal: Journal, run_ids: list[str]) -> list[SentRequest]:
    """Those of all turns, in order."""
    records = [record for run_id in run_ids for record in await journal.read(run_id)]
    turns = [record for record in records if isinstance(record.event, ModelAsked)]
    return [await sent_request(journal, record.run_id, record.seq) for record in turns]


def compare(
    tmp_path, main: Callable[[ReachableModel, Journal], Awaitable[list[str]]], api: Api, *script: Any, **settings: Any
):
    """Runs `main`, which returns the ids of its runs, and compares all their requests with what the server got."""

    async def go():
        async with reach(api, *script, **settings) as endpoint:
            async with journal_at(tmp_path / "runs.db") as journal:
                run_ids = await main(endpoint, journal)
            # Another process, so to speak: without the agent, the provider and the key.
            async with journal_at(tmp_path / "runs.db") as journal:
                return await requests_of(journal, run_ids), endpoint.model.bodies

    requests, bodies = asyncio.run(go())
    assert [each.note for each in requests] == [""] * len(bodies)
    assert all(each.is_proved for each in requests)
    assert [json.loads(each.body) for each in requests] == bodies
    assert KEY not in "".join(each.body for each in requests)
    return requests


@each_api
def test_each_turn_over_each_api(api: Api, tmp_path):
    async def main(endpoint, journal):
        agent = Agent(endpoint.provider, TOOLS, journal=journal, approve="all", instructions="Be brief. 😀")
        question = Message("user", (TextPart("What is it?"), ImagePart("image/png", PNG)))
        return [(await agent.run(question)).run_id]

    requests = compare(tmp_path, main, api, LOOK, PAINT, "Done.", options={"seed": 7})
    assert [each.instructions for each in requests] == ["Be brief. 😀"] * 3
    assert [spec["name"] for spec in requests[0].tools] == ["look_up", "paint"]


@pytest.mark.parametrize(("keep_reasoning", "short_ids"), [(True, False), (False, True), (False, False)])
def test_a_service_that_deviates_from_openai(keep_reasoning, short_ids, tmp_path):
    """The last case is how each run of OpenAI's format was recorded before a format was a value."""

    async def main(endpoint, journal):
        run = await Agent(endpoint.provider, TOOLS, journal=journal).run("Weather?")
        parts = await recorded_parts(journal, run.run_id, len(await journal.read(run.run_id)) - 1)
        settings = {"keep_reasoning": keep_reasoning, "short_ids": short_ids}
        assert json.loads(parts[DRIVER])["wire"] == {"format": "openai-chat", **settings}
        return [run.run_id]

    chat = openai_chat(keep_reasoning=keep_reasoning, short_ids=short_ids)
    look_up_call = turn("", ("look_up", {"city": "Oslo"}), thought="I look.")
    _, request = compare(tmp_path, main, APIS["openai"], look_up_call, "Rain.", chat=chat)
    _, assistant, result = json.loads(request.body)["messages"]
    assert ("reasoning_content" in assistant) is keep_reasoning
    assert (len(result["tool_call_id"]) == 9) is short_ids


@pytest.mark.parametrize("dialect", ["hermes", "cogency-json", "qwen3-coder", "mistral-args", "auto", "react"])
def test_calls_as_text_after_a_resume(dialect, tmp_path):
    async def main(endpoint, journal):
        def new() -> Agent:
            return Agent(endpoint.provider, TOOLS, journal=journal, dialect=dialect, instructions="Be brief.")

        paused_run = await new().run("Paint the rain.")
        if paused_run.status != "awaiting_approval":
            return [paused_run.run_id]
        return [(await new().resume(paused_run.run_id, dict.fromkeys(paused_run.waiting, True))).run_id]

    decision = turn(json.dumps({"thought": "t", "type": "final_answer", "answer": "Done."}))
    script = (
        [decision] if dialect == "react" else [call_turn("look_up", city="Oslo"), call_turn("paint", what="x"), "Done."]
    )
    compare(tmp_path, main, APIS["ollama" if dialect == "auto" else "openai"], *script)


def test_a_session_its_fork_and_a_shorter_history(tmp_path):
    async def main(endpoint, journal):
        agent = Agent(endpoint.provider, TOOLS, journal=journal, dialect="hermes", window=1200)
        session = Session(agent)
        runs = [await session.run("What is the weather? " + "Please. " * 300), await session.run("And now?")]
        fork = await session.fork(runs[0].run_id)
        runs.append(await fork.run("Otherwise?"))
        runs.append(await fork.run("Once more " + "please " * 400))
        return [run.run_id for run in runs]

    script = [call_turn("look_up", city="Oslo"), "Rain.", "Rain still.", "Sun.", "They ask for the weather.", "More."]

    async def go():
        async with reach(APIS["openai"], *script) as endpoint, journal_at(tmp_path / "runs.db") as journal:
            return await requests_of(journal, await main(endpoint, journal)), endpoint.model.bodies

    requests, bodies = asyncio.run(go())
    assert [each.note for each in requests] == [""] * 5
    del bodies[4]  # the request for the summary is no turn
    assert [json.loads(each.body) for each in requests] == bodies
    assert "They ask for the weather." in requests[-1].body


def test_a_request_that_failed_and_instructions_that_change(tmp_path):
    async def main(endpoint, journal):
        agent = Agent(
            endpoint.provider,
            TOOLS,
            journal=journal,
            instructions=lambda context: f"Messages: {len(context.state.history)}",
        )
        with pytest.raises(ProviderError, match="that is why"):
            await agent.run("Weather?", run_id="fails")
        return ["fails"]

    requests = compare(tmp_path, main, APIS["anthropic"], LOOK, Status("400 Bad Request"))
    first, second = (each.instructions for each in requests)
    assert first != second


def test_what_the_driver_learnt_of_its_server(tmp_path):
    """The server takes no tools: the turn is asked for again as text."""

    async def main(endpoint, journal):
        agent = Agent(endpoint.provider, TOOLS, journal=journal, approve="all")
        return [(await agent.run("Weather?")).run_id]

    refusal = Status("400 Bad Request", message="this model does not support tools")

    async def go():
        script = [refusal, call_turn("look_up", city="Oslo"), "Rain."]
        async with reach(APIS["openai"], *script) as endpoint, journal_at(tmp_path / "runs.db") as journal:
            return await requests_of(journal, await main(endpoint, journal)), endpoint.model.bodies

    requests, bodies = asyncio.run(go())
    assert [(each.is_proved, json.loads(each.body)) for each in requests] == [(True, body) for body in bodies[1:]]


def test_what_cannot_be_proved_says_so(tmp_path):
    async def go():
        async with reach(APIS["openai"], LOOK, "Rain.", "Hi.") as endpoint, journal_at(tmp_path / "runs.db") as journal:

            class Hurry(Interceptor):
                level = "model"

                async def before(self, request, context):
                    return replace(request, messages=[*request.messages, Message.user("Hurry.")])

            agent = Agent(endpoint.provider, TOOLS, journal=journal, interceptors=[Hurry()])
            changed_request = await agent.run("Weather?")
            scripted_request = await Agent(ScriptedProvider(["Hi."]), journal=journal).run("Hi")
            agent_with_secret = Agent(
                endpoint.provider, journal=journal, secrets={"CITY": "Trondheim"}, instructions="In Trondheim."
            )
            secret = await agent_with_secret.run("Hi")
            return [
                *(await requests_of(journal, [changed_request.run_id]))[:1],
                *await requests_of(journal, [scripted_request.run_id]),
                *await requests_of(journal, [secret.run_id]),
            ]

    changed_request, scripted_request, secret = asyncio.run(go())
    assert not changed_request.is_proved
    assert changed_request.body
    assert "NOT what was sent" in changed_request.note
    assert scripted_request.body == ""
    assert "did not record" in scripted_request.note
    assert "Trondheim" not in f"{secret}"


def test_equal_parts_are_stored_once(tmp_path):
    """The tools and the instructions of an agent take their place once, however many runs it has."""

    async def go(count: int) -> int:
        path = tmp_path / f"{count}.db"
        async with reach(APIS["openai"], *["Hi."] * count) as endpoint, journal_at(path) as journal:
            agent = Agent(endpoint.provider, TOOLS, journal=journal, instructions="Be brief. " * 2000)
            for _ in range(count):
                await agent.run("Hi")
        return path.stat().st_size

    few, many = asyncio.run(go(2)), asyncio.run(go(12))
    assert many - few < 10 * 8000
