"""The messages that a model reads: calls paired with results, secrets hidden, a long history made shorter. Pure.

Compaction makes a history shorter that fills the model's window: old results are cleared, old messages summarised. The
system messages in front stay unchanged. A call and its results stay together: a cut is never before results. The
records hold everything; see `load_state(…, whole=True)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from toolspeak.data.events import HistoryCompacted
from toolspeak.data.messages import (
    MalformedCall,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
    characters,
    failure,
    tokens_of,
)
from toolspeak.data.tools import sources_of, with_sources
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError
from toolspeak.execute import Secrets
from toolspeak.execute.calls.result_limits import hide_part, hide_secrets

_NO_RESULT = "this call has no result: the run ended before; it may have run or not"
_NOT_STARTED = "this call did not run: the conversation continued without it"
_UNKNOWN_OUTCOME = "this call was started, and its outcome is unknown: its run was stopped before it had a result"

CLEARED_KEY = "cleared"
"""The key in a result's `extra` with the number of characters that were cleared."""

_CLEARED_NOTE = "[This result ({count} characters) was cleared to make room. If you need it, read it again.]"
_SUMMARY = "[What was said until here was summarised to make room. The summary:]\n{summary}"
_WORTH_IT = 400  # characters: a note replaces the result, so clearing a shorter one saves little


def pair_results(messages: Sequence[Message]) -> Iterator[Message]:
    """Yields the messages with the results of each turn in the order of its calls: in text the order alone says which
    result belongs to which call. A call without a result (its run was left, or waits for approval) gets one that says
    that its outcome is unknown, because no model API takes a call without a result.
    """
    skip = False
    for i, message in enumerate(messages):
        if skip:
            skip = False
            continue
        yield message
        if not message.calls:
            continue
        following = messages[i + 1] if i + 1 < len(messages) else None
        results = following.results if following is not None else ()
        call_ids = [call.id for call in message.calls]
        if [result.call_id for result in results] == call_ids:
            continue
        skip = bool(results)
        there = {result.call_id: result for result in results}
        ordered_results = [there.get(c.id) or failure(c, "unknown_outcome", _NO_RESULT) for c in message.calls]
        yield Message("tool", (*ordered_results, *(result for result in results if result.call_id not in call_ids)))


def unstarted_result(call: ToolCall | MalformedCall, *, has_started: bool, output: str = "") -> ToolResult:
    """The result of a call that has none when its run ends. `output`: what a call that has started had written."""
    if isinstance(call, MalformedCall):
        return failure(call, "malformed", call.reason)
    if not has_started:
        return failure(call, "skipped", _NOT_STARTED)
    return failure(
        call, "unknown_outcome", f"{_UNKNOWN_OUTCOME}. What it had written:\n{output}" if output else _UNKNOWN_OUTCOME
    )


def without_secrets(message: Message, secrets: Secrets) -> Message:
    """The message with placeholders for secrets."""
    return (
        replace(message, parts=tuple(_hide(part, secrets) for part in message.parts)) if secrets.has_values else message
    )


def hide_call(call: ToolCall, secrets: Secrets) -> ToolCall:
    """The call with placeholders for secrets in its name, its ids, its arguments and the text it was repaired from."""
    if not secrets.has_values:
        return call
    raw = None if call.repaired_from is None else secrets.hide_text(call.repaired_from)
    return replace(
        call,
        id=secrets.hide_name(call.id),
        name=secrets.hide_name(call.name),
        arguments=secrets.hide(call.arguments),
        provider_id=None if call.provider_id is None else secrets.hide_name(call.provider_id),
        repaired_from=raw,
    )


def _hide(part: Part, secrets: Secrets) -> Part:
    match part:
        case ReasoningPart(text):
            return replace(part, text=secrets.hide_text(text))
        case ToolCall():
            return hide_call(part, secrets)
        case MalformedCall(raw=raw, reason=reason, name=name):
            name = None if name is None else secrets.hide_name(name)
            return replace(part, raw=secrets.hide_text(raw), reason=secrets.hide_text(reason), name=name)
        case ToolResult():
            return hide_secrets(part, secrets)
        case _:
            return hide_part(part, secrets)


@quick()
class Window:
    """How many tokens a model reads, and how a conversation that fills them is made shorter.

    Old results are cleared first. If that is not enough, a summary that the model writes replaces the old messages.
    Shares are fractions of `tokens`. Raises ConfigurationError unless 0 < keep < goal < compact_at <= 1.
    """

    tokens: int
    compact_at: float = 0.8
    """The share that the next turn may read before the conversation is made shorter."""
    goal: float = 0.5
    """Messages are summarised if clearing results does not bring the conversation below this share."""
    keep: float = 0.25
    """About this share of newest messages stays as it is."""
    summarise: bool = True
    """False: old messages are dropped without a summary, and the model reads that they were."""

    def __post_init__(self) -> None:
        if self.tokens < 1 or not 0 < self.keep < self.goal < self.compact_at <= 1:
            raise ConfigurationError(f"Window needs tokens >= 1 and 0 < keep < goal < compact_at <= 1, not {self}")


@quick()
class Plan:
    """How compaction makes a history shorter.

    - `cleared_ids`: the calls whose results are cleared. If there are none, the messages before `upto` are summarised,
      except for the system messages in front.
    - `pinned_indices`: the places of the messages before `upto` that stay as they are.
    - `tokens_before`, `tokens_after`: estimates of what the next turn would read.
    """

    cleared_ids: tuple[str, ...]
    upto: int
    pinned_indices: tuple[int, ...]
    tokens_before: int
    tokens_after: int


def plan_compaction(history: Sequence[Message], context: int, task: int, window: Window) -> Plan | None:
    """How to make a history shorter whose next turn would read `context` tokens. None if it is short enough, or cannot
    be made shorter. `task`: the index of the message with the current task, which is never summarised."""
    if context < window.compact_at * window.tokens:
        return None
    sizes = [tokens_of(message) for message in history]
    scale = max(1.0, context / max(1, sum(sizes)))  # the provider's tokens for one of ours
    head = _head(history)
    start = _newest(history, sizes, head, window.keep * window.tokens / scale)
    cleared_results = [result for message in history[head:start] for result in message.results if _is_worth_it(result)]
    after = context - scale * sum(
        characters(result.content) // 4 - len(_CLEARED_NOTE) // 4 for result in cleared_results
    )
    if cleared_results and after <= window.goal * window.tokens:
        return Plan(tuple(result.call_id for result in cleared_results), 0, (), context, round(after))
    pinned_indices = (task,) if head <= task < start else ()
    if start - head <= len(pinned_indices) + 1:  # one message, an earlier summary say, is not summarised for itself
        if not cleared_results:
            return None
        return Plan(tuple(result.call_id for result in cleared_results), 0, (), context, round(after))
    after = context - scale * (sum(sizes[head:start]) - sum(sizes[i] for i in pinned_indices))
    return Plan((), start, pinned_indices, context, max(0, round(after)))


def plan_summary(history: Sequence[Message], context: int, window: Window) -> Plan | None:
    """How to make a history of `context` tokens shorter at a person's wish, however short it is: all but the newest
    messages is summarised. None if there is nothing but a summary."""
    head = _head(history)
    sizes = [tokens_of(message) for message in history]
    if all(_is_summary(message) for message in history[head:]):
        return None
    room = window.keep * sum(sizes[head:])
    start = _newest(history, sizes, head, room)
    if sum(sizes[start:]) > room:  # the last message alone is most of it
        start = len(history)
    # What the API counts besides, such as the tools, stays.
    return Plan((), start, (), context, max(sum(sizes[:head]) + sum(sizes[start:]), context - sum(sizes[head:start])))


def full_window(context: int, window: Window | None) -> Window:
    """A window that a history of `context` tokens fills: the model's own if it does that, else a smaller one with the
    same shares."""
    shares = window or Window(1)
    if window is not None and context >= window.compact_at * window.tokens:
        return window
    return replace(shares, tokens=max(1, int(context / shares.compact_at)))


def to_summarise(history: Sequence[Message], plan: Plan, window: Window) -> Sequence[Message]:
    """The messages to summarise. They stay as they are, for the server's prompt cache; if they do not fit into the
    window themselves, their results are cleared and the oldest are left out."""
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


def summary_message(summary: str) -> Message:
    """The message with which the model reads a summary."""
    return Message.user(_SUMMARY.format(summary=summary))


def apply_compaction(history: Sequence[Message], event: HistoryCompacted) -> list[Message]:
    """The history after the event."""
    messages = list(history)
    if event.upto:
        head, pinned_messages = _head(messages), [messages[i] for i in event.pinned]
        summary = summary_message(event.summary)
        # What was read on the web is in the summary: runs that follow this one must know.
        summary = replace(summary, extra=with_sources({}, sources_of(messages[: event.upto])))
        messages = [*messages[:head], summary, *pinned_messages, *messages[event.upto :]]
    if event.cleared:
        ids = set(event.cleared)
        messages = [_clear(message, ids) for message in messages]
    return messages


def task_after(history: Sequence[Message], task: int, event: HistoryCompacted) -> int:
    """The index of the task's message after the event."""
    if not event.upto:
        return task
    head = _head(history)
    if task in event.pinned:
        return head + 1 + event.pinned.index(task)
    if head <= task < event.upto:
        return head  # it is in the summary
    return task if task < head else task - event.upto + head + 1 + len(event.pinned)


def _head(history: Sequence[Message]) -> int:
    """The number of system messages in front."""
    count = 0
    while count < len(history) and history[count].role == "system":
        count += 1
    return count


def _is_summary(message: Message) -> bool:
    return message.role == "user" and message.text.startswith(_SUMMARY.partition("{")[0])


def _newest(history: Sequence[Message], sizes: Sequence[int], head: int, room: float) -> int:
    """The index from which on the newest messages fit into `room` tokens; at least the last one, with its calls."""
    start, size = len(history), 0
    while start > head:
        first = start - 1
        while first > head and history[first].role == "tool":  # results go with their calls
            first -= 1
        size += sum(sizes[first:start])
        if size > room and start < len(history):
            break
        start = first
    return start


def _is_worth_it(result: ToolResult) -> bool:
    return CLEARED_KEY not in result.extra and characters(result.content) > _WORTH_IT


def _clear(message: Message, ids: set[str]) -> Message:
    if not any(result.call_id in ids for result in message.results):
        return message
    return replace(message, parts=tuple(_clear_result(part, ids) for part in message.parts))


def _clear_result(part: Part, ids: set[str]) -> Part:
    if not isinstance(part, ToolResult) or part.call_id not in ids or CLEARED_KEY in part.extra:
        return part
    count = characters(part.content)
    note = TextPart(_CLEARED_NOTE.format(count=count))
    return replace(part, content=(note,), structured=None, extra={**part.extra, CLEARED_KEY: count})
