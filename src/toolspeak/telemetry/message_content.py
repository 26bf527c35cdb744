"""Messages and tools as the GenAI conventions write them in attributes: JSON, with secrets as placeholders.

Nothing of it leaves the process unless the user asks for content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence

from toolspeak.data.messages import (
    JSON,
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable with which OpenTelemetry's instrumentations are told to record content."""

_ON = ("true", "1", "span_only", "span_and_event")


def wants_content(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment asks for content on spans."""
    return (os.environ if environ is None else environ).get(CAPTURE, "").strip().lower() in _ON


def messages_json(messages: Iterable[Message], finish: str | None = None) -> str:
    """The messages as JSON. `finish`: why the model ended them, for its own turn."""
    return _json([_message(message, finish) for message in messages])


def system_json(text: str) -> str:
    """The system's instructions as JSON."""
    return _json([{"type": "text", "content": text}])


def tools_json(tools: Sequence[ToolSpec]) -> str:
    """The definitions of tools as JSON."""
    return _json(
        [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            }
            for tool in tools
        ]
    )


def arguments_json(arguments: Mapping[str, JSON]) -> str:
    """A call's arguments as JSON."""
    return _json(dict(arguments))


def result_json(result: ToolResult) -> str:
    """A call's result as JSON."""
    return _json([_part(part) for part in result.content])


def _message(message: Message, finish: str | None) -> dict[str, JSON]:
    message_json: dict[str, JSON] = {"role": message.role, "parts": [_part(part) for part in message.parts]}
    return message_json if finish is None else {**message_json, "finish_reason": finish}


def _part(part: Part) -> dict[str, JSON]:
    match part:
        case TextPart():
            return {"type": "text", "content": part.text}
        case ReasoningPart():
            return {"type": "reasoning", "content": part.text}
        case JsonPart():
            return {"type": "text", "content": _json(part.value)}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": dict(part.arguments)}
        case MalformedCall():
            return {"type": "tool_call", "id": part.id, "name": part.name or "", "arguments": part.raw}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call_id, "response": part.text}
        case ImagePart(url=str() as url):
            return {"type": "uri", "modality": "image", "mime_type": part.media_type, "uri": url}
        case ImagePart():  # its bytes are of no use in a trace
            return {"type": "blob", "modality": "image", "mime_type": part.media_type, "content": ""}
        case FilePart():
            return {"type": "blob", "modality": "document", "mime_type": part.media_type, "content": ""}


def _json(value: JSON) -> str:
    # Exporters send UTF-8, which has no lone surrogates.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
