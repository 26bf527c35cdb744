"""Results of calls and of agents' runs as the protocol's results."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

from mcp import types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolspeak.agent import RunResult
from toolspeak.data.messages import ContentPart, FilePart, ImagePart, JsonPart, TextPart, ToolResult
from toolspeak.tools.returned_values import Unserialisable, jsonable


def answer_of_call(run: RunResult[Any], version: str) -> types.CallToolResult:
    """The result of the call of a run that is one call, for a client of this protocol version."""
    results = [part for message in run.messages for part in message.parts if isinstance(part, ToolResult)]
    if not results:
        return refusal(run.error or f"the call has no result: its run is {run.status.replace('_', ' ')}")
    result = results[-1]
    values = [part.value for part in result.content if isinstance(part, JsonPart)]
    value: Any = result.structured if result.structured is not None else values[0] if len(values) == 1 else None
    return types.CallToolResult(
        content=[_block(part) for part in result.content],
        structured_content=_structured_content(value, version),
        is_error=result.status != "success",
    )


def answer_of_agent(run: RunResult[Any], version: str) -> types.CallToolResult:
    """The answer of an agent's run, for a client of this protocol version."""
    if run.status != "answered":
        return refusal(run.error or f"the agent gave no answer: its run {run.run_id} is {run.status.replace('_', ' ')}")
    try:
        value: Any = None if run.output is None else jsonable(run.output)
    except Unserialisable:
        value = None
    return types.CallToolResult(
        content=[types.TextContent(text=run.answer)], structured_content=_structured_content(value, version)
    )


def refusal(text: str) -> types.CallToolResult:
    """The result of a call that did not succeed."""
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _structured_content(value: Any, version: str) -> Any:
    """The value where this version has a place for it: older ones have one for objects only."""
    if value is None or isinstance(value, Mapping):
        return None if value is None else dict(cast("Mapping[str, Any]", value))
    return value if version in MODERN_PROTOCOL_VERSIONS else {"result": value}


def _block(part: ContentPart) -> types.ContentBlock:
    match part:
        case TextPart():
            return types.TextContent(text=part.text)
        case JsonPart():
            return types.TextContent(text=json.dumps(part.value, ensure_ascii=False))
        case ImagePart():
            if part.data is None:
                return types.ResourceLink(name="image", uri=part.url or "", mime_type=part.media_type)
            return types.ImageContent(data=_base64(part.data), mime_type=part.media_type)
        case FilePart() if part.media_type.startswith("audio/"):
            return types.AudioContent(data=_base64(part.data), mime_type=part.media_type)
        case FilePart():
            uri = f"file:///{quote(part.name)}"
            contents = types.BlobResourceContents(uri=uri, mime_type=part.media_type, blob=_base64(part.data))
            return types.EmbeddedResource(resource=contents)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
