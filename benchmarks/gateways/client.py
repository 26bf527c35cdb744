"""Runs many clients of a gateway in one process: `python client.py PORT MODEL STREAMS REQUESTS TOOLS`.

Requests REQUESTS answers, STREAMS at a time, and checks that each piece of text arrives once and in order. Prints
JSON: `seconds`, `requests`, `chunks`, `wrong` (answers with a lost, repeated or moved piece), and percentiles of the
time from the model server to this client (`ms`) and from a request to its first piece (`first_ms`).
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time

PIECE = re.compile(r"(\d+)@(\d+) ")
CONTENT = re.compile(rb'"content":"((?:[^"\\]|\\.)*)"')
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def request(port: int, model: str, tools: int) -> bytes:
    fields = {"model": model, "messages": [{"role": "user", "content": "Go."}], "stream": True}
    if tools:
        functions = [{**TOOL, "function": {**TOOL["function"], "name": f"get_{i}"}} for i in range(tools)]
        fields["tools"] = functions
    body = json.dumps(fields).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body


async def ask(port: int, http_request: bytes, latencies: list[float], firsts: list[float]) -> tuple[int, bool]:
    """Returns how many pieces arrived, and whether all of them arrived in order."""
    start = time.monotonic_ns()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(http_request)
    count, right, has_ended = 0, True, False
    async for line in reader:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            has_ended = True
            continue
        now = time.monotonic_ns()
        for text in CONTENT.findall(line):
            for number, sent_at in PIECE.findall(text.decode()):
                if not count:
                    firsts.append((now - start) / 1e6)
                right = right and int(number) == count
                count += 1
                latencies.append((now - int(sent_at)) / 1e6)
    writer.close()
    return count, right and has_ended


def percentiles(values: list[float]) -> dict[str, float]:
    values = sorted(values)
    return {f"p{part}": values[min(len(values) - 1, len(values) * part // 100)] for part in (50, 99)}


async def main(port: int, model: str, streams: int, requests: int, tools: int) -> None:
    http_request = request(port, model, tools)
    latencies: list[float] = []
    firsts: list[float] = []
    numbers = iter(range(requests))
    answers: list[tuple[int, bool]] = []

    async def worker() -> None:
        for _ in numbers:
            answer = await ask(port, http_request, latencies, firsts)
            answers.append(answer)

    start = time.monotonic()
    await asyncio.gather(*(worker() for _ in range(streams)))
    seconds = time.monotonic() - start
    most = max(count for count, _ in answers)
    wrong = sum(1 for count, right in answers if not right or count != most)
    chunks = sum(count for count, _ in answers)
    report = {"seconds": seconds, "requests": requests, "chunks": chunks, "wrong": wrong}
    print(json.dumps({**report, "ms": percentiles(latencies), "first_ms": percentiles(firsts)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6])))
