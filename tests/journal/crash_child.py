"""A program that runs an agent on real files, and dies when it is told to.

It reads one job a line from standard input (JSON), forks a process for it, and writes how that ended. A job names a
`folder`, how many `runs` there are at once (each in a folder in it, all in one journal) or the `run_id` of one to
resume, and where to die: `die_at` a record's number ("before" or "after" it is durable), or `die_after` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from toolspeak import Agent, Effects, Happened, Limits, RunContext, SqliteJournal, tool
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.providers.scripted import ScriptedProvider

# What the model does, one batch a stage: calls of every policy, alone and together.
STAGES = (
    [("look", {"path": "in.txt"})],
    [("put", {"path": "a.txt", "text": "a"}), ("add_line", {"text": "line 1"}), ("look", {"path": "in.txt"})],
    [("pay", {"amount": 7})],
    [("add_line", {"text": "line 3"}), ("put", {"path": "b.txt", "text": "b"}), ("pay", {"amount": 9})],
)
ANSWER = "All stages are done."


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class MortalJournal(SqliteJournal):
    """Dies when a certain record is appended."""

    def __init__(self, path: Path, number: int | None, when: str) -> None:
        super().__init__(path)
        self._number, self._when, self._count = number, when, 0

    async def append(self, record, lease=None):
        mine = self._count == self._number
        self._count += 1
        if mine and self._when == "before":
            die()
        await super().append(record, lease)
        if mine:
            die()


def write_line(path: Path, line: str) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def tools(folder: Path):
    def effects(path):
        return Effects(writes={f"file:{path}"})

    def ran(ctx: RunContext) -> None:
        write_line(folder / "ran", ctx.idempotency_key)
        time.sleep(0.002)  # a while in which it may be killed, as with any real work

    @tool(read_only=True)
    def look(path: str) -> str:
        "Reads a file; may begin before it is recorded, so that what it runs is not counted."
        time.sleep(0.002)
        return (folder / path).read_text()

    @tool(effects=effects, idempotent=True)
    def put(path: str, text: str, ctx: RunContext) -> str:
        "Writes a file."
        ran(ctx)
        (folder / path).write_text(text)
        return "written"

    @tool(effects=Effects(writes={"file:log.txt"}))
    def add_line(text: str, ctx: RunContext) -> str:
        "Adds a line to the log."
        write_line(folder / "log.txt", text)
        ran(ctx)
        return f"added {text}"

    @tool(read_only=True)
    def has_line(text: str) -> str:
        "Whether the log has a line."
        with contextlib.suppress(FileNotFoundError):
            if text in (folder / "log.txt").read_text().splitlines():
                return "present"
        return "absent"

    def paid(amount: int, ctx: RunContext):
        with contextlib.suppress(FileNotFoundError):
            return ctx.idempotency_key in (folder / "receipts").read_text() and Happened(f"paid {amount}")
        return False

    @tool(effects=Effects(writes={"bank:"}), verify=paid)
    def pay(amount: int, ctx: RunContext) -> str:
        "Pays an amount."
        time.sleep(0.002)
        write_line(folder / "receipts", f"{amount} {ctx.idempotency_key}")
        ran(ctx)
        return f"paid {amount}"

    return [look, put, add_line, has_line, pay]


def model() -> ScriptedProvider:
    """Answers by the conversation alone. Told of an unknown outcome, it looks before it repeats."""
    dialect = get_dialect("cogency-json")

    def calling(text, calls):
        made = tuple(ToolCall("", name, arguments) for name, arguments in calls)
        return f"{text}\n{dialect.render([Message('assistant', made)])[0].text}"

    def turn(messages):
        texts = [message.text for message in messages if message.role == "assistant"]
        stage = sum(text.startswith("Stage") for text in texts)
        last = messages[-1].text
        if "unknown outcome" in last:
            return calling("Check.", [("has_line", {"text": f"line {stage - 1}"})])
        if "absent" in last:
            return calling("Repeat.", [("add_line", {"text": f"line {stage - 1}"})])
        return calling(f"Stage {stage}.", STAGES[stage]) if stage < len(STAGES) else ANSWER

    return ScriptedProvider([turn] * 100, chunk=20)


UNLIMITED = {"approve": "all", "limits": Limits(steps=None, repeats=None, failures=None)}
"""However often a run is killed, each time a little further on: on a busy machine that is dozens of times."""


async def work(job) -> None:
    folder = Path(job["folder"])
    journal = MortalJournal(folder / "toolspeak.db", job.get("die_at"), job.get("when", "after"))
    if "run_id" in job:
        result = await Agent(model(), tools(folder / "0"), journal=journal, **UNLIMITED).resume(job["run_id"])
        assert result.answer == ANSWER, (result.reason, result)
        return
    infos = {info.title: info for info in await journal.runs()}
    tasks = [f"Do all stages in {number}." for number in range(job.get("runs", 1))]
    await asyncio.gather(
        *(go_on(journal, folder / str(number), task, infos.get(task)) for number, task in enumerate(tasks))
    )


async def go_on(journal, folder: Path, task: str, info) -> None:
    agent = Agent(model(), tools(folder), journal=journal, **UNLIMITED)
    if info is not None and info.status == "answered":  # killed behind its last record
        assert (await load_state(journal, info.run_id)).answer == ANSWER
        return
    result = await (agent.run(task) if info is None else agent.resume(info.run_id))
    assert result.answer == ANSWER, (result.reason, result)


def perform(job, work) -> int:
    """Does a job (`work`) in a process of its own; its exit code, or minus the signal that ended it."""
    child = os.fork()
    if not child:
        try:
            asyncio.run(work(job))
        except BaseException:  # noqa: BLE001 - told to whoever reads standard error
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if "die_after" in job:
        time.sleep(job["die_after"])
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(work) -> None:
    for line in sys.stdin:
        start = time.monotonic()
        code = perform(json.loads(line), work)
        print(json.dumps([code, time.monotonic() - start]), flush=True)


if __name__ == "__main__":
    main(work)
