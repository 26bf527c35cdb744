"""What a client asked, as a driver is asked it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolspeak.agent.drivers.base import TurnRequest
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.agent.state.history import paired
from toolspeak.data.messages import JSON, Message, ToolChoice
from toolspeak.gateway.http.asgi import Fields, check_values, decoded
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.gateway.requests.conversation_repair import healed
from toolspeak.gateway.requests.option_translation import translated
from toolspeak.gateway.settings.gateway_settings import Bounds
from toolspeak.gateway.turns.turn_filter import Note, Rules
from toolspeak.gateway.upstreams.routing import Route
from toolspeak.wire.base import OutputSchema, WireFormat, WireRequest
from toolspeak.wire.json_validation import require_name, require_object, shortened

_NATIVE_ONLY = ("tools", "tool_choice", "parallel_tool_calls", "max_tool_calls")
"""Options that speak of an API's own tools: of no use where calls are text."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")

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


def read_fields(body: bytes, bounds: Bounds) -> Fields:
    """The fields of a client's request, which name a model. Raises Failure, FormatError."""
    check_values(body, bounds.json_values)
    fields = require_object(decoded(body, bounds.depth), "the request")
    model = require_name(fields.get("model"), "model")
    if len(model) > bounds.name_chars:
        raise Failure(400, f"model has {len(model)} characters; {bounds.name_chars} are allowed", "name_too_long")
    return fields


def read_request(wire: WireFormat, fields: Fields, bounds: Bounds) -> tuple[WireRequest, Sequence[Note]]:
    """What a client asks, and what was mended of its conversation. Raises Failure, FormatError."""
    asked = wire.decode_request(fields)
    check_counts(asked, bounds)
    given = [message for message in asked.request.messages if isinstance(message, Message)]
    messages, notes = healed(given)
    return replace(asked, request=replace(asked.request, messages=messages)), notes


def check_counts(asked: WireRequest, bounds: Bounds) -> None:
    """Raises Failure for more messages or tools than the gateway takes, for longer names, for two tools of one name,
    and for one whose name has a line break or another control character."""
    request = asked.request
    for what, count, most in (
        ("messages", len(request.messages), bounds.messages),
        ("tools", len(request.tools), bounds.tool_definitions),
    ):
        if count > most:
            raise Failure(413, f"{what}: {count} are more than {most}; send fewer", "request_too_large")
    known: set[str] = set()
    for tool in request.tools:
        if tool.name in known or _CONTROL.search(tool.name):
            why = "another tool has it too" if tool.name in known else "it has a control character"
            raise Failure(400, f"tools: the name {shortened(tool.name, 80)!r} cannot be: {why}", "invalid_request")
        known.add(tool.name)
    names = [("the name of a tool", tool.name) for tool in request.tools]
    for message in request.messages:
        if isinstance(message, Message):
            names += [("the name of a call", call.name or "") for call in message.calls]
    for what, name in names:
        if len(name) > bounds.name_chars:
            raise Failure(400, f"{what} has {len(name)} characters; {bounds.name_chars} are allowed", "name_too_long")


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
