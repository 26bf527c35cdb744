"""Decides which of a driver's deltas leave for the client at once, which wait, and which never leave. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

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
    TextWasReasoning,
    TurnEnded,
)
from toolspeak.data.messages import NORMAL_END, ToolChoice
from toolspeak.data.values import quick
from toolspeak.dialects.parser.parsed_turn import with_reasoning
from toolspeak.errors import ProviderError

NoteCode = Literal[
    "malformed_call",
    "repaired_call",
    "leaked_call",
    "reasoning_sent_as_text",
    "call_left_out",
    "tool_choice_not_followed",
    "asked_again",
    "usage_estimated",
    "tool_limit",
    "tools_not_carried",
    "tool_left_out",
    "call_without_result",
    "result_without_call",
    "result_moved",
    "result_repeated",
    "result_without_id",
    "call_id_repeated",
    "reasoning_left_out",
    "response_not_stored",
]
"""The codes of notes: deviations of a turn from its request."""


_NOT_COUNTED = "its block cannot be read to the end, so no call of the block counts"

LONGEST_BLANK = 256
"""White space up to so many characters waits for the next text; longer white space leaves."""


@dataclass(frozen=True, slots=True)
class Note:
    code: NoteCode
    message: str


@quick()
class ReleaseRules:
    """The client's conditions for a turn, and how its deltas may leave.

    - `hold_calls`: a call leaves whole, once it counts.
    - `hold_text`: text waits for the first call.
    - `repairs`: how many more times the gateway may ask the model again after a malformed call.
    - `required_call_retries`: the same, after a turn without the required call.
    - `can_invalidate`: the client's format can still invalidate a call that was sent whole, by text that is not JSON.
    - `in_text`: the calls of the turn are text.
    """

    choice: ToolChoice = ToolChoice()
    parallel: bool | None = None
    hold_calls: bool = False
    hold_text: bool = False
    repairs: int = 0
    required_call_retries: int = 0
    can_invalidate: bool = False
    in_text: bool = False

    @property
    def requires(self) -> bool:
        return self.choice.mode in ("required", "specific")

    def admits(self, name: str) -> bool:
        """Whether the tool choice allows a call of this tool."""
        return self.choice.mode in ("auto", "required") or name == self.choice.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a turn. `again` is why the turn must be asked again, else None; if set, the end of the turn was not
    sent."""

    again: Literal["malformed", "no_call"] | None
    end: TurnEnded


class TurnGate:
    """Takes one turn's deltas and returns those that leave. `outcome` is set once `TurnEnded` was fed.

    Calls that do not count, that the tool choice forbids, or that come after the only one that is allowed, never leave.
    If a call was sent and turns out not to count, the gate invalidates it (`ReleaseRules.can_invalidate`), or the turn
    fails. In a turn in text (`ReleaseRules.in_text`), white space leaves only with the text after it, and the line
    breaks between thoughts, calls and text never leave: clients would show them as a message. The end of a call
    (`CallCompleted`) leaves with the delta that follows it: until then every format can invalidate the call.
    """

    def __init__(self, rules: ReleaseRules) -> None:
        self.outcome: Outcome | None = None
        self.notes: list[Note] = []
        self.size = 0
        """Bytes of text, reasoning and arguments so far."""
        self.calls = 0
        """Calls that left whole."""
        self.malformed_calls = 0
        self.forged_results = 0
        self._rules = rules
        self._text: list[Delta] | None = [] if rules.hold_text else None
        self._open_calls: set[int] = set()
        self._whole_calls: set[int] = set()
        self._held_end: CallCompleted | None = None
        self._refused_calls: set[int] = set()
        self._held_calls: list[CallCompleted | CallMalformed] = []
        self._ignored_calls: set[int] = set()
        self._counting_calls: set[int] = set()
        self._left_out: list[str] = []
        self._blank: str | None = "" if rules.in_text else None
        """The white space at the start of this run of text; None once other text came."""
        self._after_thought_or_call = False
        """Whether this run of text follows a thought or a call."""

    def feed(self, delta: Delta) -> Sequence[Delta]:
        """The deltas that leave now. Raises ProviderError for a call that has left, does not count and cannot be
        invalidated."""
        if self._held_end is not None:
            return [*self._release_held_end(delta), *self._feed(delta)]
        if delta.__class__ is TextDelta and self._text is None and self._blank is None:  # most deltas of a turn
            self.size += text_size(cast("TextDelta", delta).text)
            return (delta,)
        return self._feed(delta)

    def _release_held_end(self, delta: Delta) -> Sequence[Delta]:
        """What leaves of the complete call, now that this delta follows it."""
        call = self._held_end
        assert call is not None
        if isinstance(delta, CallIgnored) and delta.index != call.index:
            return ()  # another call of the same block
        if isinstance(delta, TextDelta) and not delta.text.strip():
            return ()
        self._held_end = None
        match delta:
            case CallIgnored(index, reason) if index == call.index:
                pass
            case BatchEnded(selected_calls) if call.index not in selected_calls:
                reason = _NOT_COUNTED
            case _:
                self._whole_calls.add(call.index)
                return (call,)
        malformed_call = CallMalformed(call.index, "", "taken_back", reason, 0)
        self._note_invalidated(malformed_call)
        return (malformed_call,)

    def _feed(self, delta: Delta) -> Sequence[Delta]:
        kind = delta.__class__
        if kind is TextDelta:
            self.size += text_size(cast("TextDelta", delta).text)
            if self._blank is not None:
                text = self._unblank(cast("TextDelta", delta).text)
                if not text:
                    return ()
                delta = TextDelta(text)
            if self._text is None:
                return (delta,)
            self._text.append(delta)
            return ()
        if kind is ArgumentsDelta:
            fragment = cast("ArgumentsDelta", delta)
            self.size += text_size(fragment.text)
            return (delta,) if fragment.index in self._open_calls else ()
        if self._rules.in_text and (kind is ReasoningDelta or kind is CallStarted or kind is CallCompleted):
            self._blank, self._after_thought_or_call = "", True
        match delta:
            case ReasoningDelta(text):
                self.size += text_size(text)
                return (delta,)
            case PartEnded("text") if self._text is not None:
                self._text.append(delta)
                return ()
            case CallStarted(index, name):
                return self._feed_started(delta, index, name)
            case CallCompleted():
                return self._feed_completed(delta)
            case CallMalformed():
                return self._feed_malformed(delta)
            case CallIgnored(index):
                self._ignored_calls.add(index)
                return ()
            case BatchEnded(selected_calls, _, notes):
                self._counting_calls.update(selected_calls)
                if LEAK_NOTE in notes:
                    self._note(
                        "leaked_call", "the server left calls of the model in the text; the gateway read them there"
                    )
                return self._invalidate_uncounted()
            case TextAside(text):
                self.size += text_size(text)
                return ()
            case TextWasReasoning():
                return self._was_reasoning(delta)
            case ForgedResults():
                self.forged_results += 1
                return ()
            case TurnEnded():
                return self._end(delta)
            case _:
                return (delta,)

    def _unblank(self, text: str) -> str:
        """What leaves of a run of text that was only white space so far."""
        text = f"{self._blank}{text}"
        if len(text) <= LONGEST_BLANK and not text.strip():
            self._blank = text
            return ""
        self._blank = None
        return text.lstrip("\r\n") if self._after_thought_or_call else text

    def _was_reasoning(self, delta: TextWasReasoning) -> Sequence[Delta]:
        """Takes the text so far as reasoning; if the gate holds text, none of it has left."""
        if self._rules.in_text:
            self._blank, self._after_thought_or_call = "", True
        if self._text is not None:
            self._text = with_reasoning([*self._text, delta])
            return ()
        self._note("reasoning_sent_as_text", "reasoning was sent as text; set starts_in = 'reasoning' for the upstream")
        return (delta,)

    def _feed_started(self, delta: Delta, index: int, name: str) -> Sequence[Delta]:
        if self._rules.hold_calls:
            return ()
        if not self._rules.admits(name) or (self._rules.parallel is False and self._open_calls):
            self._refused_calls.add(index)
            return ()
        self._open_calls.add(index)
        return (*self._release(), delta)

    def _feed_completed(self, call: CallCompleted) -> Sequence[Delta]:
        if call.index in self._open_calls:
            self._held_end = call
            return ()
        if call.index in self._refused_calls:
            self._left_out.append(call.name)
            return ()
        if self._rules.hold_calls:
            self._held_calls.append(call)
            return ()
        leaving = self._feed_started(call, call.index, call.name)
        if not leaving:
            self._left_out.append(call.name)
            return ()
        self._held_end = call
        return leaving[:-1]

    def _feed_malformed(self, call: CallMalformed) -> Sequence[Delta]:
        self.malformed_calls += 1
        if call.index in self._open_calls:
            self._note_invalidated(call)
            return (call,)
        if self._rules.hold_calls or self._may_repair():
            self._held_calls.append(call)
            return ()
        self._note_as_text(call)
        return (*self._release(), call)

    def _note_invalidated(self, call: CallMalformed) -> None:
        self._whole_calls.discard(call.index)
        self._note("malformed_call", f"a call that was sent in part cannot be read: {call.reason}")

    def _note_as_text(self, call: CallMalformed) -> None:
        self._note("malformed_call", f"a call cannot be read, so it was sent as text: {call.reason}")

    def _may_repair(self) -> bool:
        return self._rules.repairs > 0 and not self._open_calls and self._rules.choice.mode != "none"

    def _invalidate_uncounted(self) -> Sequence[Delta]:
        """Invalidates the calls that left whole and that the end of their batch does not count."""
        uncounted_calls = sorted(self._whole_calls - self._counting_calls)
        if not uncounted_calls:
            return ()
        self._whole_calls.difference_update(uncounted_calls)
        why = _NOT_COUNTED
        if not self._rules.can_invalidate:
            raise ProviderError(
                f"a call that was sent must not run: {why}; send the request again, or start the gateway with "
                "--hold-calls",
                retryable=True,
                code="ill_formed",
            )
        self._note("malformed_call", f"a call that was sent must not run: {why}")
        return [CallMalformed(index, "", "taken_back", why, 0) for index in uncounted_calls]

    def _release(self) -> list[Delta]:
        deltas, self._text = self._text or [], None
        return deltas

    def _end(self, end: TurnEnded) -> Sequence[Delta]:
        rules = self._rules
        calls = self._counting()
        bad = [call for call in self._held_calls if isinstance(call, CallMalformed)]
        # Asking again does not help with a turn that was cut off or refused.
        if not self._open_calls and (end.finish in NORMAL_END or end.finish == "closed_by_us"):
            again: Literal["malformed", "no_call"] | None = None
            if bad and self._may_repair():
                again = "malformed"
            elif rules.requires and not calls and rules.required_call_retries > 0:
                again = "no_call"
            if again is not None:
                self.outcome = Outcome(again, end)
                return ()
        out: list[Delta] = self._release()
        if self._blank and not self._after_thought_or_call:
            out.append(TextDelta(self._blank))  # the whole answer
        counting = {call.index for call in calls}
        for call in self._held_calls:
            if isinstance(call, CallMalformed):
                self._note_as_text(call)
                out.append(call)
            elif call.index in counting:
                out.append(call)
        self.calls = len(counting) + len(self._whole_calls)
        if rules.requires and not self.calls:
            self._note("tool_choice_not_followed", "the model did not call the required tool")
        if self._left_out:
            names = ", ".join(sorted(set(self._left_out)))
            self._note("call_left_out", f"the gateway left out calls that the request does not allow: {names}")
        self.outcome = Outcome(None, end)
        return [*out, end]

    def _counting(self) -> list[CallCompleted]:
        """The held calls that count and may leave."""
        counting: list[CallCompleted] = []
        for call in self._held_calls:
            if not isinstance(call, CallCompleted):
                continue
            counts = call.index in self._counting_calls and call.index not in self._ignored_calls
            if not counts:
                continue
            if self._rules.admits(call.name) and not (self._rules.parallel is False and counting):
                counting.append(call)
            else:
                self._left_out.append(call.name)
        return counting

    def _note(self, code: NoteCode, message: str) -> None:
        self.notes.append(Note(code, message))


def text_size(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
