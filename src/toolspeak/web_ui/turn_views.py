"""A turn from both sides: what the model was sent, byte by byte, and what it wrote, as the parser read it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from toolspeak.agent.drivers.request_parts import DRIVER, TOOLS, dialect_of
from toolspeak.agent.sent_requests import recorded_parts, sent_request
from toolspeak.data.codec import load
from toolspeak.data.events import ModelAnswered, ModelAsked, ModelFailed, ModelTextReceived, Record, RetryScheduled
from toolspeak.data.messages import ReasoningPart
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects import Dialect, get_dialect
from toolspeak.errors import FormatError, UnknownDialect
from toolspeak.journal.base import Journal
from toolspeak.web_ui.api_errors import ApiFailure
from toolspeak.web_ui.api_values import TextQuery
from toolspeak.web_ui.reply_readings import MOST_READ, steps_of
from toolspeak.web_ui.run_views import ApiCall, info_of, record_of
from toolspeak.web_ui.text_spans import TextSpan, text_spans


@quick()
class SentBody:
    """A part of the body of a turn's request. `total` counts all its characters.

    - `is_proved`: its digest is that of what was sent (`digest`, SHA-256, hex).
    - `note`: why it is not proved.
    """

    text: str
    start: int
    total: int
    is_proved: bool
    digest: str
    note: str


@quick()
class TurnReading:
    """What the model wrote in a turn, as far as the run recorded it, and what the parser made of its characters.

    - `dialect`: that which reads it; "auto" if the run does not say which.
    - `is_cut`: the text is longer, and only this beginning of it was read.
    - `may_lack_end`: an earlier toolspeak recorded the turn, without what came in its last half second.
    """

    dialect: str
    text: str
    thoughts: str
    spans: tuple[TextSpan, ...]
    is_cut: bool
    may_lack_end: bool


async def turn_request(call: ApiCall) -> SentBody:
    """The request of the turn whose record the path names (a `ModelAsked`), or a part of its body."""
    query: TextQuery = call.query
    record = await _asking_record(call)
    request = await sent_request(call.services.journal, record.run_id, record.seq)
    return SentBody(
        request.body[query.start : query.start + query.length],
        query.start,
        len(request.body),
        request.is_proved,
        request.digest,
        request.note,
    )


async def turn_reading(call: ApiCall) -> TurnReading:
    """What the model wrote in the turn whose record the path names (a `ModelAsked`)."""
    record, journal = await _asking_record(call), call.services.journal
    info = await info_of(call)
    text, thoughts, may_lack_end = await _text_of(journal, record)
    parts = await recorded_parts(journal, record.run_id, record.seq)
    dialect, tools = get_dialect("auto"), ()
    try:
        if DRIVER in parts:
            about = json.loads(parts[DRIVER])
            name, follows = about["kind"]["text"]
            dialect = dialect_of(name, about["api_name"], follows=follows) or dialect
            tools = tuple(cast("ToolSpec", load(spec)) for spec in json.loads(parts[TOOLS]))
        elif info.dialect:
            dialect = get_dialect(info.dialect)
    except (FormatError, UnknownDialect, LookupError, TypeError, ValueError):
        pass  # an API's own calls, a dialect of the program's own, or of another version
    part = text[:MOST_READ]
    spans = await asyncio.to_thread(_spans, dialect, part, tools)
    return TurnReading(dialect.name, part, thoughts[:MOST_READ], spans, len(text) > len(part), may_lack_end)


def _spans(dialect: Dialect, text: str, tools: Any) -> tuple[TextSpan, ...]:
    return text_spans(dialect, text, steps_of(dialect, text, tools))


async def _asking_record(call: ApiCall) -> Record:
    record = await record_of(call)
    if not isinstance(record.event, ModelAsked):
        raise ApiFailure(404, "not_there", "this record asks no model: name one of the kind ModelAsked")
    return record


async def _text_of(journal: Journal, asking_record: Record) -> tuple[str, str, bool]:
    """The text and the thoughts of a turn as the model wrote them, and whether their end may not be recorded. A turn
    that was asked for again is that of the last attempt."""
    texts, thoughts, start = list[str](), list[str](), asking_record.seq + 1
    while page := await journal.read(asking_record.run_id, start, 100):
        for record in page:
            match record.event:
                case ModelTextReceived(text, reasoning):
                    texts.append(text)
                    thoughts.append(reasoning)
                case RetryScheduled(call_id=None):
                    texts, thoughts = [], []
                case ModelAnswered() as model_answer if model_answer.raw_text is None and (any(texts) or any(thoughts)):
                    return "".join(texts), "".join(thoughts), True
                case ModelAnswered(message) as model_answer:
                    parts = [part.text for part in message.parts if isinstance(part, ReasoningPart)]
                    texts.append(message.text if model_answer.raw_text is None else model_answer.raw_text)
                    thoughts.append(
                        "".join(parts) if model_answer.raw_reasoning is None else model_answer.raw_reasoning
                    )
                    return "".join(texts), "".join(thoughts), False
                case ModelFailed() | ModelAsked():
                    return "".join(texts), "".join(thoughts), False
                case _:
                    pass
        start += len(page)
    return "".join(texts), "".join(thoughts), False
