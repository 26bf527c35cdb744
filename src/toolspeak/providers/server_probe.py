"""Asks a model server for its list of models and the window of a model, and for no answer of a model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from toolspeak.errors import ToolspeakError
from toolspeak.providers.api import ApiProvider
from toolspeak.providers.base import Provider
from toolspeak.providers.model_rows import model_rows, window_of
from toolspeak.providers.ollama import OllamaProvider

PROBE_SECONDS = 5.0


async def probe(provider: Provider, *, thorough: bool = False) -> tuple[Mapping[str, Mapping[str, Any]] | None, str]:
    """The server's description of each model it lists (None without an answer), and the problem ("" if it answers).

    A provider that is no HTTP API is not asked. `thorough`: a refused key, and an address without the API (404), are
    problems too.
    """
    if not isinstance(provider, ApiProvider):
        return None, ""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return model_rows(await provider.probe(thorough=thorough)), ""
    except TimeoutError:
        return None, f"no answer within {PROBE_SECONDS:g} seconds"
    except ToolspeakError as error:
        return None, str(error)


async def served_window(provider: Provider, rows: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[int, str]:
    """The window in tokens that a server gives the model, and what says so; (0, "") if it does not say.

    `rows`: the server's description of its models, if it was asked for it. A server that does not answer in time says
    nothing.
    """
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            if isinstance(provider, OllamaProvider):
                return await provider.window()
            if rows is None:
                rows = (await probe(provider))[0] or {}
    except (TimeoutError, ToolspeakError):
        return 0, ""
    tokens, field = window_of(rows.get(provider.name.partition(":")[2], {}))
    return tokens, f"{field} of the server" if tokens else ""
