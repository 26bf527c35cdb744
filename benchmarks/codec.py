"""Measures the CPU time to write and read values as JSON: a run's records as rows of a journal and as lines.

    python benchmarks/codec.py [--rounds 7]

Beside each figure is that of Python's json module for the same JSON, which makes plain objects instead of values. Each
figure is the minimum over the rounds, because the machine may be busy with other work.
"""

from __future__ import annotations

import argparse
import json
import timeit
from collections.abc import Callable, Mapping
from typing import Any

from toolspeak.data.codec import dump_row, dumps, load_row, load_text, loads
from toolspeak.data.events import ModelAnswered, ModelTextReceived, Record, RunStarted, ToolFinished, ToolStarted
from toolspeak.data.messages import Message, TextPart, ToolCall, ToolResult, Usage
from toolspeak.data.tools import Effects

ENGLISH = "The test fails: it compares a tuple with a list.\n"
GERMAN = "Der Test schlägt fehl: er vergleicht ein Tupel mit einer Liste, und daran läßt sich etwas ändern.\n"
CHINESE = "测试失败了：它把元组和列表进行比较。\n"


def _tool_finished(text: str, **rest: Any) -> ToolFinished:
    return ToolFinished(ToolResult("call_1_0", "read", "success", (TextPart(text),), **rest))


def _turn(count: int) -> Message:
    call = {"path": "src/a.py", "offset": 40, "options": {"lines": [1, 2, 3], "follow": None}}
    parts = [
        part for i in range(count // 2) for part in (TextPart(ENGLISH), ToolCall(f"call_{i}", "read", {**call, "i": i}))
    ]
    return Message("assistant", tuple(parts))


EVENTS: Mapping[str, Any] = {
    "ToolStarted": ToolStarted("call_1_0", "read", "r1:call_1_0", effects=Effects(reads={"file:/srv/src/a.py"})),
    "ToolStarted, 3 resources": ToolStarted(
        "call_1_0", "move", "r1:call_1_0", effects=Effects({"file:/a"}, {"file:/a", "file:/b"})
    ),
    "ToolFinished": _tool_finished("x = 1\n" * 30),
    "ToolFinished, shortened": _tool_finished("x = 1\n" * 30, extra={"truncated_bytes": 20_000}),
    "ToolFinished, 16 KB": _tool_finished(ENGLISH * 330),
    "ToolFinished, 16 KB German": _tool_finished(GERMAN * 165),
    "ToolFinished, 16 KB Chinese": _tool_finished(CHINESE * 300),
    "ToolFinished, 1 KB German": _tool_finished(GERMAN * 10),
    "ModelAnswered, 2 parts": ModelAnswered(_turn(2), "tool_calls", Usage(1000, 20), cost=0.0123),
    "ModelAnswered, 20 parts": ModelAnswered(_turn(20), "tool_calls", Usage(1000, 20), cost=0.0123),
    "ModelAnswered, a small cost": ModelAnswered(_turn(2), "tool_calls", Usage(100, 20), cost=0.0000123),
    "ModelTextReceived": ModelTextReceived(ENGLISH * 10, ENGLISH),
    "RunStarted, 40 messages": RunStarted((Message.user(ENGLISH), _turn(4)) * 20, "openai:model"),
}


def least(work: Callable[[], Any], rounds: int) -> float:
    """Microseconds per call."""
    number, took = timeit.Timer(work).autorange()
    number = max(1, int(number * 0.05 / took))
    return min(timeit.repeat(work, number=number, repeat=rounds)) / number * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    columns = ("write", "row", "json", "read", "row", "json")
    print(f"{'us':30}{'bytes':>8}" + "".join(f"{name:>9}" for name in columns))
    for name, event in EVENTS.items():
        record = Record(event, "r1", 3, 1, 1700000000.25)
        text, row = dumps(record), dump_row(record)
        data = load_text(text)
        figures = (
            least(lambda record=record: dumps(record), rounds),
            least(lambda record=record: dump_row(record), rounds),
            least(lambda data=data: json.dumps(data, separators=(",", ":")), rounds),
            least(lambda text=text: loads(text), rounds),
            least(lambda row=row: load_row(row, "r1", 3), rounds),
            least(lambda text=text: json.loads(text), rounds),
        )
        print(f"{name:30}{len(text):8}" + "".join(f"{figure:9.2f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
