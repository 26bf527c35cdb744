"""What a run shows: lines that stay, and the live rows of what is still under way.

The lines and rows are styled text, and nothing of them can control the terminal: every text from a model, a tool or a
file goes through `printable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.chat.display.call_lanes import CallLane, lane_rows, spinner
from toolspeak.chat.display.markdown_stream import MarkdownStream
from toolspeak.chat.display.program_rows import program_rows
from toolspeak.chat.display.result_rows import earlier_call_rows, interrupted_rows, result_rows
from toolspeak.chat.display.styled_text import StyledLine, indent, truncate, wrap
from toolspeak.data.deltas import (
    DIALECT_NOTE,
    ArgumentsDelta,
    BatchEnded,
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    ForgedResults,
    ReasoningDelta,
    TextAside,
    TextDelta,
    TextWasReasoning,
    ToolProgress,
    TurnRestarted,
    other_dialects,
)
from toolspeak.data.events import (
    AnswerRejected,
    ApprovalDecided,
    ApprovalRequested,
    CallSuspended,
    HandedOff,
    HistoryCompacted,
    InterceptorFailed,
    LimitReached,
    ModelAnswered,
    ModelAsked,
    Record,
    RetryScheduled,
    RunFinished,
    RunPaused,
    StopRequested,
    ToolFinished,
    ToolStarted,
)
from toolspeak.data.messages import NORMAL_END, MalformedCall, Message, ToolCall, ToolResult
from toolspeak.ui.format import compaction_text, fold, one_line, printable, value_text

_MOST_THOUGHTS = 200_000
"""Characters of a turn's reasoning that are held for Ctrl-T."""

_SAID_LINES = 12
"""Lines of the person's message that are shown; a paste may have thousands."""

_MOST_OUTPUT = 4_000
"""Characters of an interrupted call's output that the model reads."""


class Transcript:
    """Turns what a run yields into lines and live rows.

    - `write`: adds lines for good.
    - `columns`: returns the width of the terminal.
    - `clock`: returns seconds.
    """

    def __init__(
        self, write: Callable[[Iterable[StyledLine]], None], columns: Callable[[], int], clock: Callable[[], float]
    ) -> None:
        self._write, self._columns, self._clock = write, columns, clock
        self.thoughts = False
        """Whether the model's thoughts are shown."""
        self.turn_text = ""
        """The text of the turn so far."""
        self.lanes: dict[str, CallLane] = {}
        """The calls without a result, by id."""
        self.waiting_for = "the agent to start"
        """Who or what the conversation waits for."""
        self._since = clock()
        self._markdown: MarkdownStream | None = None
        self._aside = ""
        self._carry = ""  # a carriage return whose line feed may come with the next piece
        self._thought = ""
        self._thought_shown = 0
        self._thinks_since: float | None = None
        self._by_index: dict[int, str] = {}
        self._foreign: set[str] = set()
        self._previews: dict[str, str] = {}
        self._malformed_calls = 0  # calls that could not be read, and have no result yet
        self._unseen_previews: set[str] = set()  # calls whose preview the person has not seen

    def wait_for(self, whom: str) -> None:
        """Sets what the conversation waits for, from now on."""
        self.waiting_for, self._since = whom, self._clock()

    @property
    def seconds(self) -> float:
        """How long it has waited for that."""
        return self._clock() - self._since

    # --- what stays ----------------------------------------------------------------------------------------------

    def note(self, text: str, style: str = "note") -> None:
        """Adds a line about the conversation itself, wrapped."""
        self.end_text()
        self._write(wrap([(f"class:{style}", printable(text))], self._columns()))

    def person(self, text: str, attachments: Sequence[str] = ()) -> None:
        """Adds a message of the person, with what goes along."""
        self.end_text()
        lines = printable(text).split("\n")
        folded_lines, more = fold(lines, _SAID_LINES)
        rows = [row for line in folded_lines for row in wrap([("class:said", line)], self._columns() - 2)]
        self._write([[], *indent(rows, [("class:user", "› ")], [("", "  ")])])
        if more:
            self._write([[("class:note", f"  … {more:,} more lines")]])
        self._write([[("class:note", f"  + {one_line(each)}")] for each in attachments])
        self._write([[]])

    def messages(self, messages: Sequence[Message]) -> None:
        """Adds whole messages of an earlier part of the conversation, or of another terminal."""
        for at, message in enumerate(messages):
            if message.role == "user":
                self.person(message.text)
            elif message.role == "assistant":
                if message.text.strip():
                    markdown = MarkdownStream(self._columns())
                    self._write([*markdown.feed(printable(message.text)), *markdown.end()])
                answers = takewhile(lambda each: each.role == "tool", messages[at + 1 :])
                results = {result.call_id: result for each in answers for result in each.results}
                for call in message.calls:
                    self._write(earlier_call_rows(call, results.get(call.id), self._columns()))

    def show(self, item: StreamItem) -> None:
        """Takes one item of the run."""
        match item:
            case TextDelta(text):
                self._text(text)
            case TextAside(text):
                self._aside += printable(text)
                *lines, self._aside = self._aside.split("\n")
                self._dim(lines)
            case ReasoningDelta(text):
                self._think(text)
            case TextWasReasoning():
                self.note("· the text above was reasoning")
            case TurnRestarted():
                self.turn_text = ""
                self.note("· the turn is requested again: the text above does not count")
            case CallStarted() | ArgumentsDelta() | CallCompleted() | CallMalformed() | CallIgnored():
                self._writes_call(item)
            case BatchEnded(_, _, notes):
                self._accept(notes)
            case ForgedResults(raw):
                self.note(f"! ignored: results that the model wrote itself: {value_text(raw, 80)}", "warning")
            case ToolProgress(call_id, message):
                lane = self.lanes.get(call_id)
                if lane is not None:
                    lane.output.extend(printable(message).split("\n"))
            case Record():
                self._record(item)
            case _:
                pass

    def end_text(self) -> None:
        """Ends the text that streams: what follows stands below it."""
        if self._markdown is not None:
            self._write(self._markdown.feed(printable(self._carry)) + self._markdown.end())
            self._markdown, self._carry = None, ""
        if self._aside:
            self._dim([self._aside])
            self._aside = ""
        self._end_thought()

    def _text(self, text: str) -> None:
        self._end_thought()
        self.turn_text += text
        if self._markdown is None:
            text = text.lstrip("\n")
            if not text:
                return
            self._markdown = MarkdownStream(self._columns())
            self.wait_for("the rest of the answer")
        text = self._carry + text
        self._carry = "\r" if text.endswith("\r") else ""
        self._markdown.width = self._columns()
        self._write(self._markdown.feed(printable(text.removesuffix("\r"))))

    def _dim(self, lines: Sequence[str], style: str = "class:note") -> None:
        self._write(row for line in lines for row in wrap([(style, line)], self._columns()))

    # --- thoughts ------------------------------------------------------------------------------------------------

    def show_thoughts(self) -> None:
        """Shows the model's thoughts from here on, with those of the last turn; or hides them again."""
        self.thoughts = not self.thoughts
        if self.thoughts and self._thought_shown < len(self._thought):
            rest = self._thought[self._thought_shown :]
            end = len(rest) if self._thinks_since is None else rest.rfind("\n") + 1
            self._thought_shown += end
            self._dim(rest[:end].strip("\n").split("\n") if end else [], "class:thought")
        self._dim([f"· thoughts are {'shown' if self.thoughts else 'hidden'} from here on (Ctrl-T)"])

    def _think(self, text: str) -> None:
        if self._thinks_since is None:
            self.end_text()
            self._thinks_since, self._thought, self._thought_shown = self._clock(), "", 0
            self.wait_for("the model's thoughts")
        if len(self._thought) < _MOST_THOUGHTS:
            self._thought += printable(text)
        end = self._thought.rfind("\n") + 1
        if self.thoughts and end > self._thought_shown:
            self._dim(self._thought[self._thought_shown : end].removesuffix("\n").split("\n"), "class:thought")
            self._thought_shown = end

    def _end_thought(self) -> None:
        if self._thinks_since is None:
            return
        seconds, self._thinks_since = self._clock() - self._thinks_since, None
        if not self._thought.strip():
            return
        if self.thoughts:
            rest, self._thought_shown = self._thought[self._thought_shown :], len(self._thought)
            self._dim([*rest.rstrip("\n").split("\n"), ""] if rest.strip() else [""], "class:thought")
        else:
            self._dim([f"· thought for {seconds:.0f} s (Ctrl-T shows it)"])

    # --- calls ---------------------------------------------------------------------------------------------------

    def _writes_call(self, delta: CallStarted | ArgumentsDelta | CallCompleted | CallMalformed | CallIgnored) -> None:
        match delta:
            case CallStarted(index, name, _, call_id):
                self.end_text()
                self._by_index[index] = call_id or str(index)
                self.lanes[call_id or str(index)] = CallLane(name)
                self.wait_for("the model's calls")
            case ArgumentsDelta(index, text):
                lane = self.lanes.get(self._by_index.get(index, ""))
                if lane is not None:
                    lane.write(text)
            case CallCompleted(index, name, arguments, notes=notes, call_id=call_id):
                self.end_text()
                lane = self.lanes.setdefault(call_id or str(index), CallLane(name))
                lane.call, lane.state = ToolCall(call_id or "", name, arguments), "is written"
                self._accept(notes)
            case CallMalformed(index, call_id=call_id):
                self.lanes.pop(call_id or str(index), None)
                self._malformed_calls += 1
                tool_phrase = f" of {delta.name}" if delta.name else ""
                self.note(f"✗ malformed call{tool_phrase} ({delta.code}): {delta.reason}", "error")
                self._dim([f"    {value_text(delta.raw, 120)}"])
            case CallIgnored(index, reason):
                lane = self.lanes.pop(self._by_index.get(index, ""), None)
                name = lane.name if lane is not None else f"number {index + 1}"
                self.note(f"! call {name} is ignored: {reason}", "warning")

    def _accept(self, notes: tuple[str, ...]) -> None:
        others = [name for name in other_dialects(notes) if name not in self._foreign]
        if others:
            self._foreign.update(others)
            self.note(f"! not in the model's own dialect, but in {' and '.join(others)}", "warning")
        lenient = [note for note in notes if not note.startswith(DIALECT_NOTE)]
        if lenient:
            self._dim([one_line(f"    accepted leniently: {', '.join(lenient)}")])

    def _result(self, result: ToolResult) -> None:
        lane = self.lanes.pop(result.call_id, None)
        if result.code == "malformed" and self._malformed_calls:
            self._malformed_calls -= 1  # it was shown when it came
            return
        preview = self._previews.pop(result.call_id, "")
        is_unseen = result.call_id in self._unseen_previews
        self.end_text()
        self._write(result_rows(result, lane, self._ran(lane), self._columns(), preview, is_unseen=is_unseen))

    def _ran(self, lane: CallLane | None) -> float | None:
        """How many seconds a call has run; None if it has not started."""
        return None if lane is None or lane.started_at is None else self._clock() - lane.started_at

    def continue_calls(self, calls: Iterable[ToolCall | MalformedCall], results: Iterable[ToolResult]) -> None:
        """Takes the calls of a turn that goes on in another process, and those of their results that there are."""
        done_ids = {result.call_id for result in results}
        for call in calls:
            if call.id not in done_ids:
                lane = self.lanes[call.id] = CallLane(call.name or "?")
                lane.call, lane.state = call, "waits"

    def end_calls(self) -> dict[str, str]:
        """Writes the calls that the person has ended. Returns what those that ran had written until then, by id."""
        self.end_text()
        outputs: dict[str, str] = {}
        for call_id, lane in self.lanes.items():
            self._write(interrupted_rows(lane, self._ran(lane), self._columns()))
            if lane.started_at is not None and lane.output:
                outputs[call_id] = "\n".join(lane.output)[-_MOST_OUTPUT:]
        self.lanes.clear()
        return outputs

    # --- facts ---------------------------------------------------------------------------------------------------

    def _record(self, record: Record) -> None:
        match record.event:
            case ModelAsked():
                self.end_text()
                self.turn_text = ""
                self._by_index.clear()
                self.wait_for("the model")
            case ModelAnswered(message, finish):
                self.end_text()
                self.turn_text = ""
                lanes = {call.id: self.lanes.get(call.id) or CallLane(call.name or "?") for call in message.calls}
                for call in message.calls:
                    lanes[call.id].call, lanes[call.id].state = call, "waits"
                self.lanes = lanes
                for call in message.calls:
                    self._write(program_rows(call))
                if lanes:
                    self.wait_for("the calls")
                if finish not in NORMAL_END and finish != "closed_by_us":
                    self.note(f"! the model's turn ended early: {finish}", "warning")
            case ApprovalRequested() as request:
                self._previews[request.call_id] = request.preview
                self._change(request.call_id, "asks you")
            case ApprovalDecided(call_id, is_approved, reason, by):
                self._change(call_id, "is allowed" if is_approved else "is refused")
                self.wait_for("the calls")  # from now on: the time before was the person's
                if by != "user":
                    suffix = f": {reason}" if reason else ""
                    which = f"{self.lanes[call_id].name} " if call_id in self.lanes and len(self.lanes) > 1 else ""
                    sign, word = ("✓", "allowed") if is_approved else ("✗", "refused")
                    answer = f"  {sign} {which}{word} by {by or 'someone'}{suffix}"
                    self.note(one_line(answer), "done" if is_approved else "error")
            case ToolStarted(call_id):
                lane = self.lanes.get(call_id)
                if lane is not None:
                    lane.state, lane.started_at = "runs", self._clock()
            case CallSuspended(call_id, event=event):
                self._change(call_id, f"waits for {one_line(event or 'a time')}")
            case ToolFinished(result):
                self._result(result)
            case _:
                self._rare(record)

    def _rare(self, record: Record) -> None:
        match record.event:
            case LimitReached(limit, _, maximum):
                self.note(f"! the limit of {maximum:g} {limit} is reached: asking for a final answer", "warning")
            case HistoryCompacted() as event:
                self.note(f"· {compaction_text(event)}")
            case InterceptorFailed(interceptor, level, hook, error):
                self.note(f"! the interceptor {interceptor} failed ({hook} a {level}): {error}", "error")
            case RetryScheduled(error, seconds, call_id=None):
                self.note(f"! the model's API failed and is asked again after {seconds:.1f} s: {error}", "warning")
            case RetryScheduled(error, seconds):
                self.note(f"! a call failed and runs again after {seconds:.1f} s: {error}", "warning")
            case AnswerRejected(reason):
                self.note(f"! the answer does not match the requested type: {reason}", "warning")
            case StopRequested(reason, message, by=by) if by != "user":  # the result says what the person did
                self.note(f"! the turn stops ({reason.replace('_', ' ')}): {message}", "warning")
            case HandedOff(_, agent, model):
                self.note(f"→ {agent} continues ({model})")
            case RunPaused() | RunFinished():
                self.end_run()
            case _:
                pass

    def show_with_result(self, call_id: str) -> None:
        """Takes that the person was not shown what the call would change: it stands below its result."""
        self._unseen_previews.add(call_id)

    def _change(self, call_id: str, state: str) -> None:
        lane = self.lanes.get(call_id)
        if lane is not None:
            lane.state = state

    def end_run(self) -> None:
        """Forgets what was under way: the run has ended, or is interrupted."""
        self.end_text()
        self.lanes.clear()
        self._previews.clear()
        self._unseen_previews.clear()
        self._malformed_calls = 0
        self.wait_for("you")

    # --- what is under way ---------------------------------------------------------------------------------------

    def rows(self, columns: int, most: int) -> list[StyledLine]:
        """The live rows: the unfinished block, thoughts, and a lane for each call. At most `most`, the newest."""
        rows: list[StyledLine] = []
        if self._markdown is not None:
            rows += [truncate(line, columns) for line in self._markdown.tail(most)]
        if self._thinks_since is not None:
            seconds = self._clock() - self._thinks_since
            if self.thoughts:
                last = wrap([("class:thought", self._thought[self._thought_shown :])], columns)
                rows += last[-most:] if self._thought[self._thought_shown :].strip() else []
            rows.append(
                [("class:spinner", f"{spinner(self._clock())} "), ("class:note", f"thinking … {seconds:.0f} s")]
            )
        rows += lane_rows(self.lanes, columns, max(2, most - len(rows)), self._clock)
        if not rows and self.waiting_for in ("the model", "the summary", "your command", "the other process"):
            rows.append(
                [
                    ("class:spinner", f"{spinner(self._clock())} "),
                    ("class:note", f"waiting for {self.waiting_for} … {self.seconds:.0f} s"),
                ]
            )
        return rows[-most:]
