"""A worker of real runs: `run_program.py ENGINE JOURNAL FOLDER TOOL`. SIGTERM lets it drain.

Its model answers by the conversation alone: five calls of the tool of that name, then an answer. Each call has an
effect outside, a line in the file `effects` of the folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolspeak import Agent, Effects, Limits, RunContext, VerifiedResult, tool
from toolspeak.data.messages import Message, TextMessage, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.engines import Worker, WorkLimits, open_engine
from toolspeak.journal import Journal, open_journal
from toolspeak.providers.scripted_provider import ScriptedProvider

AGENT = "buyer"
CALLS = 5
ANSWER = "All is paid."
NO_LIMITS = Limits(steps=None, repeats=None, failures=None)


def say(event: str, run_id: str | None = "") -> None:
    line = {"event": event, "run": run_id, "attempt": 0, "time": time.time(), "pid": os.getpid()}
    os.write(1, json.dumps(line).encode() + b"\n")


def write_line(path: Path, line: str) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def an_agent(journal: Journal, folder: Path, name: str) -> Agent[Any, Any]:
    def verify_payment(number: int, ctx: RunContext[None]) -> VerifiedResult | bool:
        lines = (folder / "effects").read_text().splitlines() if (folder / "effects").exists() else []
        return VerifiedResult(f"paid {number}") if ctx.idempotency_key in lines else False

    @tool(name=name, effects=Effects(writes=frozenset({"bank:"})), verify=verify_payment)
    async def pay(number: int, ctx: RunContext[None]) -> str:
        """Pays an amount."""
        say("calls", ctx.run_id)
        await asyncio.sleep(0.05)
        write_line(folder / "effects", ctx.idempotency_key)
        await asyncio.sleep(0.05)  # a while in which it may be killed, after the effect and before its record
        return f"paid {number}"

    dialect = get_dialect("cogency-json")

    def turn(messages: Sequence[Message | TextMessage]) -> str:
        stage = sum(message.role == "assistant" for message in messages)
        if stage >= CALLS:
            return ANSWER
        call = ToolCall("", name, {"number": stage})
        return f"Stage {stage}.\n{dialect.render([Message('assistant', (call,))])[0].text}"

    return Agent(
        ScriptedProvider([turn] * 1000), [pay], name=AGENT, journal=journal, approve="all", limits=NO_LIMITS,
        dialect="cogency-json",
    )  # fmt: skip


async def main(url: str, journal_url: str, folder: str, name: str) -> None:
    journal = open_journal(journal_url)
    worker = Worker(
        [an_agent(journal, Path(folder), name)], journal, open_engine(url, journal), limits=WorkLimits(concurrency=8)
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    say("started")
    await worker.run()
    await worker.engine.aclose()
    await journal.aclose()
    say("ended")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
