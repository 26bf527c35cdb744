"""Every provider over HTTP, and how a server answers it with a short turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from loopback_server import Answer, stream
from native import GEMINI_API, OLLAMA_API
from openai_turns import EVENTS

from toolspeak.data.deltas import TextDelta, TurnEnded
from toolspeak.data.messages import Message, Usage
from toolspeak.providers import ModelRequest, Provider
from toolspeak.providers.anthropic import AnthropicProvider
from toolspeak.providers.compatible import COMPATIBLE
from toolspeak.providers.gemini import GeminiProvider
from toolspeak.providers.ollama import OllamaProvider
from toolspeak.providers.openai import OpenAIProvider
from toolspeak.providers.openai_responses import OpenAIResponsesProvider
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import WireFormat, WireRequest
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

REQUEST = ModelRequest([Message.user("Hi")])


def turn_stream(wire: WireFormat) -> Answer:
    """A turn as the format's server role writes it."""
    encoder = wire.encoder(WireRequest(REQUEST, "m"), response_id="r1", created_at=0)
    deltas = [TextDelta("Hé"), TextDelta("l😀"), TurnEnded("stop", Usage(3, 2))]
    frames = [frame for delta in deltas for frame in encoder.feed(delta)]
    return stream(*(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in frames))


@dataclass(frozen=True)
class ApiCase:
    """`make(url, …)`: the provider of the service at `url`, with settings of the connection. `turn` says "Hél😀"."""

    make: Callable[..., Provider]
    turn: Answer


API_CASES = {
    "openai": ApiCase(lambda url, **more: OpenAIProvider("m", base_url=f"{url}/v1", **more), stream(*EVENTS)),
    "openai-responses": ApiCase(
        lambda url, **more: OpenAIResponsesProvider("m", base_url=f"{url}/v1", **more), turn_stream(OPENAI_RESPONSES)
    ),
    "anthropic": ApiCase(lambda url, **more: AnthropicProvider("m", base_url=url, **more), turn_stream(ANTHROPIC)),
    "gemini": ApiCase(
        lambda url, **more: GeminiProvider("m", base_url=url, **more), GEMINI_API.stream(*GEMINI_API.frames)
    ),
    "ollama": ApiCase(lambda url, **more: OllamaProvider("m", host=url, **more), OLLAMA_API.stream(*OLLAMA_API.frames)),
}

every_api = pytest.mark.parametrize("api_case", API_CASES.values(), ids=API_CASES)


def provider_of(name: str, url: str, **more: Any) -> Provider:
    """The provider of that name; a compatible service is OpenAI's provider with its settings."""
    if name in COMPATIBLE:
        return OpenAIProvider("m", base_url=f"{url}/v1", name=name, chat=COMPATIBLE[name].chat, **more)
    return API_CASES[name].make(url, **more)


async def streamed_text(provider: Provider) -> str:
    return "".join([delta.text async for delta in provider.stream(REQUEST) if isinstance(delta, TextDelta)])
