"""One session with two models that write their calls in different dialects.

    python examples/two_models.py
    MODEL=ollama:qwen3:8b SECOND_MODEL=vllm:meta-llama/Llama-3.1-8B-Instruct python examples/two_models.py

The journal stores calls and results, not the text of the calls. Each model reads the conversation in its own dialect.
"""

import asyncio
import os
from datetime import date, timedelta
from pathlib import Path

from toolspeak import Agent, MemoryJournal, Session, ToolCall, tool

SCRIPTS = Path(__file__).parent / "scripts"
MODEL = os.environ.get("MODEL", f"scripted:{SCRIPTS}/two_models_first.json")
SECOND_MODEL = os.environ.get("SECOND_MODEL", f"scripted:{SCRIPTS}/two_models_second.json")


@tool(read_only=True)
def add_days(day: date, days: int) -> date:
    """The date so many days later."""
    return day + timedelta(days=days)


async def main() -> None:
    journal = MemoryJournal()
    first = Agent(MODEL, [add_days], dialect="hermes", journal=journal)
    second = Agent(SECOND_MODEL, [add_days], dialect="llama3-json", journal=journal)
    session = Session(first)
    print(await session.run("What is the date 90 days after 2026-11-23?"))
    session = Session(second, session.session_id)
    result = await session.run("And 30 days after that?")
    print(result)
    print("\nThe conversation behind it, in no dialect:")
    for message in result.steps[0].input:
        calls = [f"{call.name}({dict(call.arguments)})" for call in message.calls if isinstance(call, ToolCall)]
        print(f"  {message.role}:", *calls, *(result.text for result in message.results), message.text)


if __name__ == "__main__":
    asyncio.run(main())
