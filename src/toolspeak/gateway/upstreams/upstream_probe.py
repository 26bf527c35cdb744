"""What a model server says of itself, without a model being asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.errors import ToolspeakError
from toolspeak.providers.api import ApiProvider
from toolspeak.providers.base import Provider

PROBE_SECONDS = 5.0


async def probe(provider: Provider, *, thorough: bool = False) -> tuple[Mapping[str, Mapping[str, Any]] | None, str]:
    """What a server says of each model it lists, and what is wrong: "" if it answers, whatever it answers.

    None for a server that says nothing. A provider that is not an API of its own is not asked. `thorough`: a refused
    key is wrong, too, and an address without the API (404).
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


def model_rows(answer: JSON) -> dict[str, Mapping[str, Any]]:
    """What an API says of each model it lists, by the model's name."""
    if not isinstance(answer, dict):
        return {}
    table = cast("dict[str, Any]", answer)
    rows: Any = table.get("data") or table.get("models") or []
    listed = cast("list[Any]", rows) if isinstance(rows, list) else []
    tables = [cast("dict[str, Any]", row) for row in listed if isinstance(row, dict)]
    named = [(row.get("id") or row.get("name"), row) for row in tables]
    return {name.removeprefix("models/"): row for name, row in named if isinstance(name, str)}
