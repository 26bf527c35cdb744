"""Turns asked of the real engine through our provider, plain and streamed. `make_model.py` has the scripts (`#one`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import pytest
from clocks import TestClock

from toolspeak import tool
from toolspeak.data.deltas import CallCompleted, CallMalformed, Delta, TextDelta, TurnEnded
from toolspeak.data.messages import Message, TextMessage, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.providers import ModelRequest
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.tools import Toolset


@dataclass(frozen=True)
class Engine:
    """A server that answers; `root` is its address without `/v1`."""

    root: str

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"


plain_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


@tool(read_only=True)
def get_weather(city: str, days: int) -> str:
    """The weather of the next days."""
    return f"{days} days of rain in {city}"


@tool(read_only=True)
def get_time(city: str) -> str:
    """The time of day."""
    return f"noon in {city}"


TOOLS = (get_weather, get_time)
NATIVE = Capabilities(tools=True, output=True)
SPECS: Sequence[ToolSpec] = Toolset(TOOLS).specs


def closed_tool(name: str, **properties: Any) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties)[:1],
        "additionalProperties": False,
    }
    return ToolSpec(name, "", schema)


HOURS: dict[str, Any] = {"enum": [1, 2, 3]}
TOWN: dict[str, Any] = {"enum": ["Paris", "Rome"]}
SMALL = (closed_tool("book", city=TOWN, days=HOURS, now={"type": "boolean"}), closed_tool("wait", hours=HOURS))
"""Tools whose arguments are short, whatever a model without a mind writes."""
VALID = {spec.name: jsonschema_rs.validator_for(dict(spec.parameters)).is_valid for spec in SMALL}
CHOICES = {"required": ToolChoice("required"), "named": ToolChoice("specific", "wait")}


def provider(
    engine: Engine,
    *,
    stream: bool = True,
    capabilities: Capabilities = NATIVE,
    **options: Any,
) -> OpenAIProvider:
    plain = {} if stream else {"stream": False, "stream_options": None}
    return OpenAIProvider(
        "tiny",
        base_url=engine.base_url,
        options={"seed": 1, "max_tokens": 400, **plain, **options},
        capabilities=capabilities,
        clock=TestClock(),  # a retry is not waited for
    )


def ask(
    engine: Engine, prompt: str | Sequence[Message | TextMessage], *, stream: bool = True, **request: Any
) -> list[Delta]:
    """One turn. `tools` are the two above unless the request says otherwise."""
    messages = [Message.user(prompt)] if isinstance(prompt, str) else prompt
    model_request = ModelRequest(messages, **{"tools": SPECS, **request})

    async def run() -> list[Delta]:
        model = provider(engine, stream=stream)
        try:
            return [delta async for delta in model.stream(model_request)]
        finally:
            await model.aclose()

    return asyncio.run(run())


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def calls_of(deltas: Sequence[Delta]) -> list[tuple[str, Any]]:
    return [(delta.name, delta.arguments) for delta in deltas if isinstance(delta, CallCompleted)]


def malformed_of(deltas: Sequence[Delta]) -> list[CallMalformed]:
    return [delta for delta in deltas if isinstance(delta, CallMalformed)]


def end_of(deltas: Sequence[Delta]) -> TurnEnded:
    (end,) = (delta for delta in deltas if isinstance(delta, TurnEnded))
    assert deltas[-1] is end
    return end
