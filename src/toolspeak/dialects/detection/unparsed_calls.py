"""Reads calls in the text of a native turn, which the server's own parser missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from toolspeak.data.deltas import (
    LEAK_NOTE,
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    PartEnded,
    ReasoningDelta,
    TextAside,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.values import evolve
from toolspeak.dialects.base import Parser
from toolspeak.dialects.text.extract import only_object

_MAX_ECHO = 64 * 1024
"""The most characters of text that wait while the text may be only a call's arguments."""

_FENCE = "```"


class LeakedCalls:
    """Adds the calls in a native turn's text to its deltas.

    - `new_parser` makes the parser of the text, once there is text.
    - The API's calls keep their numbers. A call in the text takes the next number above all others, and so does a
      native call whose number is in use by then. Calls in the text, and their batch, have the note `leaked`. A call
      that also came natively counts once.
    - `echoes`: some servers repeat the arguments of a call as text; such text is dropped. So text that begins like JSON
      waits until that is certain. Prose that quotes arguments, and `{}`, stay, and so does text that goes back to its
      provider unchanged (`PartEnded.opaque`).
    - Calls, reasoning and the end of a part stay after the text they follow, unless that text may be an echo.
    - `late`: calls in the text wait until the turn ends, when it is certain whether they also came natively.
    """

    def __init__(self, new_parser: Callable[[], Parser], *, echoes: bool = True, late: bool = False) -> None:
        self._new_parser = new_parser
        self._parser: Parser | None = None
        # The deltas before the first text, without arguments: they pass unchanged, as most turns do.
        self._first_deltas: list[Delta] | None = []
        # The numbers of native calls, and of calls in the text; all numbers in use, and the next one above them.
        self._natives: dict[int, int] = {}
        self._strays: dict[int, int] = {}
        self._used_numbers: set[int] = set()
        self._next = 0
        self._native: list[CallCompleted | CallMalformed] = []
        self._leaked_calls: list[CallCompleted] = []
        self._ends: list[BatchEnded] = []
        # Text that may be an echo, with the deltas after it; None once it cannot be one.
        self._echo: list[TextDelta | ReasoningDelta | PartEnded] | None = [] if echoes else None
        self._may_echo = False
        self._echo_chars = 0
        self._late: list[Delta] | None = [] if late else None
        # Characters of text that went into the parser and came out of it, and the deltas after text that is in it.
        self._read_chars = self._emitted_chars = 0
        self._waiting: list[tuple[int, Delta]] = []

    def feed(self, delta: Delta) -> Sequence[Delta]:
        if type(delta) is TextDelta:
            return self._text(delta) if self._parser is None else self._read(delta.text)
        if type(delta) is ArgumentsDelta and self._first_deltas is not None:
            return [delta]
        if type(delta) is TurnEnded:
            last = self._end(delta)
            return [*last, delta.after(last)]
        if type(delta) is ReasoningDelta or type(delta) is PartEnded:
            return self._after_text(delta)
        if self._first_deltas is None or type(delta) is ForgedResults:
            return self._in_place(self._renumber(delta, leaked=False))
        if type(delta) is BatchEnded:
            self._ends.append(delta)
            return []
        self._first_deltas.append(delta)
        return [delta]

    def _text(self, delta: TextDelta) -> list[Delta]:
        if self._first_deltas is not None:
            first_deltas, self._first_deltas = self._first_deltas, None
            for native in first_deltas:
                self._renumber(native, leaked=False)
        if self._echo is None:
            return self._read(delta.text)
        self._echo.append(delta)
        self._echo_chars += len(delta.text)
        if not self._may_echo:
            began = _text_of(self._echo).lstrip()[:3]
            if began and not (began[0] == "{" or _FENCE.startswith(began)):
                return self._release()
            self._may_echo = began[:1] == "{" or began == _FENCE
        return self._release() if self._echo_chars > _MAX_ECHO else []

    def _release(self) -> list[Delta]:
        waiting, self._echo = self._echo or [], None
        out: list[Delta] = []
        for delta in waiting:
            out += self._read(delta.text) if isinstance(delta, TextDelta) else self._after_text(delta)
        return out

    def _after_text(self, delta: ReasoningDelta | PartEnded) -> list[Delta]:
        if self._echo:
            if isinstance(delta, PartEnded) and delta.part == "text" and delta.opaque is not None:
                return [*self._release(), *self._after_text(delta)]
            self._echo.append(delta)
            return []
        return self._in_place([delta])

    def _in_place(self, deltas: list[Delta]) -> list[Delta]:
        """These deltas, or none if text before them is still in the parser: then they wait for it."""
        if self._read_chars > self._emitted_chars:
            self._waiting += [(self._read_chars, delta) for delta in deltas]
            return []
        return deltas

    def _read(self, text: str) -> list[Delta]:
        if self._parser is None:
            self._parser = self._new_parser()
        self._read_chars += len(text)
        return self._merge(self._parser.feed(text))

    def _merge(self, deltas: Iterable[Delta]) -> list[Delta]:
        """The deltas of the parser, with those that waited between them."""
        if isinstance(deltas, list) and len(deltas) == 1 and isinstance(deltas[0], TextDelta) and not self._waiting:
            self._emitted_chars += len(deltas[0].text)
            return deltas  # most pieces of a turn without calls in its text
        out: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, TextDelta | TextAside):
                out += self._merge_text(delta.text)  # a native turn's text is its answer, in any place
            else:
                out += self._release_waiting()
                out += self._from_text(delta)
                self._emitted_chars = self._read_chars  # it is unknown how much of it was text
        return out

    def _merge_text(self, text: str) -> list[Delta]:
        """The text, with the deltas that came in the middle of it."""
        out: list[Delta] = []
        while self._waiting and self._waiting[0][0] <= self._emitted_chars + len(text):
            place, delta = self._waiting.pop(0)
            first = text[: place - self._emitted_chars]
            out += [TextDelta(first), delta] if first else [delta]
            self._emitted_chars, text = place, text[len(first) :]
        self._emitted_chars += len(text)
        return [*out, TextDelta(text)] if text else out

    def _release_waiting(self) -> list[Delta]:
        waiting, self._waiting = self._waiting, []
        return [delta for _, delta in waiting]

    def _from_text(self, delta: Delta) -> list[Delta]:
        """A delta that the parser read in the text, unless it has to wait for the end of the turn."""
        deltas_in_place = self._renumber(delta, leaked=True)
        if self._late is None or isinstance(delta, ReasoningDelta | ForgedResults):
            return deltas_in_place
        self._late += deltas_in_place
        return []

    def _renumber(self, delta: Delta, *, leaked: bool) -> list[Delta]:
        if type(delta) is BatchEnded:
            self._ends.append(self._own_numbers(delta, leaked))
            return []
        if type(delta) is ForgedResults:
            # A server with native calls has native results: in its text they are an example.
            return [TextDelta(delta.raw)]
        if type(delta) is ArgumentsDelta or type(delta) is CallStarted or type(delta) is CallIgnored:
            number = self._number(leaked, delta.index)
            return [delta if number == delta.index else evolve(delta, index=number)]
        if type(delta) is CallCompleted or type(delta) is CallMalformed:
            own = evolve(delta, index=self._number(leaked, delta.index))
            if not leaked:
                self._native.append(own)
            elif type(own) is CallCompleted:
                own = evolve(own, notes=(*own.notes, LEAK_NOTE))
                self._leaked_calls.append(own)
            return [own]
        return [delta]

    def _number(self, leaked: bool, index: int) -> int:
        numbers = self._strays if leaked else self._natives
        number = numbers.get(index)
        if number is None:
            number = numbers[index] = self._next if leaked or index in self._used_numbers else index
            self._used_numbers.add(number)
            self._next = max(self._next, number + 1)
        return number

    def _own_numbers(self, batch_end: BatchEnded, leaked: bool) -> BatchEnded:
        selected_indexes = tuple(sorted([self._number(leaked, index) for index in batch_end.selected]))
        return batch_end if selected_indexes == batch_end.selected else evolve(batch_end, selected=selected_indexes)

    def _end(self, turn_end: TurnEnded) -> list[Delta]:
        out: list[Delta] = []
        if self._echo:
            if self._is_echo(_text_of(self._echo)):
                self._echo = [delta for delta in self._echo if not isinstance(delta, TextDelta)]
            out += self._release()
        if self._parser is not None:
            out += self._merge(self._parser.close(turn_end.read_as))
        if self._waiting:
            out += self._release_waiting()
        if not self._ends:
            return out + (self._late or [])
        if not self._leaked_calls and not self._late and len(self._ends) == 1:
            return [*out, BatchEnded(self._ends[0].selected, self._ends[0].ok)]
        selected_indexes = {index for end in self._ends for index in end.selected}
        for call in self._leaked_calls:
            if any(_is_same_call(call, native) for native in self._native):
                selected_indexes.discard(call.index)
                self._drop(call.index)
                out.append(CallIgnored(call.index, "the same call came natively"))
        out += self._late or []
        counts = any(call.index in selected_indexes for call in self._leaked_calls)
        notes = [note for end in self._ends for note in end.notes] if counts else []
        ok = all(end.ok for end in self._ends)
        out.append(BatchEnded(tuple(sorted(selected_indexes)), ok, (*notes, *((LEAK_NOTE,) if counts else ()))))
        return out

    def _drop(self, index: int) -> None:
        if self._late is not None:
            self._late = [delta for delta in self._late if getattr(delta, "index", None) != index]

    def _is_echo(self, text: str) -> bool:
        value = only_object(text)
        return bool(value) and any(
            value == (call.arguments if isinstance(call, CallCompleted) else only_object(call.raw))
            for call in self._native
        )


def _text_of(deltas: Iterable[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def _is_same_call(leaked: CallCompleted, native: CallCompleted | CallMalformed) -> bool:
    return isinstance(native, CallCompleted) and (leaked.name, leaked.arguments) == (native.name, native.arguments)
