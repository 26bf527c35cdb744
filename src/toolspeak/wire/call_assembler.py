"""Assembles native calls from the fragments of a stream."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from toolspeak.data.deltas import (
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    TurnEnded,
)
from toolspeak.data.messages import JSON, NORMAL_END, FinishReason, Opaque
from toolspeak.wire.json_conversion import excerpt, read_arguments


class _OpenCall:
    """A call that is not complete yet."""

    __slots__ = ("id", "index", "name", "opaque", "pieces")

    def __init__(self, index: int, name: str, id: str | None, opaque: Opaque | None) -> None:  # noqa: A002
        self.index, self.name, self.id, self.opaque = index, name, id, opaque
        self.pieces: list[str] = []


class CallAssembler:
    """Assembles the calls of one turn.

    A key identifies a call's fragments: an id, an index or another value that the API repeats. Each method returns the
    resulting deltas. A call completes in one of three cases:

    - The API ends the call (`complete`).
    - The call's arguments are one JSON object, and the API sends something else (`complete_parsed`).
    - The turn ends. If the arguments are not one JSON object, the call is malformed.

    Empty arguments are `{}`, unless the turn was cut off. A fragment for a completed call becomes a malformed call,
    unless it is white space. The completed call does not change.
    """

    def __init__(self) -> None:
        self._open: dict[Hashable, _OpenCall] = {}
        self._late: dict[Hashable, list[str]] = {}
        self._count = 0
        self._selected_indexes: list[int] = []
        self._ok = True

    @property
    def any(self) -> bool:
        """Whether the turn has a call."""
        return self._count > 0

    def is_open(self, key: Hashable) -> bool:
        """Whether a call with this key is open."""
        return key in self._open

    def is_whole(self, key: Hashable) -> bool:
        """Whether an open call's arguments are a whole JSON object: then the next fragment belongs to another call."""
        raw = "".join(self._open[key].pieces).rstrip()
        return raw.endswith("}") and read_arguments(raw)[0] is not None

    def start(self, key: Hashable, name: str, id: str | None = None, opaque: Opaque | None = None) -> list[Delta]:  # noqa: A002
        """Starts a call, and completes an open call with the same key."""
        out = self.complete(key) if key in self._open else []
        call = self._open[key] = _OpenCall(self._count, name, id or None, opaque)
        self._count += 1
        out.append(CallStarted(call.index, name, call.id))
        return out

    def add(self, key: Hashable, text: str) -> list[Delta]:
        """Adds a fragment of JSON text to the arguments of an open call."""
        if not text:
            return []
        call = self._open.get(key)
        if call is None:
            self._late.setdefault(key, []).append(text)
            return []
        call.pieces.append(text)
        return [ArgumentsDelta(call.index, text)]

    def sign(self, key: Hashable, opaque: Opaque) -> None:
        """Attaches data that is sent back to the provider with this call, if the call is still open."""
        if key in self._open:
            self._open[key].opaque = opaque

    def complete_parsed(self) -> list[Delta]:
        """Completes the open calls whose arguments are a whole JSON object. Call it when the API starts another call or
        ends the turn: only white space can follow the object."""
        out: list[Delta] = []
        for key, call in [*self._open.items()]:
            last = next((piece for piece in reversed(call.pieces) if not piece.isspace()), "")
            if call.name and last.rstrip().endswith("}"):
                raw = "".join(call.pieces)
                arguments = read_arguments(raw)
                if arguments[0] is not None:
                    del self._open[key]
                    out += self._call_end(call, raw, *arguments)
        return out

    def complete(self, key: Hashable, *, whole: bool = True) -> list[Delta]:
        """Completes the call with this key. `whole`: the call was not cut off."""
        call = self._open.pop(key)
        raw = "".join(call.pieces)
        return self._call_end(call, raw, *read_arguments(raw, whole=whole))

    def _call_end(
        self, call: _OpenCall, raw: str, arguments: Mapping[str, JSON] | None, notes: tuple[str, ...], reason: str
    ) -> list[Delta]:
        if arguments is None or not call.name:
            self._ok = False
            code = "invalid_arguments" if call.name else "no_name"
            why = reason if call.name else "the call names no tool"
            return [CallMalformed(call.index, raw, code, why, 0, call.name or None)]
        self._selected_indexes.append(call.index)
        out: list[Delta] = [] if raw.strip() else [ArgumentsDelta(call.index, "{}")]
        out.append(CallCompleted(call.index, call.name, arguments, call.id, notes, opaque=call.opaque))
        return out

    def _extra(self, raw: str) -> list[Delta]:
        self._ok, index = False, self._count
        self._count += 1
        why = f"text after the arguments of a complete call, which is not a call: {excerpt(raw, 80)!r}"
        return [CallMalformed(index, raw, "extra_text", why, 0)]

    def fail(self, raw: str, code: str, reason: str) -> list[Delta]:
        """Ends a turn in which the API could not parse a call: none of its calls runs. Ends with `BatchEnded`."""
        return [CallMalformed(self._count, raw, code, reason, 0, whole_block=True), BatchEnded((), ok=False)]

    def close(self, finish: FinishReason) -> list[Delta]:
        """Ends the turn, with `BatchEnded` if there was a call."""
        out: list[Delta] = []
        for key in [*self._open]:
            out += self.complete(key, whole=finish in NORMAL_END)
        for pieces in self._late.values():
            raw = "".join(pieces)
            if not raw.isspace():
                out += self._extra(raw)
        if self._count:
            out.append(BatchEnded(tuple(sorted(self._selected_indexes)), self._ok))
        return out


def unread_turn(text: str) -> list[Delta]:
    """A turn with a malformed call, for an answer that the server rejected because of it: the model reads the problem,
    and calls again."""
    why = "the server could not read the call, so nothing of the turn ran; make it again, with arguments that fit"
    malformed_turn = CallAssembler().fail(text, "invalid_arguments", why)
    return [*malformed_turn, TurnEnded("tool_calls")]
