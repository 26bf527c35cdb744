"""Turns with native calls whose server speaks the client's API: events that need no repair pass unchanged.

The request goes out as the client wrote it. Its answer goes through a driver and the gate, like any turn. Meanwhile the
server's events wait: an event leaves unchanged once the gate has passed all of its deltas. From the first event
that the gate changes, the gateway writes the answer anew, and adds the fields that it does not know.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from toolspeak.data.deltas import (
    ArgumentsDelta,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, Message, TextMessage
from toolspeak.data.values import evolve
from toolspeak.gateway.client_request import AnswerContext
from toolspeak.gateway.http.asgi import Fields, add_notes, event, with_notes
from toolspeak.gateway.http.error_responses import Failure, with_code
from toolspeak.gateway.responses.relayed_answer import RelayedAnswer, client_model_name, with_data
from toolspeak.gateway.responses.unknown_fields import (
    UnknownFields,
    call_chunk_checker,
    same_finish,
    with_role,
    with_unknown_fields,
)
from toolspeak.gateway.upstreams.routing import Route
from toolspeak.providers.api import ApiProvider
from toolspeak.providers.http_client import json_bytes
from toolspeak.providers.request_relay import RelayedPart, is_preamble
from toolspeak.wire.base import Encoder, ModelRequest
from toolspeak.wire.openai_chat import OPENAI_CHAT

_Atom: TypeAlias = tuple[Any, ...]
"""The content of a delta, for comparison: its kind, the call's index, and its text."""

_TEXTS = (TextDelta, ReasoningDelta, ArgumentsDelta)
_PIECES = ("text", "reasoning", "arguments")
_PROSE_DELTAS = (TextDelta, ReasoningDelta)
_ENDS = ("message_delta", "message_stop", "response.completed", "response.incomplete", "response.failed")


def native_relay(answering: AnswerContext, route: Route) -> NativeRelay | None:
    """The relay of a turn with native calls; None if server and client speak different APIs, or if the conversation was
    repaired."""
    speaks = route.wire == answering.request.wire.name and isinstance(route.provider, ApiProvider)
    if answering.native_request is None or not speaks or answering.report.notes or answering.wire_request.echo_fields:
        return None
    return NativeRelay(
        RelayedAnswer(answering, client_model_name(route, answering.wire_request.model)), *answering.native_request
    )


@dataclass(slots=True)
class _WaitingEvent:
    """An event that waits for the gate. `ends`: it holds the finish reason, or comes after it. `touched`: part of the
    event has left the gate."""

    part: RelayedPart
    ends: bool
    touched: bool = False
    _atoms: deque[_Atom] | None = None

    @property
    def atoms(self) -> deque[_Atom]:
        if self._atoms is None:
            self._atoms = deque([atom for atom in map(_atom, self.part.deltas) if atom is not None])
        return self._atoms

    def says_alone(self, delta: Delta) -> bool:
        """Whether the event holds only this piece of text, reasoning or arguments, and no part of it has left."""
        deltas = self.part.deltas
        return not self.touched and len(deltas) == 1 and delta.__class__ in _TEXTS and deltas[0] == delta


class NativeRelay:
    """One turn's request as its client wrote it, and the events of its answer; implements `Relaying`.

    `anew`: the gateway writes the rest of the answer itself.
    """

    def __init__(self, answer: RelayedAnswer, fields: Fields, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.anew = False
        self._write: Callable[[bytes], Awaitable[None]] | None = None
        """Writes to the client's stream; None if the client wants no stream."""
        self._response_id = ""
        self._encoder: Encoder | None = None
        self._answer = answer
        self._wire = answer.answering.request.wire
        self._is_chat = self._wire is OPENAI_CHAT
        self._wire_request = answer.answering.wire_request
        self._report = answer.answering.report
        self._fields = fields
        self._has_parts = self._gate_started = self._ending = self._has_role = False
        self._passes_text = False
        """Whether events with a piece of text may skip the general checks: the answer's role and id are known."""
        self._waiting: deque[_WaitingEvent] = deque()
        self._late_deltas: list[Delta] = []
        """Deltas that have left the gate, and whose events still wait."""
        self._sent_deltas: list[Delta] = []
        """Deltas that the client has. Of Chat Completions only those that the encoder has to know."""
        self._encoder_knows: set[tuple[type[Delta], int]] = set()
        self._calls = call_chunk_checker()
        self._unknown_fields = UnknownFields(self._wire)
        self._end: TurnEnded | None = None
        self._whole: RelayedPart | None = None

    # --- called by the provider --------------------------------------------------------------------------------

    def body(self, request: ModelRequest) -> Fields | None:
        """The client's own fields, if they say the same as the request; else None."""
        client_request = self._wire_request.request
        same = request.tools is client_request.tools and request.choice == client_request.choice
        if same and not self._has_parts and _same(request.messages, client_request.messages):
            return self._fields
        self.anew, self._whole, self._unknown_fields = True, None, UnknownFields(self._wire)
        self._passes_text = False
        self._waiting.clear()
        return None

    def hear(self, part: RelayedPart) -> Awaitable[None] | None:
        """Receives each part of the answer before its deltas are read. Returns the write of what leaves at once, if
        any."""
        if self._passes_text and _is_piece_of_text(part):  # the ordinary event
            self._waiting.append(_WaitingEvent(part, False))
            return None
        self._has_parts = True
        if part.whole:
            self._whole = part
            self.anew = True
            return None
        if self._is_chat and not (self._has_role and b'"role"' not in part.raw):
            part = self._with_role(part)
        data, deltas = part.data, part.deltas
        if deltas and deltas[-1].__class__ is TurnEnded:
            self._end = cast("TurnEnded", deltas[-1])
        if data is not None:
            self._unknown_fields.begin(data)
        if self.anew or self._write is None:
            self.anew = True
            if data is not None:
                self._unknown_fields.add(data)
            return None
        if data is not None and self._answer.is_numbered:
            self._answer.follow(data)
        self._ending = self._ending or (b"[DONE]" in part.raw if data is None else _ends(data))
        self._passes_text = self._is_chat and self._has_role and not self._ending and self._unknown_fields.is_identified
        waiting = _WaitingEvent(part, self._ending)
        self._waiting.append(waiting)
        is_text = len(deltas) == 1 and deltas[0].__class__ in _PROSE_DELTAS and b"_call" not in part.raw
        if is_text:
            return None
        if self._is_chat and not self._calls(data or {}, _size(deltas)):
            self._go_on_anew()
        elif not waiting.atoms and (self._gate_started or (data is not None and not is_preamble(data))):
            leaving = self._flush()
            return self._write(leaving) if leaving else None
        return None

    def _with_role(self, part: RelayedPart) -> RelayedPart:
        """The part with the role where OpenAI's API has it: in the first event with a choice, and in no other. OpenAI's
        client for Node takes the last role that it reads; llama-cpp-python sends null beside calls."""
        data = part.data
        if data is None:
            return part
        role_data, says_role = with_role(data, says=not self._has_role)
        self._has_role = self._has_role or says_role
        return part if role_data is data else evolve(part, raw=with_data(part.raw, role_data), data=role_data)

    # --- called by the answer ----------------------------------------------------------------------------------

    def begin(self, response_id: str, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Starts a streamed answer, written with `write`. `response_id` is used if the server sends no id."""
        self._response_id, self._write = response_id, write

    def put(self, deltas: Sequence[Delta]) -> bytes:
        """Takes the deltas that the gate lets through; returns the bytes that leave."""
        self._gate_started = True
        waiting = self._waiting
        if len(deltas) == 1 and len(waiting) == 1 and waiting[0].says_alone(deltas[0]) and not waiting[0].ends:
            if self._late_deltas or (deltas[0].__class__, 0) not in self._encoder_knows:
                self._keep([*self._late_deltas, deltas[0]])
                self._late_deltas.clear()
            return self._answer.leaves(waiting.popleft().part)  # the ordinary event leaves unchanged
        leaving: list[bytes] = []
        for at, delta in enumerate(deltas):
            if not self.anew:
                if delta.__class__ is TurnEnded:
                    end = self._unchanged_end(cast("TurnEnded", delta))
                    if end is not None:
                        leaving.append(end)
                        break
                elif self._matches(delta):
                    self._late_deltas.append(delta)
                    leaving.append(self._flush())
                    continue
                self._go_on_anew()
            leaving.append(self._encode([*self._late_deltas, *deltas[at:]]))
            self._late_deltas.clear()
            break
        return b"".join(leaving)

    def failure_events(self, failure: Failure) -> bytes:
        """The end of a stream that broke off."""
        if self._encoder is None:
            return self._answer.failure_events(failure)
        frames = map(self._answer.number_frame, self._encoder.fail(failure.message, failure.status))
        return b"".join([event((name, with_code(data, failure))) for name, data in frames])

    def whole(self, deltas: Sequence[Delta], body: dict[str, JSON]) -> bytes:
        """A whole answer: unchanged if it says the same as these deltas, else `body`, their encoding, with the unknown
        fields of the server's answer."""
        whole_answer, notes = self._whole, self._report.notes
        data = None if whole_answer is None else whole_answer.data
        if whole_answer is None or data is None:
            return json_bytes(with_notes(body, notes))
        if not notes and self._says(data, whole_answer.deltas, deltas, body):
            return self._answer.whole(whole_answer)
        completed_body = with_unknown_fields(body, data, self._wire, usage=not _estimated(notes))
        return json_bytes(with_notes(completed_body, notes))

    # --- in detail ---------------------------------------------------------------------------------------------

    def _encode(self, deltas: Sequence[Delta]) -> bytes:
        """These deltas as events that the gateway writes itself."""
        if self._encoder is None:
            self._encoder = self._new_encoder()
        frames = [frame for delta in deltas for frame in self._encoder.feed(delta)]
        if deltas[-1].__class__ is TurnEnded:
            frames = add_notes(frames, self._report.notes)
        frames = self._unknown_fields.complete(frames, usage=not _estimated(self._report.notes))
        return b"".join([event(self._answer.number_frame(frame)) for frame in frames])

    def _new_encoder(self) -> Encoder:
        """An encoder for the rest of the answer, which knows the deltas that have left."""
        response_id = self._unknown_fields.id or self._response_id
        created_at = self._unknown_fields.created_at or int(time.time())
        encoder = self._wire.encoder(self._wire_request, response_id=response_id, created_at=created_at)
        for delta in self._sent_deltas:
            encoder.feed(delta)
        return encoder

    def _matches(self, delta: Delta) -> bool:
        """Whether the waiting events say what this delta says; removes it from them."""
        if delta.__class__ is PartEnded:
            return True
        atom = _atom(delta)
        if atom is None:
            return False
        for waiting in self._waiting:
            while waiting.atoms:
                head = waiting.atoms[0]
                if head[:2] != atom[:2]:
                    return False
                waiting.touched = True
                if head[0] not in _PIECES:
                    waiting.atoms.popleft()
                    return head == atom
                text, rest = atom[2], head[2]
                if text.startswith(rest):
                    waiting.atoms.popleft()
                    atom = (*atom[:2], text[len(rest) :])
                    if not atom[2]:
                        return True
                elif rest.startswith(text):
                    waiting.atoms[0] = (*head[:2], rest[len(text) :])
                    return True
                else:
                    return False
        return False

    def _flush(self) -> bytes:
        """The events that leave now: those at the front whose deltas have all left the gate. None if the next event has
        left in part, because one delta of the gate may cover both."""
        waiting = self._waiting
        first = next((each for each in waiting if each.atoms), None)
        if first is not None and first.touched:
            return b""
        passing: list[RelayedPart] = []
        while waiting and waiting[0] is not first and not waiting[0].ends:
            passing.append(waiting.popleft().part)
        if passing:
            self._keep(self._late_deltas)
            self._late_deltas.clear()
        return b"".join(map(self._answer.leaves, passing))

    def _keep(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if self._is_chat and delta.__class__ in _TEXTS:
                key = (delta.__class__, getattr(delta, "index", 0))
                if key in self._encoder_knows:
                    continue
                self._encoder_knows.add(key)
            self._sent_deltas.append(delta)

    def _go_on_anew(self) -> None:
        self.anew, self._passes_text = True, False
        for each in self._waiting:
            if each.part.data is not None:
                self._unknown_fields.add(each.part.data)
        self._waiting.clear()

    def _unchanged_end(self, end: TurnEnded) -> bytes | None:
        """The unchanged end of the answer; None if the gateway has to write it."""
        own = self._end
        if any(each.atoms for each in self._waiting) or own is None or end.finish != own.finish or self._report.notes:
            return None
        encoder = self._new_encoder()
        for delta in self._late_deltas:
            encoder.feed(delta)
        if not self._unknown_fields.tells_finish(encoder.feed(end)):
            return None
        parts = [each.part for each in self._waiting]
        self._waiting.clear()
        return b"".join(map(self._answer.leaves, parts))

    def _says(self, data: Fields, received_deltas: Sequence[Delta], deltas: Sequence[Delta], body: Fields) -> bool:
        """Whether a whole answer says what is to leave."""
        if self._is_chat and not self._calls(data, 0):
            return False
        return _meaning(received_deltas) == _meaning(deltas) and same_finish(data, body, self._wire)


def _is_piece_of_text(part: RelayedPart) -> bool:
    """Whether an event of Chat Completions says one piece of text or reasoning, and no role, call, usage or finish."""
    deltas, data, raw = part.deltas, part.data, part.raw
    if data is None or len(deltas) != 1 or deltas[0].__class__ not in _PROSE_DELTAS or data.get("usage") is not None:
        return False
    choices = data["choices"]
    return len(choices) == 1 and not choices[0].get("finish_reason") and b'"role"' not in raw and b"_call" not in raw


def _size(deltas: Sequence[Delta]) -> int:
    """Characters of arguments."""
    return sum(len(delta.text) for delta in deltas if isinstance(delta, ArgumentsDelta))


def _estimated(notes: Sequence[Any]) -> bool:
    return any(note.code == "usage_estimated" for note in notes)


def _same(client: Sequence[Message | TextMessage], driver: Sequence[Message | TextMessage]) -> bool:
    """Whether these are the same messages, apart from the system messages in front."""
    first, second = _after_system(client), _after_system(driver)
    return len(first) == len(second) and all(map(_is, first, second))


def _is(one: object, other: object) -> bool:
    return one is other


def _after_system(messages: Sequence[Message | TextMessage]) -> Sequence[Message | TextMessage]:
    at = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    return messages[at:]


def _ends(data: Fields) -> bool:
    """Whether an event holds the finish reason."""
    choices = data.get("choices")
    return (
        any(map(_has_finished, cast("list[Any]", choices))) if isinstance(choices, list) else data.get("type") in _ENDS
    )


def _has_finished(choice: Any) -> bool:
    return isinstance(choice, dict) and bool(cast("Fields", choice).get("finish_reason"))


def _atom(delta: Delta) -> _Atom | None:
    """The content of a delta; None for one that is no part of the answer."""
    if delta.__class__ is TextDelta:
        return "text", 0, cast("TextDelta", delta).text
    match delta:
        case ReasoningDelta(text):
            return "reasoning", 0, text
        case ArgumentsDelta(index, text):
            return "arguments", index, text
        case CallStarted(index, name, call_id):
            return "start", index, name, call_id
        case CallCompleted(index, name, _, call_id):
            return "complete", index, name, call_id
        case _:
            return None


def _meaning(deltas: Sequence[Delta]) -> tuple[object, ...]:
    """The content of a turn, whatever the pieces."""
    texts = ["".join(delta.text for delta in deltas if isinstance(delta, kind)) for kind in (TextDelta, ReasoningDelta)]
    calls = [(call.name, call.id, dict(call.arguments)) for call in deltas if isinstance(call, CallCompleted)]
    has_malformed = any(isinstance(delta, CallMalformed) for delta in deltas)
    ends = [delta.finish for delta in deltas if isinstance(delta, TurnEnded)]
    return texts, calls, has_malformed and object(), ends
