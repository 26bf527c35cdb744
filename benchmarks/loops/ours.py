"""toolspeak, with its own kind of model: a `Provider` that has native calls."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from worker import CLOSING, OPENING, PIECE, RUN, Script, Subject, next_turn

from toolspeak import Agent, Limits, Usage, tool
from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallStarted,
    Delta,
    TextDelta,
    TurnEnded,
)
from toolspeak.providers import Capabilities, ModelRequest
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.wire.openai_chat import OPENAI_CHAT

USAGE = Usage(1, 1)
LIMITS = Limits(steps=None, tokens=None, seconds=None, calls=None, repeats=None, failures=None)


class ScriptedModel:
    name = "fake:model"
    capabilities = Capabilities(tools=True)

    def __init__(self) -> None:
        self.request: ModelRequest | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.request = request
        pieces, answers = RUN.get().pieces, RUN.get().steps == 0
        turn = await next_turn()
        if turn is None:
            for _ in range(pieces if answers else 0):
                yield TextDelta(PIECE)
            if not (pieces and answers):
                yield TextDelta("done")
            yield TurnEnded("stop", USAGE)
            return
        for i, (call_id, name, arguments) in enumerate(turn):
            yield CallStarted(i, name, call_id)
            if pieces:
                arguments = json.dumps({"text": PIECE * pieces})
                yield ArgumentsDelta(i, OPENING)
                for _ in range(pieces):
                    yield ArgumentsDelta(i, PIECE)
                yield ArgumentsDelta(i, CLOSING)
            else:
                yield ArgumentsDelta(i, arguments)
            yield CallCompleted(i, name, json.loads(arguments), call_id)
        yield BatchEnded(tuple(range(len(turn))), ok=True)
        yield TurnEnded("tool_calls", USAGE)

    async def aclose(self) -> None:
        """Does nothing: no connection is open."""


class Toolspeak(Subject):
    def __init__(self) -> None:
        self.model = ScriptedModel()
        super().__init__()

    def wrap(self, functions: Sequence[Callable[..., Any]]) -> Any:
        return [tool(function, read_only=True) for function in functions]

    def make(self, tools: Any) -> Any:
        return Agent(self.model, tools, limits=LIMITS)

    async def run(self) -> str:
        return (await self.agent.run("go")).answer

    async def stream(self) -> int:
        return await _streamed_length(self.agent)

    async def chunks(self, url: str) -> int:
        provider = OpenAIProvider("m", base_url=url, capabilities=self.model.capabilities)
        async with Agent(provider, self.tools, limits=LIMITS) as agent:
            return await _streamed_length(agent)

    async def request(self, steps: int) -> dict[str, Any]:
        await self._check(Script(steps))
        assert self.model.request is not None, "a run asks its model"
        times: list[float] = []
        size = 0
        for _ in range(5):
            start = time.process_time()
            body = OPENAI_CHAT.encode_request(self.model.request, model="m", stream=True)
            size = len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())
            times.append(time.process_time() - start)
        return {"request": statistics.median(times) * 1e6, "kib": size / 1024}


async def _streamed_length(agent: Agent) -> int:
    length = frame_length = 0
    async for item in agent.stream("go"):
        if isinstance(item, ArgumentsDelta):
            length += len(item.text)
            frame_length = len(OPENING) + len(CLOSING)
        elif isinstance(item, TextDelta):
            length += len(item.text)
    return length - frame_length - (len("done") if frame_length else 0)
