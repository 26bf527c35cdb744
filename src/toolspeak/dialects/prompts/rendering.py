"""What the histories of all dialects share: messages, the calls of a turn, and thoughts of earlier turns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolspeak.data.messages import JSON, MalformedCall, Message, ReasoningPart, TextMessage, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import changed
from toolspeak.dialects.base import EarlierThoughts, History
from toolspeak.dialects.grammar.schema_rules import merged
from toolspeak.dialects.prompts.marker_escaping import character_reference
from toolspeak.dialects.text.typed_text import as_mapping, resolve, schema_types

IN_TEXT = ("no_start", "quoted_call")
"""The codes of malformed calls that are reported to the model and stay in the turn's text."""

_DEEPEST = 64
"""Levels of an argument whose objects are put in order."""
_MAX_REFERENCES = 8
"""`$ref`s in a row that are followed."""
_SIMPLE = (str, int, float, type(None))


# --- messages --------------------------------------------------------------------------------------------------------


def append_message(messages: list[TextMessage], message: TextMessage) -> None:
    """Appends a message. Joins neighbouring user messages, and leaves out an assistant message without text.

    Many chat templates insist on turns that alternate, and many servers refuse an assistant message without text (a
    turn that was reasoning alone).
    """
    if message.role == "assistant" and not message.text:
        return
    if message.role == "user" and messages and messages[-1].role == "user":
        messages[-1] = TextMessage("user", f"{messages[-1].text}\n\n{message.text}")
    else:
        messages.append(message)


def render_all(history: History, messages: Sequence[Message]) -> list[TextMessage]:
    """All messages of a history after these have been added."""
    for message in messages:
        history.add(message)
    return history.messages


def join_block(text: str, block: str) -> str:
    """A block behind text, on a line of its own."""
    return f"{text}\n{block}" if text and not text.endswith("\n") else text + block


def marked(call: MalformedCall, start: str, end: str) -> str:
    """A malformed call as the model wrote it, between its markers; they are in its text if it stood in no section."""
    return call.raw if call.raw.lstrip().startswith("<") else f"{start}{call.raw}{end}"


class AssistantTurns:
    """Adds the turns of the model to `messages`, with the thoughts that its chat template shows it again.

    Where thoughts are shown for one run (`EarlierThoughts.keep`), the next user message removes those before it. Until
    then messages are only appended, so that a server's prompt cache holds. In thoughts the first character of each
    `live` marker becomes a character reference.
    """

    def __init__(self, messages: list[TextMessage], earlier: EarlierThoughts | None, live: re.Pattern[str]) -> None:
        self._messages = messages
        self._earlier = earlier
        self._live = live
        self._thoughtful: list[tuple[int, str]] = []  # this run's turns with thoughts: position, text without thoughts

    def add(self, message: Message, text: str) -> None:
        """Adds a turn of the model; `text` is the turn without its thoughts."""
        earlier, thought = self._earlier, ""
        if earlier is not None and (message.calls or not earlier.calls_only):
            thought = "\n".join(part.text for part in message.parts if isinstance(part, ReasoningPart)).strip()
        if earlier is None or not thought or (earlier.keep == "run" and not text):
            append_message(self._messages, TextMessage("assistant", text))
            return
        if earlier.keep == "run":
            self._thoughtful.append((len(self._messages), text))
        escaped = self._live.sub(lambda char: character_reference(char[0]), thought)
        append_message(self._messages, TextMessage("assistant", f"{earlier.opening}{escaped}{earlier.closing}{text}"))

    def end_run(self) -> None:
        """Removes the thoughts of the run that ends: a user message comes."""
        for at, text in self._thoughtful:
            self._messages[at] = TextMessage("assistant", text)
        self._thoughtful.clear()


# --- the calls of a turn ---------------------------------------------------------------------------------------------


def calls_to_write(
    calls: Sequence[ToolCall | MalformedCall], tools: Mapping[str, ToolSpec]
) -> list[ToolCall | MalformedCall]:
    """The calls of a turn that its text does not hold already, each with its arguments in the schema's order.

    That order is the only one that a grammar takes. In each object the properties that its schema does not name follow
    the others, in the order of the call. A call of an unknown tool stays as it is.
    """
    result: list[ToolCall | MalformedCall] = []
    for call in calls:
        if isinstance(call, MalformedCall):
            if call.raw or call.code not in IN_TEXT:
                result.append(call)
            continue
        spec = tools.get(call.name)
        if spec is not None:
            ordered = _ordered(call.arguments, spec.parameters, spec.parameters, 0)
            call = call if ordered is call.arguments else changed(call, arguments=ordered)
        result.append(call)
    return result


def _ordered(value: JSON, schema: JSON, root: Mapping[str, JSON], depth: int) -> JSON:
    """The value with the properties of its objects in order; the same object if nothing moves."""
    if isinstance(value, _SIMPLE) or depth > _DEEPEST:
        return value
    if isinstance(value, Mapping):
        entries = as_mapping(value)
        described = _object_schema(entries, schema, root)
        properties = as_mapping(described.get("properties"))
        named = [*properties, *(name for name in described.get("required", ()) if name not in properties)]
        order = [*(name for name in named if name in entries), *(name for name in entries if name not in named)]
        others: JSON = described.get("additionalProperties", True)
        moved = {name: _ordered(entries[name], properties.get(name, others), root, depth + 1) for name in order}
        same = order == list(entries) and all(moved[name] is entries[name] for name in order)
        return entries if same else moved
    described = _resolved(schema, root)
    fixed: Sequence[JSON] = described.get("prefixItems", ())
    items: JSON = described.get("items", True)
    listed = cast("Sequence[JSON]", value)
    each = [_ordered(item, fixed[i] if i < len(fixed) else items, root, depth + 1) for i, item in enumerate(listed)]
    return value if all(one is other for one, other in zip(each, listed, strict=True)) else each


def _object_schema(value: Mapping[str, JSON], schema: JSON, root: Mapping[str, JSON]) -> Mapping[str, Any]:
    """The schema of this object; of branches the first that names all its properties and requires no others."""
    mapping = _resolved(schema, root)
    for key in ("anyOf", "oneOf"):
        for branch in mapping.get(key) or ():
            candidate = _resolved(branch, root)
            whole = "object" in schema_types(candidate, root) and set(candidate.get("required", ())) <= set(value)
            named = set(value) <= set(as_mapping(candidate.get("properties"))) or candidate.get("additionalProperties")
            if whole and named:
                return candidate
    return mapping


def _resolved(schema: JSON, root: Mapping[str, JSON]) -> Mapping[str, Any]:
    """The schema without `$ref` and `allOf` at its top."""
    mapping = as_mapping(schema)
    if "allOf" not in mapping and "$ref" not in mapping:
        return mapping
    mapping = merged(mapping, root)
    for _ in range(_MAX_REFERENCES):
        if not isinstance(mapping.get("$ref"), str):
            break
        mapping = merged(as_mapping(resolve(mapping["$ref"], root)), root)
    return mapping
