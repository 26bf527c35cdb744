"""What every text dialect's renderer shares: JSON text without live markers, and the shape of results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from toolspeak.data.messages import (
    JSON,
    ContentPart,
    FilePart,
    ImagePart,
    JsonPart,
    MalformedCall,
    Message,
    TextMessage,
    TextPart,
    ToolCall,
    ToolResult,
)
from toolspeak.dialects.base import History

IN_TEXT = ("no_start", "quoted_call")
"""The codes of malformed calls that are told of and stand in the text."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def marker_prefix(names: Iterable[str]) -> re.Pattern[str]:
    """The '<' of every live marker, start or end, in any case; the markers are elements of these names."""
    # Possessive, and one place for each white space: else a long run of it would be tried in every division.
    return re.compile(rf"<(?=\s*+(?:/\s*+)?(?ai:{'|'.join(map(re.escape, names))}))")


def dump_json(value: JSON, markers: re.Pattern[str]) -> str:
    r"""JSON in which no live marker stands: its first character is escaped (`\u003c`). Lone surrogates are escaped too,
    because no request body can carry them."""
    text = json.dumps(value, ensure_ascii=False)
    text = markers.sub(_json_escape, text)
    return _SURROGATE.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def escape_text(text: str, markers: re.Pattern[str]) -> str:
    """Plain text in which no live marker stands: its '<' is written `&lt;` (any other first character `&#…;`).

    An `&` that already begins such an escape gets one `amp;` more, so that `unescape_text` restores every text.
    """
    _, entity, tail = _parts(markers)
    ampersand = re.compile(rf"&(?=(?:amp;)*{entity};{tail})", re.IGNORECASE)
    return markers.sub(f"&{entity};", ampersand.sub("&amp;", text))


def unescape_text(text: str, markers: re.Pattern[str]) -> str:
    """Reverses `escape_text`."""
    char, entity, tail = _parts(markers)
    text = re.sub(rf"&{entity};(?={tail})", char, text, flags=re.IGNORECASE)
    return re.sub(rf"&amp;(?=(?:amp;)*{entity};{tail})", "&", text, flags=re.IGNORECASE)


def _parts(markers: re.Pattern[str]) -> tuple[str, str, str]:
    """Of a pattern `X(?=tail)`: the character X, the name of its entity, and the tail."""
    first, _, tail = markers.pattern.partition("(?=")
    char = first.removeprefix("\\")
    return char, "lt" if char == "<" else f"#{ord(char)}", tail.removesuffix(")")


ERROR = "ERROR: "


def result_text(result: ToolResult, live: re.Pattern[str]) -> str:
    """A result as plain text: text as it is, other values as JSON, a failure behind `ERROR: `; no live marker in it."""
    value = result_value(result)
    text = escape_text(value, live) if isinstance(value, str) else dump_json(value, live)
    return ERROR + text if result.status == "failure" else text


def result_value(result: ToolResult) -> JSON:
    """A result's content as one JSON value: text as a string, JSON as it is, several parts as an array.
    Images and files, which text cannot carry, are described."""
    values = [_part_value(part) for part in result.content]
    return values[0] if len(values) == 1 else (values or None)


def _part_value(part: ContentPart) -> JSON:
    match part:
        case TextPart(text):
            return text
        case JsonPart(value):
            return value
        case ImagePart(media_type, data, url):
            return {"type": "image", "media_type": media_type, **({"url": url} if url else {"bytes": len(data or b"")})}
        case FilePart(name, media_type, data):
            return {"type": "file", "name": name, "media_type": media_type, "bytes": len(data)}


def append_message(messages: list[TextMessage], message: TextMessage) -> None:
    """Appends, joining neighbouring user messages: many chat templates insist on turns that alternate, and many
    servers refuse an assistant message without text (a turn that was reasoning alone)."""
    if message.role == "assistant" and not message.text:
        return
    if message.role == "user" and messages and messages[-1].role == "user":
        messages[-1] = TextMessage("user", f"{messages[-1].text}\n\n{message.text}")
    else:
        messages.append(message)


def render_all(history: History, messages: Sequence[Message]) -> list[TextMessage]:
    for message in messages:
        history.add(message)
    return history.messages


def outside_text(calls: Sequence[ToolCall | MalformedCall]) -> list[ToolCall | MalformedCall]:
    """The calls without those that stand in the text of their turn already."""
    return [call for call in calls if isinstance(call, ToolCall) or call.raw or call.code not in IN_TEXT]


def join_block(text: str, block: str) -> str:
    """A block behind text, on a line of its own."""
    return f"{text}\n{block}" if text and not text.endswith("\n") else text + block


def marked(call: MalformedCall, start: str, end: str) -> str:
    """A malformed call as it was written, in its markers, which are not in its text where it stood in no section."""
    return call.raw if call.raw.lstrip().startswith("<") else f"{start}{call.raw}{end}"
