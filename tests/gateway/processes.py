"""The gateway as its own process, its log, and many streams through it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
from serving import PATIENCE

CHAT = "/v1/chat/completions"


@dataclass
class Process:
    """`lines` are those of its log so far."""

    process: asyncio.subprocess.Process
    url: str
    lines: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def log_lines(self, event: str, count: int = 1, **fields: Any) -> list[dict[str, Any]]:
        """The lines of this event with these fields, once there are so many."""

        def matches() -> list[dict[str, Any]]:
            return [line for line in self.lines if {"event": event, **fields}.items() <= line.items()]

        async with asyncio.timeout(PATIENCE), self.more:
            await self.more.wait_for(lambda: len(matches()) >= count)
        return matches()

    async def follow(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self.more:
                self.lines.append(json.loads(line))
                self.more.notify_all()

    def client(self, **headers: str) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=None)
        return httpx2.AsyncClient(
            base_url=self.url, timeout=PATIENCE, trust_env=False, verify=False, limits=limits, headers=headers
        )


@asynccontextmanager
async def running_process(*arguments: str) -> AsyncGenerator[Process]:
    """`toolspeak serve` with these arguments, once every worker answers."""
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", "0", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stderr=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"}, start_new_session=True
    )
    assert process.stderr is not None
    follower = None
    try:
        early_lines: list[dict[str, Any]] = []
        while (line := (await process.stderr.readline()).decode()).startswith("{"):  # before the address is printed
            early_lines.append(json.loads(line))
        assert line.startswith("toolspeak serves at http://"), (line, early_lines)
        gateway = Process(process, line.split()[-1], early_lines)
        follower = asyncio.create_task(gateway.follow())
        workers = int(arguments[arguments.index("--workers") + 1]) if "--workers" in arguments else 1
        await gateway.log_lines("serving", workers)
        yield gateway
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the workers too: they hold the log open
        await process.wait()
        if follower is not None:
            await follower


async def is_to_be_asked_again(response: httpx2.Response) -> bool:
    """Whether the store of limits did not respond in time, as on a machine that stands still: nothing was counted."""
    return response.status_code == 503 and b"limits_unavailable" in await response.aread()


class Streams:
    """Answers that are under way at the same time: `texts` is what came of each so far."""

    def __init__(self, client: httpx2.AsyncClient, bodies: list[dict[str, Any]]) -> None:
        self.texts = ["" for _ in bodies]
        self.statuses = [0 for _ in bodies]
        self._client = client
        self._more = asyncio.Condition()
        self._tasks = [asyncio.create_task(self._one(i, body)) for i, body in enumerate(bodies)]

    async def _one(self, number: int, body: dict[str, Any]) -> None:
        while not self.statuses[number]:
            async with self._client.stream("POST", CHAT, json=body) as response:
                if await is_to_be_asked_again(response):
                    continue
                self.statuses[number] = response.status_code
                async for piece in response.aiter_text():
                    async with self._more:
                        self.texts[number] += piece
                        self._more.notify_all()

    async def until(self, is_done: Callable[[list[str]], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(lambda: is_done(self.texts))

    async def read_to_end(self) -> list[str]:
        await asyncio.gather(*self._tasks)
        return self.texts
