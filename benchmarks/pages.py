"""Measures what a web page costs: from the call of `fetch` to its result, from a server on the loopback interface.

    python benchmarks/pages.py [--rounds 30]

Prints, for pages of several sizes, milliseconds: the median and the shortest time on the clock of the whole call, and
of a call with `want="source"`, which is all but the reading of the page; and the median of the longest time for which
the event loop stood still meanwhile. Before that: the processor's time of the imports, and the time of the first page,
which starts the process that reads pages.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

from toolspeak.data.messages import ToolCall
from toolspeak.execute import Executor
from toolspeak.tools.web import WebAccess, fetch_tool

SIZES = {"2 KB": 2_000, "22 KB": 22_000, "200 KB": 200_000, "1 MB": 1_000_000}
PARAGRAPH = "<p>On day {n} the harbour is small, and <b>the ferry</b> <a href='/ferry?day={n}'>comes twice</a>.</p>\n"
IMPORTS = """
import sys, time
import toolspeak.project.agent_builder
begin = time.process_time()
from toolspeak.tools.web import fetch_tool
of_tool = time.process_time() - begin
fetch_tool()
assert "trafilatura" not in sys.modules
print(f"{of_tool * 1000:.0f} ms for fetch, {(time.process_time() - begin) * 1000:.0f} ms with the tool made")
"""


def page_of(size: int) -> bytes:
    """An article of about this size."""
    paragraphs = "".join(PARAGRAPH.format(n=n) for n in range(size // len(PARAGRAPH)))
    body = f"<body><main><article>{paragraphs}</article></main></body>"
    return f"<html><head><title>Harbour</title></head>{body}</html>".encode()


async def with_longest_stop(work: Awaitable[object]) -> float:
    """The longest time in ms for which the event loop stood still, or slept a millisecond, during the work."""
    longest, last = 0.0, time.perf_counter()

    async def tick() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    ticking = asyncio.ensure_future(tick())
    await work
    ticking.cancel()
    return longest * 1000


async def measure(rounds: int) -> None:
    pages: dict[str, bytes] = {f"/{size}": page_of(size) for size in SIZES.values()}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = pages[head.split(" ")[1]]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    executor = Executor([fetch_tool(WebAccess(allow=(f"127.0.0.1:{port}",)))], approve="all")

    def call(size: int, want: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            url = f"http://127.0.0.1:{port}/{size}"
            batch = await executor.run([ToolCall("c", "fetch", {"url": url, "want": want})])
            assert batch.results[0].status == "success", batch.results[0].text

        return run

    begin = time.perf_counter()
    await call(2_000, "text")()
    print(f"first page: {(time.perf_counter() - begin) * 1000:.0f} ms")
    print(f"{'page':>8} {'p50':>8} {'least':>8} {'source p50':>11} {'loop stood':>11}")
    for name, size in SIZES.items():
        times: dict[str, list[float]] = {"text": [], "source": []}
        stops: list[float] = []
        for _ in range(rounds):
            for want, durations in times.items():
                begin = time.perf_counter()
                await call(size, want)()
                durations.append((time.perf_counter() - begin) * 1000)
            stops.append(await with_longest_stop(call(size, "text")()))
        texts, sources = times["text"], times["source"]
        figures = (statistics.median(texts), min(texts), statistics.median(sources), statistics.median(stops))
        print(f"{name:>8} {figures[0]:8.1f} {figures[1]:8.1f} {figures[2]:11.1f} {figures[3]:11.1f}")
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    asyncio.run(measure(options.rounds))


if __name__ == "__main__":
    main()
