"""What the programs of this folder share: cases come in as lines of JSON, and what each client saw goes out as such.

Each program is what its client's own documentation shows, and knows nothing of the gateway but its address. They run
in environments that hold the clients and nothing of toolspeak.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

KEY = "a-key-of-the-client"

DESCRIPTIONS = {"get_weather": "The weather of the next days.", "get_time": "The time of day."}
SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
    "get_time": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@dataclass
class Case:
    """One conversation to have, and what the client saw of it: None where it does not tell.

    `ran`: the calls of the tools with their arguments; `calls`: id and name of each call; `parts`: how many pieces of
    a stream; `usage`: tokens in and out of the last turn. `repeated` are ids and names that a stream told twice.
    """

    url: str
    task: str
    stream: bool
    ran: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    calls: list[tuple[str, str]] | None = None
    finishes: list[str] | None = None
    text: list[str] | None = None
    answer: str = ""
    usage: tuple[int, int] | None = None
    parts: int = 0
    repeated: list[str] = field(default_factory=list[str])

    def run(self, name: str, arguments: Any) -> str:
        """The tools themselves."""
        self.ran.append((name, arguments))
        if name == "get_weather":
            return f"{arguments['days']} days of rain in {arguments['city']}"
        return f"noon in {arguments['city']}"

    def functions(self) -> tuple[Callable[..., str], Callable[..., str]]:
        """The tools as functions, for the clients that make schemas of them."""

        def get_weather(city: str, days: int) -> str:
            """The weather of the next days."""
            return self.run("get_weather", {"city": city, "days": days})

        def get_time(city: str) -> str:
            """The time of day."""
            return self.run("get_time", {"city": city})

        return get_weather, get_time


def chat_tools() -> list[Any]:
    """The tools as the Chat Completions API wants them."""
    functions = [
        {"name": name, "description": DESCRIPTIONS[name], "parameters": schema} for name, schema in SCHEMAS.items()
    ]
    return [{"type": "function", "function": function} for function in functions]


async def _answer(converse: Callable[[Case], Awaitable[None]]) -> None:
    for line in sys.stdin:
        case = Case(**json.loads(line))
        try:
            async with asyncio.timeout(60):
                await converse(case)
            report: dict[str, Any] = vars(case)
        except Exception:  # noqa: BLE001 (the test says which conversation it was)
            report = {"task": case.task, "error": traceback.format_exc()}
        print(json.dumps(report), flush=True)


def main(converse: Callable[[Case], Awaitable[None]]) -> None:
    """Has each conversation that standard input asks for; a client's mistake is told as `error`."""
    asyncio.run(_answer(converse))
