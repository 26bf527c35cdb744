"""A turn that its server pauses (`pause_turn`) is asked on, as it is; it is no answer."""

from __future__ import annotations

import asyncio
import json

import pytest
from agent_helpers import WatchedJournal

from toolspeak import Agent, Limits, tool
from toolspeak.data.deltas import PartEnded, TurnEnded
from toolspeak.data.events import ModelAsked
from toolspeak.data.messages import Opaque
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.wire.anthropic import ANTHROPIC

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "news"}}
SEARCH_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


@tool(read_only=True)
def ping() -> str:
    "Answers."
    return "pong"


class Pausing(ScriptedProvider):
    """Pauses its turns that end so, with something that goes back as it came."""

    capabilities = Capabilities(tools=True)

    async def stream(self, request):
        async for delta in super().stream(request):
            if isinstance(delta, TurnEnded) and delta.finish == "pause":
                yield PartEnded("reasoning", Opaque("anthropic", "m", {"block": SEARCH}))
            yield delta


def run(turns, provider=Pausing, **options):
    journal = WatchedJournal()
    model = provider(turns)
    return model, Agent(model, [ping], journal=journal, **options).run_sync("What is new?"), journal


def test_it_is_asked_on_and_its_text_is_no_answer():
    model, result, journal = run([ScriptedTurn("I look.", "pause"), ScriptedTurn("", "pause"), "News."])
    assert (result.status, result.answer, result.reason) == ("answered", "News.", "answer")
    assert len(journal.all(ModelAsked)) == 3
    assert [message.role for message in model.requests[-1].messages] == ["user", "assistant", "assistant"]


def test_a_turn_that_pauses_for_ever_ends_at_the_limit():
    turns = [ScriptedTurn("I look.", "pause")] * 3
    _, result, _ = run([*turns, "Enough."], limits=Limits(steps=3))
    assert (result.answer, result.reason) == ("Enough.", "steps")
    _, result, _ = run([*turns, ScriptedTurn("So far.", "pause")], limits=Limits(steps=3))
    assert (result.answer, result.reason) == ("So far.", "steps")


def test_a_required_call_may_come_after_a_pause():
    call = ScriptedTurn("", calls=[ScriptedCall("ping")])
    model, result, _ = run([ScriptedTurn("I look.", "pause"), call, "Done."], tool_choice="required")
    assert [request.choice.mode for request in model.requests] == ["required", "required", "auto"]
    assert result.answer == "Done."


@pytest.mark.parametrize("dialect", ["cogency-json", "react"])
def test_a_model_whose_calls_are_text_is_told_to_go_on(dialect):
    final = json.dumps({"thought": "", "type": "final_answer", "answer": "News."})
    turns = [ScriptedTurn("I look.", "pause"), final if dialect == "react" else "News."]
    model, result, _ = run(turns, ScriptedProvider, dialect=dialect)
    assert result.answer == "News."
    last = model.requests[1].messages[-1]
    assert last.role == "user"


class Server:
    """Anthropic's wire format in front of given answers."""

    name, capabilities = "anthropic:m", Capabilities(tools=True, cache_markers=True)

    def __init__(self, answers):
        self.bodies = []
        self.answers = answers

    async def stream(self, request):
        self.bodies.append(ANTHROPIC.encode_request(request, model="m", stream=True))
        content, reason = self.answers[len(self.bodies) - 1]
        for delta in ANTHROPIC.decode_response({"content": content, "stop_reason": reason}, model="m"):
            yield delta

    async def aclose(self):
        pass


def test_anthropics_api_gets_the_content_back_as_it_is():
    intro, answer = {"type": "text", "text": "I look."}, {"type": "text", "text": "News."}
    server = Server([([intro, SEARCH], "pause_turn"), ([SEARCH_RESULT, answer], "end_turn"), ([answer], "end_turn")])

    async def both():
        agent = Agent(server, [ping])
        first = await agent.run("What is new?")
        return first, await agent.run("And?", history=first.messages)

    first, second = asyncio.run(both())
    assert (first.answer, second.answer) == ("News.", "News.")
    bodies = json.loads(json.dumps(server.bodies).replace(', "cache_control": {"type": "ephemeral"}', ""))
    assert bodies[1]["messages"][1:] == [{"role": "assistant", "content": [intro, SEARCH]}]
    assert bodies[2]["messages"][1] == {"role": "assistant", "content": [intro, SEARCH, SEARCH_RESULT, answer]}
