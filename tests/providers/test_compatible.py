"""Services and servers that speak OpenAI's API, by a name of their own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from loopback_server import Exchange, event, says, serve, stream, whole
from openai_turns import MESSAGES

from toolspeak import Agent, tool
from toolspeak.data.deltas import CallCompleted, Delta, PartEnded, ReasoningDelta, TurnEnded
from toolspeak.data.messages import Message, Opaque, ReasoningPart, ToolCall, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import ProviderError, UnknownProvider
from toolspeak.providers import PROVIDERS, ModelRequest, get_provider
from toolspeak.providers.compatible import COMPATIBLE
from toolspeak.providers.openai import OpenAIProvider

PING = ToolSpec("ping", "", {"type": "object", "properties": {}})
LAST_EVENT = event("[DONE]")
CALL = {"index": 0, "id": "c0", "function": {"name": "ping", "arguments": "{}"}}


def ask(model: str, *events: Any, request: ModelRequest | None = None, **environ: str) -> tuple[Exchange, list[Delta]]:
    """One turn of a provider whose service is at a loopback address; the request as it came, and the answer."""
    name = model.partition(":")[0]

    async def run() -> tuple[Exchange, list[Delta]]:
        async with serve(stream(*(event(each) for each in events), event("[DONE]"))) as server:
            provider = get_provider(model, {f"{name.upper()}_BASE_URL": server.base_url, **environ})
            assert provider.name == model
            try:
                deltas = [delta async for delta in provider.stream(request or ModelRequest(MESSAGES))]
            finally:
                await provider.aclose()
            return server.exchanges[0], deltas

    return asyncio.run(run())


def test_the_table_of_names_has_all_of_them():
    assert {name for name, place in PROVIDERS.items() if ".compatible:" in place} == set(COMPATIBLE)


@pytest.mark.parametrize("name", COMPATIBLE)
def test_each_has_its_own_key_and_address(name: str):
    service = COMPATIBLE[name]
    exchange, deltas = ask(f"{name}:a/b:c", says("Hi", "stop"), **{service.key_variable: "secret"})
    assert exchange.request_line == "POST /v1/chat/completions HTTP/1.1"
    assert exchange.headers["authorization"] == "Bearer secret"
    assert exchange.json["model"] == "a/b:c"
    assert isinstance(deltas[-1], TurnEnded)
    assert service.source.startswith("https://")
    assert service.base_url.startswith("https://" if service.needs_key else "http://127.0.0.1:")


@pytest.mark.parametrize("name", COMPATIBLE)
def test_openais_key_goes_to_nobody_else(name: str):
    service = COMPATIBLE[name]
    if service.needs_key:
        with pytest.raises(UnknownProvider, match=f"{service.key_variable} is not set"):
            get_provider(f"{name}:m", {"OPENAI_API_KEY": "sk-openai", "OPENAI_BASE_URL": "http://x/v1"})
        return
    exchange, _ = ask(f"{name}:m", says("Hi", "stop"), OPENAI_API_KEY="sk-openai", OPENAI_BASE_URL="http://127.0.0.1:9")
    assert "authorization" not in exchange.headers


def test_openai_itself_has_calls_of_its_own_and_an_unknown_server_may_not():
    assert OpenAIProvider("gpt-5", api_key="k").capabilities.tools
    assert not OpenAIProvider("m", base_url="http://127.0.0.1:9/v1").capabilities.tools
    assert COMPATIBLE["vllm"].provider("m", {}).capabilities.grammar == "xgrammar"


def test_a_native_turn():
    chunk = {"choices": [{"delta": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}
    request = ModelRequest([Message.user("Hi")], [PING], ToolChoice("required"), parallel=False)
    exchange, deltas = ask("vllm:m", chunk, request=request)
    function = {"name": "ping", "parameters": {"type": "object", "properties": {}}}
    assert exchange.json == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }
    assert [(d.name, d.id) for d in deltas if isinstance(d, CallCompleted)] == [("ping", "c0")]


def test_mistral_has_short_ids_and_no_stream_options():
    message = Message("assistant", (ToolCall("run1-call-0001", "ping", {}),))
    exchange, _ = ask("mistral:m", says("Hi", "stop"), request=ModelRequest([message]), MISTRAL_API_KEY="k")
    assert "stream_options" not in exchange.json
    (call,) = exchange.json["messages"][0]["tool_calls"]
    assert len(call["id"]) == 9


def test_deepseek_gets_its_reasoning_back():
    thought = {"choices": [{"delta": {"reasoning_content": "hm", "content": None}}]}
    call = {"choices": [{"delta": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}
    _, deltas = ask("deepseek:m", thought, call, DEEPSEEK_API_KEY="k")
    opaque = Opaque("openai-chat", "m", {"field": "reasoning_content"})
    assert deltas[:2] == [ReasoningDelta("hm"), PartEnded("reasoning", opaque)]
    message = Message("assistant", (ReasoningPart("hm", opaque), ToolCall("c0", "ping", {})))
    exchange, _ = ask("deepseek:m", says("Hi", "stop"), request=ModelRequest([message]), DEEPSEEK_API_KEY="k")
    assert exchange.json["messages"][0]["reasoning_content"] == "hm"


def test_an_answer_that_was_not_streamed_may_hold_calls():
    body = {"choices": [{"message": {"content": None, "tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}

    async def answer(exchange: Exchange) -> None:
        content = json.dumps(body).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        await exchange.send(head.encode(), content)

    async def run() -> list[Delta]:
        async with serve(answer) as server:
            provider = get_provider("sglang:m", {"SGLANG_BASE_URL": server.base_url})
            deltas = [delta async for delta in provider.stream(ModelRequest(MESSAGES, [PING]))]
            await provider.aclose()
            return deltas

    assert [d.name for d in asyncio.run(run()) if isinstance(d, CallCompleted)] == ["ping"]


def test_options_of_ones_own_leave_those_of_a_service():
    """Mistral refuses fields that it does not know."""

    async def run() -> dict[str, Any]:
        async with serve(stream(event(says("Hi", "stop")), LAST_EVENT)) as server:
            environ = {"MISTRAL_BASE_URL": server.base_url, "MISTRAL_API_KEY": "secret"}
            provider = get_provider("mistral:m", environ, options={"temperature": 0})
            async for _ in provider.stream(ModelRequest(MESSAGES)):
                pass
            await provider.aclose()
            return server.exchanges[0].json

    body = asyncio.run(run())
    assert (body["temperature"], "stream_options" in body) == (0, False)


UNREAD = {
    "message": "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": '<function=ping>{"a": 1</function>',
}


@pytest.mark.parametrize("streamed", [False, True], ids=["as its answer", "in the stream"])
def test_a_call_that_groq_could_not_read_is_a_malformed_call(streamed: bool):
    """It answers with an error, HTTP 400 or in the stream, in place of the turn."""
    error = {"error": UNREAD}
    thought = {"model": "m", "choices": [{"index": 0, "delta": {"reasoning": "Hm."}}]}
    failing = stream(event(thought), b"event: error\n" + event(error))
    if not streamed:
        failing = whole("400 Bad Request", json.dumps(error).encode())

    async def run(agent_of: Any) -> Any:
        calling = stream(event({"model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]}), LAST_EVENT)
        async with serve(failing, calling, stream(event(says("Pong.", "stop")), LAST_EVENT)) as server:
            provider = get_provider("groq:m", {"GROQ_BASE_URL": server.base_url, "GROQ_API_KEY": "secret"})
            try:
                return await agent_of(provider).run("Ping."), server.exchanges
            finally:
                await provider.aclose()

    @tool(read_only=True)
    def ping() -> str:
        """Answers."""
        return "pong"

    result, exchanges = asyncio.run(run(lambda provider: Agent(provider, [ping])))
    assert (result.answer, len(exchanges)) == ("Pong.", 3)
    contents = [message["content"] for message in exchanges[1].json["messages"][-2:]]
    assert contents[0] == UNREAD["failed_generation"]
    assert "could not read the call" in contents[1]
    with pytest.raises(ProviderError, match="Failed to call a function"):  # no tools were sent that it might call
        asyncio.run(run(lambda provider: Agent(provider, [ping], dialect="hermes")))
