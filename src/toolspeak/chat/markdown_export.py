"""A conversation as a Markdown file. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from toolspeak.data.messages import MalformedCall, Message, TextPart, ToolCall
from toolspeak.ui.format import printable, result_lines


def markdown_of(title: str, messages: Sequence[Message]) -> str:
    """The messages as Markdown, with calls and results as code."""
    return "\n".join(_blocks(title, messages)) + "\n"


def _blocks(title: str, messages: Sequence[Message]) -> Iterator[str]:
    yield f"# {' '.join(printable(title).split())}"
    for message in messages:
        if message.role in ("user", "assistant"):
            yield f"\n## {'You' if message.role == 'user' else 'Model'}"
        for part in message.parts:
            if isinstance(part, TextPart) and part.text.strip():
                yield f"\n{printable(part.text.strip())}"
            elif isinstance(part, ToolCall):
                arguments = json.dumps(part.arguments, ensure_ascii=False, indent=2)
                yield f"\nCall `{printable(part.name)}`:\n\n{_code(arguments, 'json')}"
            elif isinstance(part, MalformedCall):
                yield f"\nMalformed call:\n\n{_code(part.raw)}"
        for result in message.results:
            outcome = "Result" if result.status == "success" else f"Failure ({result.code})"
            yield f"\n{outcome} of `{printable(result.name)}`:\n\n{_code(chr(10).join(result_lines(result)))}"


def _code(text: str, language: str = "") -> str:
    """The text between fences that are longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{printable(text)}\n{fence}"
