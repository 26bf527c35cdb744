"""An agent that replaces a text in many files, and dies at one of its changes of files (crash_jobs.py): a job's
`die_at_change` is its number."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from crash_jobs import MortalJournal, die, main
from toolspeak import Agent, Approval
from toolspeak.changes import ChangeRecorder, store_of
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.tools.builtin import Workspace, workspace_tools

ARGUMENTS = {"old": "name", "new": "name_2", "files": "*.txt"}


def die_at_change(number: int) -> None:
    """Ends this process before that change of a file by the tools: they make, fill, rename and remove files whose names
    begin with `.toolspeak-`."""
    count = 0

    def watch(event: str, arguments: tuple) -> None:
        nonlocal count
        match event, arguments:
            case "open", (str(path), _, flags) if path.startswith(".toolspeak-") and flags & os.O_CREAT:
                pass
            case (("os.rename" | "os.link" | "os.remove"), (str(path), *_)) if path.startswith(".toolspeak-"):
                pass
            case "os.chmod", (int(), *_):
                pass
            case _:
                return
        if count == number:
            die()
        count += 1

    sys.addaudithook(watch)


async def work(job) -> None:
    folder = Path(job["folder"])
    journal = MortalJournal(folder / "toolspeak.db", job.get("die_at"))
    recorder = ChangeRecorder(Workspace(folder / "0"), store_of(journal))
    agent = Agent(
        ScriptedProvider([ScriptedTurn("", calls=[ScriptedCall("replace", ARGUMENTS)]), "{{last}}"], follow=True),
        workspace_tools(folder / "0"),
        approve=Approval("all", in_doubt="report"),
        journal=journal,
        interceptors=[recorder],
    )
    if "die_at_change" in job:
        die_at_change(job["die_at_change"])
    infos = await journal.runs()
    result = await (agent.resume(infos[0].run_id) if infos else agent.run("Rename it."))
    (folder / "answer").write_text(result.answer)
    recorder.close()


if __name__ == "__main__":
    main(work)
