"""The part of a parser of marked blocks that reads reasoning: where it ends, and the calls in it.

A model that forgets the end marker of its thoughts writes its calls inside them. Whether one of them was meant is known
only when the turn is over, so its text is held back until something else stands behind it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from toolspeak.data.deltas import (
    CallCompleted,
    CallMalformed,
    CallStarted,
    Delta,
    ForgedResults,
    ReasoningDelta,
    TextAside,
    TextDelta,
    TextWasReasoning,
)
from toolspeak.data.messages import FinishReason
from toolspeak.dialects.attempts import Said
from toolspeak.dialects.base import Section
from toolspeak.dialects.echo import Echo
from toolspeak.dialects.end_marker import EndMarker
from toolspeak.dialects.markers import NO_REASONING, Found, in_code
from toolspeak.dialects.open_block import BlockFormat
from toolspeak.dialects.scan import MAX_CANDIDATE
from toolspeak.dialects.turn_parser import TurnParser

IN_THOUGHTS = "in_thoughts"
"""The code of a call that did not run because it stood in the model's thoughts."""


class ThinkingParser(TurnParser):
    """The states inside reasoning. A call in there runs only if reasoning has no end and the call ends the turn
    (`BlockFormat.thoughts_hide`: not even then); if it is all that the turn holds, it is malformed, so that the model
    is told."""

    # Of the class until they are set, as in few turns: an object of over thirty attributes is slow.
    shown_chars: int = 0  # of the text that was held back until it was no call: examples, drafts
    _thought_chars: int = 0
    _depth: int = 0  # of the reasoning that is open
    _restated: bool = False  # the model may yet write the marker that the prompt ended with
    _draft: Draft | None = None
    _said: bool = False  # whether the turn has any text, up to the last reasoning
    _hidden: Draft | None = None  # the last draft that stayed one
    _raws: list[str | None] | None = None  # of the blocks that ended, in a draft's reader; None for a broken one

    def __init__(self, format: BlockFormat, starts_in: Section = "text") -> None:  # noqa: A002
        super().__init__(format.batch)
        self._format = format
        self._table, self._candidate = format.table, format.table.candidate
        markup = format.table.markup
        self._ends, self._inside, self._thought = markup.ends, markup.inside, markup.thought
        self._thought_ends = markup.thought_ends  # the prompt may have opened any of them
        if self._thought is NO_REASONING:
            starts_in = "text"  # a dialect without reasoning has nowhere else to start
        self._text_state = self._state = self._text  # made once, as each chunk is compared with it
        if starts_in == "reasoning":
            self._state = self._label if self._thought.label else self._reasoning
            self._depth, self._restated = 1, True
        self._echo: Echo | None = None  # of the block that ended, if nothing but white space stands behind it yet
        self._text_kind: type[TextDelta | TextAside] = TextDelta
        # The end of the text so far, behind whatever was no text: what tells where a marker stands.
        self._seen = Said()
        self._silent = True  # whether there is none since then
        # What the end of reasoning would end that was not seen to begin: all of the turn, or nothing behind reasoning.
        self._may_end: Literal["turn", "nothing", ""] = "turn" if starts_in == "text" and self._thought_ends else ""
        self._may_begin_end = markup.thought_end_starts

    @abstractmethod
    def _text(self, text: str, position: int, out: list[Delta]) -> int: ...

    @abstractmethod
    def _open(self, found: Found, at: int) -> int: ...

    @abstractmethod
    def _draft_parser(self) -> ThinkingParser:
        """A parser that reads what stands in reasoning as if it stood in text."""

    @property
    def first_raw(self) -> str | None:
        """The body of the first block if it was read to its end, of a draft's reader."""
        return self._raws[0] if self._raws else None

    @property
    @abstractmethod
    def broken_at(self) -> int | None:
        """Where in the turn the open block cannot be read any more; None if it can."""

    @property
    def thought_ends(self) -> Sequence[EndMarker]:
        """How reasoning that the prompt opened would end."""
        return self._thought_ends

    def keep_reasoning(self) -> None:
        super().keep_reasoning()
        self._may_end = ""

    @property
    def _has_text(self) -> bool:
        return self._said or not self._silent

    def _stray_end(self, text: str, at: int) -> int:
        """Where the end marker of reasoning ends that did not begin in the turn: the prompt has opened it, or it stands
        twice, if one begins at text[at]. -1 if there is none, 0 if more characters are needed."""
        if not self._silent and self._may_end == "nothing":
            self._may_end = ""
            return -1
        if at + 1 == len(text):
            return 0  # it begins one, as the caller knows
        closed = max(end.match(text, at) for end in self._thought_ends)
        return 0 if closed < 0 and any(end.viable(text, at) for end in self._thought_ends) else closed

    def _end_unseen(self, out: list[Delta]) -> None:
        """What the turn says so far was reasoning, if it may have been."""
        if self._may_end == "turn" and self._has_text:
            out.append(TextWasReasoning())
            self._said = False
        self._silent, self._may_end, self._quoting = True, "nothing", False

    def _reasoning(self, text: str, position: int, out: list[Delta]) -> int:
        start = seen = position
        quoting, ends, candidate = self._quoting, self._thought_ends, self._inside
        while True:
            found = candidate.search(text, position)
            at = found.start() if found else len(text)
            self._restated = self._restated and not text[seen:at].strip()
            if found is None:
                return self._think(text, start, len(text), out)
            quoting, seen = in_code(quoting, text, seen, at), at
            closed = max(end.match(text, at) for end in ends)
            verdict = "text" if closed > 0 else self._table.decide(text[at : at + MAX_CANDIDATE], quoting)
            opened = verdict.marker if isinstance(verdict, Found) else None
            if closed > 0:
                self._depth -= 1
                if self._depth == 0:
                    self._think(text, start, at, out)
                    self._leave(out)
                    self._markup(text, at, closed, out)
                    self._state, self._quoting = self._text, False
                    self._said, self._silent = self._has_text, True
                    if self._reasoning_kind is ReasoningDelta:
                        self._may_end = "nothing"
                    return closed
                position = closed
            elif isinstance(verdict, Found) and opened is self._thought:
                if self._restated:
                    self._restated = False
                    self._think(text, start, at, out)
                    self._markup(text, at, at + verdict.length, out)
                    self._state = self._label if self._thought.label else self._reasoning
                    return at + verdict.length
                self._depth += self._thought.nested
                position = at + verdict.length
            elif isinstance(verdict, Found) and (verdict.marker.ends_reasoning or verdict.marker.kind == "noise"):
                start = self._think(text, start, at, out)
                if verdict.marker.ends_reasoning:
                    self._leave(out)
                if self._draft is None:
                    return self._open(verdict, at)
                position = at + 1  # it may stand in an argument
            elif isinstance(verdict, Found) and verdict.marker.kind == "calls":
                start = self._think(text, start, at, out)
                self._begin_draft(verdict, self._position + at)
                position = at + 1
            elif any(end.viable(text, at) for end in ends) or verdict in ("undecided", "opened"):
                self._think(text, start, at, out)
                return self._hold(text, at)
            else:
                position = at + 1

    def _label(self, text: str, position: int, out: list[Delta]) -> int:
        """Drops the label with which reasoning may begin."""
        label = self._thought.label
        rest = text[position : position + len(label)]
        if rest != label and label.startswith(rest):
            return self._hold(text, position)
        bare = position + len(label.rstrip())
        if text.startswith(label.rstrip(), position) and bare < position + len(label):  # of a thought that is empty
            if any(end.match(text, bare) > 0 for end in self._thought_ends):
                self._state = self._reasoning
                self._markup(text, position, bare, out)
                return bare
            if any(end.viable(text, bare) for end in self._thought_ends):
                return self._hold(text, position)
        self._state = self._reasoning
        stop = position + len(label) if rest == label else position
        self._markup(text, position, stop, out)
        return stop

    def _think(self, text: str, start: int, stop: int, out: list[Delta]) -> int:
        """A piece of reasoning, which may belong to a draft."""
        if self._draft is None:
            return self._emit(self._reasoning_kind, text, start, stop, out)
        if stop > start:
            self._quoting = in_code(self._quoting, text, start, stop)
            self._go_on_drafting(self._draft, text[start:stop], out)
        return stop

    def _format_of(self, found: Found) -> BlockFormat:
        """Of who reads what a marker opens."""
        return self._format

    def _emit(self, kind: type[TextDelta | ReasoningDelta], text: str, start: int, stop: int, out: list[Delta]) -> int:
        if stop > start:
            piece = text[start:stop]
            if kind is TextDelta:
                self._seen.append(piece)
                self._silent = self._silent and piece.isspace()
                out.append(self._text_kind(piece))
            else:
                self._thought_chars += len(piece)
                out.append(kind(piece))
            self._quoting = in_code(self._quoting, text, start, stop)
        return stop

    def _markup(self, text: str, start: int, stop: int, out: list[Delta]) -> None:
        """Reasoning's own markup, which is text where reasoning stays in the text."""
        if self._reasoning_kind is TextDelta:
            self._emit(TextDelta, text, start, stop, out)

    def _begin_draft(self, found: Found, at: int) -> None:
        """Calls may begin here, at this place in the turn."""
        if self._draft is not None:
            self._draft.mark(found)
            return
        reader = self._draft_parser()
        reader._batch, reader._calls, reader._position, reader._raws = self._batch.copy(), self._calls, at, []
        self._draft = Draft(reader, self._format_of(found), at, found)

    def _go_on_drafting(self, draft: Draft, text: str, out: list[Delta]) -> None:
        if draft.feed(text):
            return
        if draft.marked is None:
            self._hide(draft, draft.text, out)
            return
        # What began as another block inside of it may be one of its own.
        stop, found = draft.marked
        whole = draft.text
        self._hide(draft, whole[:stop], out)
        self._begin_draft(found, draft.start + stop)
        again = self._draft
        if again is not None and not again.feed(whole[stop:]):
            self._hide(again, again.text, out)

    def _hide(self, draft: Draft, text: str, out: list[Delta]) -> None:
        """A draft stays one: its text is reasoning."""
        self._draft, self._hidden = None, draft
        if self._reasoning_kind is TextDelta:
            self._said, self.shown_chars = True, self.shown_chars + len(text)
        out.append(self._reasoning_kind(text))

    def _leave(self, out: list[Delta]) -> None:
        """Reasoning ends, and what stood in it was not meant."""
        if self._draft is not None:
            self._hide(self._draft, self._draft.text, out)

    def _end_thoughts(self, out: list[Delta], normal: bool) -> None:
        """The turn is over, wherever it was."""
        if self._draft is not None and self._held:
            held, self._held = self._held, ""
            self._go_on_drafting(self._draft, held, out)
        draft = self._draft
        if draft is not None:
            self._draft = None
            whole = draft.close("stop" if normal else "length")
            if whole and normal and not draft.format.thoughts_hide and self._may_run(draft):
                out += [delta for delta in draft.deltas if not isinstance(delta, TextDelta | TextAside)]
                self._adopt(draft.reader)
            else:
                self._hide(draft, draft.text, out)
                if draft.begun:
                    self._tell(draft, out, cut=not normal)

    def _may_run(self, draft: Draft) -> bool:
        """Whether what a turn ends with, inside reasoning, is a call of a known tool."""
        return draft.calls_known(draft.format.names)

    def _adopt(self, reader: ThinkingParser) -> None:
        """Takes over what a draft's reader knows of the turn's calls."""
        self._batch, self._calls = reader._batch, reader._calls

    def _tell_hidden(self, out: list[Delta]) -> None:
        """The turn is over: if the calls in its thoughts are all that it holds, the model takes them for made."""
        if self._hidden is None or self._batch.begun or self._has_text:
            return
        if not any(isinstance(delta, TextDelta) and not delta.text.isspace() for delta in out):
            self._tell(self._hidden, out)

    def _tell(self, draft: Draft, out: list[Delta], *, cut: bool = False) -> None:
        self._hidden = None
        malformed = draft.malformed(self._calls, cut=cut)
        self._calls += 1
        out.append(malformed)
        self._batch.begun = True
        self._batch.add([malformed.index], {malformed.index}, (), out, broken=True)


class Draft:
    """A block of calls in reasoning, and the blocks right behind it. `reader` reads them as it would in text. `start`
    is the place in the turn of the first one's marker, which was `found`."""

    def __init__(self, reader: ThinkingParser, format: BlockFormat, start: int, found: Found) -> None:  # noqa: A002
        self.reader = reader
        self.format = format
        self.start = start
        self.marked: tuple[int, Found] | None = None
        """The last marker in the text that may begin another block, and where it stands."""
        self.deltas: list[Delta] = []
        self._found = found
        self._over = False  # something stands behind it, or in it
        self._pieces: list[str] = []
        self._length = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def feed(self, text: str) -> bool:
        """Whether all of it may still be calls."""
        self._pieces.append(text)
        self._length += len(text)
        deltas = self.reader.feed(text)
        stop = next((i for i, delta in enumerate(deltas) if _is_none(delta)), len(deltas))
        self.deltas += deltas[: stop + 1]  # what a longer piece has behind that is none of the draft
        self._over = stop < len(deltas) or self.reader.broken_at is not None
        return not self._over

    def mark(self, found: Found) -> None:
        """The marker of another block begins here, unless it is a part of this one."""
        self.marked = self._length, found

    def close(self, reason: FinishReason) -> bool:
        """The turn is over; whether all of it is calls."""
        deltas = self.reader.close(reason)
        self.deltas += deltas
        return not any(map(_is_none, deltas))

    @property
    def begun(self) -> bool:
        """Whether a call began in it."""
        return any(isinstance(delta, CallStarted) for delta in self.deltas)

    def calls_known(self, names: AbstractSet[str]) -> bool:
        """Whether the last call is a whole one of a known tool; without `names` every name is known."""
        calls = [delta for delta in self.deltas if isinstance(delta, CallCompleted | CallMalformed)]
        last = calls[-1] if calls else None
        return isinstance(last, CallCompleted) and (not names or last.name in names)

    def malformed(self, index: int, *, cut: bool) -> CallMalformed:
        """What the model is told of it. `cut`: the turn was cut off in reasoning."""
        name = next((delta.name for delta in self.deltas if isinstance(delta, CallStarted)), None)
        where = "it stood in your thoughts, where nothing runs"
        if cut:
            where = "the turn was cut off inside your thoughts, where nothing runs"
        reason = f"{where}; end your thoughts first, then write the call"
        if name is not None and self.format.names and name not in self.format.names:
            reason = f"{reason}. No tool is called {name!r}"
        return CallMalformed(index, self._raw().strip(), IN_THOUGHTS, reason, self.start, name, True)

    def _raw(self) -> str:
        """The text of its block, or of the first one where something stands behind that."""
        if not self._over:
            return self.text[self._found.length :].rstrip().removesuffix(self._found.marker.end or "")
        if self.reader.first_raw is not None:
            return self.reader.first_raw
        stops = [each.offset for each in self.deltas if isinstance(each, CallMalformed) and each.whole_block]
        stop = stops[0] if stops else self.reader.broken_at
        return "" if stop is None else self.text[self._found.length : stop - self.start]


def _is_none(delta: Delta) -> bool:
    """Whether this is anything else than blocks that can be read, and white space."""
    if isinstance(delta, TextDelta | TextAside):
        return not delta.text.isspace()
    return isinstance(delta, ReasoningDelta | ForgedResults) or (isinstance(delta, CallMalformed) and delta.whole_block)
