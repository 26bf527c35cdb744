"""The agents of these tests: a scripted model that calls what its task says, one call a turn."""

import asyncio
import json
import uuid
from contextlib import asynccontextmanager

from toolspeak import Agent, RunContext, tool
from toolspeak.engines import RunClient, Worker
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

SECONDS = 60


def new_id():
    return f"order-{uuid.uuid4().hex}"


def script(messages):
    """The task is JSON: a list of turns, each a list of calls `[name, arguments]`. Their results are the answer."""
    start = max(at for at, each in enumerate(messages) if each.role == "user")
    turns, messages = json.loads(messages[start].text), messages[start:]
    answer_count = sum(each.role == "assistant" for each in messages)
    if answer_count < len(turns):
        return ScriptedTurn("", calls=tuple(ScriptedCall(name, arguments) for name, arguments in turns[answer_count]))
    return "; ".join(result.text for each in messages if each.role == "tool" for result in each.results) or "nothing"


def task(*turns):
    return json.dumps(turns)


def agent(journal, tools=(), name="shop", **options):
    return Agent(ScriptedProvider([script] * 100), tools, dialect="native", name=name, journal=journal, **options)


@tool(read_only=True)
def pay(ctx: RunContext, order: str, timeout: float | None = None) -> str:
    "Waits for a payment."
    ctx.memory["entered"] = ctx.memory.get("entered", 0) + 1
    try:
        payload = ctx.wait_for(f"payment:{order}", timeout=timeout)
    except TimeoutError:
        return f"{order} is not paid"
    return f"{order} paid {payload}"


@tool
def ship(order: str) -> str:
    "Ships an order: it needs an approval."
    return f"{order} shipped"


@asynccontextmanager
async def working(*agents, **options):
    """A worker of these agents, until the block ends."""
    worker = Worker(agents, agents[0].journal, **options)
    running = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def until(journal, run_id, *statuses):
    """Follows a run until it has one of these statuses; returns how it stands."""
    client = RunClient(journal)
    async with asyncio.timeout(SECONDS):
        async for _ in journal.follow(run_id):
            result = await client.status(run_id)
            if result.status in statuses:
                return result
    raise AssertionError
