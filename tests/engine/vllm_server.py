"""A real vLLM on the CPU: what prompt it makes of what we send, and what we read of its replies (`make test-vllm`).

The model is that of llama.cpp's tests (`make_model.py`), in the form that vLLM loads.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from asking import CHOICES, SMALL, TOOLS, VALID, Engine, ask, plain_and_streamed, provider, text_of
from engine_prompts import ANSWER, RESULT, RUNS, Sending

from toolspeak import Agent, DialectSettings, Limits, tool
from toolspeak.data.deltas import CallCompleted
from toolspeak.data.messages import ToolCall
from toolspeak.dialects import DIALECTS, Dialect, read_turn
from toolspeak.providers import capabilities_of

VLLM = capabilities_of("vllm", "tiny")


def run(
    engine: Engine, dialect: str, task: str, *, stream: bool = True, listing: Any = None, **settings: Any
) -> tuple[Any, list[Any]]:
    """A run, and the bodies of its requests, without those that ask what the server does with tools."""
    choice = settings.pop("tool_choice", "auto")
    model = provider(engine, stream=stream, capabilities=VLLM)
    model.__class__, model.bodies = Sending, []  # pyright: ignore - the same object, listened to

    async def go() -> Any:
        async with Agent(model, TOOLS, dialect=DialectSettings(dialect, listing), **settings) as agent:
            return await agent.run(task, tool_choice=choice)

    return asyncio.run(go()), [body for body in model.bodies if body.get("max_tokens") != 1]


def post(engine: Engine, path: str, body: Any) -> Any:
    answer = httpx2.post(f"{engine.root}/{path}", json=body, trust_env=False, timeout=60)
    return answer.raise_for_status().json()


def prompt(engine: Engine, body: Any) -> str:
    """What the model reads of a request, as the server itself says beside its reply."""
    request = {**body, "stream": False, "max_tokens": 1, "return_token_ids": True}
    request.pop("stream_options", None)
    answer = post(engine, "v1/chat/completions", request)
    return post(engine, "detokenize", {"model": "tiny", "tokens": answer["prompt_token_ids"]})["prompt"]


@plain_and_streamed
@pytest.mark.parametrize(("script", "results"), RUNS)
def test_the_server_writes_the_prompt_and_we_read_the_reply(
    vllm: Engine, script: str, results: list[str], stream: bool
):
    result, bodies = run(vllm, "hermes", f"#{script}", stream=stream, listing="server", instructions="Be brief.")
    assert (result.status, result.answer) == ("answered", ANSWER)
    assert [each.text for message in result.messages for each in message.results] == results
    native, native_bodies = run(vllm, "native", f"#{script}", stream=stream, instructions="Be brief.")
    assert native.answer == ANSWER
    assert [body["tool_choice"] for body in bodies] == ["none", "none"]
    assert [prompt(vllm, body) for body in bodies] == [prompt(vllm, body) for body in native_bodies]
    assert prompt(vllm, bodies[0]).startswith("<|im_start|>system\nBe brief.\n\nAnswer with <tool_call>")


def test_a_server_that_leaves_the_tools_out_gets_our_prompt(vllm_without_tools: Engine):
    result, (first, _) = run(vllm_without_tools, "hermes", "#one", listing="server", instructions="Be brief.")
    assert (result.status, result.answer) == ("answered", ANSWER)
    assert "tools" not in first
    assert "get_weather" in prompt(vllm_without_tools, first)


@pytest.mark.parametrize("choice", ["required", "get_time"])
def test_a_required_call_is_held_to_our_grammar_beside_the_servers_tools(vllm: Engine, choice: str):
    result, (first, *_) = run(vllm, "hermes", "#done", listing="server", tool_choice=choice)
    assert first["response_format"]["type"] == "structural_tag"
    assert len(first["tools"]) == 2
    call_names = [call.name for message in result.messages for call in message.calls]
    assert call_names
    assert choice in ("required", call_names[0])


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_under_a_grammar_every_turn_is_a_valid_call(vllm: Engine, dialect: Dialect, choice: str):
    tool_choice = CHOICES[choice]
    grammar = dialect.grammar(SMALL, tool_choice, target="xgrammar", max_calls=2, reasoning=False)
    options = {"response_format": json.loads(grammar.source), "max_tokens": 1500}
    turn = read_turn(dialect, text_of(ask(vllm, "Go.", tools=(), options=options)), SMALL)
    assert turn.calls
    for call in turn.calls:
        assert isinstance(call, ToolCall), call
        assert VALID[call.name](dict(call.arguments)), call
        assert tool_choice.name in (None, call.name)


@plain_and_streamed
def test_a_result_of_role_tool_is_framed_by_the_chat_template(vllm: Engine, stream: bool):
    result, (_, second) = run(vllm, "tool-call", "#one", stream=stream, listing="prose")
    assert (result.status, result.answer) == ("answered", ANSWER)
    assert second["messages"][-1] == {"role": "tool", "content": RESULT}
    prompt_end = (
        f"<|im_start|>user\n<tool_response>\n{RESULT}\n</tool_response><|im_end|>\n<|im_start|>assistant\n<|done|>"
    )
    assert prompt(vllm, second).endswith(prompt_end)


@plain_and_streamed
def test_calls_in_the_servers_own_words(vllm: Engine, stream: bool):
    """Natively the server's parser reads them."""
    calls = [each for each in ask(vllm, "#two", stream=stream) if isinstance(each, CallCompleted)]
    assert [(each.name, each.arguments) for each in calls] == [
        ("get_weather", {"city": "Rome", "days": 1}),
        ("get_time", {"city": "Rome"}),
    ]


@plain_and_streamed
def test_a_call_that_the_limit_may_have_cut_never_runs(vllm: Engine, stream: bool):
    """vLLM says that a turn ended with calls where the limit ended it, and writes `{}` where the arguments are missing
    (vllm-project/vllm#53269)."""
    ran: list[tuple[str, int]] = []

    @tool(read_only=True)
    def get_weather(city: str = "", days: int = 0) -> str:
        """The weather."""
        ran.append((city, days))
        return "rain"

    async def go(limit: int) -> Any:
        model = provider(vllm, stream=stream, capabilities=VLLM, max_tokens=limit)
        async with Agent(model, [get_weather], dialect="native", limits=Limits(steps=2)) as agent:
            return await agent.run("#one")

    for limit in range(3, 30):
        asyncio.run(go(limit))
    assert ran
    assert set(ran) == {("Paris", 3)}
