"""A program of the model that waits for your yes, while its process is killed, and goes on in another process.

python examples/code_mode.py
MODEL=openai:gpt-4o python examples/code_mode.py

Each question ends the process that asked it, by SIGKILL. The next one goes on with the program where it waits: no debt
is looked up again, and no reminder is sent twice.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from toolspeak import Agent, Effects, SqliteJournal, tool

MODEL = os.environ.get("MODEL", f"scripted:{Path(__file__).parent}/scripts/code_mode.json")
TASK = "Remind each customer who owes something, and tell me what was sent."
DEBTS = {"Ada": 120, "Bob": 0, "Cleo": 45}


@tool(read_only=True)
def list_customers() -> list[str]:
    """The names of all customers."""
    return list(DEBTS)


@tool(read_only=True)
def get_debt(name: str) -> int:
    """What a customer owes, in euros."""
    print(f"  process {os.getpid()} looks up {name}", flush=True)
    return DEBTS[name]


@tool(effects=lambda name: Effects(writes={f"mail:{name}"}, external=True))
def remind(name: str, euros: int) -> str:
    """Sends a reminder to a customer."""
    print(f"  process {os.getpid()} reminds {name}", flush=True)
    return f"{name} was reminded of {euros} euros"


async def work(journal: Path, run_id: str, call_id: str, approved: bool) -> None:
    """One process: starts the run, or goes on with it after a decision. It is killed at the next question."""
    agent = Agent(MODEL, [list_customers, get_debt, remind], code_mode=True, journal=SqliteJournal(journal))
    result = await (agent.resume(run_id, {call_id: approved}) if run_id else agent.run(TASK))
    if not result.requests:
        print(result, flush=True)
        return
    request = result.requests[0]
    arguments = ", ".join(f"{name}={value!r}" for name, value in request.call.arguments.items())
    print(f"{request.call.name}({arguments})?", flush=True)
    die(journal.parent / "question", f"{result.run_id} {request.call_id}")


def die(path: Path, question: str) -> None:
    path.write_text(question, encoding="utf-8")
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal, question = Path(folder) / "runs.db", Path(folder) / "question"
        words = ["", "", ""]
        while True:
            process = subprocess.run([sys.executable, __file__, str(journal), *words], check=False)
            print(f"  process ended with {process.returncode}", flush=True)
            if not question.exists():
                break
            run_id, call_id = question.read_text(encoding="utf-8").split()
            question.unlink()
            words = [run_id, call_id, "yes" if input("Allow? [y/N] ").strip().lower() == "y" else ""]


if __name__ == "__main__":
    if len(sys.argv) == 5:
        asyncio.run(work(Path(sys.argv[1]), sys.argv[2], sys.argv[3], bool(sys.argv[4])))
    else:
        main()
