"""Translates a conversation in the text of one dialect into the text of another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import get_args

from toolspeak.data.messages import (
    MalformedCall,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects.base import Dialect, Listing
from toolspeak.dialects.parser.parsed_turn import read_turn
from toolspeak.dialects.prompt import join_paragraphs
from toolspeak.dialects.prompts.result_reader import begins_as_results, read_results
from toolspeak.dialects.text.markers import MarkerTable

_LISTING = "## The tools you have"
_OWN = "oWnTeXt"
"""A placeholder for the agent's own text, which shows what a prompt writes around it."""


@quick()
class Translation:
    """A conversation in another dialect."""

    messages: tuple[TextMessage, ...]
    warnings: tuple[str, ...]
    """What could not be translated exactly. Each line names its message."""


def translate(
    messages: Sequence[TextMessage], source: Dialect, target: Dialect, tools: Sequence[ToolSpec] = ()
) -> Translation:
    """Translates calls, results and instructions from one dialect into another. Other text stays.

    Results keep their role. A result that is not in the source dialect's format becomes a result with that text.

    `tools`: the types of values that a dialect writes as text, and the tools that the instructions list.
    """
    reader = _Reader(source, target, tools)
    for i, message in enumerate(messages):
        reader.add(i, message)
    reader.flush()
    tool_role = any(message.role == "tool" for message in messages)
    messages_out = target.render(reader.messages, tools, tool_role=tool_role)
    if reader.listing is not None:
        leading = [*itertools.takewhile(lambda message: message.role == "system", messages_out)]
        prompt = target.prompt(join_paragraphs(*(message.text for message in leading)), tools, reader.listing)
        messages_out = prompt.before(messages_out[len(leading) :])
    return Translation(tuple(messages_out), tuple(reader.warnings))


class _Reader:
    """Reads a conversation message by message."""

    def __init__(self, source: Dialect, target: Dialect, tools: Sequence[ToolSpec]) -> None:
        self._source = source
        self._target = target
        self._tools = tools
        self._open_calls: list[ToolCall] = []  # calls without results
        self._tool_texts: list[tuple[int, str]] = []  # unread tool messages, each with its position
        self.listing: Listing | None = None  # the listing in the source's prompt, once that is recognised and removed
        self.messages: list[Message] = []
        self.warnings: list[str] = []

    def add(self, position: int, message: TextMessage) -> None:
        if message.role == "tool":
            self._tool_texts.append((position, message.text))
            return
        self.flush()
        match message.role:
            case "assistant":
                self._assistant(position, message.text)
            case "user":
                self._user(position, message.text)
            case role:
                self._system(position, role, message.text)

    def flush(self) -> None:
        """Reads the tool messages of a batch: one message with all results, or one message for each."""
        texts, open_calls = self._tool_texts, self._open_calls
        self._tool_texts = []
        if not texts:
            return
        self._open_calls = []
        each = len(texts) == len(open_calls)
        for i, (position, text) in enumerate(texts):
            calls = open_calls[i : i + 1] if each else open_calls if len(texts) == 1 else []
            reading = None
            for tool_role in (False, True):  # with the dialect's own frame, or without, if the chat template writes it
                if calls and (reading is None or reading[1].strip()):
                    reading = read_results(self._source, text, calls, self._tools, tool_role=tool_role)
            if reading is None or reading[1].strip():
                reading = self._as_text(position, text, calls), ""
            self._results(reading[0])

    def _as_text(self, position: int, text: str, calls: Sequence[ToolCall]) -> list[ToolResult]:
        self._warn(position, f"the results are not as {self._source.name} writes them; carried over as text")
        call = calls[0] if calls else ToolCall(f"message_{position}", "", {})
        return [ToolResult(call.id, call.name, "success", (TextPart(text),))]

    def _results(self, results: Sequence[ToolResult]) -> None:
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "tool":
            self.messages[-1] = Message("tool", (*last.parts, *results))
        else:
            self.messages.append(Message("tool", tuple(results)))

    def _assistant(self, position: int, text: str) -> None:
        turn = read_turn(self._source, text, self._tools, call_id=lambda index: f"call_{position}_{index}")
        self._open_calls = [call for call in turn.calls if isinstance(call, ToolCall)]
        for call in turn.calls:
            if isinstance(call, MalformedCall):
                self._warn(position, f"a call is malformed ({call.code}); its text stays as it is")
        if turn.ignored_calls:
            why = turn.ignored_calls[0].reason
            self._warn(position, f"calls that did not count are left out: {len(turn.ignored_calls)} ({why})")
        if turn.forged_results:
            self._warn(position, "results that the model wrote itself are left out")
        if not turn.calls and not turn.reasoning:
            self.messages.append(Message.assistant(text))
            return
        thought = self._thought(position, turn.reasoning)
        parts: list[Part] = [part for part in turn.message.parts if not isinstance(part, ReasoningPart)]
        self.messages.append(Message("assistant", (*thought, *parts)))

    def _thought(self, position: int, reasoning: str) -> tuple[TextPart, ...]:
        """The reasoning between the target's own markers."""
        if not reasoning.strip():
            return ()
        table = getattr(self._target, "table", None)
        markers = table.markers if isinstance(table, MarkerTable) else ()
        pairs = [(each.text + each.label, each.end) for each in markers if each.kind == "reasoning" and each.end]
        for start, end in (*pairs, ("<think>", "</think>")):
            block = f"{start}{reasoning}{end}\n"
            read = read_turn(self._target, block)
            if read.reasoning.strip() == reasoning.strip() and not read.text.strip():
                return (TextPart(block),)
        self._warn(position, f"{self._target.name} has no place for the reasoning; left out")
        return ()

    def _user(self, position: int, text: str) -> None:
        open_calls, self._open_calls = self._open_calls, []
        tools_text = self._source.prompt("", self._tools).user if self._tools else ""
        if tools_text and text.startswith(tools_text):
            self.listing, text = "trained", text.removeprefix(tools_text)
        reading = read_results(self._source, text, open_calls, self._tools)
        if reading is None and begins_as_results(self._source, text, open_calls, self._tools):
            reading = self._as_text(position, text, open_calls), ""
        if reading is not None:
            self._results(reading[0])
            text = reading[1].lstrip("\n")
        if text or reading is None:
            self.messages.append(Message.user(text))

    def _system(self, position: int, role: Role, text: str) -> None:
        for listing in get_args(Listing) if self._tools and self.listing is None else ():
            own = _own_text(self._source, text, self._tools, listing)
            if own is not None:
                self.listing = listing
                if own:
                    self.messages.append(Message(role, (TextPart(own),)))
                return
        # The section for `auto` comes last: another choice's section may begin with it.
        choices = [ToolChoice("specific", spec.name) for spec in self._tools]
        choices += [ToolChoice("required"), ToolChoice("none"), ToolChoice()]
        for choice, listing in itertools.product(choices, get_args(Listing)):
            section = self._source.instructions(self._tools, choice, listing)
            if section in text:
                text = text.replace(section, self._target.instructions(self._tools, choice, listing))
                break
        else:
            if _LISTING in text or _lists_as(self._source, text):
                self._warn(position, f"its instructions are not those of {self._source.name} for these tools; kept")
        self.messages.append(Message(role, (TextPart(text),)))

    def _warn(self, position: int, text: str) -> None:
        self.warnings.append(f"message {position}: {text}")


def _lists_as(source: Dialect, text: str) -> bool:
    """Whether a text lists tools of any name in the format of the source's template."""
    tool_text = source.instructions([ToolSpec(_OWN, _OWN, {"type": "object"})])
    start = tool_text.partition(_OWN)[0].rpartition("\n")[0]
    return len(start) > 32 and start in text


def _own_text(source: Dialect, text: str, tools: Sequence[ToolSpec], listing: Listing) -> str | None:
    """The agent's own part of a system message with this listing of the tools; None for another message."""
    if text in source.prompt("", tools, listing).system:
        return ""
    for section in source.prompt(_OWN, tools, listing).system:
        before, middle, after = section.partition(_OWN)
        if not middle and text == section:
            return ""
        if middle and before + after and text.startswith(before) and text.endswith(after):
            return text[len(before) : len(text) - len(after)]
    return None
