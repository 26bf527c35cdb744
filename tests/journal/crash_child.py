"""A program that runs an agent on real files, and dies when it is told to (crash_jobs.py).

A job also says how many `runs` there are at once (each in a folder in its folder, all in one journal), or the `run_id`
of one to resume.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from crash_jobs import MortalJournal, main, write_line
from toolspeak import Agent, Effects, Limits, RunContext, VerifiedResult, tool
from toolspeak.agent.storage.runs import load_state
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.providers.scripted_provider import ScriptedProvider

# What the model does, one batch a stage: calls of every policy, alone and together.
STAGES = (
    [("look", {"path": "in.txt"})],
    [("put", {"path": "a.txt", "text": "a"}), ("add_line", {"text": "line 1"}), ("look", {"path": "in.txt"})],
    [("pay", {"amount": 7})],
    [("add_line", {"text": "line 3"}), ("put", {"path": "b.txt", "text": "b"}), ("pay", {"amount": 9})],
)
ANSWER = "All stages are done."


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

    def verify_payment(amount: int, ctx: RunContext):
        with contextlib.suppress(FileNotFoundError):
            return ctx.idempotency_key in (folder / "receipts").read_text() and VerifiedResult(f"paid {amount}")
        return False

    @tool(effects=Effects(writes={"bank:"}), verify=verify_payment)
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
        tool_calls = tuple(ToolCall("", name, arguments) for name, arguments in calls)
        return f"{text}\n{dialect.render([Message('assistant', tool_calls)])[0].text}"

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


NO_LIMITS = {"approve": "all", "limits": Limits(steps=None, repeats=None, failures=None)}
"""However often a run is killed, each time a little further on: on a busy machine that is dozens of times."""


async def work(job) -> None:
    folder = Path(job["folder"])
    journal = MortalJournal(folder / "toolspeak.db", job.get("die_at"), job.get("when", "after"))
    if "run_id" in job:
        result = await Agent(model(), tools(folder / "0"), journal=journal, **NO_LIMITS).resume(job["run_id"])
        assert result.answer == ANSWER, (result.reason, result)
        return
    infos = {info.title: info for info in await journal.runs()}
    tasks = [f"Do all stages in {number}." for number in range(job.get("runs", 1))]
    await asyncio.gather(
        *(go_on(journal, folder / str(number), task, infos.get(task)) for number, task in enumerate(tasks))
    )


async def go_on(journal, folder: Path, task: str, info) -> None:
    agent = Agent(model(), tools(folder), journal=journal, **NO_LIMITS)
    if info is not None and info.status == "answered":  # killed behind its last record
        assert (await load_state(journal, info.run_id)).answer == ANSWER
        return
    result = await (agent.run(task) if info is None else agent.resume(info.run_id))
    assert result.answer == ANSWER, (result.reason, result)


if __name__ == "__main__":
    main(work)
