"""The engines' own test cases in tests/samples: reading one, comparing it, counting them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from toolspeak.data.deltas import ArgumentsDelta, CallStarted, Delta, TurnEnded
from toolspeak.data.messages import FinishReason, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.dialects import ParsedTurn, Section, TurnCollector, get_dialect, section_of_reply
from toolspeak.testing import chunks

SAMPLES = Path(__file__).parent.parent / "samples"
TEMPLATES = "render-templates"
CUTS = ("uncut", "4 characters", "one chunk", "1 character")
"""How a case is cut. `one chunk`: all of it in one chunk, and an empty one after it, as a stream of one delta ends."""


@cache
def rows() -> tuple[Mapping[str, Any], ...]:
    files = [
        file
        for file in sorted(SAMPLES.glob("*.jsonl"))
        if file.stem != TEMPLATES and not file.stem.startswith("threads")
    ]
    return tuple(json.loads(line) for file in files for line in file.read_text("utf-8").splitlines())


def tool_spec(tool: Mapping[str, Any]) -> ToolSpec:
    tool = tool.get("function", tool)
    return ToolSpec(tool["name"], tool.get("description") or "", tool.get("parameters") or {"type": "object"})


@dataclass(frozen=True)
class RowReading:
    """A turn, and how far each call came: its name and its arguments as JSON text."""

    turn: ParsedTurn
    incomplete: Mapping[int, list[str]]


def pieces(text: str, cut: str) -> Iterable[str]:
    sizes = {"uncut": max(len(text), 1), "one chunk": max(len(text), 1), "4 characters": 4, "1 character": 1}
    yield from chunks(text, sizes[cut])
    if cut == "one chunk":
        yield ""


def see(row: Mapping[str, Any], cut: str, starts_in: Section | None = None) -> RowReading:
    tools = [tool_spec(tool) for tool in row["tools"]]
    dialect = get_dialect(row["dialect"])
    starts_in = starts_in or row.get("starts_in") or section_of_reply(dialect, row["input"], tools)
    parser = dialect.parser(tools, starts_in)
    collector, incomplete = TurnCollector(lambda index: f"call_{index}"), dict[int, list[str]]()
    finish: FinishReason = "length" if row.get("partial") else "stop"

    def add(deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            collector.add(delta)
            match delta:
                case CallStarted(index, name):
                    incomplete[index] = [name, ""]
                case ArgumentsDelta(index, text):
                    incomplete[index][1] += text
                case _:
                    pass

    for piece in pieces(row["input"], cut):
        add(parser.feed(piece))
    add([*parser.close(finish), TurnEnded(finish)])
    return RowReading(collector.turn(), incomplete)


def agrees(reading: RowReading, row: Mapping[str, Any]) -> bool:
    """As the samples' origin compares: texts without the white space around them, arguments as JSON values, ids and
    reasoning where the case says any. Of a turn that was cut off the case says how far the call came."""
    expect, turn = row["expect"], reading.turn
    thought, expected_calls = expect["reasoning"], expect["calls"]
    calls = [call for call in turn.calls if isinstance(call, ToolCall)]
    calls_read: list[list[Any]] = [[call.name, call.arguments] for call in calls]
    if row.get("partial"):
        calls_read += [incomplete for index, incomplete in reading.incomplete.items() if index >= len(calls)]
    ids = zip((call.provider_id for call in calls), expected_calls, strict=False)
    return (
        json.dumps(calls_read, sort_keys=True)
        == json.dumps([[e["name"], e["arguments"]] for e in expected_calls], sort_keys=True)
        and all(each.get("id") in (None, id) for id, each in ids)  # noqa: A001 - what the field is called
        and turn.text.strip() == (expect["content"] or "").strip()
        and (thought is None or bool(row.get("reasoning_off")) or turn.reasoning.strip() == thought.strip())
    )
