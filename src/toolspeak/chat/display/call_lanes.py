"""The calls of a batch, each in a lane with its state, until their results are there."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping

from toolspeak.chat.display.styled_text import StyledLine, truncate
from toolspeak.data.messages import MalformedCall, ToolCall
from toolspeak.ui.format import argument_lines, count, one_line

_OUTPUT_ROWS = 4
"""How many of the last lines of a running tool are shown."""

_OUTPUT_LINES = 200
"""How many of them a lane holds, for a call that is interrupted."""

_MOST_BEGINNING = 300
_PATH = re.compile(r'\s*\{\s*"(?:path|file)"\s*:\s*"([^"\\]+)"')

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SIGNS = {"asks you": "?", "is refused": "✗", "is allowed": "·"}


class CallLane:
    """One call of the batch, until its result is there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.call: ToolCall | MalformedCall | None = None
        self.state = "is written"
        self.characters = 0
        """How many characters of its arguments the model has written so far."""
        self.beginning = ""
        """The first of them."""
        self.started_at: float | None = None
        self.output: deque[str] = deque(maxlen=_OUTPUT_LINES)

    def write(self, text: str) -> None:
        """Takes a piece of the arguments, while the model writes them."""
        self.characters += len(text)
        if len(self.beginning) < _MOST_BEGINNING:
            self.beginning += text[:_MOST_BEGINNING]

    @property
    def written_path(self) -> str:
        """The path of the call, once the model has written it; "" before, and if the arguments do not begin with it."""
        match = _PATH.match(self.beginning)
        return match[1] if match is not None else ""


def spinner(seconds: float) -> str:
    """The sign of something that goes on."""
    return _FRAMES[int(seconds * 10) % len(_FRAMES)]


def call_line(sign: str, style: str, name: str, call: ToolCall | MalformedCall | None, instead: str = "") -> StyledLine:
    """A call on one line, with all of its arguments. `instead`: what stands in their place."""
    arguments = instead or (", ".join(argument_lines(call.arguments)) if isinstance(call, ToolCall) else "")
    return [(f"class:{style}", f"{sign} {one_line(name)}"), ("", f" {one_line(arguments)}")]


def lane_rows(lanes: Mapping[str, CallLane], columns: int, most: int, clock: Callable[[], float]) -> list[StyledLine]:
    """A row for each call, with the last lines of its output where there is room: at most `most` rows."""
    every = list(lanes.values())
    first = every if len(every) <= most else every[: most - 1]
    room = most - len(first)
    rows: list[StyledLine] = []
    for lane in first:
        sign, state = _SIGNS.get(lane.state, "·"), lane.state
        if lane.state == "runs" and lane.started_at is not None:
            sign, state = spinner(clock()), f"{clock() - lane.started_at:.0f} s"
        elif lane.state == "is written" and lane.call is None:
            state = f"is written … {count(lane.characters, 'character')}" if lane.characters else "is written …"
        style, path = "question" if lane.state == "asks you" else "call", lane.written_path if lane.call is None else ""
        line = call_line(sign, style, lane.name, lane.call, path)
        rows.append([*truncate(line, max(10, columns - len(state) - 2)), ("class:note", f"  {state}")])
        output = list(lane.output)[-min(room, _OUTPUT_ROWS) :] if room > 0 else []
        room -= len(output)
        rows += [truncate([("class:note", "  │ "), ("class:output", text)], columns) for text in output]
    if len(first) < len(every):
        rows.append([("class:note", f"… {len(every) - len(first):,} more calls")])
    return rows
