"""Required calls in text over servers that hold a model to a grammar: where it goes, and what happens without one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from loopback_server import Answer, Exchange, event, says, serve, stream, whole

from toolspeak import Agent, tool
from toolspeak.agent.drivers.base import TurnRequest
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.data.messages import Message, ToolChoice
from toolspeak.dialects import get_dialect
from toolspeak.errors import ConfigurationError, ProviderError
from toolspeak.providers import get_provider
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.tools import Toolset
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import Constraint, ModelRequest
from toolspeak.wire.gemini import GEMINI
from toolspeak.wire.ollama import OLLAMA
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES


@tool(read_only=True)
def ping(times: int = 1) -> str:
    """Answers."""
    return "pong " * times


SPECS = Toolset([ping]).specs
CALL = '<tool_call>\n{"name": "ping", "arguments": {"times": 2}}\n</tool_call>'


def refusal(message: str) -> Answer:
    return whole("400 Bad Request", json.dumps({"error": {"message": message, "code": 400}}).encode())


def text_answer(text: str) -> Answer:
    return stream(event(says(text, "stop")), event("[DONE]"))


def play(model: str, *answers: Answer, choice: str = "required", dialect: str = "hermes") -> tuple[Any, list[Exchange]]:
    async def run() -> tuple[Any, list[Exchange]]:
        async with serve(*answers) as server:
            name = model.partition(":")[0]
            provider = get_provider(model, {f"{name.upper()}_BASE_URL": server.base_url})
            try:
                result = await Agent(provider, [ping], dialect=dialect).run("Go.", tool_choice=choice)
            finally:
                await provider.aclose()
            return result, server.exchanges

    return asyncio.run(run())


@pytest.mark.parametrize("choice", ["required", "ping"])
def test_llama_cpp_is_sent_a_grammar_for_the_turn_that_must_call(choice: str):
    result, (first, second) = play("llamacpp:m", text_answer(CALL), text_answer("Done."), choice=choice)
    assert result.answer == "Done."
    assert first.json["grammar"].startswith("root ::=")
    assert "ping" in first.json["grammar"]
    assert "grammar" not in second.json


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_vllm_and_sglang_are_sent_a_structural_tag(server: str):
    result, (first, second) = play(f"{server}:m", text_answer(CALL), text_answer("Done."))
    assert result.answer == "Done."
    assert first.json["response_format"]["type"] == "structural_tag"
    assert "ping" in json.dumps(first.json["response_format"]["format"])
    assert "response_format" not in second.json


def test_a_server_without_grammars_is_asked_in_words():
    result, (first, _) = play("lmstudio:m", text_answer(CALL), text_answer("Done."))
    assert result.answer == "Done."
    assert not {"grammar", "response_format"} & set(first.json)


def test_a_grammar_that_the_server_cannot_compile_is_left_out():
    result, exchanges = play("llamacpp:m", refusal("Failed to parse grammar"), text_answer(CALL), text_answer("Done."))
    assert result.answer == "Done."
    assert ["grammar" in exchange.json for exchange in exchanges] == [True, False, False]


def test_another_refusal_is_an_error():
    with pytest.raises(ProviderError, match="the request is wrong"):
        play("llamacpp:m", refusal("the request is wrong"))


def body_of(capabilities: Capabilities, **fields: Any) -> Any:
    async def run() -> Any:
        async with serve(text_answer(CALL)) as server:
            provider = OpenAIProvider("m", base_url=server.base_url, capabilities=capabilities)
            request = TurnRequest([Message.user("Go.")], SPECS, choice=ToolChoice("required"), **fields)
            async for _ in TextDriver(provider, get_dialect("hermes")).open().turn(request):
                pass
            await provider.aclose()
            return server.exchanges[0].json

    return asyncio.run(run())


GBNF = Capabilities(grammar="gbnf")


def test_one_call_alone_is_another_grammar_than_several():
    several, one = body_of(GBNF)["grammar"], body_of(GBNF, parallel=False)["grammar"]
    assert several != one
    assert (
        one
        == get_dialect("hermes")
        .grammar(SPECS, ToolChoice("required"), target="gbnf", max_calls=1, reasoning=False)
        .source
    )


def test_a_model_that_thinks_may_think_first():
    assert "<think>" in body_of(Capabilities(grammar="gbnf", reasoning=True))["grammar"]
    assert "<think>" not in body_of(GBNF)["grammar"]


@pytest.mark.parametrize("name", ["grammar", "response_format"])
def test_a_callers_own_constraint_stays(name: str):
    body = body_of(GBNF, options={name: {"type": "text"}, "temperature": 0})
    assert body[name] == {"type": "text"}
    assert body["temperature"] == 0
    assert len({"grammar", "response_format"} & set(body)) == 1


REQUEST = ModelRequest([Message.user("Go.")], constraint=Constraint("gbnf", 'root ::= "a"'))


@pytest.mark.parametrize("wire", [ANTHROPIC, GEMINI, OLLAMA, OPENAI_RESPONSES], ids=lambda wire: wire.name)
def test_formats_without_a_place_for_grammars_say_so(wire: Any):
    with pytest.raises(ConfigurationError, match=f"{wire.name} requests have no field for a grammar"):
        wire.encode_request(REQUEST, model="m", stream=True)


@pytest.mark.parametrize("name", ["grammar", "response_format"])
def test_a_grammar_is_not_given_twice(name: str):
    request = ModelRequest(REQUEST.messages, constraint=REQUEST.constraint, options={name: "x"})
    with pytest.raises(ConfigurationError, match=f"{name!r} cannot be set: the request's constraint"):
        OPENAI_CHAT.encode_request(request, model="m", stream=True)
