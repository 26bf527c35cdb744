"""Compares the cost of a wire format, per chunk read and per delta written, with a floor measured in the same run.

    python benchmarks/wire.py [--rounds 15] [--largest 10M]

Each kind (text, the arguments of one call) is a stream as the format's server writes it, `CHUNK` characters per piece.
`decode` is the CPU time from the JSON of a chunk to its deltas. The floor is the minimum for a client in Python:
`json.loads` of the same data and one frozen delta. `alone` is the decoder without `json.loads`. `encode` is the
reverse, for one delta and without `json.dumps`. Figures are medians over rounds in which the kinds take turns. The
target for `alone` is below 4 × 0.5 µs.

A second measurement reads one call with arguments from 1 KB to `--largest`, in at most `MOST` chunks. The cost of a
chunk must not grow with the arguments. At three times the cost or more, the exit code is 1. (A quadratic reader would
be far above that.)
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from toolspeak.data.deltas import ArgumentsDelta, CallCompleted, CallStarted, Delta, TextDelta, TurnEnded
from toolspeak.data.messages import Usage
from toolspeak.wire.anthropic import ANTHROPIC
from toolspeak.wire.base import ModelRequest, WireFormat, WireRequest
from toolspeak.wire.gemini import GEMINI
from toolspeak.wire.ollama import OLLAMA
from toolspeak.wire.openai_chat import OPENAI_CHAT

FORMATS: tuple[WireFormat, ...] = (OPENAI_CHAT, ANTHROPIC, GEMINI, OLLAMA)
WHOLE_CALLS = (GEMINI, OLLAMA)  # formats without fragments of arguments
CHUNK = 4
COUNT = 5_000
TARGET = 4 * 0.5  # µs
MOST = 100_000
MOST_GROWTH = 3.0
REQUEST = WireRequest(ModelRequest([]), "m", stream=True)
UNITS = {"K": 1_000, "M": 1_000_000}


def text_turn(pieces: Iterable[str]) -> list[Delta]:
    return [*map(TextDelta, pieces), TurnEnded("stop", Usage(1, 1), "m")]


def call_turn(pieces: Iterable[str]) -> list[Delta]:
    text_pieces = list(pieces)
    fragments = [ArgumentsDelta(0, piece) for piece in ('{"text": "', *text_pieces, '"}')]
    completion = CallCompleted(0, "write", {"text": "".join(text_pieces)}, "c0")
    return [CallStarted(0, "write", "c0"), *fragments, completion, TurnEnded("tool_calls", Usage(1, 1), "m")]


KINDS: dict[str, Callable[[Iterable[str]], list[Delta]]] = {"text": text_turn, "arguments": call_turn}


def event_data(chat: WireFormat, turn: Iterable[Delta]) -> list[str]:
    """Returns the data of each event of a turn, as JSON."""
    encoder = chat.encoder(REQUEST, response_id="resp_0123456789", created_at=1_700_000_000)
    frames = [data for delta in turn for _, data in encoder.feed(delta)]
    return [json.dumps(data) for data in frames if not isinstance(data, str)]


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU seconds."""
    gc.collect()
    gc.disable()
    start = time.process_time()
    work()
    seconds = time.process_time() - start
    gc.enable()
    return seconds


def floor(lines: list[str]) -> None:
    for line in lines:
        json.loads(line)
        TextDelta(line)


def decode(chat: WireFormat, lines: list[str]) -> None:
    decoder = chat.decoder(model="m")
    for line in lines:
        decoder.feed(json.loads(line))
    decoder.close()


def decode_read(chat: WireFormat, chunks: list[Any]) -> None:
    decoder = chat.decoder(model="m")
    for chunk in chunks:
        decoder.feed(chunk)
    decoder.close()


def encode(chat: WireFormat, turn: list[Delta]) -> None:
    encoder = chat.encoder(REQUEST, response_id="resp_0123456789", created_at=1_700_000_000)
    for delta in turn:
        encoder.feed(delta)


def measure(chat: WireFormat, rounds: int) -> bool:
    """Prints a line for each kind. Returns whether all meet the target."""
    is_met = True
    for kind, make in KINDS.items():
        if kind == "arguments" and chat in WHOLE_CALLS:
            continue
        turn = make("abcd" for _ in range(COUNT))
        lines = event_data(chat, turn)
        chunks = [json.loads(line) for line in lines]
        works: list[Callable[[], None]] = [
            lambda lines=lines: floor(lines),
            lambda lines=lines: decode(chat, lines),
            lambda chunks=chunks: decode_read(chat, chunks),
            lambda turn=turn: encode(chat, turn),
        ]
        times = [[cpu_seconds(work) for work in works] for _ in range(rounds)]
        least, through, alone, back = (1e6 * statistics.median(each) / len(lines) for each in zip(*times, strict=True))
        is_met = is_met and alone <= TARGET
        print(f"{chat.name:18} {kind:10} {least:8.2f} {through:8.2f} {through / least:7.2f} {alone:8.2f} {back:8.2f}")
    return is_met


def growth(chat: WireFormat, largest: int) -> bool:
    """Prints the cost per character at each size. Returns whether it stays the same."""
    costs: list[float] = []
    size = 1_000
    while size <= largest:
        count = min(size // CHUNK, MOST)
        turn = call_turn("x" * (size // count) for _ in range(count))
        chunks = [json.loads(line) for line in event_data(chat, turn)]
        runs = max(3, 20_000 // count)
        costs.append(min(cpu_seconds(lambda chunks=chunks: decode_read(chat, chunks)) for _ in range(runs)) / count)
        print(f"{chat.name:18} {size:12,} characters of arguments: {1e6 * costs[-1]:6.2f} µs a chunk")
        size *= 10
    return costs[-1] < MOST_GROWTH * min(costs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--largest", default="10M", help="characters of arguments, for example 100K or 10M")
    options = parser.parse_args()
    largest = int(options.largest[:-1]) * UNITS[options.largest[-1].upper()]
    print(f"µs of CPU time a chunk of {CHUNK} characters")
    print(f"{'format':18} {'kind':10} {'floor':>8} {'decode':>8} {'ratio':>7} {'alone':>8} {'encode':>8}")
    targets_met = [measure(chat, options.rounds) for chat in FORMATS]
    is_constant = [growth(chat, largest) for chat in FORMATS if chat not in WHOLE_CALLS]
    if not all(targets_met):
        print(f"a decoder takes more than {TARGET} µs a chunk", file=sys.stderr)
    if not all(is_constant):
        print("the cost of a chunk grows with the arguments", file=sys.stderr)
    return 0 if all(is_constant) else 1


if __name__ == "__main__":
    sys.exit(main())
