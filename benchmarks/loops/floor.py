"""The floor: the minimum that a careful loop must do, and nothing else.

It validates arguments with pydantic, has a task and a deadline for each call, yields typed events from an asynchronous
generator, and counts usage. It has no retries, approval, hooks, journal or limits. No runtime with those can be as
cheap.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import create_model
from worker import CLOSING, OPENING, PIECE, RUN, Subject, next_turn


@dataclass(frozen=True, slots=True)
class Piece:
    text: str


@dataclass(slots=True)
class FloorEvent:
    seq: int
    kind: str
    call_id: str | None
    data: Any


async def complete() -> dict[str, Any]:
    turn = await next_turn()
    if turn is None:
        return {"role": "assistant", "content": "done"}
    tool_calls = [{"id": i, "function": {"name": name, "arguments": arguments}} for i, name, arguments in turn]
    return {"role": "assistant", "tool_calls": tool_calls}


async def stream_pieces() -> AsyncIterator[tuple[str, str]]:
    script = RUN.get()
    kind = "text" if await next_turn() is None else "arguments"
    if kind == "arguments":
        yield "arguments", OPENING
    for _ in range(script.pieces):
        yield kind, PIECE
    if kind == "arguments":
        yield "arguments", CLOSING


class Careful(Subject):
    def wrap(self, functions: Sequence[Callable[..., Any]]) -> Any:
        tools: dict[str, tuple[Callable[..., Any], Callable[[str], Any]]] = {}
        for function in functions:
            parameters = inspect.signature(function, eval_str=True).parameters.values()
            fields: dict[str, Any] = {each.name: (each.annotation, ...) for each in parameters}
            model = create_model(function.__name__, **fields)
            tools[function.__name__] = function, model.__pydantic_validator__.validate_json
        return tools

    def make(self, tools: Any) -> Any:
        return {"model": complete, "tools": tools}

    async def run(self) -> str:
        log = [event async for event in self._events()]
        return log[-1].data

    async def _events(self) -> AsyncIterator[FloorEvent]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        seq = 0
        while True:
            message = await complete()
            messages.append(message)
            seq += 1
            yield FloorEvent(seq, "answered", None, message)
            calls = message.get("tool_calls")
            if not calls:
                yield FloorEvent(seq + 1, "finished", None, message["content"])
                return
            for call in calls:
                seq += 1
                yield FloorEvent(seq, "started", call["id"], call)
            results: dict[str, Any] = {}
            async with asyncio.TaskGroup() as tasks:
                for call in calls:
                    tasks.create_task(self._call(call, results))
            for call in calls:
                content = json.dumps(results[call["id"]])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
                seq += 1
                yield FloorEvent(seq, "finished", call["id"], content)

    async def _call(self, call: dict[str, Any], results: dict[str, Any]) -> None:
        function, validate = self.tools[call["function"]["name"]]
        try:
            arguments = validate(call["function"]["arguments"]).__dict__
            async with asyncio.timeout(30):
                results[call["id"]] = await function(**arguments)
        except Exception as error:  # noqa: BLE001 (a wrong argument or a failing tool is a result)
            results[call["id"]] = f"error: {error}"

    async def stream(self) -> int:
        return await self._read(stream_pieces())

    async def chunks(self, url: str) -> int:
        return await self._read(_from_server(url))

    async def _read(self, pieces: AsyncIterator[tuple[str, str]]) -> int:
        length = 0
        parts: dict[str, list[str]] = {}
        async for event in self._watch(pieces, parts):
            length += len(event.data.text)
        if "arguments" in parts:
            results: dict[str, Any] = {}
            call = {"id": "c", "function": {"name": "put", "arguments": "".join(parts["arguments"])}}
            await self._call(call, results)
            length -= len(OPENING) + len(CLOSING)
        return length

    async def _watch(
        self, pieces: AsyncIterator[tuple[str, str]], parts: dict[str, list[str]]
    ) -> AsyncIterator[FloorEvent]:
        seq = 0
        async for kind, text in pieces:
            seq += 1
            part = parts.get(kind)
            if part is None:
                part = parts[kind] = []
            part.append(text)
            yield FloorEvent(seq, kind, None, Piece(text))


async def _from_server(url: str) -> AsyncIterator[tuple[str, str]]:
    """Minimal reader of a stream: no proxies, redirects, TLS, timeouts, encodings or error messages."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    body = b"{}"
    head = f"POST {place.path}/chat/completions HTTP/1.1\r\nhost: {place.hostname}\r\ncontent-length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    await reader.readuntil(b"\r\n\r\n")
    rest = b""
    while data := await reader.read(65536):
        *events, rest = (rest + data).split(b"\n\n")
        for event in events:
            payload = event.removeprefix(b"data: ")
            if payload == b"[DONE]":
                break
            choice = json.loads(payload)["choices"][0]
            delta = choice["delta"]
            if text := delta.get("content"):
                yield "text", text
            elif (calls := delta.get("tool_calls")) and (text := calls[0]["function"]["arguments"]):
                yield "arguments", text
    writer.close()
