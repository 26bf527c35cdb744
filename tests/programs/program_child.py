"""An agent in code mode on real files, which dies when it is told to (crash_jobs.py).

A process goes on to the next question, and ends there: the process of the next job answers it with yes.
"""

from __future__ import annotations

from pathlib import Path

from crash_jobs import MortalJournal, main, write_line
from toolspeak import Agent, Approval, Effects, Limits, MemoryJournal, Rule, RunContext, VerifiedResult, tool
from toolspeak.agent.storage.runs import load_state
from toolspeak.journal import Journal
from toolspeak.programs import interpreter  # noqa: F401 - the forks need not import it
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

PROGRAM = '''
import asyncio
import random

async def note(text):
    """Adds a line once, also where nobody knows whether it was added."""
    try:
        await add_line(text)
    except RuntimeError as error:
        if "unknown outcome" not in str(error):
            raise
        if text not in await lines():
            await add_line(text)

whole = await look("in.txt")
print("began", random.randrange(1000))
print(await asyncio.gather(pay(7), note("first"), look("in.txt"), put("a.txt", whole)))
for amount in (10, 0):
    try:
        await pay(amount)
        print("paid", amount)
    except RuntimeError as error:
        print(error)
        await note("refused")
    finally:
        print(await put(f"{amount}.txt", str(amount)))
len(whole)
'''


def tools(folder: Path):
    def text_of(name: str) -> str:
        path = folder / name
        return path.read_text() if path.exists() else ""

    def ran(ctx: RunContext) -> None:
        write_line(folder / "ran", ctx.idempotency_key)

    @tool(read_only=True)
    def look(path: str) -> str:
        "Reads a file."
        return text_of(path)

    @tool(read_only=True)
    def lines() -> list[str]:
        "The lines of the log."
        return text_of("log.txt").splitlines()

    @tool(effects=lambda path: Effects(writes={f"file:{path}"}), idempotent=True)
    def put(path: str, text: str) -> str:
        "Writes a file."
        (folder / path).write_text(text)
        return f"wrote {path}"

    @tool(effects=Effects(writes={"file:log.txt"}))
    def add_line(text: str, ctx: RunContext) -> str:
        "Adds a line to the log."
        write_line(folder / "log.txt", text)
        ran(ctx)
        return "added"

    def verify_payment(amount: int, ctx: RunContext):
        return ctx.idempotency_key in text_of("receipts") and VerifiedResult(f"paid {amount}")

    @tool(effects=Effects(writes={"bank:"}), verify=verify_payment)
    def pay(amount: int, ctx: RunContext) -> str:
        "Pays an amount."
        if not amount:
            raise ValueError("nothing to pay")
        write_line(folder / "receipts", f"{amount} {ctx.idempotency_key}")
        ran(ctx)
        return f"paid {amount}"

    return [look, lines, put, add_line, pay]


def agent_in(folder: Path, journal: Journal) -> Agent:
    model = ScriptedProvider(
        [ScriptedTurn("", calls=[ScriptedCall("run_code", {"code": PROGRAM})]), "{{last}}"], follow=True
    )
    return Agent(
        model,
        tools(folder),
        code_mode=True,
        approve=Approval(policy=[Rule("approve", tool="put"), Rule("approve", tool="add_line")], in_doubt="report"),
        limits=Limits(steps=None, repeats=None, failures=None),
        journal=journal,
    )


async def work(job) -> None:
    folder = Path(job["folder"])
    journal = MortalJournal(folder / "toolspeak.db", job.get("die_at"), job.get("when", "after"))
    agent = agent_in(folder / "0", journal)
    infos = [info for info in await journal.runs() if info.parent_run_id is None]
    if not infos:
        result = await agent.run("Pay.")
    elif infos[0].status == "answered":
        result = None
    else:
        state = await load_state(journal, infos[0].run_id)
        questions = state.approvals.open_requests if state.status == "awaiting_approval" else ()
        result = await agent.resume(state.run_id, dict.fromkeys(questions, True))
    if result is None or result.status == "answered":
        (folder / "ended").touch()


if __name__ == "__main__":
    agent_in(Path(), MemoryJournal())  # what the forks need not import
    main(work)
