"""Measures the conversation: from the start to the prompt, a key's echo while the model writes, memory over many turns.

    python benchmarks/chat.py [--turns 10000] [--seconds 10]

Exits with 1 if a figure misses its goal. The model is a server in this program that writes 200 tokens a second.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import pty
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from toolspeak.chat.display.styled_text import StyledLine
from toolspeak.chat.display.transcript import Transcript
from toolspeak.data.deltas import CallStarted, TextDelta, ToolProgress
from toolspeak.data.events import ModelAnswered, ModelAsked, Record, ToolFinished, ToolStarted
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult

START_GOAL = 3.5
"""CPU time from the start to the prompt, in imports of pydantic."""
ECHO_GOAL = 16.0
"""Milliseconds for a key's echo, at the 99th percentile."""
MEMORY_GOAL = 0.02
"""How much more memory the second half of the turns may need, as a share."""

TOKENS = 200
KEYS = "αβγδεζηθικλμνξοπρστυφχψω"
"""Letters that nothing else on the screen has."""


def main() -> int:
    """Prints the figures. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ratio = start(folder)
        echo = echoes(folder, options.seconds)
    growth = memory(options.turns)
    p99 = statistics.quantiles(echo, n=100)[98]
    rows = [
        (f"start to prompt: {ratio:.2f} times the CPU of `import pydantic`", ratio <= START_GOAL),
        (
            f"echo of a key: {statistics.median(echo):.1f} ms, 99th percentile {p99:.1f} ms of {len(echo)}",
            p99 < ECHO_GOAL,
        ),
        (f"memory: {100 * growth:+.1f} % in the second half of {options.turns:,} turns", growth < MEMORY_GOAL),
    ]
    for text, is_good in rows:
        print(f"{'✓' if is_good else '✗'} {text}")
    return 0 if all(is_good for _, is_good in rows) else 1


class Chat:
    """`toolspeak chat` at a terminal of 80 columns."""

    def __init__(self, folder: str, address: str) -> None:
        variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TOOLSPEAK_MODEL")}
        environment = {
            **variables,
            "TERM": "xterm-256color",
            "HOME": folder,
            "XDG_CONFIG_HOME": folder,
            "XDG_DATA_HOME": folder,
            "OPENAI_BASE_URL": address,
            "OPENAI_API_KEY": "none",
        }
        self.terminal, end = pty.openpty()
        command = [sys.executable, "-m", "toolspeak", "chat", "--model", "openai:m", "--dialect", "native"]
        self.process = subprocess.Popen(
            command, stdin=end, stdout=end, stderr=end, cwd=folder, env=environment, start_new_session=True
        )
        os.close(end)

    def read_until(self, text: str, seconds: float = 60.0) -> float:
        """Reads until a text has come. Returns the time at which it had (`perf_counter`)."""
        output, deadline = "", time.perf_counter() + seconds
        while text not in output:
            if not select.select([self.terminal], [], [], max(0.0, deadline - time.perf_counter()))[0]:
                raise TimeoutError(f"{text!r} did not come: {output[-500:]!r}")
            output = output[-200:] + os.read(self.terminal, 65536).decode(errors="replace")
        return time.perf_counter()

    def type(self, keys: str) -> None:
        """Types the keys."""
        os.write(self.terminal, keys.encode())

    def cpu(self) -> float:
        """Seconds of CPU that the process has used, all of its threads."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


def start(folder: str, tries: int = 7) -> float:
    """CPU from the start to the prompt, in imports of pydantic; the least of several tries of each."""

    def prompt() -> float:
        chat = Chat(folder, "http://127.0.0.1:9/v1")
        try:
            chat.read_until("›")
            return chat.cpu()
        finally:
            chat.close()

    def imports() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import pydantic"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    prompts = [prompt() for _ in range(tries)]
    return min(prompts) / min(imports() for _ in range(tries))


def echoes(folder: str, seconds: float) -> list[float]:
    """Milliseconds from each key to its echo, while the model writes."""
    port: list[int] = []
    ready = threading.Event()
    threading.Thread(target=lambda: asyncio.run(serve(port, ready)), daemon=True).start()
    ready.wait()
    chat, times = Chat(folder, f"http://127.0.0.1:{port[0]}/v1"), list[float]()
    try:
        chat.read_until("your turn")
        chat.type("go\r")
        chat.read_until("0123")
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for key in KEYS:
                began = time.perf_counter()
                chat.type(key)
                times.append(1000 * (chat.read_until(key) - began))
                time.sleep(0.02)
            chat.type("\x15")  # empties the line
            time.sleep(0.1)
    finally:
        chat.close()
    return times


async def serve(port: list[int], ready: threading.Event) -> None:
    """A model that writes digits, 200 tokens a second, as Markdown."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        words = [
            "0123",
            " 4567",
            " **89**",
            " `01`",
            " 23.",
            "\n\n- 4",
            " 5",
            "\n- 6",
            "\n\n```python\n",
            "7 = 8\n",
            "```\n\n",
        ]
        began, count = time.perf_counter(), 0
        while not writer.is_closing():
            data = json.dumps(
                {"model": "m", "choices": [{"index": 0, "delta": {"content": words[count % len(words)]}}]}
            )
            writer.write(f"data: {data}\n\n".encode())
            await writer.drain()
            count += 1
            await asyncio.sleep(max(0.0, began + count / TOKENS - time.perf_counter()))

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port.append(server.sockets[0].getsockname()[1])
    ready.set()
    await server.serve_forever()


def memory(turns: int) -> float:
    """How much memory the second half of the turns needs, as a share of what was there at half of them. What is said
    is in the journal, so this is the screen's own."""
    rows: list[StyledLine] = []

    def write(lines: object) -> None:
        rows[:] = list(lines)  # pyright: ignore[reportArgumentType] - the last lines alone, as a terminal has them

    transcript = Transcript(write, lambda: 80, time.monotonic)
    half = 0
    for turn in range(turns):
        show_turn(transcript, turn)
        if turn == turns // 2:
            gc.collect()
            half = _resident()
    gc.collect()
    return _resident() / half - 1


def show_turn(transcript: Transcript, turn: int) -> None:
    """One turn with text, a call, its progress and its result."""

    def show(event: object) -> None:
        transcript.show(Record(event, "r", 0, turn, 0.0))  # pyright: ignore[reportArgumentType] - any event

    call = ToolCall(f"call_{turn}", "shell", {"command": f"echo {turn}"})
    show(ModelAsked("m", "", ""))
    for word in f"Turn {turn} says **something** of `code`.\n\n- one\n- two\n".split(" "):
        transcript.show(TextDelta(word + " "))
    transcript.rows(80, 20)
    transcript.show(CallStarted(0, "shell", None, call.id))
    show(ModelAnswered(Message("assistant", (call,)), "tool_calls"))
    show(ToolStarted(call.id, "shell", "key"))
    transcript.show(ToolProgress(call.id, f"line {turn}"))
    show(ToolFinished(ToolResult(call.id, "shell", "success", (TextPart(f"result {turn}"),))))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
