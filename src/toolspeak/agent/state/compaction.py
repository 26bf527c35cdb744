"""Making a history shorter that fills the model's window: what is cleared, what is summarised, what stays. Pure.

The system messages a history begins with stay in front, unchanged. A call and its results stay together: a cut is
never before results. The records keep everything; see `load_state(…, whole=True)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolspeak.data.events import HistoryCompacted
from toolspeak.data.messages import JsonPart, MalformedCall, Message, Part, TextPart, ToolCall, ToolResult
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError

CLEARED = "cleared"
"""The key in a result's `extra` that says how many characters of it were cleared."""

_CLEARED = "[This result ({count} characters) was cleared to make room. If you need it, read again what it told.]"
_SUMMARY = "[What was said until here was summarised to make room. The summary:]\n{summary}"
_WORTH_IT = 400  # characters: a shorter result is hardly longer than the note in its place


@quick()
class Window:
    """How many tokens a model reads, and what happens when a conversation fills them.

    Once the next turn would read the share `compact_at` of the `tokens`, old results are cleared. If that does not
    bring it below the share `goal`, what is old is replaced by a summary that the model writes (without `summarise`
    it is left out, and the model is told so). The newest messages, about the share `keep`, stay as they are.

    Raises ConfigurationError for shares that are not 0 < keep < goal < compact_at <= 1.
    """

    tokens: int
    compact_at: float = 0.8
    goal: float = 0.5
    keep: float = 0.25
    summarise: bool = True

    def __post_init__(self) -> None:
        if self.tokens < 1 or not 0 < self.keep < self.goal < self.compact_at <= 1:
            raise ConfigurationError(
                f"a window has at least 1 token and shares 0 < keep < goal < compact_at <= 1; this is {self}"
            )


@quick()
class Plan:
    """`cleared` are the calls whose results are cleared; or the messages before `upto` are summarised, but for the
    system messages in front and those `pinned` as they are. Tokens are estimates of what the next turn would read."""

    cleared: tuple[str, ...]
    upto: int
    pinned: tuple[int, ...]
    tokens_before: int
    tokens_after: int


def characters(message: Message) -> int:
    """How long a message is as text, for estimates of its tokens."""
    return sum(map(_part_characters, message.parts))


def tokens_of(message: Message) -> int:
    """An estimate: four characters a token, the usual rule of thumb for English text and code."""
    return characters(message) // 4


def plan_compaction(history: Sequence[Message], context: int, task: int, window: Window) -> Plan | None:
    """What to do about a history whose next turn would read `context` tokens; None if nothing is to be done, or nothing
    can be. `task` is the number of the message that says what is to be done now: it is never summarised."""
    if context < window.compact_at * window.tokens:
        return None
    sizes = [tokens_of(message) for message in history]
    scale = max(1.0, context / max(1, sum(sizes)))  # what the provider counts, by what we count
    head = _head(history)
    start = _newest(history, sizes, head, window.keep * window.tokens / scale)
    cleared = [result for message in history[head:start] for result in message.results if _is_worth_it(result)]
    after = context - scale * sum(_part_characters(result) // 4 - len(_CLEARED) // 4 for result in cleared)
    if cleared and after <= window.goal * window.tokens:
        return Plan(tuple(result.call_id for result in cleared), 0, (), context, round(after))
    pinned = (task,) if head <= task < start else ()
    if start - head <= len(pinned) + 1:  # one message, an earlier summary say, is not summarised for itself
        if not cleared:
            return None
        return Plan(tuple(result.call_id for result in cleared), 0, (), context, round(after))
    after = context - scale * (sum(sizes[head:start]) - sum(sizes[i] for i in pinned))
    return Plan((), start, pinned, context, max(0, round(after)))


def to_summarise(history: Sequence[Message], plan: Plan, window: Window) -> Sequence[Message]:
    """The messages the summary is made of: as they are, so that a server's prompt cache knows them, or cut from their
    beginning (and with their results cleared) where they would not fit into the window themselves."""
    old = [*history[: plan.upto]]
    room = window.tokens * window.compact_at
    if plan.tokens_before <= window.tokens:
        return old
    ids = {result.call_id for message in old for result in message.results if _is_worth_it(result)}
    old = [_clear(message, ids) for message in old]
    scale = max(1.0, plan.tokens_before / max(1, sum(map(tokens_of, history))))
    head = _head(old)
    start = _newest(old, [tokens_of(message) for message in old], head, room / scale)
    return [*old[:head], *old[start:]]


def compacted(history: Sequence[Message], event: HistoryCompacted) -> list[Message]:
    """The history after the event."""
    messages = list(history)
    if event.upto:
        head, pinned = _head(messages), [messages[i] for i in event.pinned]
        summary = Message.user(_SUMMARY.format(summary=event.summary))
        messages = [*messages[:head], summary, *pinned, *messages[event.upto :]]
    if event.cleared:
        ids = set(event.cleared)
        messages = [_clear(message, ids) for message in messages]
    return messages


def task_after(history: Sequence[Message], task: int, event: HistoryCompacted) -> int:
    """The number of the task's message after the event."""
    if not event.upto:
        return task
    head = _head(history)
    if task in event.pinned:
        return head + 1 + event.pinned.index(task)
    return task if task < head else task - event.upto + head + 1 + len(event.pinned)


def _head(history: Sequence[Message]) -> int:
    """How many system messages stand in front."""
    count = 0
    while count < len(history) and history[count].role == "system":
        count += 1
    return count


def _newest(history: Sequence[Message], sizes: Sequence[int], head: int, room: float) -> int:
    """Where the newest messages begin that fit into so many tokens, at least the last one with its calls."""
    start, used = len(history), 0
    while start > head:
        first = start - 1
        while first > head and history[first].role == "tool":  # results go with their calls
            first -= 1
        used += sum(sizes[first:start])
        if used > room and start < len(history):
            break
        start = first
    return start


def _is_worth_it(result: ToolResult) -> bool:
    return CLEARED not in result.extra and _part_characters(result) > _WORTH_IT


def _clear(message: Message, ids: set[str]) -> Message:
    if not any(result.call_id in ids for result in message.results):
        return message
    return replace(message, parts=tuple(_cleared(part, ids) for part in message.parts))


def _cleared(part: Part, ids: set[str]) -> Part:
    if not isinstance(part, ToolResult) or part.call_id not in ids or CLEARED in part.extra:
        return part
    count = _part_characters(part)
    note = TextPart(_CLEARED.format(count=count))
    return replace(part, content=(note,), structured=None, extra={**part.extra, CLEARED: count})


def _part_characters(part: Part) -> int:
    if type(part) is TextPart:
        return len(part.text)
    if type(part) is ToolResult:
        return sum(map(_part_characters, part.content))
    if type(part) is JsonPart:
        return len(str(part.value))
    if type(part) is ToolCall:
        return len(part.name) + len(str(part.arguments))
    return len(part.raw) if type(part) is MalformedCall else 0
