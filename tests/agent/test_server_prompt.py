"""The server writes the prompt by the model's chat template, and we read the reply: over a server that does as vLLM."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from loopback_server import Exchange, serve, whole
from vllm_server import CALL, Vllm

from toolspeak import Agent, tool
from toolspeak.agent.drivers.choose import choose_driver
from toolspeak.agent.drivers.server_prompt import ServerPromptDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.data.messages import Usage
from toolspeak.errors import ProviderError
from toolspeak.providers import Provider, capabilities_of
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.providers.scripted_provider import ScriptedProvider, ScriptedTurn

MODEL = "Qwen/Qwen3-8B"
BAD_CALL = '<tool_call>\n{"name": "look", "arguments": {"where": }}\n</tool_call>'
VLLM = capabilities_of("vllm", MODEL)


@tool(read_only=True)
def look(where: str) -> str:
    """Looks somewhere."""
    return f"{where} is empty"


def run(server: Vllm, *tasks: str, dialect: str = "hermes", capabilities: Capabilities = VLLM, **settings: Any) -> Any:
    """The last result of an agent that is given the tasks, one after the other."""

    async def go() -> Any:
        async with serve(server) as running_server:
            model = OpenAIProvider(
                MODEL, base_url=running_server.base_url, name="vllm", capabilities=capabilities, retries=0
            )
            async with Agent(model, [look], dialect=dialect, instructions="Be brief.", **settings) as agent:
                return [await agent.run(task) for task in tasks or ("go",)][-1]

    return asyncio.run(go())


def is_ours(body: Any) -> bool:
    """Whether the prompt of a request tells the tools in its text."""
    return "tools" not in body and "look" in body["messages"][0]["content"]


def is_the_servers(body: Any) -> bool:
    (tool,) = body.get("tools", [{}])
    return (
        tool.get("function", {}).get("name") == "look"
        and body["tool_choice"] == "none"
        and "tool_call>" not in body["messages"][0]["content"]
    )


def test_tools_calls_and_results_are_the_apis_and_the_reply_is_read_by_us():
    server = Vllm([CALL, "Empty."])
    result = run(server)
    assert (result.status, result.answer) == ("answered", "Empty.")
    first, second = server.bodies
    assert is_the_servers(first)
    assert is_the_servers(second)
    assert first["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]
    call_message, result_message = second["messages"][2:]
    ((call,), call_id) = call_message["tool_calls"], result_message["tool_call_id"]
    assert (call_message["role"], call["id"], call["function"]["name"]) == ("assistant", call_id, "look")
    assert json.loads(call["function"]["arguments"]) == {"where": "here"}
    assert result_message == {"role": "tool", "tool_call_id": call_id, "content": "here is empty"}
    assert first["skip_special_tokens"] is False


def test_it_is_asked_once():
    server = Vllm([CALL, "Empty.", "Yes.", CALL, "Again."])
    run(server, "go", "really?", "look again")
    assert ["tools" in body for body in server.checks] == [False, True]
    assert server.checks[1]["tool_choice"] == "none"
    assert all(map(is_the_servers, server.bodies))


@pytest.mark.parametrize(
    "server",
    [
        Vllm([CALL, "Empty."], excluded=True),
        Vllm([CALL, "Empty."], refuses='"tools"'),
        Vllm([CALL, "Empty."], counts=False),
    ],
    ids=["it leaves the tools out", "it refuses tools", "it counts nothing"],
)
def test_where_it_does_not_the_prompt_is_ours(server: Vllm):
    result = run(server)
    assert (result.status, result.answer) == ("answered", "Empty.")
    assert [is_ours(body) for body in server.bodies] == [True, True]


@pytest.mark.parametrize("tool_role", [False, True])
def test_a_server_that_refuses_the_history_gets_it_in_text_from_then_on(tool_role: bool):
    """As a chat template does that knows no results. What was refused is not asked again, in another driver's way."""
    server = Vllm([CALL, "Empty.", "Still."], refuses='"role": "tool"')
    result = run(server, "go", "really?", capabilities=replace(VLLM, tool_role=tool_role))
    assert (result.status, result.answer) == ("answered", "Still.")
    first, refused_body, *later = server.bodies
    assert is_the_servers(first)
    assert is_the_servers(refused_body)
    assert [is_ours(body) for body in later] == [True, True]
    assert later[0]["messages"][-1]["content"] == "<tool_response>\nhere is empty\n</tool_response>"


def test_a_server_that_parses_the_reply_all_the_same():
    server = Vllm([CALL, CALL, "Empty."], parses=True)
    result = run(server)
    assert (result.status, result.answer) == ("answered", "Empty.")
    assert [is_ours(body) for body in server.bodies] == [False, True, True]


def test_a_server_that_is_down_ends_the_run_as_ever():
    server = Vllm([], refuses="Be brief")
    with pytest.raises(Exception, match="no Be brief here"):
        run(server)


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable", "401 Unauthorized"])
def test_a_server_that_cannot_say_now_is_asked_again_by_the_next_run(status: str):
    server, bodies = Vllm([CALL, "Empty."]), list[Any]()

    async def first_in_trouble(exchange: Exchange) -> None:
        bodies.append(exchange.json)
        await (whole(status, b"{}") if len(bodies) == 1 else server)(exchange)

    async def go() -> None:
        async with serve(first_in_trouble) as running_server:
            model = OpenAIProvider(MODEL, base_url=running_server.base_url, name="vllm", capabilities=VLLM, retries=0)
            async with Agent(model, [look], dialect="hermes", instructions="Be brief.") as agent:
                with pytest.raises(ProviderError):
                    await agent.run("go")
                assert (await agent.run("go")).answer == "Empty."

    asyncio.run(go())
    assert all(map(is_the_servers, server.bodies))
    assert len(server.bodies) == 2


def test_a_call_that_could_not_be_read_is_told_in_the_dialect():
    server = Vllm([BAD_CALL, CALL, "Empty."])
    result = run(server)
    assert result.answer == "Empty."
    reply, feedback, *rest = server.bodies[2]["messages"][2:]
    assert (reply["role"], reply["content"].split()) == ("assistant", BAD_CALL.split())
    assert (feedback["role"], feedback["content"].startswith("<tool_response>\nERROR: ")) == ("user", True)
    assert [message["role"] for message in rest] == ["assistant", "tool"]


def test_thoughts_go_back_to_the_chat_template():
    server = Vllm(["<think>\nWhere?\n</think>\n\n" + CALL, "Empty."])
    run(server)
    assert server.bodies[1]["messages"][2]["reasoning_content"].strip() == "Where?"


def test_a_required_call_is_held_to_a_grammar_beside_the_servers_prompt():
    server = Vllm([CALL, "Empty."])
    run(server, tool_choice="required")
    assert is_the_servers(server.first)
    assert server.first["response_format"]["type"] == "structural_tag"
    assert "look" in server.first["messages"][-1]["content"] or "tool" in server.first["messages"][-1]["content"]


def test_beside_native_calls_it_takes_over_from_a_server_without_a_parser():
    """vLLM refuses the tool choice `auto` unless it was started with one."""

    class NoParser(Vllm):
        async def __call__(self, exchange: Exchange) -> None:
            if "tools" in exchange.json and exchange.json.get("tool_choice", "auto") == "auto":
                problem = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
                await whole("400 Bad Request", json.dumps({"error": {"message": problem}}).encode())(exchange)
            else:
                await super().__call__(exchange)

    server = NoParser([CALL, "Empty."])
    result = run(server, dialect="auto")
    assert (result.status, result.answer) == ("answered", "Empty.")
    assert [is_the_servers(body) for body in server.bodies] == [True, True]


# --- where it is the default -------------------------------------------------------------------------------------


def provider(name: str, model: str, **more: Any) -> Provider:
    known_capabilities = replace(capabilities_of(name, model), **more)
    return OpenAIProvider(model, base_url="http://127.0.0.1:9/v1", name=name, capabilities=known_capabilities)


@pytest.mark.parametrize(
    ("name", "model", "dialect", "is_server"),
    [
        ("vllm", MODEL, "hermes", True),
        ("llamacpp", MODEL, "hermes", True),
        ("vllm", MODEL, "cogency-json", False),  # the template would teach another
        ("vllm", "nobody-knows", "hermes", False),
        ("sglang", MODEL, "hermes", False),
        ("openai", MODEL, "hermes", False),
    ],
)
def test_it_is_the_default_where_the_server_is_known_to_and_the_dialect_is_the_models(
    name: str, model: str, dialect: str, is_server: bool
):
    driver, _ = choose_driver(provider(name, model), dialect, "text")
    assert isinstance(driver, TextDriver)
    assert isinstance(driver, ServerPromptDriver) is is_server
    driver, _ = choose_driver(provider(name, model, tools=False), "auto", "text")
    assert isinstance(driver, ServerPromptDriver) is (is_server or dialect == "cogency-json")


def test_a_provider_of_ones_own_is_asked_by_its_usage():
    turns = [ScriptedTurn("a", usage=Usage(9, 1)), ScriptedTurn("a", usage=Usage(99, 1)), CALL, "Empty."]
    model = ScriptedProvider(turns, name=f"mine:{MODEL}", capabilities=Capabilities(server_prompt=True))

    async def go() -> Any:
        async with Agent(model, [look], dialect="hermes") as agent:
            return await agent.run("go")

    assert asyncio.run(go()).answer == "Empty."
    assert [len(request.tools) for request in model.requests] == [0, 1, 1, 1]
