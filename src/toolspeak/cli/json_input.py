"""`toolspeak run --json --input`: a program gives tasks, decisions and messages as lines of JSON, while records come
out."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from toolspeak.agent import Agent, Run, RunState
from toolspeak.agent.recording.recorder import StreamItem
from toolspeak.cli.exit_codes import USAGE
from toolspeak.cli.options.command_options import write_json_line
from toolspeak.data.events import ApprovalRequested, Record, RunPaused
from toolspeak.errors import ConfigurationError, ProviderError, RunError, ToolspeakError
from toolspeak.execute import ApprovalRequest, Decision, Escalate
from toolspeak.ui import watch

MAX_LINE = 16 * 1024 * 1024
"""The most bytes of a line."""

_CHUNK = 64 * 1024
_KINDS: Mapping[str, tuple[type, frozenset[str]]] = {
    "task": (str, frozenset()),
    "say": (str, frozenset()),
    "decide": (str, frozenset({"approved", "reason", "arguments", "always", "digest", "ends_run"})),
    "interrupt": (bool, frozenset()),
    "suspend": (bool, frozenset()),
    "resume": (bool, frozenset()),
}
"""The key that says what a line is, the type of its value, and the other keys that the line may have."""


class JsonInput:
    """Reads lines of JSON, and does what they say with the run in progress. It is the approver of the agent.

    What is wrong with a line is a line on standard output, `{"error": …, "line": …}`, and changes nothing else.

    - `source`: a file, a FIFO, or `-` for standard input.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._number = 0
        self._is_over = False
        self._tasks: deque[str] = deque()
        self._resumes = False
        self._run: Run | None = None
        self._drive: asyncio.Task[RunState] | None = None
        self._has_paused = False
        self._open_questions: set[str] = set()
        """The calls whose questions are recorded and not answered."""
        self._requests: dict[str, tuple[ApprovalRequest, asyncio.Future[Decision | Escalate]]] = {}
        self._early_decisions: dict[str, tuple[int, dict[str, Any]]] = {}
        self._news = asyncio.Event()

    async def together(self, requests: Sequence[ApprovalRequest], /) -> Sequence[Decision | Escalate]:
        """Answers the questions as lines decide. After the input's end they stay open, and the run pauses."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Decision | Escalate]] = []
        for request in requests:
            answer: asyncio.Future[Decision | Escalate] = loop.create_future()
            self._requests[request.call.id] = request, answer
            answers.append(answer)
        for request in requests:
            if request.call.id in self._early_decisions:
                number, line = self._early_decisions.pop(request.call.id)
                await self._decide(request.call.id, line, number)
        if self._is_over:
            self._leave_open()
        try:
            return await asyncio.gather(*answers)
        finally:
            for request in requests:
                self._requests.pop(request.call.id, None)
                self._open_questions.discard(request.call.id)

    async def converse(
        self,
        begin: Callable[[Agent, str], Awaitable[Run]],
        agent: Agent,
        show: Callable[[StreamItem], None],
        task: str | None,
        end: Callable[[Run], int],
    ) -> int:
        """Drives a run for each task, one after the other, until the input ends. Returns the last one's exit code.

        - `begin`: returns the run of a task. `end`: says how a run ended, and returns its exit code.
        - `show`: gets everything that happens in the runs.
        - `task`: the first task; None: a line gives it.
        """
        code = USAGE
        if task is not None:
            self._tasks.append(task)
        reader = asyncio.create_task(self._read())
        try:
            while await self._next():
                try:
                    self._run = await self._following_run(begin, agent)
                    code = await self._finish(show, end)
                except ProviderError as error:
                    _report(str(error))
                    code = 1 if self._run is None else end(self._run)
                except ToolspeakError as error:
                    _report(str(error))
                    code = 1
            return code
        finally:
            reader.cancel()
            await asyncio.wait([reader])

    async def _following_run(self, begin: Callable[[Agent, str], Awaitable[Run]], agent: Agent) -> Run:
        if self._resumes and self._run is not None:
            self._resumes = False
            return agent.reopen(self._run.run_id)
        return await begin(agent, self._tasks.popleft())

    async def _next(self) -> bool:
        """Waits for a task, or for the wish that the last run goes on. False at the input's end."""
        while not self._tasks and not (self._resumes and self._run is not None):
            if self._is_over:
                return False
            self._news.clear()
            await self._news.wait()
        return True

    async def _finish(self, show: Callable[[StreamItem], None], end: Callable[[Run], int]) -> int:
        run = cast("Run", self._run)

        def see(item: StreamItem) -> None:
            if isinstance(item, Record) and isinstance(item.event, ApprovalRequested):
                self._open_questions.add(item.event.call_id)
            # Set before the record is out: its reader may answer at once with the wish that the run goes on.
            if isinstance(item, Record) and isinstance(item.event, RunPaused):
                self._has_paused = True
            show(item)

        self._has_paused = False
        drive = self._drive = asyncio.create_task(watch(run, see))
        try:
            await asyncio.wait([drive])
            if drive.cancelled():
                write_json_line({"interrupted": run.run_id})
                return 1
            drive.result()
            return end(run)
        finally:
            if not drive.done():  # this task is cancelled
                drive.cancel()
                await asyncio.wait([drive])
            self._drive = None
            self._open_questions.clear()
            self._early_decisions.clear()

    # --- lines --------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            async for line in self._lines():
                self._number += 1
                if line is None:
                    self._refuse(f"a line has more than {MAX_LINE:,} bytes: it was not read")
                elif line.strip():
                    await self._obey(line)
                self._news.set()
        except OSError as error:
            _report(f"the input cannot be read: {error.strerror or error}")
        self._is_over = True
        self._leave_open()
        self._news.set()

    async def _lines(self) -> AsyncGenerator[bytes | None]:
        """The lines of the source; None for one that is too long."""
        chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(8)
        loop = asyncio.get_running_loop()

        def read() -> None:
            # In a thread of its own, with plain reads: the process ends although a read waits.
            def put(chunk: bytes | OSError) -> None:
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()

            with suppress(RuntimeError):  # the event loop is closed
                try:
                    descriptor = sys.stdin.fileno() if self._source == "-" else os.open(self._source, os.O_RDONLY)
                    while chunk := os.read(descriptor, _CHUNK):
                        put(chunk)
                    put(b"")
                except OSError as error:
                    put(error)

        threading.Thread(target=read, daemon=True, name="toolspeak input").start()
        rest, is_skipping = b"", False
        while chunk := await chunks.get():
            if isinstance(chunk, OSError):
                raise chunk
            *ends, last = chunk.split(b"\n")
            for piece in ends:
                yield None if is_skipping or len(rest) + len(piece) > MAX_LINE else rest + piece
                rest, is_skipping = b"", False
            rest += last
            if len(rest) > MAX_LINE:
                rest, is_skipping = b"", True
        if rest or is_skipping:
            yield None if is_skipping else rest

    async def _obey(self, data: bytes) -> None:
        try:
            value = json.loads(data)
            kind, line = _checked_line(value)
        except (ValueError, RecursionError) as error:
            self._refuse(str(error))
            return
        run = self._run if self._drive is not None else None
        match kind:
            case "task":
                self._tasks.append(line["task"])
            case "resume":
                if self._run is None or not (run is None or self._has_paused):
                    self._refuse("no run has paused: there is nothing to resume")
                else:
                    self._resumes = True
            case "decide":
                await self._decide(line["decide"], line, self._number)
            case _ if run is None:
                self._refuse(f'no run is in progress, so there is nothing to {kind}: begin one with {{"task": …}}')
            case "say" | "suspend":
                try:
                    run.say(line["say"]) if kind == "say" else run.suspend()
                except RunError as error:  # it has just ended
                    self._refuse(str(error))
            case _:
                cast("asyncio.Task[RunState]", self._drive).cancel()

    async def _decide(self, call_id: str, line: dict[str, Any], number: int) -> None:
        if call_id not in self._requests:
            if call_id in self._open_questions:
                self._early_decisions[call_id] = number, line  # the record came out just now
            else:
                waiting = ", ".join(self._requests) or "none"
                self._refuse(f"no question about the call {call_id!r} is open; the open ones: {waiting}", number)
            return
        request, answer = self._requests[call_id]
        if line.get("digest", request.digest) != request.digest:
            self._refuse(f"the digest is not that of the question about {call_id!r}: it stays open", number)
            return
        try:
            decision = await _decision(request, line)
        except ConfigurationError as error:
            self._refuse(f"{error}; the question about {call_id!r} stays open", number)
            return
        if not answer.done():
            answer.set_result(decision)

    def _leave_open(self) -> None:
        for _, answer in self._requests.values():
            if not answer.done():
                answer.set_result(Escalate("the input has ended"))

    def _refuse(self, text: str, number: int | None = None) -> None:
        write_json_line({"error": text, "line": self._number if number is None else number})


def _report(text: str) -> None:
    write_json_line({"error": text})


def _checked_line(value: object) -> tuple[str, dict[str, Any]]:
    """What a line is, and its fields. Raises ValueError with what is wrong."""
    if not isinstance(value, dict):
        raise ValueError('expected an object, such as {"task": "…"}')
    line = cast("dict[str, Any]", value)
    kinds = [kind for kind in _KINDS if kind in line]
    if len(kinds) != 1:
        raise ValueError(f"expected exactly one of the keys {', '.join(_KINDS)}")
    kind = kinds[0]
    expected_type, others = _KINDS[kind]
    if not isinstance(line[kind], expected_type) or not line[kind]:
        what = "true" if expected_type is bool else "a text that is not empty"
        raise ValueError(f"expected {what} for {kind!r}")
    if unknown_keys := sorted(line.keys() - others - {kind}):
        raise ValueError(f"a line with {kind!r} cannot have {', '.join(map(repr, unknown_keys))}")
    if kind == "decide":
        if not isinstance(line.get("approved"), bool):
            raise ValueError("expected true or false for 'approved'")
        for name in ("reason", "digest"):
            if not isinstance(line.get(name, ""), str):
                raise ValueError(f"expected a text for {name!r}")
        if not isinstance(line.get("arguments", {}), dict):
            raise ValueError("expected an object for 'arguments'")
        if not isinstance(line.get("ends_run", False), bool):
            raise ValueError("expected true or false for 'ends_run'")
        if line.get("always", "call") not in ("tool", "commands", "host", "call"):
            raise ValueError("expected 'tool', 'commands', 'host' or 'call' for 'always'")
    return kind, line


async def _decision(request: ApprovalRequest, line: Mapping[str, Any]) -> Decision:
    """The decision of a line. Raises ConfigurationError for arguments that do not fit, and for a rule that cannot be
    made of the call."""
    decision = Decision(line["approved"], line.get("reason", ""), by="input", ends_run=line.get("ends_run", False))
    if line.get("arguments") is not None:
        revision = await request.revise(line["arguments"])
        decision = replace(decision, arguments=revision.call.arguments, digest=revision.digest)
    if line.get("always") is not None:
        decision = replace(decision, always=request.always(line["always"]))
    return decision
