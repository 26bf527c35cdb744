"""Runs a program in an interpreter process of its own, from one batch of its calls to the next.

The interpreter is pydantic-monty: a subset of Python without files, processes and network. What it reaches outside are
the tools' functions. A program stops where it waits for calls; `dump` gives it as bytes there, with which `load`
continues it in any process.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeAlias, cast

from pydantic_monty import (
    AsyncFunctionSnapshot,
    AsyncFutureSnapshot,
    AsyncMonty,
    AsyncNameLookupSnapshot,
    AsyncSnapshot,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySyntaxError,
    MontyTypingError,
    __version__,
)

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.programs.code_mode import CodeMode
from toolspeak.programs.program_limits import MOST_CHARACTERS, limit_worker, most_round_trips, size_of
from toolspeak.programs.tool_functions import ToolFunctions
from toolspeak.tools.returned_values import jsonable, shown_as_text

VERSION = f"pydantic-monty {__version__}"
"""What wrote a snapshot. Another version may not read it."""

_SLEEP_SECONDS = 300.0
"""How long a program may sleep."""
_SEVERAL = 8
"""The most faults of a program that are reported at once."""
_CALL_FAULTS = frozenset(
    {
        "invalid-argument-type",
        "missing-argument",
        "unknown-argument",
        "too-many-positional-arguments",
        "parameter-already-assigned",
    }
)
_FAULTS = frozenset({"invalid-syntax", "unresolved-reference", "unresolved-import"})
"""The checker's rules whose faults no program survives. Others are a matter of opinion: `match.group()` without a test
for None."""


@quick()
class ProgramCall:
    """A call that a program waits for.

    - `number`: the interpreter's own.
    - `tool`: the tool's name.
    """

    number: int
    tool: str
    arguments: Mapping[str, JSON]


@quick()
class ProgramWait:
    """The program waits for the results of these calls."""

    calls: tuple[ProgramCall, ...]


@quick()
class ProgramEnd:
    """The program is over: its last expression's value as text ("" without one), or why it failed.

    - `has_run`: False if it was not started, because of what the check before it found.
    """

    value: str = ""
    error: str = ""
    has_run: bool = True


@quick()
class CallFailure:
    """A call's failure, as the exception that the program gets."""

    kind: Literal["RuntimeError", "TimeoutError", "PermissionError", "NameError", "TypeError", "ValueError"]
    message: str


ProgramStop: TypeAlias = ProgramWait | ProgramEnd


class Interpreter:
    """One program. Start it with `start`, or continue one with `load`; then `resume` it until it has ended.

    - `functions`: the tools that it may call.
    - `seed`: of its `random`, so that a program that is run again draws the same numbers.
    - `call_count`, `argument_size`, `output_size`: how many calls it has made, and how many characters their arguments
      have and it has printed.
    """

    def __init__(self, functions: ToolFunctions, limits: CodeMode, seed: str) -> None:
        self.functions = functions
        self._limits = limits
        self._seed = seed
        self._process = AsyncExitStack()
        self._snapshot: AsyncSnapshot | None = None
        self._calls: list[ProgramCall] = []
        self._output_parts: list[str] = []
        self._sleeps: dict[int, float] = {}  # when each is over, on the monotonic clock
        self._seconds_slept = 0.0  # seconds
        self.call_count = 0
        self.argument_size = 0
        self.output_size = 0

    async def start(self, code: str) -> ProgramStop:
        """Checks the program and runs it to its first calls, or to its end."""
        session = await self._open()
        try:
            try:
                return await self._advance(await session.feed_start(code, print_callback=self._print))
            except MontyTypingError as error:  # before its first line runs
                problems = _problems(error.display(), code, self.functions)
                if problems:
                    return ProgramEnd(error="\n".join(problems), has_run=False)
            return await self._advance(await session.feed_start(code, print_callback=self._print, skip_type_check=True))
        except MontyError as error:
            return self._failure_of(error)

    async def load(self, snapshot: bytes, calls: Sequence[ProgramCall]) -> bool:
        """Continues a program that waits for these calls. False if the snapshot is not that of this program, or of
        another version of the interpreter: then start it anew."""
        session = await self._open()
        try:
            self._snapshot = await session.load_snapshot(snapshot, print_callback=self._print)
        except (MontyError, RuntimeError, ValueError):
            await self.aclose()
            return False
        numbers = {call.number for call in calls}
        if isinstance(self._snapshot, AsyncFutureSnapshot) and numbers <= {*self._snapshot.pending_call_ids}:
            return True
        await self.aclose()
        return False

    async def resume(self, results: Mapping[int, JSON | CallFailure]) -> ProgramStop:
        """Gives the program the results of the calls it waits for, by number, and runs it to its next ones."""
        snapshot, self._snapshot = self._snapshot, None
        assert isinstance(snapshot, AsyncFutureSnapshot), "the program waits for calls"
        answers: dict[int, Any] = {}
        for number, result in results.items():
            if isinstance(result, CallFailure):
                answers[number] = {"exc_type": result.kind, "message": result.message}
            else:
                answers[number] = {"return_value": result}
        try:
            return await self._advance(await snapshot.resume(answers))
        except MontyError as error:
            return self._failure_of(error)

    def dump(self) -> bytes | None:
        """The program where it waits; None if its process has died, as `resume` will report."""
        assert isinstance(self._snapshot, AsyncFutureSnapshot), "the program waits for calls"
        try:
            return self._snapshot.dump()
        except MontyError:
            return None

    def take_output(self) -> str:
        """What the program has printed since the last time."""
        text = "".join(self._output_parts)
        self._output_parts.clear()
        return text

    async def aclose(self) -> None:
        """Ends the program's process."""
        self._snapshot = None
        await self._process.aclose()

    async def _open(self) -> Any:
        limits = self._limits
        pool = await self._process.enter_async_context(AsyncMonty(min_processes=0, max_processes=1))
        session = await self._process.enter_async_context(
            pool.checkout(
                script_name="program.py",
                limits={
                    "max_feed_duration_secs": float(limits.seconds),
                    "max_memory": limits.memory,
                    "max_suspensions": most_round_trips(limits),
                },
                type_check=True,
                type_check_stubs=self.functions.stubs_for_check(),
                type_check_format="json",
                os_policy={"random_start": {"seed": self._seed}, "sleep_system_max": math.inf},
            )
        )
        limit_worker(session.worker_pid, limits)
        return session

    async def _advance(self, snapshot: AsyncSnapshot) -> ProgramStop:
        """Goes on until the program cannot without the results of its calls."""
        calls = self._calls = []
        while True:
            if isinstance(snapshot, MontyComplete):
                return self._end(snapshot, calls)
            if isinstance(snapshot, AsyncFutureSnapshot):
                if calls:
                    self._snapshot = snapshot
                    return ProgramWait(tuple(calls))
                snapshot = await self._wake_first(snapshot)
                continue
            if isinstance(snapshot, AsyncNameLookupSnapshot):
                function = self.functions.by_name.get(snapshot.variable_name) if snapshot.object_id is None else None
                if function is None:
                    snapshot = await snapshot.resume()
                else:
                    snapshot = await snapshot.resume(value=_function_of_name(function.name))
                continue
            if snapshot.is_os_function:
                snapshot = await self._answer_system(snapshot)
                if self._seconds_slept > _SLEEP_SECONDS:
                    return ProgramEnd(
                        error=f"The program was stopped: it sleeps for more than {_SLEEP_SECONDS:g} seconds. Let it"
                        " end, and look again with another program."
                    )
                continue
            self.argument_size += size_of([snapshot.args, snapshot.kwargs])  # also of calls that are refused
            if self.argument_size > MOST_CHARACTERS:
                return ProgramEnd(
                    error="The program was stopped: the arguments of its calls have more than"
                    f" {MOST_CHARACTERS // 1024 // 1024} MB in all. Those of its last gather did not run. Pass less, or"
                    " do the rest in another program."
                )
            answer, call = self._call(snapshot)
            if call is not None:
                self.call_count += 1
                if self.call_count > self._limits.calls:
                    return ProgramEnd(
                        error=f"The program was stopped: it makes more than {self._limits.calls} calls. Those of its"
                        " last gather did not run. Make fewer calls, or do the rest in another program."
                    )
                calls.append(call)
            snapshot = await snapshot.resume(answer)

    async def _answer_system(self, snapshot: AsyncFunctionSnapshot) -> AsyncSnapshot:
        """Lets the program sleep. It gets nothing else of the system."""
        if snapshot.function_name not in ("system.sleep", "system.async_sleep"):
            return await snapshot.resume_not_handled()
        seconds = max(0.0, float(snapshot.args[0]))
        self._seconds_slept += seconds
        if snapshot.function_name == "system.async_sleep":
            self._sleeps[snapshot.call_id] = time.monotonic() + seconds
            return await snapshot.resume({"future": ...})
        if self._seconds_slept <= _SLEEP_SECONDS:
            await asyncio.sleep(seconds)
        return await snapshot.resume({"return_value": None})

    async def _wake_first(self, snapshot: AsyncFutureSnapshot) -> AsyncSnapshot:
        """Goes on when the first of the program's sleeps is over. One from before a restart is over already."""
        now = time.monotonic()
        number = min(snapshot.pending_call_ids, key=lambda each: self._sleeps.get(each, now))
        await asyncio.sleep(max(0.0, self._sleeps.pop(number, now) - now))
        return await snapshot.resume({number: {"return_value": None}})

    def _call(self, snapshot: AsyncFunctionSnapshot) -> tuple[Any, ProgramCall | None]:
        """What the program gets for a call at once: a future, or an exception."""
        function = self.functions.by_name.get(snapshot.function_name) if snapshot.object_id is None else None
        if function is None:
            names = ", ".join(self.functions.by_name)
            message = f"there is no function {snapshot.function_name!r}; the tools are: {names}"
            return {"exc_type": "NameError", "message": message}, None
        try:
            arguments = function.arguments(snapshot.args, snapshot.kwargs)
        except TypeError as error:
            return {"exc_type": "TypeError", "message": str(error)}, None
        return {"future": ...}, ProgramCall(snapshot.call_id, function.tool, arguments)

    def _end(self, complete: MontyComplete, calls: Sequence[ProgramCall]) -> ProgramEnd:
        if calls:
            names = ", ".join(dict.fromkeys(self.functions.of_tool[call.tool].name for call in calls))
            return ProgramEnd(
                error=f"The program ended with {len(calls)} calls that it did not await: they did not run ({names})."
                " Write `await` before each call, or pass the calls to `await asyncio.gather(…)`."
            )
        value = complete.output
        if value is None:
            return ProgramEnd()
        if isinstance(value, str):
            return ProgramEnd(value)
        if size_of(value) > MOST_CHARACTERS:
            return ProgramEnd(
                f"(The value has more than {MOST_CHARACTERS // 1024 // 1024} MB. Print what you need of it.)"
            )
        try:
            return ProgramEnd(json.dumps(jsonable(value), ensure_ascii=False))
        except Exception:  # noqa: BLE001 - any value of a program's
            return ProgramEnd(shown_as_text(value))

    def _failure_of(self, error: MontyError) -> ProgramEnd:
        limits, text = self._limits, str(error)
        if isinstance(error, MontyCrashedError):
            return ProgramEnd(
                error="The program was stopped: its interpreter died, as it does where a program takes too much memory"
                " or time at once. Write one that holds less."
            )
        if not isinstance(error, MontyRuntimeError | MontySyntaxError):
            return ProgramEnd(error=text)
        if "memory limit exceeded" in text or "exceeded its memory limit" in text:
            return ProgramEnd(
                error=f"The program was stopped: its values take more than {limits.memory // 1024 // 1024} MB. Hold"
                " less at once: keep from each result only what you need."
            )
        if "time limit exceeded" in text:
            return ProgramEnd(
                error=f"The program was stopped: it computed for more than {limits.seconds:g} seconds (waiting for"
                " tools does not count). Look for a loop that does not end, or do less in one program."
            )
        if "suspension limit" in text:
            return ProgramEnd(
                error="The program was stopped: it called, slept or asked for a name more than"
                f" {most_round_trips(limits)} times (calls that are refused count). Look for a loop that does not end."
            )
        return ProgramEnd(error=error.display("traceback"))

    def _print(self, _stream: str, text: str) -> None:
        room = self._limits.output - self.output_size
        self.output_size += len(text)
        if room > 0:
            self._output_parts.append(text[:room])


def _function_of_name(name: str) -> Any:
    async def function(*_values: object, **_named_values: object) -> None: ...

    function.__name__ = function.__qualname__ = name
    return function


def _problems(diagnostics: str, code: str, functions: ToolFunctions) -> list[str]:
    """The faults that the program would not survive, each with its line."""
    lines, problems = code.splitlines(), list[str]()
    for fault in cast("list[dict[str, Any]]", json.loads(diagnostics)):
        rule, message, row = str(fault["code"]), str(fault["message"]), int(fault["location"]["row"])
        of_tool = rule in _CALL_FAULTS and any(f"function `{name}`" in message for name in functions.by_name)
        not_awaited = rule in (*_CALL_FAULTS, "not-iterable", "unresolved-attribute", "not-subscriptable") and (
            "CoroutineType" in message
        )
        if rule == "unresolved-reference" and any(f"`{name}`" in message for name in vars(builtins)):
            continue  # the checker knows fewer of them than the interpreter
        if not_awaited:
            message += " (write `await` before the call of a tool)"
        elif rule not in _FAULTS and not of_tool and not (rule == "unresolved-attribute" and "Module `" in message):
            continue
        source = lines[row - 1].strip() if 0 < row <= len(lines) else ""
        problems.append(f"line {row}: {message}\n    {source}")
    if len(problems) > _SEVERAL:
        problems[_SEVERAL:] = [f"… and {len(problems) - _SEVERAL} more"]
    return problems
