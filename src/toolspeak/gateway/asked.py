"""What a client asked, as a driver is asked it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolspeak.agent.driver import TextDriver, TurnRequest
from toolspeak.agent.history import paired
from toolspeak.agent.native import NativeDriver
from toolspeak.data.messages import JSON, Message, ToolChoice
from toolspeak.gateway.gate import Rules
from toolspeak.gateway.options import translated
from toolspeak.gateway.routing import Route
from toolspeak.wire.base import OutputSchema, WireRequest

_NATIVE_ONLY = ("tools", "tool_choice", "parallel_tool_calls", "max_tool_calls")
"""Options that speak of an API's own tools: of no use where calls are text."""

_ANY_OBJECT = OutputSchema("json", {"type": "object"}, strict=False)


def turn_of(
    asked: WireRequest, route: Route, asked_format: str
) -> tuple[TextDriver | NativeDriver, TurnRequest, Rules]:
    """The driver for a request, what it is asked, and by which rules its answer leaves."""
    request = asked.request
    messages = [message for message in request.messages if isinstance(message, Message)]
    options = translated(request.options, asked_format, route.wire)
    if not request.tools and not any(message.calls or message.results for message in messages):
        # Nothing to do with tools: the conversation passes as it is, with its images and output format.
        turn = TurnRequest(messages, (), output=request.output, options=options)
        return route.plain, turn, Rules(hold_text=not asked.stream, hold_calls=not asked.stream)
    choice = request.choice if request.tools else ToolChoice("none")
    rules = _rules(asked, route, choice, asked_format)
    # One that may have to go on with text takes the system messages apart, as text does.
    instructions, rest = ("", messages) if route.upstream.dialect == "native" else _instructions(messages)
    if not route.is_text:
        turn = TurnRequest(rest, request.tools, instructions, request.choice, output=request.output, options=options)
        return route.driver, replace(turn, parallel=request.parallel), rules
    options, output = _without_native(options, request.output)
    turn = TurnRequest([*paired(rest)], request.tools, instructions, choice, output=output, options=options)
    return route.driver, replace(turn, parallel=request.parallel), rules


def _rules(asked: WireRequest, route: Route, choice: ToolChoice, asked_format: str) -> Rules:
    capabilities, upstream = route.provider.capabilities, route.upstream
    requires = choice.mode in ("required", "specific")
    enforced = capabilities.grammar is not None if route.is_text else capabilities.tool_choice
    return Rules(
        choice,
        asked.request.parallel,
        hold_calls=not asked.stream or upstream.hold_calls or route.holds,
        hold_text=not asked.stream or (requires and not enforced),
        repairs=upstream.repair,
        insists=1 if requires else 0,
        takes_back=asked_format == "openai-chat",
        in_text=route.is_text,
    )


def _instructions(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """The system messages in front, as one text, and the rest."""
    leading = 0
    while leading < len(messages) and messages[leading].role == "system":
        leading += 1
    return "\n\n".join(message.text for message in messages[:leading]), [*messages[leading:]]


def _without_native(
    options: Mapping[str, JSON], output: OutputSchema | None
) -> tuple[Mapping[str, JSON], OutputSchema | None]:
    """The options of a turn whose calls are text. A server's own JSON mode would let no call through, so that the
    answer's form is asked for in words."""
    form = options.get("response_format")
    kept = {name: value for name, value in options.items() if name not in (*_NATIVE_ONLY, "response_format")}
    if output is None and form == {"type": "json_object"}:
        output = _ANY_OBJECT
    return kept, output
