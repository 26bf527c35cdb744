"""A coding agent that uses the built-in tools on a project and shows each write as a diff before it runs.

python examples/coding_agent.py                              # a scripted model fixes a small project
MODEL=ollama:qwen3:8b python examples/coding_agent.py . "Why does the test fail? Fix it."
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from toolspeak import Agent, ApprovalRequest, Limits
from toolspeak.data.deltas import TextDelta
from toolspeak.data.events import Record, RunFinished, ToolStarted
from toolspeak.tools.builtin import workspace_tools

MODEL = os.environ.get("MODEL", f"scripted:{Path(__file__).parent}/scripts/coding_agent.json")
PROJECT = {
    "price.py": "def total(prices):\n    return sum(prices) - 1\n",
    "test_price.py": "from price import total\n\n\nassert total([19, 23]) == 42\n",
}


async def ask(request: ApprovalRequest) -> bool:
    print(f"\n--- {request.call.name}: {request.reason}\n{request.preview or request.call.arguments}")
    return (await asyncio.to_thread(input, "Allow? [y/N] ")).strip().lower() == "y"


async def main(folder: Path, task: str) -> None:
    agent = Agent(
        MODEL,
        workspace_tools(folder),
        instructions="You mend programs. Read before you write, and run the tests at the end.",
        approve=ask,
        limits=Limits(steps=30),
    )
    async for each in agent.stream(task):
        match each:
            case TextDelta(text):
                print(text, end="", flush=True)
            case Record(event=ToolStarted(name=name)):
                print(f"\n[{name}]")
            case Record(event=RunFinished(status=status)):
                print(f"\n({status})")
            case _:
                pass


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as name:
            for file, text in PROJECT.items():
                (Path(name) / file).write_text(text)
            asyncio.run(main(Path(name), "The test fails. Find out why, and fix it."))
