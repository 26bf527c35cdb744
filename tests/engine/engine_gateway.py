"""The gateway before a real llama.cpp server: what is required is held to a grammar (`make test-engine`).

The model's weights are made up: it says what a script wants, or nonsense. So whatever comes out as a call of a tool,
valid by its schema, is the doing of the grammar that the gateway sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx2
import pytest
from asking import CHOICES, SMALL, VALID, Engine
from gateway_process import LOG, gateway

from toolspeak.data.deltas import BatchEnded, CallCompleted, Delta
from toolspeak.data.messages import Message
from toolspeak.providers import ModelRequest, Provider
from toolspeak.providers.anthropic import AnthropicProvider
from toolspeak.providers.openai_responses import OpenAIResponsesProvider

DIALECTS = (
    "hermes", "qwen3-coder", "cogency-json", "deepseek-v31", "glm45", "kimi-k2", "llama3-json", "mistral-v3",
    "pythonic", "harmony",
)  # fmt: skip
REQUESTS = 200
AT_ONCE = 8
PROMPTS = ("Go.", "#done", "#broken", "#unknown", "#cut", "#endless")
"""Nonsense, and what the model would rather say."""

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": each.name, "parameters": dict(each.parameters)}} for each in SMALL
]


@pytest.fixture(scope="module")
def root(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one gateway, where the model has a name for each dialect."""
    # A thought may be as long as the limit, and nonsense never ends by itself: so there is no thinking.
    table = """[[model]]
name = "{dialect}"
upstream = "llamacpp:tiny"
url = "{url}"
dialect = "{dialect}"
capabilities = {{ reasoning = false }}
"""
    config = tmp_path_factory.mktemp("gateway") / "gateway.toml"
    config.write_text("\n".join(table.format(dialect=name, url=engine.base_url) for name in DIALECTS), "utf-8")
    LOG.unlink(missing_ok=True)
    with gateway("--config", str(config)) as address:
        yield address


def request_of(number: int) -> dict[str, Any]:
    """Each dialect meets everything that is said, plain and streamed, with any tool required and with a named one."""
    block, dialect = divmod(number, len(DIALECTS))
    again, prompt = divmod(block, len(PROMPTS))
    wait_choice = {"type": "function", "function": {"name": "wait"}}
    return {
        "model": DIALECTS[dialect],
        "messages": [{"role": "user", "content": PROMPTS[prompt]}],
        "tools": TOOLS,
        "tool_choice": wait_choice if (block + again) % 3 == 0 else "required",
        "parallel_tool_calls": False,  # without a bound nonsense may call for ever
        "stream": again % 2 == 1,
        "seed": number,
        "max_tokens": 1500,
    }


async def events(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


async def read_stream(response: httpx2.Response) -> dict[str, Any]:
    """The choice of a stream put together as clients do it: what comes twice is there twice."""
    calls: dict[int, dict[str, Any]] = {}
    text = finish = ""
    async for chunk in events(response):
        assert not {"error", "toolspeak"} & chunk.keys(), chunk
        for choice in chunk["choices"]:
            finish += choice["finish_reason"] or ""
            text += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls", ()):
                call = calls.setdefault(part["index"], {"id": "", "function": {"name": "", "arguments": ""}})
                call["id"] += part.get("id") or ""
                for name, value in part["function"].items():
                    call["function"][name] += value or ""
    message = {"content": text, "tool_calls": [calls[index] for index in sorted(calls)]}
    return {"finish_reason": finish, "message": message}


async def ask(client: httpx2.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    if not body["stream"]:
        response = await client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        assert "x-toolspeak-warning" not in response.headers, response.headers
        return response.json()["choices"][0]
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        return await read_stream(response)


def problems(body: dict[str, Any], choice: dict[str, Any]) -> list[str]:
    faults: list[str] = []
    calls = choice["message"].get("tool_calls") or []
    if choice["finish_reason"] != "tool_calls":
        faults.append(f"finish {choice['finish_reason']}")
    if choice["message"].get("content"):
        faults.append(f"text {choice['message']['content']!r}")
    if len(calls) != 1:
        faults.append(f"{len(calls)} calls")
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if name not in VALID or not VALID[name](json.loads(arguments)):
            faults.append(f"{name} {arguments}")
        elif isinstance(body["tool_choice"], dict) and name != "wait":
            faults.append(f"{name} for wait")
    return faults


def test_every_answer_to_a_required_call_is_a_valid_call(root: str):
    async def run() -> dict[int, list[str]]:
        places = asyncio.Semaphore(AT_ONCE)
        faults: dict[int, list[str]] = {}
        async with httpx2.AsyncClient(base_url=root, timeout=120, trust_env=False) as client:

            async def one(number: int) -> None:
                body = request_of(number)
                async with places:
                    faults[number] = problems(body, await ask(client, body))

            async with asyncio.TaskGroup() as group:
                for number in range(REQUESTS):
                    group.create_task(one(number))
        return faults

    faults = asyncio.run(run())
    assert len(faults) == REQUESTS
    assert {f"{number} {request_of(number)['model']}": wrong for number, wrong in faults.items() if wrong} == {}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("make", [AnthropicProvider, OpenAIResponsesProvider], ids=["anthropic", "openai-responses"])
def test_the_other_endpoints_hold_to_it_too(root: str, make: type[Any], choice: str):
    async def turn(model: Provider, prompt: str) -> Sequence[Delta]:
        request = ModelRequest([Message.user(prompt)], SMALL, CHOICES[choice], parallel=False)
        return [delta async for delta in model.stream(request)]

    async def run() -> list[Sequence[Delta]]:
        turns: list[Sequence[Delta]] = []
        for dialect in DIALECTS[:3]:
            base = root if make is AnthropicProvider else f"{root}/v1"
            model = make(dialect, base_url=base, options={"temperature": 1.0})
            try:
                turns += [await turn(model, prompt) for prompt in PROMPTS[:3]]
            finally:
                await model.aclose()
        return turns

    for deltas in asyncio.run(run()):
        calls = [delta for delta in deltas if isinstance(delta, CallCompleted)]
        assert [VALID[call.name](call.arguments) for call in calls] == [True]
        assert CHOICES[choice].name in (None, calls[0].name)
        assert BatchEnded((0,), True) in deltas
