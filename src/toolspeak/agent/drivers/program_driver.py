"""A driver whose model is a program: each turn runs the program to its next calls.

So a program is a run. Its calls are the calls of a turn, with their ids, records, approvals and results; its answer is
what it printed. With the calls of a turn the snapshot of the program is recorded, where it waits for them. A process
that goes on with the run loads the last snapshot and gives the program the results recorded since. Without one that can
be read it starts the program anew and gives it the recorded results: no call runs for that.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

from toolspeak import programs
from toolspeak.agent.drivers.base import DriverContext, TurnRequest
from toolspeak.data.deltas import (
    BatchEnded,
    CallCompleted,
    CallStarted,
    Delta,
    PartEnded,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import (
    JSON,
    FailureCode,
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    Opaque,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    opaque_fields,
)
from toolspeak.execute.batch_context import ANSWERED_FROM
from toolspeak.programs.code_mode import CodeMode
from toolspeak.wire.json_conversion import without_lone_surrogates

PROGRAM = "program"
"""The name of the driver, which is the model's name of a program's run."""

_NO_TOKENS = Usage(0, 0)
_SNAPSHOTS = 1024 * 1024
"""How many characters of snapshots a run may record, besides four for each of its results. A program with larger values
has no snapshot: when the run resumes, the program runs again from its beginning."""
_WAITING_SHARE = 8
"""How many times as much, where a call may wait for an approval: that may be days."""
_MOST_TURNS_WITHOUT = 63
"""How many turns at most go by before a program whose values were too large is tried again: to take its snapshot costs
time."""
_NOTHING = "(The program ended. It printed nothing, and its last line has no value.)"
_LISTED_CALLS = 20
_ARGUMENTS_LENGTH = 100
"""How many characters of a call's arguments a failure shows."""
_EXCEPTIONS: Mapping[FailureCode, str] = {
    "timeout": "TimeoutError",
    "rejected": "PermissionError",
    "blocked": "PermissionError",
    "invalid_arguments": "ValueError",
    "unknown_tool": "NameError",
}
_LIMITS = {
    "repeats": "it makes the same calls again and again, and they bring the same results",
    "failures": "every call of its last steps failed",
    "calls": "the run's limit on calls is reached",
}


class ProgramDriver:
    """Runs programs (`CodeMode`). `return_types`: what tools return, as Python types, by the tool's name."""

    name = PROGRAM
    starts_early = False

    def __init__(self, mode: CodeMode, return_types: Mapping[str, str]) -> None:
        self.mode = mode
        self.return_types = return_types

    def prompt(self, request: TurnRequest) -> str:
        """A program has none."""
        return ""

    def open(self, run: DriverContext) -> ProgramConversation:
        """Begins the conversation with one program, which the first message holds."""
        return ProgramConversation(self)

    async def aclose(self) -> None: ...


class ProgramConversation:
    """One program: in its interpreter, and in the messages."""

    def __init__(self, driver: ProgramDriver) -> None:
        self._driver = driver
        self._interpreter: programs.Interpreter | None = None
        self._stop: programs.ProgramStop | None = None
        self._text = ""  # what it printed before `_stop`
        self._read_count = 0  # of the messages
        self._turns: list[Message] = []  # those with calls
        self._resumed_count = 0  # of the turns whose results the program has
        self._recorded_count = 0  # of the turns that were there when the program was opened here
        self._results: dict[str, ToolResult] = {}
        self._output = ""  # of all turns
        self._snapshot_size = 0  # of all turns
        self._turns_without = self._last_turns_without = 0  # how many turns go without a snapshot: it was too large

    async def turn(self, request: TurnRequest) -> AsyncGenerator[Delta]:
        """Runs the program until it waits for calls, or has ended."""
        self._read(request.messages)
        if self._interpreter is None:
            await self._open(request)
        while self._resumed_count < len(self._turns):
            await self._resume()
        assert self._stop is not None, "the program has been started"
        if isinstance(self._stop, programs.ProgramEnd):
            for delta in self._last_turn(self._stop):
                yield delta
            return
        wait = self._stop
        if request.choice.mode == "none":
            limit = str(getattr(request.state, "limit", ""))
            reason = _LIMITS.get(limit, f"the run's limit of {limit} is reached")
            names = ", ".join(dict.fromkeys(call.tool for call in wait.calls))
            stop = programs.ProgramEnd(error=f"The program was stopped before its next calls ({names}): {reason}.")
            for delta in self._last_turn(stop):
                yield delta
            return
        if self._text:
            yield TextDelta(self._text)
        yield PartEnded("reasoning", Opaque(PROGRAM, PROGRAM, self._position(wait, request)))
        for index, call in enumerate(wait.calls):
            yield CallStarted(index, call.tool)
            yield CallCompleted(index, call.tool, call.arguments)
        yield BatchEnded(tuple(range(len(wait.calls))), True)
        yield TurnEnded("tool_calls", _NO_TOKENS)

    async def aclose(self) -> None:
        """Ends the interpreter's process."""
        if self._interpreter is not None:
            await self._interpreter.aclose()

    def _read(self, messages: Sequence[Message]) -> None:
        for place in range(self._read_count, len(messages)):
            message = messages[place]
            if message.role == "assistant" and message.calls:
                self._turns.append(message)
                position = _position_of(message)
                self._output += str(position.get("output", ""))
                self._snapshot_size += len(str(position.get("snapshot", "")))
            for result in message.results:
                self._results[result.call_id] = result
        self._read_count = len(messages)

    async def _open(self, request: TurnRequest) -> None:
        """Loads the program's last snapshot that can be read, or starts it."""
        code = request.messages[0].text
        functions = programs.ToolFunctions(request.tools, self._driver.return_types)
        self._recorded_count = len(self._turns)
        seed = hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
        interpreter = self._interpreter = programs.Interpreter(functions, self._driver.mode, seed)
        for place in range(len(self._turns) - 1, -1, -1):
            message = self._turns[place]
            snapshot = _snapshot_of(message, code)
            if snapshot is None:
                continue
            calls = _calls_of(message)
            if not await interpreter.load(snapshot, calls):
                continue
            earlier_calls = [cast("ToolCall", call) for turn in self._turns[: place + 1] for call in turn.calls]
            interpreter.call_count = len(earlier_calls)
            interpreter.argument_size = sum(programs.size_of(dict(call.arguments)) for call in earlier_calls)
            interpreter.output_size = int(cast("int", _position_of(message).get("output_size", 0)))
            self._stop, self._resumed_count = programs.ProgramWait(calls), place
            return
        self._stop = await interpreter.start(code)
        self._text = interpreter.take_output()

    async def _resume(self) -> None:
        """Gives the program the results of its next turn, and runs it on."""
        message, wait, interpreter = self._turns[self._resumed_count], self._stop, self._interpreter
        assert interpreter is not None, "`turn` opens it"
        self._resumed_count += 1
        recorded_calls = [(call.name, cast("ToolCall", call).arguments) for call in message.calls]
        if (
            not isinstance(wait, programs.ProgramWait)
            or len(wait.calls) != len(recorded_calls)
            or (
                self._resumed_count <= self._recorded_count  # the program is run again
                and [(call.tool, call.arguments) for call in wait.calls] != recorded_calls
            )
        ):
            self._resumed_count, self._text = len(self._turns), ""
            self._stop = programs.ProgramEnd(
                error="The program was interrupted and cannot go on: run again, it makes other calls than before. Look"
                " at what its calls have done, and write another program for the rest."
            )
            return
        results = {
            program_call.number: _value_of(self._results[call.id], self._driver.mode)
            for program_call, call in zip(wait.calls, message.calls, strict=True)
        }
        self._stop = await interpreter.resume(results)
        self._text = interpreter.take_output()

    def _position(self, wait: programs.ProgramWait, request: TurnRequest) -> dict[str, JSON]:
        """Where the program waits, as it is recorded with its calls: their numbers, and mostly its snapshot."""
        assert self._interpreter is not None, "the program waits in it"
        numbers: list[JSON] = [call.number for call in wait.calls]
        position: dict[str, JSON] = {"numbers": numbers, "output_size": self._interpreter.output_size}
        if self._text:
            position["output"] = self._text  # the text of a turn is without the line break at its end
        if self._turns_without:
            self._turns_without -= 1
            return position
        dump = self._interpreter.dump()
        if dump is None:
            return position
        snapshot = base64.b64encode(zlib.compress(dump, 1)).decode()
        names = {call.tool for call in wait.calls}
        may_wait = any(request.needs_approval(spec) for spec in request.tools if spec.name in names)
        size = self._snapshot_size + len(snapshot)
        if size > _SNAPSHOTS:  # as much again as the results, several times
            size -= 4 * sum(len(result.text) for result in self._results.values())
        if size <= _SNAPSHOTS * (_WAITING_SHARE if may_wait else 1):
            code = request.messages[0].text
            position |= {"snapshot": snapshot, "version": programs.VERSION, "digest": _digest(code, numbers, snapshot)}
        else:
            self._turns_without = self._last_turns_without = min(2 * self._last_turns_without + 1, _MOST_TURNS_WITHOUT)
        return position

    def _last_turn(self, stop: programs.ProgramEnd) -> list[Delta]:
        """The last turn: all that the program printed, its value, and why it failed."""
        interpreter = self._interpreter
        assert interpreter is not None, "the program has been started"
        limit = self._driver.mode.output
        value = stop.value if len(stop.value) <= limit else f"{stop.value[:limit]}…"
        error = stop.error if len(stop.error) <= limit else f"{stop.error[:limit]}…"
        pieces = [(self._output + self._text).rstrip("\n"), value]
        drop_count = interpreter.output_size - limit
        if drop_count > 0 or len(stop.value) > limit:
            pieces.append(
                f"[{max(drop_count, 0) + max(len(stop.value) - limit, 0)} more characters of the program's output were"
                " dropped. Print what you need, not whole results.]"
            )
        if not stop.has_run:
            pieces.append(f"Nothing was run, because of these faults in the program:\n{error}")
        elif error:
            pieces += [error, self._calls_made()]
        text = "\n".join(filter(None, pieces)) or _NOTHING
        return [TextDelta(text), TurnEnded("error" if stop.error else "stop", _NO_TOKENS)]

    def _calls_made(self) -> str:
        """What the program had done when it failed, so that the model does not do it again."""
        calls = [cast("ToolCall", call) for turn in self._turns for call in turn.calls]
        lines: list[str] = []
        for call in calls[-_LISTED_CALLS:]:
            result, arguments = self._results.get(call.id), json.dumps(dict(call.arguments), ensure_ascii=False)
            arguments = arguments if len(arguments) <= _ARGUMENTS_LENGTH else f"{arguments[:_ARGUMENTS_LENGTH]}…"
            state = "no result" if result is None else result.code or "done"
            lines.append(f"- {call.name} {arguments}: {state}")
        if not calls:
            return "It had made no call before."
        if len(calls) > _LISTED_CALLS:
            lines.insert(0, f"- {len(calls) - _LISTED_CALLS} calls before these")
        return "\n".join(["Before that, these calls were made. They are not undone:", *lines])


def _position_of(message: Message) -> Mapping[str, JSON]:
    for part in message.parts:
        if isinstance(part, ReasoningPart) and (fields := opaque_fields(part.opaque, PROGRAM)):
            return fields
    return {}


def _snapshot_of(message: Message, code: str) -> bytes | None:
    """The snapshot in a turn, None if it has none of this version of the interpreter, or a damaged one."""
    position = _position_of(message)
    snapshot, numbers = position.get("snapshot"), position.get("numbers")
    if not isinstance(snapshot, str) or position.get("version") != programs.VERSION:
        return None
    if position.get("digest") != _digest(code, numbers, snapshot):
        return None
    try:
        return zlib.decompress(base64.b64decode(snapshot))
    except (ValueError, zlib.error):
        return None


def _calls_of(message: Message) -> tuple[programs.ProgramCall, ...]:
    numbers = cast("Sequence[int]", _position_of(message).get("numbers", ()))
    calls = [cast("ToolCall", call) for call in message.calls]
    return tuple(
        programs.ProgramCall(number, call.name, call.arguments) for number, call in zip(numbers, calls, strict=True)
    )


def _digest(code: str, numbers: JSON, snapshot: str) -> str:
    text = f"{code}\n{json.dumps(numbers)}\n{programs.VERSION}\n{snapshot}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _value_of(result: ToolResult, mode: CodeMode) -> Any:
    """What the program gets for a call: the value of its result, or an exception. No text of a program has halves of
    characters, which a file may have."""
    if result.status == "failure":
        kind = _EXCEPTIONS.get(result.code, "RuntimeError") if result.code else "RuntimeError"
        text = without_lone_surrogates(f"{result.name}: {result.text}")
        return programs.CallFailure(cast("Any", kind), cast("str", text))
    if "truncated_bytes" in result.extra:
        return programs.CallFailure(
            "ValueError",
            f"{result.name}: the call ran, but its result is longer than {mode.result_bytes} bytes: ask for a part",
        )
    parts = result.content[1:] if ANSWERED_FROM in result.extra else result.content
    for part in parts:
        if isinstance(part, JsonPart):
            return without_lone_surrogates(part.value)
    text = "".join(
        part.text if isinstance(part, TextPart) else f"[{part.media_type}: a program cannot read it]"
        for part in parts
        if isinstance(part, TextPart | ImagePart | FilePart)
    )
    return without_lone_surrogates(text)
