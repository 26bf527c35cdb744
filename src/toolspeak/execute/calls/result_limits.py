"""Results within the size that a model may be shown, and without secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, cast

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.data.values import quick
from toolspeak.errors import AgentStop, ConfigurationError, ToolError
from toolspeak.execute.calls.secrets import Secrets
from toolspeak.tools.crashes import log_crash
from toolspeak.tools.returned_values import ReturnValue, to_content
from toolspeak.tools.stored_results import keep

_LOG = logging.getLogger("toolspeak.execute")
_LEFT_OUT = "\n[… {count} bytes left out here. {how}]\n"
_SHORT_JSON_NOTE = "[Shortened: {count} of {total} bytes of JSON are left out, where it says so. {how}]"
_ASK_AGAIN = (
    "To see more, call the tool again for a part of it (with its paging or range arguments, if it has them) "
    "or ask for less."
)
_PAGE = "All of it: call read_result with handle={handle}."
_TEXT = json.JSONEncoder(ensure_ascii=False).encode
_LEAST = 8  # characters of a text; below that nothing of the value could be recognised


@quick()
class ResultCap:
    """How much of a result the model gets. Raises ConfigurationError for a size that is not a number from 0 up.

    - `max_bytes`: of text and JSON, in UTF-8 bytes.
    - `pages`: whether the whole of a longer result is kept in the run's memory, for the tool `read_result`.
    """

    max_bytes: int
    pages: bool = False

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.max_bytes), int) or self.max_bytes < 0:
            problem = "expected a number of bytes from 0 up, such as 16384"
            raise ConfigurationError(f"max_result_bytes={self.max_bytes!r}: {problem}")


def result_of_value(call: ToolCall, value: Any, secrets: Secrets) -> ToolResult:
    """Returns the result of a call whose tool returned `value`: whole, and without secrets.

    It is a success whatever the value is, for the call ran. If the value cannot be shown, the result says so.
    """
    try:
        content, structured_content = ((TextPart(value),), None) if type(value) is str else to_content(value)
        result = ToolResult(call.id, call.name, "success", content, structured=structured_content)
        if type(value) is ReturnValue:
            result = replace(result, extra=value.extra)
        return hide_secrets(result, secrets) if secrets.has_values else result
    except Exception as error:  # noqa: BLE001 - a value's own conversion may raise anything
        log_crash(_LOG, f"what the tool {call.name} returned cannot be shown", error, secrets.hide_text)
        note = TextPart(secrets.hide_text(_unshowable(error)))
        return ToolResult(call.id, call.name, "success", (note,))


def stopped_result(call: ToolCall, stop: AgentStop) -> ToolResult:
    """Returns the result of the call that stopped the run: a success."""
    return ToolResult(call.id, call.name, "success", (TextPart(str(stop) or "the run stops here"),))


def _unshowable(error: Exception) -> str:
    return f"[The call ran, but what it returned cannot be shown: {describe(error)}]"


def describe(error: BaseException) -> str:
    """An exception as the model reads it: the message of a ToolError, any other with its type in front."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not cost the call its result
        message = ""
    if not message:
        return type(error).__name__
    return message if isinstance(error, ToolError) else f"{type(error).__name__}: {message}"


def finish_result(
    result: ToolResult, secrets: Secrets, cap: ResultCap, memory: dict[str, Any]
) -> tuple[ToolResult, ToolResult | None]:
    """Returns the result as it is recorded, and the whole of it if that is longer.

    Secrets are hidden first, for a cut could halve one; then the result is cut to the cap.
    """
    try:
        whole = hide_secrets(result, secrets) if secrets.has_values else result
        text = whole.content[0] if len(whole.content) == 1 and whole.structured is None else None
        if type(text) is TextPart and 4 * len(text.text) <= cap.max_bytes:  # as most results
            return whole, None
        capped_result = cap_result(whole, cap, memory)
        return capped_result, None if capped_result is whole else whole
    except Exception as error:  # noqa: BLE001 - JSON made by hand may be too deep, or none at all
        note = TextPart(secrets.hide_text(_unshowable(error)))
        return replace(result, content=(note,), structured=None), None


def cap_result(result: ToolResult, cap: ResultCap, memory: dict[str, Any]) -> ToolResult:
    """Returns the result within the cap.

    A text that is too long keeps its head and its tail; a line between them says how many bytes are left out. JSON that
    is too long stays JSON, with its longest parts shortened and a note after it; it becomes text if that is not
    enough. Images and files stay as they are.

    - `extra["truncated_bytes"]`: the number of bytes left out.
    - `extra["handle"]`: the handle by which `read_result` finds the whole, if it is kept.
    - `structured` is dropped if the content is cut, or if it is itself too long.
    """
    if len(result.content) == 1 and _surely_fits(part := result.content[0], cap.max_bytes):
        same = isinstance(part, JsonPart) and part.value is result.structured
        return result if same or result.structured is None else _cap_structured(result, cap)
    whole = sum(len(_bytes_of(part)) for part in result.content)
    if whole <= cap.max_bytes:
        return _cap_structured(result, cap)
    how, extra = _ASK_AGAIN, {**result.extra}
    handle = keep(memory, result.call_id, _whole_text(result.content)) if cap.pages else None
    if handle is not None:
        how, extra["handle"] = _PAGE.format(handle=json_text(handle)), handle
    short_json = _shorten(result.content, whole, cap.max_bytes, how)
    parts, left_out = cap_parts(result.content, cap.max_bytes, how) if short_json is None else short_json
    return replace(result, content=parts, structured=None, extra={**extra, "truncated_bytes": left_out})


def _surely_fits(part: ContentPart, max_bytes: int) -> bool:
    """Whether the part is within the limit for certain, without encoding it."""
    if type(part) is TextPart:
        return 4 * len(part.text) <= max_bytes
    if type(part) is not JsonPart or max_bytes < 32:
        return False
    value: object = part.value
    if isinstance(value, str):
        return 6 * len(value) + 2 <= max_bytes  # JSON escapes one character with six
    return value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() < 64)


def _cap_structured(result: ToolResult, cap: ResultCap) -> ToolResult:
    if result.structured is None or _already_measured(result):
        return result
    size = len(_encode(json_text(result.structured)))
    if size <= cap.max_bytes:
        return result
    return replace(result, structured=None, extra={**result.extra, "structured_bytes": size})


def _shorten(
    parts: Sequence[ContentPart], whole: int, max_bytes: int, how: str
) -> tuple[tuple[ContentPart, ...], int] | None:
    """Shortens a JSON result. Returns the parts, with a note after them, and the number of bytes left out."""
    if not parts or not isinstance(parts[0], JsonPart) or not all(isinstance(part, TextPart) for part in parts[1:]):
        return None
    own = sum(len(_bytes_of(part)) for part in parts[1:])
    whole -= own
    note = _SHORT_JSON_NOTE.format(count=whole, total=whole, how=how)
    short = shorten_json(parts[0].value, max_bytes - own - len(_encode(note)))
    if short is None:
        return None
    left_out = whole - len(_encode(json_text(short)))
    note = _SHORT_JSON_NOTE.format(count=left_out, total=whole, how=how)
    return (replace(parts[0], value=short), *parts[1:], TextPart(note)), left_out


def _whole_text(parts: Sequence[ContentPart]) -> str:
    """The text that `read_result` pages through."""
    return "\n".join(_decode(data) for part in parts if (data := _bytes_of(part)))


def cap_text(text: str, max_bytes: int) -> str:
    """The text with its middle left out when it is longer than `max_bytes` (UTF-8 bytes)."""
    parts, _ = cap_parts((TextPart(text),), max_bytes)
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def cap_parts(
    parts: Sequence[ContentPart], max_bytes: int, how: str = _ASK_AGAIN
) -> tuple[tuple[ContentPart, ...], int]:
    """Returns the parts within `max_bytes`, and the number of bytes left out; 0 if none are.

    The line that reports the cut counts too. It is there even if `max_bytes` is too small for it.
    """
    encodings = [_bytes_of(part) for part in parts]
    total = sum(map(len, encodings))
    if total <= max_bytes:
        return tuple(parts), 0
    budget = max(0, max_bytes - len(_encode(_LEFT_OUT.format(count=total, how=how))))
    head_end, tail_start = budget - budget // 2, total - budget // 2

    cuts: list[tuple[int, int]] = []  # per part: the bytes before the first and from the second are kept
    start = 0
    for data in encodings:
        head = _character_before(data, head_end - start)
        cuts.append((head, max(head, _character_after(data, tail_start - start))))
        start += len(data)
    left_out = sum(tail - head for head, tail in cuts)

    capped_parts: list[ContentPart] = []
    marker = _LEFT_OUT.format(count=left_out, how=how)
    for part, data, (head, tail) in zip(parts, encodings, cuts, strict=True):
        if head == tail:
            capped_parts.append(part)
            continue
        text = _decode(data[:head]) + marker + _decode(data[tail:])
        marker = ""
        if text:
            capped_parts.append(TextPart(text, part.opaque, part.extra))
    return tuple(capped_parts), left_out


def hide_secrets(result: ToolResult, secrets: Secrets) -> ToolResult:
    """Returns the result with placeholders for secrets in its text, JSON, names and text files."""
    if not secrets.has_values:
        return result
    content = tuple(hide_part(part, secrets) for part in result.content)
    return replace(
        result,
        call_id=secrets.hide_name(result.call_id),
        name=secrets.hide_name(result.name),
        content=content,
        structured=secrets.hide(result.structured),
        extra=secrets.hide(result.extra),
    )


def hide_part(part: ContentPart, secrets: Secrets) -> ContentPart:
    match part:
        case TextPart():
            return replace(part, text=secrets.hide_text(part.text))
        case JsonPart():
            return replace(part, value=secrets.hide(part.value))
        case ImagePart():
            return replace(part, url=secrets.hide(part.url))
        case FilePart():
            return replace(part, name=secrets.hide_text(part.name), data=secrets.hide_bytes(part.data))


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


def json_text(value: JSON) -> str:
    """The JSON text whose bytes are counted."""
    return _TEXT(value)


def shorten_json(value: JSON, max_bytes: int) -> JSON | None:
    """Returns the value in at most `max_bytes` of JSON text (UTF-8), None if that is not possible.

    Long arrays and objects keep their beginning (arrays their end too), long texts their beginning and end, each with a
    text that counts what is missing. All of them get the same room, less and less of it until the value fits.
    """
    room = max_bytes
    while room >= _LEAST:
        short = _shorten_value(value, room)
        if len(json_text(short).encode("utf-8", "surrogatepass")) <= max_bytes:
            return short
        room = room * 2 // 3
    return None


def _shorten_value(value: JSON, room: int) -> JSON:
    if isinstance(value, str):
        return _shorten_text(value, room)
    members = max(2, room // 4)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, JSON]", value)
        short = {key: _shorten_value(entries[key], room) for key in islice(entries, members)}
        if len(entries) > members:
            short["…"] = f"{len(entries) - members} more members left out"
        return short
    if isinstance(value, list | tuple):
        items = cast("list[JSON]", value)
        if len(items) <= members:
            return [_shorten_value(item, room) for item in items]
        head, tail = (members + 1) // 2, members // 2
        return [
            *(_shorten_value(item, room) for item in items[:head]),
            f"… {len(items) - members} items left out …",
            *(_shorten_value(item, room) for item in items[-tail:]),
        ]
    return value


def _shorten_text(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    half = room // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"
