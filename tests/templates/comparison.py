"""Whether a template writes the same prompt of tools as of what we send in their place."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from chat_templates import prompt_of
from conversations import Case

from toolspeak.agent.drivers.base import TurnRequest
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import get_dialect
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.wire.openai_chat.request_writer import encode_messages

Level = Literal["whole", "block", "differs", "unwritten", "error"]
"""`whole`: the prompts are equal, byte for byte. `block`: the template writes our text for the tools as it stands, in
another place or frame. `unwritten`: the template itself refuses the conversation with tools (`error`: ours)."""


@dataclass(frozen=True)
class Comparison:
    """`frame` is what the template writes of the tools besides our text: the frame that no message can say."""

    case: str
    level: Level
    theirs: str = ""
    ours: str = ""
    frame: str = ""
    error: str = ""


def sent_for(model: str, case: Case, tool_role: bool = False) -> list[Any]:
    """The messages that an agent sends."""
    provider = ScriptedProvider([], name=model, capabilities=Capabilities(tool_role=tool_role))
    driver = TextDriver(provider, get_dialect("auto", model=model))
    request = driver.open().model_request(TurnRequest(case.messages, case.tools, case.system))
    return encode_messages(request.messages, model)


def compare(name: str, model: str, label: str, case: Case, tool_role: bool = False) -> Comparison:
    try:
        theirs = _theirs(name, case)
    except Exception as error:  # noqa: BLE001 - whatever a template does
        return Comparison(label, "unwritten", error=f"{type(error).__name__}: {error}")
    messages = sent_for(model, case, tool_role)
    try:
        ours = prompt_of(name, messages)
    except Exception as error:  # noqa: BLE001
        return Comparison(
            label, "error", theirs=theirs, ours=json.dumps(messages, indent=1), error=f"{type(error).__name__}: {error}"
        )
    if theirs == ours:
        return Comparison(label, "whole", theirs, ours)
    block = _block(model, case.tools)
    if block and block in theirs and block in ours:
        without = prompt_of(name, case.chat_messages()) if len(case.messages) == 1 else ""
        return Comparison(label, "block", theirs, ours, _besides(theirs.replace(block, "", 1), without))
    return Comparison(label, "differs", theirs, ours)


def _theirs(name: str, case: Case) -> str:
    """Templates take a call's arguments as an object, or as its text."""
    forms: Sequence[Callable[[Any], Any]] = (dict, lambda value: json.dumps(value, ensure_ascii=False))
    try:
        return prompt_of(name, case.chat_messages(forms[0]), case.tool_definitions)
    except Exception:
        if all(not message.calls for message in case.messages):
            raise
        return prompt_of(name, case.chat_messages(forms[1]), case.tool_definitions)


def _block(model: str, tools: Sequence[ToolSpec]) -> str:
    """What we write of the tools, apart from the system text."""
    prompt = get_dialect("auto", model=model).prompt("\0", tools)
    if prompt.user:
        return prompt.user.strip()
    texts = [piece for text in prompt.system for piece in text.split("\0")]
    return max(texts, key=len).strip()


@cache
def _besides(theirs: str, without: str) -> str:
    """What is left of `theirs` where it differs from what is written without tools."""
    start = 0
    while start < min(len(theirs), len(without)) and theirs[start] == without[start]:
        start += 1
    end = 0
    while end < min(len(theirs), len(without)) - start and theirs[-1 - end] == without[-1 - end]:
        end += 1
    return theirs[start : len(theirs) - end]
