"""What a model wants back, over each API, after another process has taken the run up: signed thoughts, images, ids."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from api_servers import APIS, Api, each_api, reach, turn

from toolspeak import Agent, SqliteJournal, tool
from toolspeak.data.deltas import Delta, PartEnded, ReasoningDelta
from toolspeak.data.messages import ImagePart, Message, Opaque, ReasoningPart, TextPart, ToolResult

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
SIGNATURES = {
    "openai-responses": {"encrypted_content": "S1GNED=="},
    "anthropic": {"signature": "S1GNED=="},
    "gemini": {"thoughtSignature": "S1GNED=="},
}


@tool()
def draw(what: str) -> ImagePart:
    """Draws something."""
    return ImagePart("image/png", PNG)


def thinking(api: Api) -> list[Delta]:
    deltas = turn("I draw.", ("draw", {"what": "a 😀"}))
    data: Any = SIGNATURES.get(api.wire.name)
    signature = None if data is None else PartEnded("reasoning", Opaque(api.wire.name, "m", data))
    return [ReasoningDelta("Let me "), ReasoningDelta("think. 😀"), *([signature] if signature else []), *deltas]


@each_api
def test_what_a_model_wants_back_it_gets_after_a_restart(api: Api, tmp_path: Path):
    async def go() -> Any:
        async with reach(api, thinking(api), "Drawn.") as endpoint:
            journal = SqliteJournal(tmp_path / "runs.db")
            try:
                paused_run = await Agent(endpoint.provider, [draw], journal=journal).run("Draw.")
            finally:
                await journal.aclose()
            assert paused_run.status == "awaiting_approval"
            journal = SqliteJournal(tmp_path / "runs.db")
            try:
                agent = Agent(endpoint.provider, [draw], journal=journal)
                (call_id,) = paused_run.waiting
                result = await agent.resume(paused_run.run_id, {call_id: True})
            finally:
                await journal.aclose()
            return result, endpoint.model

    result, model = asyncio.run(go())
    assert result.answer == "Drawn."
    body = json.dumps(model.bodies[1], ensure_ascii=False)
    assert base64.b64encode(PNG).decode() in body
    if api.wire.name in SIGNATURES:
        assert body.count("S1GNED==") == 1
    messages = [message for message in model.requests[1].request.messages if isinstance(message, Message)]
    parts = [part for message in messages for part in message.parts]
    contents = [part for each in parts for part in (each.content if isinstance(each, ToolResult) else (each,))]
    images = [part for part in contents if isinstance(part, ImagePart)]
    assert [image.data for image in images] == [PNG]
    thoughts = [part.text for part in parts if isinstance(part, ReasoningPart)]
    assert thoughts == ([] if api.wire.name == "openai-chat" else ["Let me think. 😀"])


@each_api
def test_an_image_of_a_person(api: Api):
    async def go() -> Any:
        async with reach(api, "A dot.") as endpoint:
            question = Message("user", (TextPart("What is it?"), ImagePart("image/png", PNG)))
            return await Agent(endpoint.provider).run(question), endpoint.model

    result, model = asyncio.run(go())
    assert result.answer == "A dot."
    (question,) = [each for each in model.requests[0].request.messages if each.role == "user"]
    assert [part.data for part in question.parts if isinstance(part, ImagePart)] == [PNG]


@pytest.mark.parametrize("other", ["anthropic", "gemini", "openai-responses", "ollama", "openai"])
@each_api
def test_what_one_model_signed_is_not_sent_to_another(api: Api, other: str):
    async def go() -> Any:
        async with reach(api, thinking(api), "Drawn.") as first, reach(APIS[other], "Again.") as second:
            result = await Agent(first.provider, [draw], approve="all").run("Draw.")
            return await Agent(second.provider, [draw]).run("And now?", history=result.messages), second.model

    result, model = asyncio.run(go())
    assert result.answer == "Again."
    body = json.dumps(model.bodies[0])
    assert ("S1GNED" in body) == (APIS[other] is api and api.wire.name in SIGNATURES)
    assert "I draw." in body


def test_the_end_of_what_is_cached_moves_on_with_the_conversation():
    async def go() -> Any:
        script = [turn("", ("draw", {"what": str(at)})) for at in range(3)]
        async with reach(APIS["anthropic"], *script, "Done.") as endpoint:
            await Agent(endpoint.provider, [draw], approve="all", instructions="Be brief.").run("Draw.")
            return endpoint.model.bodies

    bodies = asyncio.run(go())
    marker_counts = [json.dumps(body).count('"cache_control"') for body in bodies]
    assert all(2 <= count <= 4 for count in marker_counts)  # the API takes four
    for body in bodies:
        assert "cache_control" in json.dumps(body["messages"][-1])
        assert "cache_control" in json.dumps(body["system"])
    bodies_without_markers = [
        json.dumps(body).replace(', "cache_control": {"type": "ephemeral"}', "") for body in bodies
    ]
    assert len({text.partition('"messages"')[0] for text in bodies_without_markers}) == 1
