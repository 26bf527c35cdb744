"""What a scripted model was asked, for tests of programs that use an agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from toolspeak.data.messages import JsonPart, Message, TextMessage, TextPart, ToolResult
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.wire.base import ModelRequest


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """One request to a scripted model, as text."""

    request: ModelRequest

    @property
    def system(self) -> str:
        """The system messages: the instructions, and what a dialect tells of the tools."""
        return "\n".join(_text(message) for message in self.request.messages if message.role == "system")

    @property
    def user(self) -> str:
        """The last message of role user that holds no native result."""
        messages = [each for each in self.request.messages if each.role == "user" and not _results(each)]
        return _text(messages[-1]) if messages else ""

    @property
    def results(self) -> tuple[str, ...]:
        """What came since the model last called something: a text for each native result; in a dialect, whose results
        are text, one for each message. Empty in a first request."""
        messages = self.request.messages
        assistant_indexes = [place for place, message in enumerate(messages) if message.role == "assistant"]
        if not assistant_indexes:
            return ()
        news = messages[assistant_indexes[-1] + 1 :]
        native = [_result(result) for message in news for result in _results(message)]
        return tuple(native or map(_text, news))

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that the API was told of; empty where a dialect tells them in `system`."""
        return tuple(tool.name for tool in self.request.tools)

    def __str__(self) -> str:
        lines = [f"tools: {', '.join(self.tools)}"] if self.tools else []
        for message in self.request.messages:
            texts = [_text(message), *map(_result, _results(message))]
            if isinstance(message, Message):
                texts += [f"calls {call.name}" for call in message.calls]
            lines.append(f"[{message.role}] " + "\n".join(text for text in texts if text))
        return "\n".join(lines)


def scripted_request(provider: ScriptedProvider, number: int = -1) -> ScriptedRequest:
    """A request to the model: 0 is the first, -1 the last. Raises AssertionError if there were not so many."""
    count = len(provider.requests)
    if not -count <= number < count:
        raise AssertionError(f"{provider.name} was asked {count} times: there is no request {number}")
    return ScriptedRequest(provider.requests[number])


def assert_request(
    provider: ScriptedProvider,
    number: int = -1,
    *,
    user: str | None = None,
    system: str | None = None,
    results: Sequence[str] | None = None,
    tools: Sequence[str] | None = None,
) -> None:
    """Compares request `number`, counted as in `scripted_request`.

    `user` and `system` are contained in those messages, each of `results` in the result at its place, and `tools` are
    the names of all tools.

    Raises AssertionError with what was asked.
    """
    request = scripted_request(provider, number)
    for name, expected, text in (("user", user, request.user), ("system", system, request.system)):
        if expected is not None and expected not in text:
            raise _wrong(provider, number, request, f"{expected!r} is not in its {name} message")
    if results is not None:
        if len(results) != len(request.results):
            raise _wrong(provider, number, request, f"it has {len(request.results)} results, not {len(results)}")
        for place, (expected, text) in enumerate(zip(results, request.results, strict=True)):
            if expected not in text:
                raise _wrong(provider, number, request, f"{expected!r} is not in its result {place}, {text!r}")
    if tools is not None and tuple(tools) != request.tools:
        raise _wrong(provider, number, request, f"its tools are {list(request.tools)}, not {list(tools)}")


def assert_played(provider: ScriptedProvider) -> None:
    """Raises AssertionError unless every turn of the playbook was requested."""
    if provider.turns_left:
        count = len(provider.requests)
        raise AssertionError(f"{provider.name} was asked {count} times: {provider.turns_left} turns are left")


def _wrong(provider: ScriptedProvider, number: int, request: ScriptedRequest, what: str) -> AssertionError:
    place = number % len(provider.requests)
    return AssertionError(f"request {place} to {provider.name}: {what}. It was:\n{request}")


def _results(message: Message | TextMessage) -> tuple[ToolResult, ...]:
    return message.results if isinstance(message, Message) else ()


def _text(message: Message | TextMessage) -> str:
    return message.text


def _result(result: ToolResult) -> str:
    texts: list[str] = []
    for part in result.content:
        match part:
            case TextPart(text):
                texts.append(text)
            case JsonPart(value):
                texts.append(json.dumps(value, ensure_ascii=False))
            case _:
                texts.append(f"[{type(part).__name__} {part.media_type}]")
    return "".join(texts)
