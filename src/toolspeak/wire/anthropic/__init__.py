"""Anthropic's Messages API, both roles. Sans-IO.

Source: Anthropic's API reference, "Messages" (API version 2026-10-21), and the types of its Python SDK 2.12.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

from toolspeak.data.deltas import Delta
from toolspeak.data.messages import JSON, ToolChoice
from toolspeak.data.tools import ToolSpec
from toolspeak.errors import FormatError, UsageError
from toolspeak.wire.anthropic.request_writer import (
    NAME,
    Block,
    HistoryReader,
    encode_history,
    mark_cached,
    split_system,
)
from toolspeak.wire.anthropic.response_reader import AnthropicDecoder, read_message
from toolspeak.wire.anthropic.response_writer import AnthropicEncoder, error_body, write_message
from toolspeak.wire.asked import asked_flag, asked_list, asked_name, asked_object, asked_text
from toolspeak.wire.base import ModelRequest, OutputSchema, WireRequest
from toolspeak.wire.checks import check_request
from toolspeak.wire.reading import without_lone_surrogates
from toolspeak.wire.strict_schema import anthropic_form, is_closed

MAX_TOKENS = 32_000
"""`max_tokens`, which the API insists on, where the options give none: what every model of 2025 and later may write
at most or more (Anthropic, "Models overview": 32,000 for Opus 4.1, 64,000 for the 4.5 models, 128,000 since)."""

OUTPUT_NAME = "output"
"""The name of an output schema that a client asks for: the API has none."""

_OWN_FIELDS = ("model", "messages", "system", "tool_choice", "stream")
_TOOL_FIELDS = ("strict", "input_examples", "eager_input_streaming", "defer_loading", "allowed_callers")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CHOICES = {"auto": "auto", "required": "any", "none": "none", "specific": "tool"}


class AnthropicFormat:
    """`POST /v1/messages`; a `WireFormat`."""

    @property
    def name(self) -> str:
        return NAME

    def encode_request(self, request: ModelRequest, *, model: str, stream: bool) -> dict[str, JSON]:
        """See `WireFormat`. `Earlier` changes nothing: this API keeps no conversation. The option `tools` holds tools
        that the API runs itself (`{"type": "web_search_20260209", "name": "web_search"}`) and comes behind the
        request's own."""
        check_request(request, _OWN_FIELDS, format_name=NAME)
        system, rest = split_system(request.messages)
        messages = encode_history(rest, model)
        tools = [_tool(spec) for spec in request.tools]
        if request.cache:
            mark_cached(system, tools, messages)
        body: dict[str, JSON] = {
            "model": model,
            "max_tokens": MAX_TOKENS,
            "system": system or None,
            "messages": messages,
            "tools": [*tools, *_api_tools(request)] or None,
            "tool_choice": _choice(request) if tools else None,
            "stream": stream,
        }
        body.update((name, value) for name, value in request.options.items() if name != "tools")
        # The API holds to every schema strictly: one that it cannot and need not is left out.
        if request.output is not None and (request.output.strict or is_closed(request.output.schema)):
            body["output_config"] = _output_config(request.output, body.get("output_config"))
        return {name: without_lone_surrogates(value) for name, value in body.items() if value is not None}

    def decode_response(self, body: JSON, *, model: str | None = None) -> list[Delta]:
        return read_message(body, model)

    def decoder(self, *, model: str | None = None) -> AnthropicDecoder:
        return AnthropicDecoder(model)

    def decode_request(self, body: JSON) -> WireRequest:
        fields = dict(asked_object(body, "the request"))
        model = asked_name(fields.pop("model", None), "model")
        if fields.pop("thread", None) is not None:
            # The package's tool runner asks for it by itself, and reads by these details that it has to do without.
            raise FormatError(
                "thread: conversations are not kept here: send the whole one in 'messages', without 'thread'",
                details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
            )
        reader = HistoryReader(model)
        messages = [*reader.system(fields.pop("system", None)), *reader.messages(fields.pop("messages", None))]
        tools = [_spec(reader.marked(tool), place) for tool, place in _listed(fields.pop("tools", None))]
        choice, parallel = _asked_choice(fields.pop("tool_choice", None), tools)
        stream = bool(asked_flag(fields.pop("stream", None), "stream"))
        reader.marked({"cache_control": fields.pop("cache_control", None)})
        output = _asked_output(fields)
        request = ModelRequest(messages, tools, choice, parallel, output, fields, reader.cached)
        return WireRequest(request, model, stream)

    def encode_response(
        self, deltas: Iterable[Delta], *, model: str, response_id: str, created: int, asked: WireRequest | None = None
    ) -> JSON:
        """See `WireFormat`. An answer of this API tells no time: `created` is not used."""
        return write_message(deltas, model=model, response_id=response_id)

    def encoder(self, asked: WireRequest, *, response_id: str, created: int) -> AnthropicEncoder:
        return AnthropicEncoder(asked.model, response_id)

    def encode_error(self, message: str, status: int) -> JSON:
        return error_body(message, status)


ANTHROPIC = AnthropicFormat()


# --- fields of a request, both ways ------------------------------------------------------------------------------


def _tool(spec: ToolSpec) -> Block:
    if not _TOOL_NAME.fullmatch(spec.name):
        raise UsageError(
            f"the tool {spec.name!r} cannot be sent to Anthropic's API: a name is 1 to 128 letters, digits, _ and -; "
            "rename it"
        )
    tool: Block = {"name": spec.name, "input_schema": {"type": "object", **spec.parameters}}
    if spec.description:
        tool["description"] = spec.description
    return {**tool, **{field: spec.extra[field] for field in _TOOL_FIELDS if field in spec.extra}}


def _api_tools(request: ModelRequest) -> list[JSON]:
    found = request.options.get("tools")
    tools = cast("list[JSON]", found) if isinstance(found, list | tuple) else []
    if found is not None and (found is not tools or not all(_is_api_tool(tool) for tool in tools)):
        raise UsageError(
            "the option 'tools' is a list of tools that the API runs itself ({'type': 'web_search_…', 'name': "
            "'web_search'}); tools of yours are the request's own"
        )
    return [*tools]


def _is_api_tool(tool: JSON) -> bool:
    return isinstance(tool, Mapping) and cast("Mapping[str, JSON]", tool).get("type") not in (None, "custom")


def _spec(tool: Block, place: str) -> ToolSpec:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise FormatError(
            f"{place}.type: {kind!r} is a tool of Anthropic's own, which nobody runs or knows here; leave it out, or "
            "send it as a tool of yours, with name, description and input_schema"
        )
    name = asked_name(tool.get("name"), f"{place}.name")
    schema = asked_object(tool.get("input_schema"), f"{place}.input_schema")
    description = asked_text(tool.get("description") or "", f"{place}.description")
    extra = {field: tool[field] for field in _TOOL_FIELDS if field in tool}
    return ToolSpec(name, description, schema, extra=extra) if extra else ToolSpec(name, description, schema)


def _listed(tools: JSON) -> list[tuple[Block, str]]:
    return [(asked_object(tool, f"tools[{i}]"), f"tools[{i}]") for i, tool in enumerate(asked_list(tools, "tools"))]


def _choice(request: ModelRequest) -> Block | None:
    choice: Block = {"type": _CHOICES[request.choice.mode]}
    if request.choice.mode == "specific":
        choice["name"] = request.choice.name
    if request.parallel is not None and request.choice.mode != "none":
        choice["disable_parallel_tool_use"] = not request.parallel
    return None if choice == {"type": "auto"} else choice


def _asked_choice(value: JSON, tools: list[ToolSpec]) -> tuple[ToolChoice, bool | None]:
    if value is None:
        return ToolChoice(), None
    choice = asked_object(value, "tool_choice")
    single = asked_flag(choice.get("disable_parallel_tool_use"), "tool_choice.disable_parallel_tool_use")
    parallel = None if single is None else not single
    match choice.get("type"):
        case "auto":
            return ToolChoice(), parallel
        case "any":
            return ToolChoice("required"), parallel
        case "none":
            return ToolChoice("none"), parallel
        case "tool":
            name = asked_name(choice.get("name"), "tool_choice.name")
            if all(spec.name != name for spec in tools):
                raise FormatError(f"tool_choice.name: {name!r} is none of the tools; name one of them")
            return ToolChoice("specific", name), parallel
        case _:
            raise FormatError("tool_choice.type: expected one of: auto, any, tool, none")


def _output_config(output: OutputSchema, given: JSON) -> Block:
    config = dict(cast("Mapping[str, JSON]", given)) if isinstance(given, Mapping) else {}
    if config.get("format") is not None:
        raise UsageError("the option 'output_config' cannot set a format: the request's own output goes there")
    schema = anthropic_form(output.schema)
    if output.description:
        schema.setdefault("description", output.description)
    return {**config, "format": {"type": "json_schema", "schema": schema}}


def _asked_output(fields: dict[str, JSON]) -> OutputSchema | None:
    """Takes the output's format out of the fields; what else is asked of the output stays there."""
    place = "output_config.format"
    config = dict(asked_object(fields.pop("output_config", None) or {}, "output_config"))
    value = config.pop("format", None)
    if config:
        fields["output_config"] = config
    if value is None:
        return None
    asked = asked_object(value, place)
    if asked.get("type") != "json_schema":
        raise FormatError(f"{place}.type: expected 'json_schema'")
    return OutputSchema(OUTPUT_NAME, asked_object(asked.get("schema"), f"{place}.schema"))
