"""Erases what the gateway's databases hold of one API key."""

from __future__ import annotations

from toolspeak.gateway.settings.gateway_settings import FileSettings
from toolspeak.gateway.settings.usage_settings import usage_for
from toolspeak.gateway.stored.response_store import open_store
from toolspeak.gateway.usage.usage_store import open_usage


async def erase_key(settings: FileSettings, key: str) -> tuple[int, int]:
    """Removes the usage and the stored responses of a key, permanently. Returns the number of rows of usage and of
    responses. A running gateway may go on; what the key uses later is counted again. Raises JournalError."""
    rows = responses = 0
    usage = usage_for(settings.usage, settings.keys)
    if usage is not None:
        store = open_usage(usage.store)
        try:
            rows = await store.erase(key)
        finally:
            await store.aclose()
    if settings.responses is not None:
        memory = open_store(settings.responses.store, settings.responses.seconds)
        try:
            responses = await memory.erase(key)
        finally:
            await memory.aclose()
    return rows, responses
