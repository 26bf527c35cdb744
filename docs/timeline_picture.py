"""Draws docs/images/timeline.svg: the timeline of a run. `--check` compares the picture with what is drawn now.

The run is real, with a scripted model. Its records get the times of `SECONDS`, so that each drawing is the same.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from toolspeak import Agent, MemoryJournal, tool
from toolspeak.agent.charts.chart_svg import run_svg
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

PICTURE = Path(__file__).parent / "images" / "timeline.svg"
SECONDS = {
    "ModelAsked": 0.1,
    "ModelAnswered": 1.4,
    "ToolStarted": 0.02,
    "ToolFinished": 0.7,
    "ApprovalRequested": 0.05,
    "ApprovalDecided": 2.5,
}
"""How long after the record before it a record of a kind comes."""

TASK = "Is it dry enough to sail? Then book the boat."
SCRIPT = [
    ScriptedTurn("I look at three ports at once.", calls=[ScriptedCall("look_up", {"port": each}) for each in "ABC"]),
    ScriptedTurn("B is dry.", calls=[ScriptedCall("book", {"port": "B"}), ScriptedCall("look_up", {"port": "D"})]),
    "The boat in B is booked.",
]


async def example_svg() -> str:
    """The picture of the run."""
    journal = MemoryJournal()
    gates = {port: asyncio.Event() for port in "ABCD"}
    gates["B"].set()
    gates["D"].set()
    next_port = {"B": "A", "A": "C"}

    @tool(read_only=True)
    async def look_up(port: str) -> str:
        "Looks up the weather in a port."
        await gates[port].wait()
        gates[next_port.get(port, "D")].set()
        return "dry"

    @tool()
    async def book(port: str) -> str:
        "Books the boat in a port."
        return "booked"

    async def approve(_: object) -> bool:
        return True

    agent = Agent(ScriptedProvider(SCRIPT), [look_up, book], journal=journal, approve=approve, prices={})
    result = await agent.run(TASK)
    time, records = 0.0, []
    for record in await journal.read(result.run_id):
        time += SECONDS.get(type(record.event).__name__, 0.0)
        records.append(replace(record, time=1_000_000.0 + time))
    return run_svg(records, TASK)


def main() -> None:
    drawing = asyncio.run(example_svg())
    if "--check" not in sys.argv:
        PICTURE.write_text(drawing, encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != drawing:
        sys.exit(f"{PICTURE} shows another picture than what is drawn now: python docs/timeline_picture.py draws it")


if __name__ == "__main__":
    main()
