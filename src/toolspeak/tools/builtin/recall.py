"""`recall`: searches the earlier sessions of the same user, and of no one else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from toolspeak.data.events import ModelAnswered, Record, RunStarted, ToolFinished, UserMessageQueued
from toolspeak.data.tools import Effects, sources_in, sources_of, with_sources
from toolspeak.errors import ToolError
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.returned_values import ReturnValue, to_content

MOST = 20
"""The most places that one search lists."""

_READS = Effects(reads={"sessions:"}, idempotent=True, destructive=False)


class RecallHit(Protocol):
    """A place with a match."""

    @property
    def run_id(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def title(self) -> str: ...
    @property
    def time(self) -> float: ...
    @property
    def role(self) -> str: ...
    @property
    def snippet(self) -> str: ...


class SearchableJournal(Protocol):
    """The part of a journal that `recall` needs."""

    async def search(self, query: str, *, principal: str | None, private: bool, limit: int) -> Sequence[RecallHit]: ...

    async def read(self, run_id: str, start: int = 0) -> Sequence[Record]: ...


def recall_tool(journal: SearchableJournal) -> Tool:
    """The tool `recall`, which searches earlier sessions in this journal.

    It searches only the sessions of the run's `principal`. A run without a principal searches only the sessions of runs
    without one. If you serve several users, start each run with a `principal`.
    """

    @tool(name="recall", effects=_READS)
    async def recall(ctx: RunContext[Any], query: str = "", place: str = "") -> Any:
        """Search what was said and found out in earlier conversations with this user.

        Give `query` to search: the newest places come first. Give the `place` of one to read all of its text.

        Args:
            query: Words that must all be in the text; the last may be the beginning of one.
            place: A place that a search found.
        """
        state = ctx.state
        if state is None:
            raise ToolError("There is no run whose user is known: nothing can be recalled.")
        if place:
            text = await _conversation(journal, place, state.principal)
            return ReturnValue(
                *to_content(text), extra=with_sources({}, await _sources_in(journal, {place.rpartition(":")[0]}))
            )
        if not query.strip():
            raise ToolError("Give 'query', the words to search for, or 'place', a place that a search found.")
        hits = await _elsewhere(journal, query, state.principal, state.run_id)
        if not hits:
            return f"Nothing was found for {query!r}: try fewer or other words."
        sources = await _sources_in(journal, {one.run_id for one in hits})
        return ReturnValue(*to_content([_entry(one) for one in hits]), extra=with_sources({}, sources))

    return recall


async def _elsewhere(journal: SearchableJournal, query: str, principal: str | None, run_id: str) -> Sequence[RecallHit]:
    """The newest places outside of this run, whose own records the model knows."""
    limit = 2 * MOST
    while True:
        hits = await journal.search(query, principal=principal, private=True, limit=limit)
        elsewhere = [one for one in hits if one.run_id != run_id]
        if len(elsewhere) >= MOST or len(hits) < limit:
            return elsewhere[:MOST]
        limit *= 4


async def _sources_in(journal: SearchableJournal, run_ids: Collection[str]) -> Collection[str]:
    """From where on the web these runs had read: what they say may be what a page says."""
    sources: set[str] = set()
    for run_id in run_ids:
        for record in await journal.read(run_id):
            match record.event:
                case RunStarted(messages, extra=extra):
                    sources.update(sources_in(extra), sources_of(messages))
                case ToolFinished(result):
                    sources.update(sources_in(result.extra))
                case _:
                    pass
    return sources


def _entry(hit: RecallHit) -> dict[str, str]:
    when = datetime.fromtimestamp(hit.time, UTC).strftime("%Y-%m-%d %H:%M")
    return {
        "place": f"{hit.run_id}:{hit.seq}",
        "when": when,
        "conversation": hit.title,
        "who": hit.role,
        "text": hit.snippet,
    }


async def _conversation(journal: SearchableJournal, place: str, principal: str | None) -> str:
    run_id, _, seq = place.rpartition(":")
    records = await journal.read(run_id, int(seq)) if seq.isdecimal() and len(seq) < 10 else ()
    # Another user's place counts as unknown.
    if not records or records[0].principal != principal:
        raise ToolError(f"There is no place {place!r}: search for it first, and give it as it was told.")
    match records[0].event:
        case RunStarted(messages) if messages:
            return messages[-1].text
        case ModelAnswered(message) | UserMessageQueued(message):
            return message.text
        case ToolFinished(result):
            return result.text
        case _:
            raise ToolError(f"Nothing was said at {place!r}.")
