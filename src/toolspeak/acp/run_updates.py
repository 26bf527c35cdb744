"""What happens in a run as updates of a session, in the words of the Agent Client Protocol."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from toolspeak.acp.call_presentation import (
    FileChange,
    JsonObject,
    call_fields,
    call_kind,
    content_of,
    result_fields,
    shown_id,
)
from toolspeak.acp.prompt_content import blocks_of, fence, text_block
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.data.deltas import (
    CallCompleted,
    CallIgnored,
    CallMalformed,
    CallStarted,
    ReasoningDelta,
    TextAside,
    TextDelta,
    ToolProgress,
    TurnRestarted,
)
from toolspeak.data.events import (
    AnswerRejected,
    ApprovalDecided,
    ApprovalRequested,
    HistoryCompacted,
    InterceptorFailed,
    LimitReached,
    ModelAnswered,
    ModelAsked,
    Record,
    RetryScheduled,
    RunFinished,
    RunStarted,
    StopRequested,
    ToolFinished,
    ToolStarted,
    UserMessageQueued,
)
from toolspeak.data.messages import JSON, MalformedCall, Message, ReasoningPart, TextPart, ToolCall, ToolResult
from toolspeak.tools.builtin.todo import TODO
from toolspeak.ui.format import compaction_text, one_line, printable, shorten

_PROGRESS_LINES = 40
"""How many lines of a running tool's reports are shown: the last ones."""

_PROGRESS_LINE = 400
"""How many characters of such a line are shown."""


class RunUpdates:
    """Makes updates of one run's deltas and records, in order.

    Records alone give the whole conversation (`replays`), so a loaded session and a live one look the same.

    - `folder`: the session's, for absolute paths.
    - `run_id`: makes the ids of the calls unique in the session.
    - `replays`: the run is over: its user's messages are shown too.
    - `calls_only`: for a sub-run, which says nothing to the user.
    """

    def __init__(self, folder: str, run_id: str, *, replays: bool = False, calls_only: bool = False) -> None:
        self._folder = folder
        self._run_id = run_id
        self._replays = replays
        self._calls_only = calls_only
        self._message_id = ""
        self._turn_text = ""
        self._is_recorded = False
        self._has_reasoning = False
        self._ids: dict[int, str] = {}  # the calls of the turn, by index
        self._open: dict[str, ToolCall | MalformedCall | None] = {}  # announced, without a result
        self._questions: set[str] = set()  # calls about which the editor showed a question
        self._with_content: set[str] = set()  # calls that are shown with a change or a terminal
        self._terminals: dict[str, JsonObject] = {}  # the terminals of calls, as content
        self._progress: dict[str, deque[str]] = {}

    def updates(
        self, item: StreamItem, change: FileChange | None = None, changes: Sequence[FileChange] = ()
    ) -> list[JsonObject]:
        """The updates that an item leads to. `change`: of the file that a `CallCompleted` is about. `changes`: what the
        call of a `ToolFinished` has changed."""
        match item:
            case TextDelta(text) if text:
                self._turn_text += text
                return self._chunk("agent_message_chunk", text)
            case ReasoningDelta(text) | TextAside(text) if text:
                self._has_reasoning = self._has_reasoning or isinstance(item, ReasoningDelta)
                return self._chunk("agent_thought_chunk", text)
            case CallStarted(index, name, _, call_id) if call_id is not None:
                self._ids[index] = call_id
                self._open[call_id] = None
                return [
                    self._update("tool_call", call_id, title=one_line(name), status="pending", kind=call_kind(name))
                ]
            case CallCompleted(index, name, arguments, _, _, _, _, call_id) if call_id is not None:
                self._ids[index] = call_id
                return self._announce(ToolCall(call_id, name, arguments), change)
            case CallMalformed(index, raw, code, reason, _, name, _, call_id) if call_id is not None:
                self._ids[index] = call_id
                return self._announce(MalformedCall(call_id, raw, code, reason, name))
            case CallIgnored(index, reason) if index in self._ids:
                return self._drop([self._ids[index]], f"The call is ignored: {reason}")
            case ToolProgress(call_id, message):
                lines = self._progress.setdefault(call_id, deque(maxlen=_PROGRESS_LINES))
                lines.append(shorten(printable(message), _PROGRESS_LINE))
                block = text_block(fence("\n".join(lines), "console"))
                return [self._update("tool_call_update", call_id, content=[content_of(block)])]
            case TurnRestarted():
                drop_updates = self._drop(list(self._ids.values()), "The turn is requested again.")
                return [*drop_updates, *self._note("The turn is requested again: the text above does not count.")]
            case Record():
                return self._of_record(item, changes)
            case _:
                return []

    def show_terminal(self, call_id: str, terminal: JsonObject) -> None:
        """The editor shows the call with a terminal: a success does not replace it."""
        self._with_content.add(call_id)
        self._terminals[call_id] = terminal

    @property
    def partial_text(self) -> str:
        """The text of a turn that is under way."""
        return "" if self._is_recorded else self._turn_text

    def user_message(self, message: Message) -> list[JsonObject]:
        """A message of the user, as a loaded session shows it."""
        blocks = blocks_of(message.parts)
        return [{"sessionUpdate": "user_message_chunk", "content": block} for block in blocks]

    def of_message(self, message: Message) -> list[JsonObject]:
        """A message of a history without records, as a fork begins with."""
        match message.role:
            case "user":
                return self.user_message(message)
            case "assistant":
                return self._of_answer(message)
            case "tool":
                return [update for result in message.results for update in self._of_result(result)]
            case _:
                return []

    def end_interrupted_turn(self) -> list[JsonObject]:
        """The updates at the end of a turn that was interrupted: its calls are over."""
        return self._drop(list(self._open), "The turn was interrupted.")

    def _of_record(self, record: Record, changes: Sequence[FileChange]) -> list[JsonObject]:
        match event := record.event:
            case RunStarted(messages) if self._replays:
                return [update for each in messages if each.role == "user" for update in self.user_message(each)]
            case UserMessageQueued(message) if self._replays:
                return self.user_message(message)
            case ModelAsked():
                self._message_id = f"{record.run_id}-{record.step}"
                self._turn_text, self._has_reasoning, self._ids, self._is_recorded = "", False, {}, False
                return []
            case ModelAnswered(message):
                self._is_recorded = True
                return self._of_answer(message)
            case ApprovalRequested(call_id):
                self._questions.add(call_id)
                return []
            case ApprovalDecided(call_id, is_approved, reason, by) if call_id not in self._questions:
                call = self._open.get(call_id)
                because = f": {reason}" if reason else ""
                name = one_line((call.name if call is not None else None) or call_id)
                return self._note(f"{name} is {'allowed' if is_approved else 'refused'} by {by or 'someone'}{because}.")
            case ToolStarted(call_id, _, _, _, _, _, changed_call):
                fields = {} if changed_call is None else call_fields(changed_call, self._folder)
                return [self._update("tool_call_update", call_id, status="in_progress", **fields)]
            case ToolFinished(result):
                return self._of_result(result, changes)
            case HistoryCompacted():
                return self._note(f"{compaction_text(event)}.")
            case LimitReached(limit, _, maximum):
                return self._note(
                    f"The limit of {maximum:g} {limit} is reached: the model is asked for a final answer."
                )
            case AnswerRejected(reason):
                return self._note(f"The answer does not match the requested type: {reason}")
            case StopRequested(reason, text):
                return self._note(f"The run stops ({reason.replace('_', ' ')}): {text}")
            case InterceptorFailed(interceptor, level, hook, error):
                return self._note(f"The interceptor {interceptor} failed ({hook} a {level}): {error}")
            case RetryScheduled(error, seconds, call_id=call_id):
                what = "The model's API failed and is asked" if call_id is None else "A call failed and runs"
                return self._note(f"{what} again after {seconds:.1f} s: {error}")
            case RunFinished(_, answer):
                drop_updates = self._drop(list(self._open), "The run ended before the call had a result.")
                is_new = answer.strip() and answer.strip() != self._turn_text.strip()
                return [*drop_updates, *(self._chunk("agent_message_chunk", answer) if is_new else ())]
            case _:
                return []

    def _of_answer(self, message: Message) -> list[JsonObject]:
        """A turn as it is recorded: what was not shown while it streamed."""
        updates: list[JsonObject] = []
        shows_text = not self._turn_text
        for part in message.parts:
            if isinstance(part, ReasoningPart) and part.text and not self._has_reasoning:
                updates += self._chunk("agent_thought_chunk", part.text)
            elif isinstance(part, TextPart) and part.text and shows_text:
                self._turn_text += part.text
                updates += self._chunk("agent_message_chunk", part.text)
        counted_ids = {call.id for call in message.calls}
        updates += self._drop(
            [each for each in self._ids.values() if each not in counted_ids], "The call does not count."
        )
        for call in message.calls:
            if self._open.get(call.id) is None:
                updates += self._announce(call)
        return updates

    def _announce(self, call: ToolCall | MalformedCall, change: FileChange | None = None) -> list[JsonObject]:
        kind = "tool_call_update" if call.id in self._open else "tool_call"
        self._open[call.id] = call
        fields = call_fields(call, self._folder, change)
        if "content" in fields:
            self._with_content.add(call.id)
        return [self._update(kind, call.id, status="pending", **fields)]

    def _of_result(self, result: ToolResult, changes: Sequence[FileChange] = ()) -> list[JsonObject]:
        call = self._open.pop(result.call_id, None)
        self._progress.pop(result.call_id, None)
        fields = result_fields(result, result.call_id in self._with_content)
        terminal = self._terminals.pop(result.call_id, None)
        if changes:
            own = [terminal] if terminal is not None else fields.get("content", [])
            diffs = [each.content() for each in changes]
            fields["content"] = diffs if call_kind(result.name) == "edit" else [*cast("list[JSON]", own), *diffs]
        updates = [self._update("tool_call_update", result.call_id, **fields)]
        self._with_content.discard(result.call_id)
        if result.name == TODO and result.status == "success" and isinstance(call, ToolCall) and not self._calls_only:
            updates += plan_of(call.arguments)
        return updates

    def _drop(self, call_ids: Iterable[str], reason: str) -> list[JsonObject]:
        updates: list[JsonObject] = []
        for call_id in call_ids:
            if call_id in self._open:
                del self._open[call_id]
                content = [content_of(text_block(printable(reason)))]
                updates.append(self._update("tool_call_update", call_id, status="failed", content=content))
        return updates

    def _note(self, text: str) -> list[JsonObject]:
        return self._chunk("agent_thought_chunk", f"\n\n{text}\n\n")

    def _chunk(self, kind: str, text: str) -> list[JsonObject]:
        if self._calls_only:
            return []
        update: JsonObject = {"sessionUpdate": kind, "content": text_block(printable(text.replace("\r", "")))}
        if self._message_id:
            suffix = "-thought" if kind == "agent_thought_chunk" else ""
            update["messageId"] = self._message_id + suffix
        return [update]

    def _update(self, update: str, call_id: str, /, **fields: JSON) -> JsonObject:
        return {"sessionUpdate": update, "toolCallId": shown_id(self._run_id, call_id), **fields}


_PLAN_STATES: Mapping[str, str] = {"in_progress": "in_progress", "completed": "completed"}


def plan_of(arguments: Mapping[str, JSON]) -> list[JsonObject]:
    """The update of the plan that a call of the tool `todo` leads to."""
    entries: list[JsonObject] = []
    for item in cast("Iterable[JSON]", arguments.get("items") or ()):
        if isinstance(item, Mapping):
            entry = cast("Mapping[str, JSON]", item)
            text = printable(str(entry.get("text", "")))
            entries.append({"content": text, "priority": "medium", "status": entry.get("state", "pending")})
    return [{"sessionUpdate": "plan", "entries": entries}]
