"""A chat in the browser that streams text and asks before each write.

    python examples/web_chat.py          # then open http://127.0.0.1:8000
    MODEL=ollama:qwen3:8b python examples/web_chat.py

Each browser tab is a session. The page receives server-sent events. A run that waits for approval is in the journal, so
the answer may come a day later or reach another process.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from toolspeak import Agent, Effects, Run, Session, SqliteJournal, tool
from toolspeak.data.deltas import TextDelta
from toolspeak.data.events import ApprovalRequested, Record, RunFinished, ToolStarted

HERE = Path(__file__).parent
MODEL = os.environ.get("MODEL", f"scripted:{HERE}/scripts/web_chat.json")
NOTES: list[str] = []


@tool(read_only=True)
def notes() -> list[str]:
    """All notes."""
    return NOTES


@tool(effects=Effects(writes=frozenset({"notes"})))
def add_note(text: str) -> str:
    """Adds a note."""
    NOTES.append(text)
    return "added"


agent = Agent(MODEL, [notes, add_note], journal=SqliteJournal(os.environ.get("JOURNAL", "web_chat.db")))


async def events(run: Run) -> AsyncIterator[str]:
    """Sends the run as server-sent events. If the browser disconnects, the run stops and can be resumed."""
    async for each in run.stream():
        match each:
            case TextDelta(text):
                event = {"text": text}
            case Record(event=ToolStarted(name=name)):
                event = {"tool": name}
            case Record(event=ApprovalRequested() as request):
                event = {"ask": request.call_id, "run": run.run_id, "what": f"{request.call.name}: {request.reason}"}
            case Record(event=RunFinished(status=status)):
                event = {"end": status}
            case _:
                continue
        yield f"data: {json.dumps(event)}\n\n"


async def page(_: Request) -> Response:
    return FileResponse(HERE / "web_chat.html")


async def say(request: Request) -> Response:
    body = await request.json()
    run = await Session(agent, body["session"]).start(body["text"], when_open="close")
    return StreamingResponse(events(run), media_type="text/event-stream")


async def decide(request: Request) -> Response:
    body = await request.json()
    run = agent.reopen(body["run"], {body["call"]: bool(body["yes"])})
    return StreamingResponse(events(run), media_type="text/event-stream")


app = Starlette(
    routes=[Route("/", page), Route("/say", say, methods=["POST"]), Route("/decide", decide, methods=["POST"])]
)

if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    asyncio.run(uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve())
