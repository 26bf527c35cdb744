"""How long the dialects take to read one long string argument, against a floor measured in the same run.

    python benchmarks/dialects.py [--sizes 1K 100K 1M 10M] [--chunk 4]

The floor is what any incremental parser in Python does for a chunk: a method call, a regular expression
that matches, and a frozen delta. `growth` is the time of this size over that of the size before, divided by
the ratio of the sizes: 1 is linear, the ratio itself would be quadratic.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable

from toolspeak.data.deltas import ArgumentsDelta
from toolspeak.data.messages import Message, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import DIALECTS, Dialect
from toolspeak.testing import chunks

LINE = 'def f(x):\n\treturn "<b>" + x  # \\ done\n'
TOOL = ToolSpec("write", "", {"type": "object", "properties": {"content": {"type": "string"}}})
UNITS = {"K": 1_000, "M": 1_000_000}


class Floor:
    """The least a parser can do."""

    def __init__(self) -> None:
        self._run = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)

    def feed(self, chunk: str) -> list[ArgumentsDelta]:
        found = self._run.match(chunk, 0)
        return [ArgumentsDelta(0, chunk[: found.end()])] if found else []


def read(dialect: Dialect) -> Callable[[list[str]], None]:
    def run(pieces: list[str]) -> None:
        parser = dialect.parser([TOOL])
        for piece in pieces:
            parser.feed(piece)
        parser.close("stop")

    return run


def floor(pieces: list[str]) -> None:
    parser = Floor()
    for piece in pieces:
        parser.feed(piece)


def seconds(run: Callable[[list[str]], None], pieces: list[str], repeat: int) -> float:
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        run(pieces)
        best = min(best, time.perf_counter() - start)
    return best


def size_of(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1].upper()] if text[-1].upper() in UNITS else int(text)


def reply(dialect: Dialect, size: int) -> str:
    content = (LINE * (size // len(LINE) + 1))[:size]
    (message,) = dialect.render([Message("assistant", (ToolCall("1", "write", {"content": content}),))], [TOOL])
    return message.text


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", nargs="+", default=["1K", "100K", "1M", "10M"], help="lengths of the argument")
    options.add_argument("--chunk", type=int, default=4, help="characters per chunk")
    chosen = options.parse_args()
    print(f"{'':14}{'size':>6}{'us/chunk':>10}{'floor':>8}{'ratio':>7}{'growth':>8}{'s total':>9}{'MB/s whole':>12}")
    for dialect in DIALECTS:
        before: tuple[int, float] | None = None
        for label in chosen.sizes:
            text = reply(dialect, size_of(label))
            pieces = list(chunks(text, chosen.chunk))
            repeat = 3 if len(text) < 2_000_000 else 1
            streamed, lowest = seconds(read(dialect), pieces, repeat), seconds(floor, pieces, repeat)
            whole = seconds(read(dialect), [text], repeat)
            growth = f"{streamed / before[1] / (len(text) / before[0]):.2f}" if before else ""
            before = len(text), streamed
            each, least = streamed / len(pieces) * 1e6, lowest / len(pieces) * 1e6
            print(
                f"{dialect.name:14}{label:>6}{each:>10.2f}{least:>8.2f}{each / least:>7.1f}{growth:>8}"
                f"{streamed:>9.3f}{len(text) / whole / 1e6:>12.1f}"
            )


if __name__ == "__main__":
    main()
