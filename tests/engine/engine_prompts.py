"""What prompt a real llama.cpp server makes of what we send (`make test-engine`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
from asking import TOOLS, Engine, plain_and_streamed, provider

from toolspeak import Agent, DialectSettings
from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON
from toolspeak.providers import ModelRequest, capabilities_of
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.wire.openai_chat import OPENAI_CHAT

LLAMACPP = capabilities_of("llamacpp", "tiny")
ANSWER = "It is 21 degrees in Paris."
RESULT = "3 days of rain in Paris"


class Sending(OpenAIProvider):
    """The engine's provider, which keeps the body of each request."""

    bodies: list[dict[str, JSON]]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        self.bodies.append(OPENAI_CHAT.encode_request(request, model="tiny", stream=True))
        stream = super().stream(request)
        try:
            async for delta in stream:
                yield delta
        finally:
            await stream.aclose()


def run(
    engine: Engine,
    dialect: str,
    task: str,
    *,
    stream: bool = True,
    tool_choice: str = "auto",
    listing: Any = None,
    **settings: Any,
) -> tuple[Any, list[Any]]:
    """A run, and the bodies of its requests."""
    model = provider(engine, stream=stream, capabilities=LLAMACPP)
    model.__class__, model.bodies = Sending, []  # pyright: ignore - the same object, listened to

    async def go() -> Any:
        async with Agent(model, TOOLS, dialect=DialectSettings(dialect, listing), **settings) as agent:
            return await agent.run(task, tool_choice=tool_choice)

    return asyncio.run(go()), model.bodies


def prompt(engine: Engine, body: Any) -> str:
    """What the server's chat template makes of a request."""
    fields = {name: body[name] for name in ("messages", "tools", "tool_choice") if name in body}
    return (
        httpx2.post(f"{engine.root}/apply-template", json=fields, trust_env=False, timeout=60)
        .raise_for_status()
        .json()["prompt"]
    )


@plain_and_streamed
def test_a_result_of_role_tool_is_framed_by_the_chat_template(engine: Engine, stream: bool):
    result, (first, second) = run(engine, "tool-call", "#one", stream=stream)
    assert (result.status, result.answer) == ("answered", ANSWER)
    assert second["messages"][-1] == {"role": "tool", "content": RESULT}
    prompt_text = prompt(engine, second)
    assert prompt_text.endswith(
        f"<|im_start|>user\n<tool_response>\n{RESULT}\n</tool_response><|im_end|>\n<|im_start|>assistant\n<|done|>"
    )
    # The server's cache holds: what was asked stays what it was.
    assert prompt_text.startswith(prompt(engine, first).removesuffix("<|one|>"))


def test_two_results_of_a_family_whose_template_frames_them(engine: Engine):
    """Each is a turn of its own, as natively."""
    result, (_, second) = run(engine, "hermes", "#two", listing="trained")
    assert result.answer == ANSWER
    results = [message for message in second["messages"] if message["role"] == "tool"]
    assert [message["content"] for message in results] == ["1 days of rain in Rome", "noon in Rome"]
    _, (_, native) = run(engine, "native", "#two")
    prompt_text, native_prompt = (
        prompt(engine, body).partition("<|im_start|>user\n<tool_response>") for body in (second, native)
    )
    assert prompt_text[1:] == native_prompt[1:]


def test_the_users_role_is_framed_by_us(engine: Engine):
    result, _ = run(engine, "cogency-json", "#execute")
    assert result.answer == ANSWER


# --- the server writes, we read ----------------------------------------------------------------------------------

RUNS = [
    ("one", [RESULT]),
    ("two", ["1 days of rain in Rome", "noon in Rome"]),
    ("text", ["noon in Lima"]),
    ("bytes", ["2 days of rain in Zürich 東京 😀"]),
]


@plain_and_streamed
@pytest.mark.parametrize(("script", "results"), RUNS)
def test_the_server_writes_the_prompt_and_we_read_the_reply(
    engine: Engine, script: str, results: list[str], stream: bool
):
    """What the server makes of our requests is what it makes of native ones, and its parser takes no part."""
    result, bodies = run(engine, "hermes", f"#{script}", stream=stream, listing="server", instructions="Be brief.")
    assert (result.status, result.answer) == ("answered", ANSWER)
    assert [each.text for message in result.messages for each in message.results] == results
    native, native_bodies = run(engine, "native", f"#{script}", stream=stream, instructions="Be brief.")
    assert native.answer == ANSWER
    assert [body["tool_choice"] for body in bodies] == ["none", "none"]
    assert [prompt(engine, body) for body in bodies] == [prompt(engine, body) for body in native_bodies]
    assert prompt(engine, bodies[0]).startswith("<|im_start|>system\nBe brief.\n\nAnswer with <tool_call>")


def test_it_is_asked_without_a_turn_whether_it_does(engine: Engine):
    """By its endpoint that counts: only turns are sent as requests."""
    _, bodies = run(engine, "hermes", "#one", listing="server")
    assert len(bodies) == 2


@pytest.mark.parametrize("choice", ["required", "get_time"])
def test_a_required_call_is_held_to_our_grammar_beside_the_servers_tools(engine: Engine, choice: str):
    result, (first, *_) = run(engine, "hermes", "#done", listing="server", tool_choice=choice)
    assert first["grammar"]
    assert len(first["tools"]) == 2
    call_names = [call.name for message in result.messages for call in message.calls]
    assert call_names
    assert choice in ("required", call_names[0])
