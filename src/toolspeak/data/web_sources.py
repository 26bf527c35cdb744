"""From where on the web the text of a conversation comes: resources that results, messages and runs carry.

A result of a call that read the web lists them in its `extra`. A summary lists those of the messages that it replaces,
and the start of a sub-run those of its parent. So what has read the web is known in every process that goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import cast

from toolspeak.data.messages import JSON, Message

WEB = "web:"
"""The resource key above every host of the web: `web:example.com`. What a call reads there was written by strangers."""

SOURCES = "sources"
"""The key in the `extra` of a result, a message and RunStarted that lists the sources."""

URLS = "urls"
"""The key in the `extra` of RunStarted that lists the URLs of a sub-run's task which its parent's model did not make
up. It is there if the parent has read the web."""

_MOST_SOURCES = 50


def sources_in(extra: Mapping[str, JSON]) -> Collection[str]:
    """The sources that the `extra` of a value lists."""
    entries = extra.get(SOURCES)
    if not isinstance(entries, list | tuple):
        return ()
    return [each for each in cast("list[JSON]", entries) if isinstance(each, str)]


def urls_in(extra: Mapping[str, JSON]) -> tuple[str, ...] | None:
    """The URLs that the `extra` of RunStarted lists; None if it lists none and all count."""
    urls = extra.get(URLS)
    return (
        tuple(each for each in cast("list[JSON]", urls) if isinstance(each, str))
        if isinstance(urls, list | tuple)
        else None
    )


def sources_of(messages: Iterable[Message]) -> frozenset[str]:
    """The sources of the text of these messages."""
    sources: set[str] = set()
    for message in messages:
        if message.extra:
            sources.update(sources_in(message.extra))
        if message.role == "tool":
            for result in message.results:
                if result.extra:
                    sources.update(sources_in(result.extra))
    return frozenset(sources)


def with_sources(extra: Mapping[str, JSON], sources: Collection[str]) -> Mapping[str, JSON]:
    """The `extra` with these sources besides its own; many become one, the web."""
    if not sources:
        return extra
    merged = sorted({*sources_in(extra), *sources})
    return {**extra, SOURCES: merged if len(merged) <= _MOST_SOURCES else [WEB]}
