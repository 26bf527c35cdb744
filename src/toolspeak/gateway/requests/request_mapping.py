"""Maps a client's request to a driver's: messages, options, tools, and the rules for the answer; or lets it pass."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic_core import PydanticSerializationError, to_json

from toolspeak.agent.drivers.base import TurnRequest
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.text import TextDriver
from toolspeak.agent.state.history import pair_results
from toolspeak.data.messages import JSON, Message, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve
from toolspeak.gateway.http.asgi import Fields, check_values, decode_body
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.gateway.requests.conversation_repair import repair_conversation
from toolspeak.gateway.settings.gateway_settings import Bounds
from toolspeak.gateway.turns.turn_gate import Note, ReleaseRules
from toolspeak.gateway.upstreams.routing import Route
from toolspeak.providers.api import ApiProvider
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, OutputSchema, WireFormat, WireRequest
from toolspeak.wire.json_conversion import excerpt, invalid_field, optional_flag, require_name, require_object
from toolspeak.wire.openai_chat import OPENAI_CHAT
from toolspeak.wire.openai_responses import OPENAI_RESPONSES

_NATIVE_ONLY = ("tools", "tool_choice", "parallel_tool_calls", "max_tool_calls")
"""Options about an API's own tools, without meaning if calls are text."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")

_ANY_OBJECT = OutputSchema("json", {"type": "object"}, strict=False)


def turn_of(
    wire_request: WireRequest, route: Route, client_format: str
) -> tuple[TextDriver | NativeDriver, TurnRequest, ReleaseRules]:
    """The driver for a client's request, the driver's request, and the rules by which its answer leaves."""
    request = wire_request.request
    messages = [message for message in request.messages if isinstance(message, Message)]
    options = translate_options(request.options, client_format, route.wire)
    has_calls = any(message.calls or message.results for message in messages)
    if not request.tools and not has_calls:
        # A conversation without tools passes unchanged, with its images and output format.
        turn = TurnRequest(messages, (), output=request.output, options=options)
        return route.plain, turn, ReleaseRules(hold_text=not wire_request.stream, hold_calls=not wire_request.stream)
    choice = request.choice if request.tools else ToolChoice("none")
    rules = _rules(wire_request, route, choice, client_format)
    # A driver that may fall back to text gets the system messages apart, like a driver for text.
    instructions, rest = ("", messages) if route.upstream.dialect == "native" else _instructions(messages)
    if not route.is_text:
        output, choice = request.output, request.choice
    else:
        rest = pair_results(rest) if has_calls else rest
        options, output = _without_native(options, request.output)
    turn = TurnRequest(
        [*rest], request.tools, instructions, choice, output=output, parallel=request.parallel, options=options
    )
    return route.driver, turn, rules


def read_fields(body: bytes, bounds: Bounds) -> Fields:
    """The fields of a client's request, which has to name a model. Raises Failure, FormatError."""
    check_values(body, bounds.json_values)
    fields = require_object(decode_body(body, bounds.depth), "the request")
    model = require_name(fields.get("model"), "model")
    if len(model) > bounds.name_chars:
        raise Failure(400, f"model has {len(model)} characters; {bounds.name_chars} are allowed", "name_too_long")
    return fields


def read_request(wire: WireFormat, fields: Fields, bounds: Bounds) -> tuple[WireRequest, Sequence[Note]]:
    """A client's request from its fields, and notes on repairs of its conversation. Raises Failure, FormatError."""
    wire_request = wire.decode_request(fields)
    check_counts(wire_request, bounds)
    messages: Sequence[Message] = [each for each in wire_request.request.messages if isinstance(each, Message)]
    notes: Sequence[Note] = ()
    # Calls and thoughts are in turns of the model: before the first one only a stray result needs a repair.
    if any(each.role == "assistant" or each.results for each in messages):
        messages, notes = repair_conversation(messages)
    return evolve(wire_request, request=evolve(wire_request.request, messages=messages)), notes


def check_counts(wire_request: WireRequest, bounds: Bounds) -> None:
    """Raises Failure for too many messages or tools, for names that are too long, for two tools with one name, and for
    a tool with a control character in its name."""
    request = wire_request.request
    for what, count, most in (
        ("messages", len(request.messages), bounds.messages),
        ("tools", len(request.tools), bounds.tool_definitions),
    ):
        if count > most:
            raise Failure(413, f"{what}: {count} are more than {most}; send fewer", "request_too_large")
    tool_names: set[str] = set()
    for tool in request.tools:
        if tool.name in tool_names or _CONTROL.search(tool.name):
            why = "another tool has it too" if tool.name in tool_names else "it has a control character"
            raise Failure(400, f"tools: the name {excerpt(tool.name, 80)!r} cannot be: {why}", "invalid_request")
        tool_names.add(tool.name)
    names = [("the name of a tool", tool.name) for tool in request.tools]
    for message in request.messages:
        if isinstance(message, Message):
            names += [("the name of a call", call.name or "") for call in message.calls]
    for what, name in names:
        if len(name) > bounds.name_chars:
            raise Failure(400, f"{what} has {len(name)} characters; {bounds.name_chars} are allowed", "name_too_long")


def _rules(wire_request: WireRequest, route: Route, choice: ToolChoice, client_format: str) -> ReleaseRules:
    capabilities, upstream = route.provider.capabilities, route.upstream
    requires = choice.mode in ("required", "specific")
    is_enforced = capabilities.grammar is not None if route.is_text else capabilities.tool_choice
    return ReleaseRules(
        choice,
        wire_request.request.parallel,
        hold_calls=not wire_request.stream or upstream.hold_calls or route.holds,
        hold_text=not wire_request.stream or (requires and not is_enforced),
        repairs=upstream.repair,
        required_call_retries=1 if requires else 0,
        can_invalidate=client_format == "openai-chat",
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
    """The options of a turn whose calls are text. A server's JSON mode would allow no call, so the prompt asks for the
    form of the answer."""
    response_format = options.get("response_format")
    others = {name: value for name, value in options.items() if name not in (*_NATIVE_ONLY, "response_format")}
    if output is None and response_format == {"type": "json_object"}:
        output = _ANY_OBJECT
    return others, output


# --- requests that pass unchanged ----------------------------------------------------------------------------------

_PASSING_HEADERS = (b"anthropic-beta", b"anthropic-version", b"openai-beta")
"""Headers of a client that an upstream reads: they decide which fields the body may have."""

_TOOL_FIELDS: Mapping[str, Sequence[str]] = {
    OPENAI_CHAT.name: ("tools", "functions"),
    OPENAI_RESPONSES.name: ("tools", "previous_response_id", "conversation", "prompt", "background"),
    ANTHROPIC.name: ("tools", "mcp_servers", "thread"),
}
"""Fields of requests that the gateway handles itself: tools, and references to what the body does not hold."""

_MESSAGES: Mapping[str, str] = {
    OPENAI_CHAT.name: "messages",
    OPENAI_RESPONSES.name: "input",
    ANTHROPIC.name: "messages",
}

_OF_TOOLS = ("_call", "_output", "tool_use", "tool_result", "_request", "_response")
"""The endings of the types of items and blocks for calls and results."""


def is_relayed(fields: Fields, wire: WireFormat, route: Route) -> bool:
    """Whether a request goes to its upstream unchanged: client and upstream speak the same API, and the request has
    nothing to do with tools, or asks for several answers, which the gateway does not repair."""
    if route.wire != wire.name or not isinstance(route.provider, ApiProvider):
        return False
    answer_count = fields.get("n")
    if wire is OPENAI_CHAT and not route.is_text and isinstance(answer_count, int) and answer_count > 1:
        return True
    if any(fields.get(name) for name in _TOOL_FIELDS[wire.name]):
        return False
    messages_field = fields.get(_MESSAGES[wire.name])
    messages = cast("list[JSON]", messages_field) if isinstance(messages_field, list) else []
    return not any(map(_uses_tools, messages)) and not _leaves_thoughts_open(messages)


def _leaves_thoughts_open(messages: Sequence[JSON]) -> bool:
    """Whether a turn ends with reasoning. APIs refuse that, so the gateway has to repair the conversation."""
    is_open = False
    for fields in (cast("Fields", message) for message in messages if isinstance(message, Mapping)):
        if is_open and fields.get("role") not in (None, "assistant"):
            return True
        is_open = fields.get("type") == "reasoning"
        content = fields.get("content")
        if fields.get("role") == "assistant" and isinstance(content, list) and content:
            last = cast("list[JSON]", content)[-1]
            if isinstance(last, Mapping) and cast("Fields", last).get("type") in ("thinking", "redacted_thinking"):
                return True
    return is_open


def _uses_tools(message: JSON) -> bool:
    """Whether a message, or an item of the Responses API, holds a call or a result."""
    if not isinstance(message, Mapping):
        return False
    fields = cast("Mapping[str, JSON]", message)
    if fields.get("role") in ("tool", "function") or fields.get("tool_calls") or fields.get("function_call"):
        return True
    kind, content = fields.get("type"), fields.get("content")
    if isinstance(kind, str) and kind.endswith(_OF_TOOLS):
        return True
    return (
        fields.get("role") is not None
        and isinstance(content, list)
        and any(map(_uses_tools, cast("list[JSON]", content)))
    )


def defers_tools(fields: Fields, most_tools: int | None) -> bool:
    """Whether a request has more tools than `most_tools`, of which its model reads the definitions."""
    tools = fields.get("tools")
    return most_tools is not None and isinstance(tools, list) and len(cast("list[JSON]", tools)) > most_tools


def checked_fields(fields: Fields, wire: WireFormat, bounds: Bounds) -> WireRequest:
    """The fields of a relayed request that the gateway reads. The upstream checks the others. Raises Failure,
    FormatError."""
    name = _MESSAGES[wire.name]
    messages_field = fields.get(name)
    if isinstance(messages_field, list):
        messages = cast("list[JSON]", messages_field)
        if len(messages) > bounds.messages:
            raise Failure(
                413, f"{name}: {len(messages)} are more than {bounds.messages}; send fewer", "request_too_large"
            )
        for i, message in enumerate(messages):
            item = require_object(message, f"{name}[{i}]")
            if wire.name != OPENAI_RESPONSES.name:
                require_name(item.get("role"), f"{name}[{i}].role")
    elif wire.name != OPENAI_RESPONSES.name or not isinstance(messages_field, str):
        raise invalid_field(name, "a list of messages", messages_field)
    stream = fields.get("stream")
    optional_flag(stream, "stream")
    options = fields.get("stream_options")
    usage = cast("Fields", options).get("include_usage") if isinstance(options, Mapping) else None
    usage_is_wanted = wire.name != OPENAI_CHAT.name or not stream or usage is True
    return WireRequest(ModelRequest(()), cast("str", fields["model"]), stream is True, usage_is_wanted)


def passing_headers(headers: Sequence[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """The headers of a client that its upstream reads."""
    return {name.decode(): value.decode() for name, value in headers if name in _PASSING_HEADERS and value.isascii()}


# --- options: from the words of one API to those of another (the API references, as in wire/) ---------------------

_SHARED_OPTIONS = ("temperature", "top_p", "top_k", "stop", "seed", "presence_penalty", "frequency_penalty")

_WORDS: Mapping[str, Mapping[str, str]] = {
    "openai-chat": {
        "max_tokens": "max_tokens",
        "max_completion_tokens": "max_tokens",
        **{name: name for name in _SHARED_OPTIONS},
    },
    "openai-responses": {"max_output_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p"},
    "anthropic": {
        "max_tokens": "max_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "stop_sequences": "stop",
    },
    "gemini": {
        "maxOutputTokens": "max_tokens",
        "temperature": "temperature",
        "topP": "top_p",
        "topK": "top_k",
        "stopSequences": "stop",
        "seed": "seed",
        "presencePenalty": "presence_penalty",
        "frequencyPenalty": "frequency_penalty",
    },
    "ollama": {"num_predict": "max_tokens", **{name: name for name in _SHARED_OPTIONS}},
}
"""Each API's fields, with the word that they have in common."""

_REFUSED_OPTIONS = {"anthropic": ("temperature", "top_p", "top_k")}
"""What an API answers 400 to (docs/reference/models.md): left out when it comes from another API's request."""


def translate_options(options: Mapping[str, JSON], client_format: str, upstream: str) -> Mapping[str, JSON]:
    """The options of a client's request, for a request in the format `upstream`.

    Within one format all options pass. Between two formats only the options that both have pass: an API refuses fields
    that it does not know.
    """
    if client_format == upstream:
        return options
    words: dict[str, str] = {}
    for field, word in _WORDS[upstream].items():
        words.setdefault(word, field)
    out: dict[str, JSON] = {}
    for field, value in options.items():
        word = _WORDS[client_format].get(field)
        if word is None or word not in words or word in _REFUSED_OPTIONS.get(upstream, ()):
            continue
        out[words[word]] = [value] if word == "stop" and isinstance(value, str) else value
    effort = _effort(options, client_format)
    if effort is not None and upstream == "openai-chat":
        out["reasoning_effort"] = effort
    elif effort is not None and upstream == "openai-responses":
        out["reasoning"] = {"effort": effort}
    return out


def _effort(options: Mapping[str, JSON], client_format: str) -> JSON:
    if client_format == "openai-chat":
        return options.get("reasoning_effort")
    reasoning = options.get("reasoning") if client_format == "openai-responses" else None
    return cast("Mapping[str, JSON]", reasoning).get("effort") if isinstance(reasoning, Mapping) else None


# --- lists of tools ----------------------------------------------------------------------------------------------

MOST_LISTS = 64
"""As many as dialects cache (`dialects.detection.detection_index.shared_readers`)."""

LARGEST_BYTES = 256 * 1024
"""Size of a list as JSON. A larger one is not cached, so that clients cannot fill the memory."""


class KnownTools:
    """Interns lists of tools. Each request brings its list again, and dialects cache prompts and parsers by the list
    object: a millisecond for each."""

    def __init__(self) -> None:
        self._lists_by_content: OrderedDict[bytes, Sequence[ToolSpec]] = OrderedDict()

    def intern(self, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """The first list of equal content, while it is cached."""
        if not tools:
            return tools
        try:
            content = to_json([(tool.name, tool.description, tool.parameters, tool.extra) for tool in tools])
        except (PydanticSerializationError, UnicodeEncodeError):  # a lone surrogate, which no JSON in UTF-8 can carry
            return tools
        same = self._lists_by_content.get(content)
        if same is not None:
            self._lists_by_content.move_to_end(content)
            return same
        if len(content) <= LARGEST_BYTES:
            self._lists_by_content[content] = tools
            if len(self._lists_by_content) > MOST_LISTS:
                self._lists_by_content.popitem(last=False)
        return tools
