"""Requests made again of what a run recorded: by the drivers and the wire formats that made them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

import msgspec

from toolspeak.agent.drivers.base import NO_RUN, Driver, TurnRequest
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.react import ReActDriver
from toolspeak.agent.drivers.request_parts import DRIVER, INSTRUCTIONS, OPTIONS, TOOLS, dialect_of
from toolspeak.agent.drivers.server_prompt import ServerPromptDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.data.codec import load
from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON, Message, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve
from toolspeak.errors import ConfigurationError
from toolspeak.providers.base import BodyFormat
from toolspeak.providers.capabilities import Capabilities
from toolspeak.providers.http_client import body_bytes
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, OutputSchema
from toolspeak.wire.gemini import GEMINI
from toolspeak.wire.ollama import OLLAMA
from toolspeak.wire.openai_chat import OPENAI_CHAT, openai_chat
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

_FORMATS = {each.name: each for each in (OPENAI_RESPONSES, ANTHROPIC, GEMINI, OLLAMA)}


class _RequestMaker(Protocol):
    """A conversation that says what it sends."""

    def model_request(self, request: TurnRequest) -> ModelRequest: ...


class RecordedProvider:
    """A provider as a run recorded it. It makes requests, and sends none."""

    def __init__(self, name: str, api_name: str, capabilities: Capabilities, body_format: BodyFormat) -> None:
        self.name = name
        self.api_name = api_name
        self.capabilities = capabilities
        self.body_format = body_format

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Raises ConfigurationError."""
        raise ConfigurationError("this provider is a record of one: it sends no request")

    async def aclose(self) -> None:
        return


def bodies(
    parts: Mapping[str, str], choice: ToolChoice, messages: Sequence[Message], starts: Sequence[int]
) -> Iterator[bytes]:
    """The bodies that a request of these parts may have had, the likeliest first: what a driver learnt of its server is
    not recorded (that it takes no tools, no grammar or no role `tool`).

    `starts`: how many messages there may have been when the driver's conversation began. Raises FormatError or
    ValueError for parts of another version of toolspeak.
    """
    about, turn_settings = json.loads(parts[DRIVER]), json.loads(parts[OPTIONS])
    settings = dict(about["wire"])
    name = settings.pop("format")
    wire = openai_chat(**settings) if name == OPENAI_CHAT.name else _FORMATS[name]
    body_format = BodyFormat(wire, about["model"], about["options"])
    capabilities = msgspec.convert(about["capabilities"], Capabilities)
    provider = RecordedProvider(about["provider"], about["api_name"], capabilities, body_format)
    output, approval = turn_settings["output"], frozenset(turn_settings["approval"])
    tools = tuple(cast("ToolSpec", load(spec)) for spec in json.loads(parts[TOOLS]))
    request = TurnRequest(
        messages,
        tools,
        parts[INSTRUCTIONS],
        choice,
        None if output is None else OutputSchema(*output),
        lambda spec: spec.name in approval,
        turn_settings["parallel"],
        turn_settings["options"],
    )
    earlier_bodies: set[bytes] = set()
    for driver in _drivers(about["kind"], provider):
        for start in starts:
            conversation = cast("_RequestMaker", driver.open(NO_RUN))
            if 0 < start < len(messages):
                conversation.model_request(replace(request, messages=messages[:start]))
            whole = conversation.model_request(request)
            for each in [whole] if whole.constraint is None else [whole, replace(whole, constraint=None)]:
                options = {**body_format.options, **each.options}
                body = wire.encode_request(evolve(each, options=options), model=body_format.model, stream=True)
                content = body_bytes(body)
                if content not in earlier_bodies:
                    earlier_bodies.add(content)
                    yield content


def _drivers(kind: JSON, provider: RecordedProvider) -> Iterator[Driver]:
    """The driver, in each state in which it may have been."""
    if kind is None:
        return
    if "probes" in kind:
        for each in kind["probes"]:
            yield from _drivers(each, provider)
    elif "react" in kind:
        yield ReActDriver(provider)
    elif "native" in kind:
        driver = NativeDriver(provider)
        yield driver
        driver.forces = False
        yield driver
        yield from _drivers(kind["fallback"], provider)
    else:
        name, follows = kind["text"]
        dialect = dialect_of(name, provider.api_name, follows=follows)
        if dialect is None:
            return
        driver_class = ServerPromptDriver if kind["server"] else TextDriver
        text = driver_class(provider, dialect, starts_in=kind["starts_in"], listing=kind["listing"])
        while True:
            yield text
            if isinstance(text, ServerPromptDriver) and text.writes is None:
                text.writes = False
                yield text
            if not text.takes_tool_role:
                return
            text.takes_tool_role = False
