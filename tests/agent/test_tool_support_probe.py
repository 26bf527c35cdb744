"""A server that speaks OpenAI's API, and of which nobody knows more: whether it takes tools is asked once."""

import asyncio
import io
import json

import pytest
from agent_helpers import TOOLS, adding, calling
from loopback_server import STREAM_HEAD, event, serve
from rich.console import Console

from toolspeak import Agent
from toolspeak.dialects import get_dialect
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.ui import Renderer

CALL = {"index": 0, "id": "x1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


class Engine:
    """Writes tools into its prompt or passes them over, refuses them, or does not count; `bodies` are the requests.

    `prefix`: a path that only begins like that of the API is answered with a turn too, as a proxy may do.
    """

    def __init__(self, *, writes=True, refuses=False, counts=True, prefix=False):
        self.writes, self.refuses, self.counts, self.prefix = writes, refuses, counts, prefix
        self.bodies = []

    @property
    def probes(self):
        return [one for one in self.bodies if one.get("max_tokens") == 1]

    @property
    def turns(self):
        return [one for one in self.bodies if one.get("max_tokens") != 1]

    async def __call__(self, exchange):
        body = exchange.json if exchange.body else {}
        is_count = "input_tokens" in exchange.request_line
        if "chat/completions" not in exchange.request_line or (is_count and not self.prefix):
            await exchange.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        if not is_count:
            self.bodies.append(body)
        if body.get("tools") and self.refuses:
            error_body = json.dumps({"error": {"message": "tools are not supported"}}).encode()
            head = f"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\ncontent-length: {len(error_body)}\r\n\r\n"
            await exchange.send(head.encode(), error_body)
            return
        roles = [message["role"] for message in body["messages"]]
        is_done = "tool" in roles or sum("3" in str(message["content"]) for message in body["messages"][1:]) > 0
        delta = {"content": "3"} if is_done else {"content": adding(1, 2)}
        if body.get("tools") and self.writes and not is_done:
            delta = {"tool_calls": [CALL]}
        usage = {"prompt_tokens": 10 + 60 * bool(body.get("tools") and self.writes), "completion_tokens": 1}
        events = [
            event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}),
            event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            *([event({"choices": [], "usage": usage})] if self.counts else []),
            event("[DONE]"),
        ]
        data = b"".join(events)
        await exchange.send(STREAM_HEAD + f"content-length: {len(data)}\r\n\r\n".encode(), data)


def ask(engine, runs=2, model="some-model"):
    async def go():
        async with serve(engine) as server:
            agent = Agent(OpenAIProvider(model, base_url=server.base_url, retries=0), TOOLS)
            try:
                return [await agent.run("1+2?") for _ in range(runs)]
            finally:
                await agent.aclose()

    return asyncio.run(go())


@pytest.mark.parametrize("engine", [Engine(), Engine(prefix=True)], ids=["API", "proxy"])
def test_a_server_that_writes_tools_gets_native_calls_and_is_asked_once(engine):
    for result in ask(engine):
        assert (result.answer, result.steps[0].executions[0].value) == ("3", 3)
    assert len(engine.probes) == 2
    assert [bool(one.get("tools")) for one in engine.turns] == [True] * 4
    assert all("execute" not in str(one["messages"]) for one in engine.turns)


@pytest.mark.parametrize(
    "engine", [Engine(writes=False), Engine(refuses=True), Engine(counts=False)], ids=["ignores", "refuses", "silent"]
)
def test_any_other_gets_calls_as_text(engine):
    for result in ask(engine):
        assert (result.answer, result.steps[0].executions[0].value) == ("3", 3)
    assert len(engine.probes) <= 2
    assert [bool(one.get("tools")) for one in engine.turns] == [False] * 4


def test_a_dialect_that_is_named_is_what_is_spoken():
    engine = Engine()

    async def go():
        async with serve(engine) as server:
            provider = OpenAIProvider("m", base_url=server.base_url, retries=0)
            async with Agent(provider, TOOLS, dialect="cogency-json") as agent:
                return await agent.run("1+2?")

    assert asyncio.run(go()).answer == "3"
    assert engine.probes == []


def test_another_dialect_than_the_models_is_told_once():
    console = Console(file=io.StringIO(), width=200)
    show = Renderer(console).show
    dialect = get_dialect("auto", model="Qwen/Qwen3-8B")
    for name in ("qwen3-coder", "qwen3-coder", "cogency-json"):
        parser = dialect.parser(TOOLS.specs)
        for delta in (*parser.feed(calling(name, ("add", {"a": 1, "b": 2}))), *parser.close("stop")):
            show(delta)
    output = console.file.getvalue()
    assert output.count("not in the model's own dialect, but in qwen3-coder") == 1
    assert output.count("not in the model's own dialect") == 2
