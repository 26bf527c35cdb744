"""What a new user does first, from the installed package alone: an agent, its journal, its resumption, a dialect."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from importlib.metadata import version
from pathlib import Path

import toolspeak
from toolspeak import Agent, SqliteJournal, tool
from toolspeak.dialects import get_dialect
from toolspeak.dialects.catalogue import DIALECTS
from toolspeak.providers.scripted_provider import ScriptedProvider

assert "site-packages" in toolspeak.__file__, toolspeak.__file__


@tool
def store(name: str, amounts: list[int]) -> str:
    """Stores amounts under a name."""
    return f"{name}: {sum(amounts)}"


TURNS = [
    '<tool_call>\n{"name": "store", "arguments": {"name": "week", "amounts": [19, 23]}}\n</tool_call>',
    "Stored {{find:week: (\\d+)}}.",
]


def agent(journal: SqliteJournal) -> Agent:
    return Agent(ScriptedProvider(TURNS, follow=True), [store], dialect="hermes", journal=journal)


async def main(folder: Path) -> None:
    async with aclosing(SqliteJournal(folder / "runs.db")) as journal:
        waiting = await agent(journal).run("Store the week.")
    (request,) = waiting.requests
    async with aclosing(SqliteJournal(folder / "runs.db")) as journal:
        result = await agent(journal).resume(waiting.run_id, {request.call_id: True})
    assert result.answer == "Stored 42.", result
    for dialect in DIALECTS:
        get_dialect(dialect.name).parser([]).feed("Hello.")


asyncio.run(main(Path(sys.argv[1])))
print(f"toolspeak {version('toolspeak')} works on Python {sys.version.split()[0]}")
