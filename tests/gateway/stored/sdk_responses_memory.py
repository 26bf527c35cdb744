"""Responses with memory by OpenAI's own package (`make test-sdk`), over two worker processes and both databases."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from loopback_server import serve
from postgres_server import postgres
from processes import Process, running_process
from serving import call_text, in_turn, texts
from test_gateway_stored_responses import TOOL, execute_sql

from toolspeak.gateway.stored.response_store import LEASE_SECONDS

KEY = "k" * 20


@asynccontextmanager
async def gateway_of(answer: Any, store: str, folder: Path) -> AsyncGenerator[tuple[Any, Process, openai.AsyncOpenAI]]:
    async with serve(answer) as upstream:
        (folder / "keys.txt").write_text(f"{KEY}\n")
        (folder / "gateway.toml").write_text(
            f'[server]\napi_keys = "keys.txt"\n[responses]\nstore = {json.dumps(store)}\nbackground = true\n'
            f'[[model]]\nname = "m"\nupstream = "{upstream.base_url}"\ndialect = "hermes"\n'
        )
        async with (
            running_process("--config", str(folder / "gateway.toml"), "--workers", "2") as process,
            openai.AsyncOpenAI(base_url=f"{process.url}/v1", api_key=KEY, max_retries=0) as client,
        ):
            yield upstream, process, client


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path}/responses.db"
        return
    with postgres() as url:
        yield url


def test_its_client_goes_on_retrieves_lists_and_deletes(store: str, tmp_path: Path):
    async def run() -> None:
        answer = in_turn(texts(call_text("hermes", ("weather", {}))), *(texts("Snow.") for _ in range(3)))
        async with gateway_of(answer, store, tmp_path) as (upstream, _, client):
            first = await client.responses.create(model="m", input="How is it?", tools=[TOOL])
            (call,) = first.output
            assert call.type == "function_call"
            result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "snow"}
            async with client.responses.stream(
                model="m", input=[result], previous_response_id=first.id, tools=[TOOL]
            ) as stream:
                second = await stream.get_final_response()
            assert (second.previous_response_id, second.store, second.output_text) == (first.id, True, "Snow.")
            for _ in range(8):  # whichever worker is asked
                async with openai.AsyncOpenAI(base_url=client.base_url, api_key=KEY, max_retries=0) as other:
                    assert (await other.responses.retrieve(second.id)).output_text == "Snow."
            items = [item async for item in client.responses.input_items.list(second.id, limit=1, order="asc")]
            assert [item.type for item in items] == ["message", "function_call", "function_call_output"]
            third = await client.responses.create(model="m", input="And?", previous_response_id=second.id)
            assert "How is it?" in json.dumps(upstream.exchanges[2].json)
            await client.responses.delete(second.id)
            with pytest.raises(openai.NotFoundError, match="no response"):
                await client.responses.retrieve(second.id)
            with pytest.raises(openai.NotFoundError, match="send the whole conversation"):
                await client.responses.create(model="m", input="And?", previous_response_id=third.id)
            with pytest.raises(openai.AuthenticationError):
                await client.with_options(api_key="x" * 20).responses.retrieve(third.id)

    asyncio.run(run())


async def poll_until(client: openai.AsyncOpenAI, response_id: str, *statuses: str) -> Any:
    while True:
        async with openai.AsyncOpenAI(base_url=client.base_url, api_key=KEY, max_retries=5) as other:
            response = await other.responses.retrieve(response_id)
        if response.status in statuses:
            return response
        await asyncio.sleep(0.02)


def test_its_client_polls_and_cancels_and_a_worker_that_dies_leaves_nothing_open(store: str, tmp_path: Path):
    async def run() -> None:
        go = asyncio.Event()

        async def answer(exchange: Any) -> None:
            await go.wait()
            await in_turn(texts("Done."))(exchange)

        async with gateway_of(answer, store, tmp_path) as (_, process, client):
            background_responses = [
                await client.responses.create(model="m", input="Work.", background=True) for _ in range(2)
            ]
            assert {each.status for each in background_responses} == {"queued"}
            for each in background_responses:
                await poll_until(client, each.id, "in_progress")
            cancelled_response = await client.responses.cancel(background_responses[0].id)
            assert (cancelled_response.status, cancelled_response.id) == ("cancelled", background_responses[0].id)
            killed_at = time.monotonic()
            for line in await process.log_lines("serving", 2):
                os.kill(line["pid"], signal.SIGKILL)
            await process.log_lines("serving", 4)
            unfinished_response = await poll_until(client, background_responses[1].id, "in_progress", "failed")
            # Its lease still holds, unless the machine took that long to start the workers.
            assert unfinished_response.status == "in_progress" or time.monotonic() - killed_at > LEASE_SECONDS / 2
            await execute_sql(store, "UPDATE responses SET held_until = 0 WHERE status = 'in_progress'")
            lost_response = await poll_until(client, background_responses[1].id, "failed")
            assert lost_response.error is not None
            go.set()
            last = await client.responses.create(model="m", input="Work.", background=True)
            assert (await poll_until(client, last.id, "completed")).output_text == "Done."
            assert (await client.responses.retrieve(background_responses[0].id)).status == "cancelled"

    asyncio.run(run())
