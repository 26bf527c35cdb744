"""Repairs a conversation whose calls and results do not pair, so that every API takes it. Pure.

Clients break their histories: a user interrupts a call, a client cuts a conversation between a call and its result,
results come late or twice. APIs and many chat templates refuse such a conversation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from toolspeak.data.messages import (
    FilePart,
    ImagePart,
    MalformedCall,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
    failure,
)
from toolspeak.gateway.turns.turn_gate import Note, NoteCode
from toolspeak.wire.json_conversion import excerpt, text_of
from toolspeak.wire.openai_chat.common import NAME as OPENAI_CHAT

_NO_RESULT = "this call has no result in the conversation: it may have run or not"

_MOST_NAMES = 3
"""The most calls that a note names."""

_REPAIRS: Mapping[NoteCode, str] = {
    "call_without_result": "calls without a result got one that says that the outcome is unknown",
    "result_without_call": "results without a call became messages of the user",
    "result_moved": "results were moved after the turn with their call",
    "result_repeated": "further results of a call became messages of the user, unless they repeat the first one",
    "result_without_id": "results that name no call were given to the newest calls without a result",
    "call_id_repeated": "calls with the id of another call of their turn got a new id",
    "reasoning_left_out": "thoughts at the end of a turn were left out",
}


def repair_conversation(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Note]]:
    """The conversation with one result for each call, in the message after it, and a note for each kind of repair.

    A sound or repaired conversation comes back unchanged and without notes. Call ids are unique: the wire formats see
    to that. Linear in the length of the conversation. Of several results of a call the first stays: later turns rest on
    it, and the beginning of the prompt stays the same, as the server's cache needs.
    """
    repair = _ConversationRepair(messages)
    return repair.messages(), repair.notes()


class _ConversationRepair:
    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._turns = {call.id: at for at, message in enumerate(messages) for call in message.calls}
        self._results: dict[str, tuple[_PartPlace, ToolResult]] = {}
        self._asides: dict[int, list[Message]] = {}
        self._repairs: dict[NoteCode, list[str]] = {}
        self._match()

    def notes(self) -> list[Note]:
        notes: list[Note] = []
        for code, names in self._repairs.items():
            name_list = ", ".join(excerpt(name, 60) for name in list(dict.fromkeys(names))[:_MOST_NAMES])
            notes.append(Note(code, f"{_REPAIRS[code]}: {len(names)} ({name_list})"))
        return notes

    def messages(self) -> Sequence[Message]:
        repaired_messages: list[Message] = []
        results_at = -1
        for at, message in enumerate(self._messages):
            if at != results_at:
                rest = self._without_strays(message)
                if rest.parts or not message.parts:
                    repaired_messages.append(rest)
            if message.calls:
                if self._is_answered(at):
                    repaired_messages.append(self._messages[at + 1])
                    results_at = at + 1
                else:
                    repaired_messages.append(Message("tool", tuple(map(self._result, message.calls))))
            repaired_messages += self._asides.get(at, ())
        return repaired_messages if self._repairs else self._messages

    def _repair(self, code: NoteCode, name: str) -> None:
        self._repairs.setdefault(code, []).append(name or "no name")

    # --- which result is whose ---------------------------------------------------------------------------------

    def _match(self) -> None:
        for place, result in _results(self._messages):
            if result.call_id in self._turns:
                self._results.setdefault(result.call_id, (place, result))
        waiting, turn = _UnansweredCalls(()), -1
        for place, result in _results(self._messages):
            while turn < place[0]:
                turn += 1
                calls = self._messages[turn].calls
                if calls:
                    waiting = _UnansweredCalls([call for call in calls if call.id not in self._results])
            earlier = self._results.get(result.call_id)
            if earlier is None:
                self._take_in(place, result, waiting)
            elif earlier[0] != place:
                self._repair("result_repeated", result.name)
                if (result.content, result.status) != (earlier[1].content, earlier[1].status):
                    self._set_aside(place, result, "Another result of the call")
            elif place[0] != self._turns[result.call_id] + 1:
                self._repair("result_moved", result.name)

    def _take_in(self, place: _PartPlace, result: ToolResult, waiting: _UnansweredCalls) -> None:
        """Handles a result that names no call of the conversation."""
        call = None if result.call_id else waiting.take(result.name)
        if call is None:
            self._repair("result_without_call", result.name or result.call_id)
            self._set_aside(place, result, "The result of a call that is not in this conversation")
        else:
            self._repair("result_without_id", call.name or "")
            self._results[call.id] = (place, replace(result, call_id=call.id, name=call.name or ""))

    def _set_aside(self, place: _PartPlace, result: ToolResult, what: str) -> None:
        """Makes a message of the user from the result, after the message that holds it."""
        tool_phrase = " of " + result.name if result.name else ""
        introduction = f"{what}{tool_phrase}{' (it failed)' if result.status == 'failure' else ''}:"
        media: list[Part] = [part for part in result.content if isinstance(part, ImagePart | FilePart)]
        text = text_of([part for part in result.content if not isinstance(part, ImagePart | FilePart)])
        aside = Message("user", (TextPart(f"{introduction}\n{text}"), *media))
        self._asides.setdefault(place[0], []).append(aside)

    # --- what is written ---------------------------------------------------------------------------------------

    def _is_answered(self, turn: int) -> bool:
        """Whether the message after the turn holds the results of all its calls, and nothing else."""
        following = self._messages[turn + 1] if turn + 1 < len(self._messages) else None
        if following is None or len(following.parts) != len(self._messages[turn].calls):
            return False
        for n, part in enumerate(following.parts):
            if not isinstance(part, ToolResult) or self._turns.get(part.call_id) != turn:
                return False
            if self._results[part.call_id][0] != (turn + 1, n):
                return False
        return True

    def _result(self, call: ToolCall | MalformedCall) -> ToolResult:
        if call.id in self._results:
            return self._results[call.id][1]
        self._repair("call_without_result", call.name or "")
        if isinstance(call, MalformedCall):
            return failure(call, "malformed", call.reason)
        return failure(call, "unknown_outcome", _NO_RESULT)

    def _without_strays(self, message: Message) -> Message:
        """The message without results, without reasoning at its end, and with each call id once."""
        if message.role != "assistant":
            if not message.results:
                return message
            role = "user" if message.role == "tool" else message.role
            return replace(message, role=role, parts=tuple(p for p in message.parts if not isinstance(p, ToolResult)))
        parts = [part for part in message.parts if not isinstance(part, ToolResult)]
        while parts and _needs_a_follower(parts[-1]):
            parts.pop()
            self._repair("reasoning_left_out", "")
        ids: set[str] = set()
        for n, part in enumerate(parts):
            if isinstance(part, ToolCall) and part.provider_id is not None:
                if part.provider_id in ids:
                    self._repair("call_id_repeated", part.name)
                    parts[n] = replace(part, provider_id=None)
                ids.add(part.provider_id)
        return replace(message, parts=tuple(parts))


_PartPlace = tuple[int, int]
"""The place of a result: the number of its message, and its number among the parts."""


def _results(messages: Sequence[Message]) -> Iterator[tuple[_PartPlace, ToolResult]]:
    for at, message in enumerate(messages):
        for n, part in enumerate(message.parts):
            if isinstance(part, ToolResult):
                yield (at, n), part


class _UnansweredCalls:
    """The calls of one turn that have no result yet, in their order."""

    def __init__(self, calls: Sequence[ToolCall | MalformedCall]) -> None:
        self._calls = {call.id: call for call in calls}
        self._ids_by_name: dict[str, deque[str]] = {}
        for call in calls:
            self._ids_by_name.setdefault(call.name or "", deque()).append(call.id)

    def take(self, name: str) -> ToolCall | MalformedCall | None:
        """Takes the first call of this tool, or of any tool if the name is empty."""
        if not name:
            call_id = next(iter(self._calls), "")
        else:
            calls_of_name = self._ids_by_name.get(name, deque())
            while calls_of_name and calls_of_name[0] not in self._calls:
                calls_of_name.popleft()
            call_id = calls_of_name[0] if calls_of_name else ""
        return self._calls.pop(call_id, None)


def _needs_a_follower(part: Part) -> bool:
    """Whether APIs refuse this reasoning at the end of a turn: Responses an item of it ("without its required following
    item"), Anthropic a signed block ("the final block cannot be thinking"). In Chat Completions it is a field."""
    return isinstance(part, ReasoningPart) and part.opaque is not None and part.opaque.provider != OPENAI_CHAT
