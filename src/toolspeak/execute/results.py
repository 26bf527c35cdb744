"""Keeping a result within what a model can be shown, and free of secrets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
    TextPart,
    ToolCall,
    ToolResult,
    failure,
)
from toolspeak.errors import ToolError
from toolspeak.execute.secrets import Secrets
from toolspeak.tools.content import Unserialisable, to_content

_LEFT_OUT = (
    "\n[… {count} bytes left out here. To see more, call the tool again for a part of it "
    "(with its paging or range arguments, if it has them) or ask for less.]\n"
)


def result_of(call: ToolCall, value: Any, secrets: Secrets) -> ToolResult:
    """The result of a call whose tool returned `value`: whole, without secrets; a failure if it cannot be shown."""
    try:
        content, structured = to_content(value)
        return hide_secrets(ToolResult(call.id, call.name, "success", content, structured=structured), secrets)
    except Unserialisable as error:
        message = describe(error)
    except Exception as error:  # noqa: BLE001 - a value's own conversion may raise anything
        message = f"the tool's value cannot be shown: {describe(error)}"
    return failure(call, "unserialisable", secrets.hide_text(message))


def describe(error: BaseException) -> str:
    """An exception as a model reads it: a ToolError's message as it is, others with their type in front."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not cost the call its result
        message = ""
    if not message:
        return type(error).__name__
    return message if isinstance(error, ToolError) else f"{type(error).__name__}: {message}"


def finish_result(result: ToolResult, secrets: Secrets, max_bytes: int) -> ToolResult:
    """The result as it is recorded: without secrets, then within `max_bytes` (a cut could halve a secret)."""
    try:
        return cap_result(hide_secrets(result, secrets), max_bytes)
    except Exception as error:  # noqa: BLE001 - JSON made by hand may be too deep, or none at all
        message = f"the tool's value cannot be shown: {describe(error)}"
        content = (TextPart(secrets.hide_text(message)),)
        return ToolResult(result.call_id, result.name, "failure", content, "unserialisable")


def cap_result(result: ToolResult, max_bytes: int) -> ToolResult:
    """The result with at most `max_bytes` of text and JSON (UTF-8 bytes) in its content.

    What is too long keeps its head and its tail, with a line between them that says how many bytes are left
    out; JSON that is cut becomes text. `extra["truncated_bytes"]` holds that number, and `structured` is
    dropped then, or when it is itself longer. Images and files stay as they are.
    """
    parts, left_out = cap_parts(result.content, max_bytes)
    if left_out:
        extra = {**result.extra, "truncated_bytes": left_out}
        return replace(result, content=parts, structured=None, extra=extra)
    if result.structured is not None and not _already_measured(result):
        size = len(_encode(json_text(result.structured)))
        if size > max_bytes:
            return replace(result, structured=None, extra={**result.extra, "structured_bytes": size})
    return result


def cap_text(text: str, max_bytes: int) -> str:
    """The text with its middle left out when it is longer than `max_bytes` (UTF-8 bytes)."""
    parts, _ = cap_parts((TextPart(text),), max_bytes)
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def cap_parts(parts: Sequence[ContentPart], max_bytes: int) -> tuple[tuple[ContentPart, ...], int]:
    """The parts within `max_bytes`, and the number of bytes left out (0: nothing was changed).

    The line that tells of the cut counts too; it is there even when `max_bytes` is too small for it.
    """
    encoded = [_bytes_of(part) for part in parts]
    total = sum(map(len, encoded))
    if total <= max_bytes:
        return tuple(parts), 0
    budget = max(0, max_bytes - len(_encode(_LEFT_OUT.format(count=total))))
    head_end, tail_start = budget - budget // 2, total - budget // 2

    cuts: list[tuple[int, int]] = []  # per part: the bytes before the first and from the second are kept
    start = 0
    for data in encoded:
        head = _character_before(data, head_end - start)
        cuts.append((head, max(head, _character_after(data, tail_start - start))))
        start += len(data)
    left_out = sum(tail - head for head, tail in cuts)

    kept: list[ContentPart] = []
    marker = _LEFT_OUT.format(count=left_out)
    for part, data, (head, tail) in zip(parts, encoded, cuts, strict=True):
        if head == tail:
            kept.append(part)
            continue
        text = _decode(data[:head]) + marker + _decode(data[tail:])
        marker = ""
        if text:
            kept.append(TextPart(text, part.opaque, part.extra))
    return tuple(kept), left_out


def hide_secrets(result: ToolResult, secrets: Secrets) -> ToolResult:
    """The result with placeholders for secrets in its text, JSON and names; bytes are not searched."""
    if not secrets:
        return result
    content = tuple(_hide_part(part, secrets) for part in result.content)
    return replace(
        result, content=content, structured=secrets.hide(result.structured), extra=secrets.hide(result.extra)
    )


def json_text(value: JSON) -> str:
    """A JSON value as the text whose bytes are counted."""
    return json.dumps(value, ensure_ascii=False)


def _hide_part(part: ContentPart, secrets: Secrets) -> ContentPart:
    match part:
        case TextPart():
            return replace(part, text=secrets.hide_text(part.text))
        case JsonPart():
            return replace(part, value=secrets.hide(part.value))
        case ImagePart():
            return replace(part, url=secrets.hide(part.url))
        case FilePart():
            return replace(part, name=secrets.hide_text(part.name))


def _already_measured(result: ToolResult) -> bool:
    return any(isinstance(part, JsonPart) and part.value is result.structured for part in result.content)


def _bytes_of(part: ContentPart) -> bytes:
    if isinstance(part, TextPart):
        return _encode(part.text)
    return _encode(json_text(part.value)) if isinstance(part, JsonPart) else b""


def _encode(text: str) -> bytes:
    # Lone surrogates are legal in JSON strings and must not make a result fail.
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _character_before(data: bytes, position: int) -> int:
    """The start of the character at `position`, kept within the data."""
    position = min(max(position, 0), len(data))
    while 0 < position < len(data) and data[position] & 0xC0 == 0x80:
        position -= 1
    return position


def _character_after(data: bytes, position: int) -> int:
    """The first character that starts at `position` or later, kept within the data."""
    position = min(max(position, 0), len(data))
    while position < len(data) and data[position] & 0xC0 == 0x80:
        position += 1
    return position
