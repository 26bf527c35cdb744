"""Counts the distinct toolspeak files and functions that one request runs, on four paths.

    python benchmarks/hops.py [--list]

- `step`: a step of a run, from one request to the model to the next. The model's text has a call (Hermes) of a tool
  that reads. The journal is SQLite.
- `pause`: a run with a call that writes, until the run waits for approval.
- `resume`: the same run, resumed by its id and approved, until its answer.
- `gateway`: one streamed request with a tool to the gateway, which forwards it over HTTP to a Hermes model.

Each path runs once before it is counted, so one-time work (caches, imports) does not count. The model is scripted. A
function counts once, however often it runs. Comprehensions and lambdas are part of their enclosing function. `--list`
prints the files and, for each, the functions that ran. The fewer files and functions a reader must open, the better.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import toolspeak
from toolspeak.agent import Agent
from toolspeak.data.deltas import Delta
from toolspeak.gateway.app import Gateway
from toolspeak.gateway.settings.gateway_settings import Settings
from toolspeak.gateway.settings.upstream_settings import Upstream
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import tool
from toolspeak.wire.base import ModelRequest

OURS = str(Path(toolspeak.__file__).parent) + "/"
CALL = '<tool_call>\n{"name": "%s", "arguments": {"place": "Rome"}}\n</tool_call>'


class Trace:
    """The toolspeak functions that ran in any thread during the trace: each by file, name and first line."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str, int]] = set()
        self.calls = 0
        self._is_on = False
        threading.setprofile(self._profile)  # for threads that start from now on

    def start(self) -> None:
        self._is_on = True
        sys.setprofile(self._profile)

    def stop(self) -> None:
        self._is_on = False
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self._is_on and event == "call" and code.co_filename.startswith(OURS) and not code.co_name.startswith("<"):
            self.calls += 1
            self.functions.add((code.co_filename[len(OURS) :], code.co_qualname, code.co_firstlineno))

    def clear(self) -> None:
        self.functions.clear()
        self.calls = 0

    @property
    def files(self) -> Counter[str]:
        return Counter(file for file, _, _ in self.functions)


@tool(read_only=True)
def look(place: str) -> str:
    """Looks at a place."""
    return f"{place} is quiet"


@tool
def change(place: str) -> str:
    """Changes a place."""
    return f"{place} is other than it was"


class Model(ScriptedProvider):
    """A scripted model that calls `on_request` with each request's number, before it answers."""

    def __init__(self, turns: Sequence[str], on_request: Callable[[int], None] = lambda _: None) -> None:
        super().__init__(turns)
        self._requests, self._on_request = 0, on_request

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        self._requests += 1
        self._on_request(self._requests)
        return super().stream(request)


def an_agent(journal: SqliteJournal, model: Model) -> Agent[Any]:
    return Agent(model, [look, change], dialect="hermes", journal=journal)


async def step(trace: Trace, journal: SqliteJournal) -> None:
    model = Model([CALL % "look", "Done."], lambda number: trace.start() if number == 1 else trace.stop())
    assert (await an_agent(journal, model).run("Look at Rome.")).answer == "Done."


async def pause(trace: Trace, journal: SqliteJournal) -> None:
    agent = an_agent(journal, Model([CALL % "change"]))
    trace.start()
    result = await agent.run("Change Rome.")
    trace.stop()
    assert result.status == "awaiting_approval"


async def resume(trace: Trace, journal: SqliteJournal) -> None:
    paused_run = await an_agent(journal, Model([CALL % "change"])).run("Change Rome.")
    agent = an_agent(journal, Model(["Done."]))
    trace.start()
    result = await agent.resume(paused_run.run_id, dict.fromkeys(paused_run.waiting, True))
    trace.stop()
    assert result.answer == "Done."


async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A model server that answers each request with a call as text, in pieces of four characters."""
    text = CALL % "look"
    deltas = [{"delta": {"content": text[start : start + 4]}} for start in range(0, len(text), 4)]
    chunks = [{"choices": [{"index": 0, **each}]} for each in (*deltas, {"delta": {}, "finish_reason": "stop"})]
    chunks.append({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 12}})
    events = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks) + "data: [DONE]\n\n"
    with contextlib.suppress(asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
            writer.write(f"content-length: {len(events)}\r\n\r\n{events}".encode())
    writer.close()


async def ask(application: Any, body: bytes) -> str:
    """Returns the whole response of the gateway's ASGI application."""
    request = [{"type": "http.request", "body": body, "more_body": False}]
    answer: list[bytes] = []

    async def receive() -> Any:
        return request.pop() if request else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        answer.append(message.get("body", b""))

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers, "query_string": b""}
    await application(scope, receive, send)
    return b"".join(answer).decode()


@contextlib.asynccontextmanager
async def gateway() -> AsyncGenerator[Callable[[Trace, SqliteJournal], Awaitable[None]]]:
    """Sends one request to a gateway that keeps running and keeps its connection to the model."""
    listing = {"type": "function", "function": {"name": "look", "parameters": look.spec.parameters}}
    messages = [{"role": "user", "content": "Look at Rome."}]
    body = json.dumps({"model": "m", "messages": messages, "tools": [listing], "stream": True}).encode()
    async with await asyncio.start_server(upstream, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = Settings((Upstream(url=f"http://127.0.0.1:{port}/v1", dialect="hermes"),))
        application = Gateway(settings, {})

        async def request(trace: Trace, _journal: SqliteJournal) -> None:
            trace.start()
            answer = await ask(application, body)
            trace.stop()
            assert '"look"' in answer, answer

        yield request
        await application.aclose()


async def measure() -> dict[str, Trace]:
    traces: dict[str, Trace] = {}
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(f"{folder}/runs.db")
        async with gateway() as request:
            for name, way in {"step": step, "pause": pause, "resume": resume, "gateway": request}.items():
                traces[name] = trace = Trace()
                await way(trace, journal)
                trace.clear()
                await way(trace, journal)
        await journal.aclose()
    return traces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the files and their functions")
    with_files = parser.parse_args().list
    print(f"{'':10}{'files':>6}{'functions':>11}{'calls':>7}")
    for name, trace in asyncio.run(measure()).items():
        print(f"{name:10}{len(trace.files):6}{len(trace.functions):11}{trace.calls:7}")
        for file, count in sorted(trace.files.items()) if with_files else ():
            functions = (
                function for _, function in sorted((line, name) for at, name, line in trace.functions if at == file)
            )
            print(f"    {count:4} {file}: {' '.join(functions).replace('.<locals>', '')}")


if __name__ == "__main__":
    main()
