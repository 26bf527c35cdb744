"""A program with telemetry, for tests with several processes: `traced_program.py JOURNAL start`, or `resume RUN`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from toolspeak import Agent, SqliteJournal, telemetry, tool
from toolspeak.providers.scripted_provider import ScriptedProvider

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TURNS = [f'<execute>[{{"name": "{name}", "args": {{}}}}]</execute>' for name in ("note", "die")] + ["Done."]


@tool(read_only=True)
def note() -> str:
    "Notes something."
    return "noted"


@tool(read_only=True)
def die() -> str:
    "Kills the process, the first time."
    if sys.argv[2] != "start":
        return "alive"
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    provider.force_flush()
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def main() -> None:
    journal = SqliteJournal(sys.argv[1])
    telemetry.set_up_sdk("traced")
    telemetry.instrument()
    turns = TURNS if sys.argv[2] == "start" else TURNS[2:]
    agent = Agent(ScriptedProvider(turns), [note, die], dialect="cogency-json", journal=journal, name="worker")
    if sys.argv[2] == "start":
        agent.run_sync("go", traceparent=PARENT)
    else:
        print(asyncio.run(agent.resume(sys.argv[3])).answer)


if __name__ == "__main__":
    main()
