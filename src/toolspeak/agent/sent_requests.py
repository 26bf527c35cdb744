"""What the model was sent for a turn: made again of the run's records, and proved by the recorded digest."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence

from toolspeak.agent.drivers.rebuilt_requests import bodies
from toolspeak.agent.drivers.request_parts import DRIVER, INSTRUCTIONS, TOOLS
from toolspeak.agent.state.fold import apply
from toolspeak.agent.state.state import RunState
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.events import (
    HandedOff,
    HistoryCompacted,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Record,
    RunResumed,
)
from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import RunError, ToolspeakError
from toolspeak.journal.base import Journal

_MOST_STARTS = 8
"""The most places where a driver's conversation may have begun that are candidates."""

_NOT_RECORDED = (
    "The run did not record what its requests consist of: no request over HTTP reaches its model, an earlier toolspeak"
    " drove it, or no journal kept it from the start."
)
_OWN_DRIVER = (
    "The driver of this run cannot be made again from its records: it is a driver or a dialect of the program's own, or"
    " the server keeps a part of the conversation."
)
_NO_DIGEST = "Nothing proves it: the turn was cut off before the journal had what was sent."
_DIFFERS = (
    "This is NOT what was sent, only what these records give now. An interceptor changed the messages of this turn, a"
    " secret stands for a placeholder, the decision was question for again, or another version of toolspeak sent it."
)


@quick()
class SentRequest:
    """The request of a turn.

    - `body`: its body as it was sent, or what comes nearest to it; "" if it cannot be made again.
    - `is_proved`: the digest that the run recorded is that of `body`.
    - `digest`: that digest, SHA-256 (hex); "" if the run has none.
    - `note`: why it is not proved.
    - `instructions`, `tools`: the agent's own instructions, and its tools as JSON, if the run recorded them.
    """

    body: str
    is_proved: bool
    digest: str = ""
    note: str = ""
    instructions: str | None = None
    tools: JSON = None


async def sent_request(journal: Journal, run_id: str, seq: int) -> SentRequest:
    """The request of the turn whose `ModelAsked` is record `seq` of the run. Raises RunError for another record."""
    state = await load_state(journal, run_id, seq + 1)
    # The driver's conversation began with one of the turns since the history was replaced last.
    records = await journal.read(run_id, 0, seq + 1)
    question = records[-1].event
    if not isinstance(question, ModelAsked):
        raise RunError(f"record {seq} of run {run_id} asks no model: name one of the kind ModelAsked")
    parts = _parts_of(records)
    digest = await _digest_after(journal, run_id, seq + 1)
    if DRIVER not in parts:
        return SentRequest("", False, digest, _NOT_RECORDED)
    starts = await _starts(journal, run_id, records, state)
    body, is_proved = await asyncio.to_thread(_body, parts, question, state, starts, digest)
    note = "" if is_proved else _OWN_DRIVER if not body else _DIFFERS if digest else _NO_DIGEST
    return SentRequest(body, is_proved, digest, note, parts[INSTRUCTIONS], json.loads(parts[TOOLS]))


async def recorded_parts(journal: Journal, run_id: str, seq: int) -> Mapping[str, str]:
    """What the run had recorded of its requests until record `seq` (`agent/drivers/request_parts.py`)."""
    return _parts_of(await journal.read(run_id, 0, seq + 1))


def _body(
    parts: Mapping[str, str], question: ModelAsked, state: RunState, starts: Sequence[int], digest: str
) -> tuple[str, bool]:
    """The body with this digest, or else the likeliest one, and whether it has the digest."""
    first: bytes | None = None
    try:
        for content in bodies(parts, question.choice, state.history, starts):
            first = first or content
            if digest and hashlib.sha256(content).hexdigest() == digest:
                return content.decode(), True
    except (ToolspeakError, LookupError, TypeError, ValueError):  # recorded by another version of toolspeak
        pass
    return (first or b"").decode(), False


def _parts_of(records: Sequence[Record]) -> Mapping[str, str]:
    parts: dict[str, str] = {}
    for record in records:
        if isinstance(record.event, ModelAsked):
            parts.update(record.event.request_parts)
    return parts


async def _digest_after(journal: Journal, run_id: str, start: int) -> str:
    """The digest of the request whose turn begins before the record `start`."""
    while page := await journal.read(run_id, start, 50):
        for record in page:
            if isinstance(record.event, ModelAnswered | ModelFailed):
                return record.event.request_digest
            if isinstance(record.event, ModelAsked):
                return ""
        start += len(page)
    return ""


async def _starts(journal: Journal, run_id: str, records: Sequence[Record], last: RunState) -> Sequence[int]:
    """How many messages there may have been when the driver's conversation began, the likeliest first."""
    before = await load_state(journal, run_id, 1)
    state: RunState | None = before
    counts: list[int] = []
    after_resume: int | None = None
    for record in records[1:]:
        state = apply(state, record)
        if isinstance(record.event, HistoryCompacted | HandedOff):
            counts, after_resume = [], None
        elif isinstance(record.event, RunResumed):
            after_resume = len(counts)
        elif isinstance(record.event, ModelAsked):
            counts.append(len(state.history))
            if record.event.request_parts and len(counts) > 1:
                after_resume = len(counts) - 1
    likely_counts = counts[after_resume:] if after_resume is not None else counts
    candidates = dict.fromkeys([*likely_counts[:1], len(last.history), *reversed(counts), *counts[:1]])
    return [*candidates][:_MOST_STARTS]
