"""`toolspeak say` sends a message to a run of another process, or to one that waits."""

from __future__ import annotations

import asyncio

from command import toolspeak

from toolspeak import Agent, SqliteJournal, tool
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


@tool()
def paint(what: str) -> str:
    "Paints something."
    return f"painted {what}"


def test_a_run_that_waits_reads_what_was_said_from_elsewhere(tmp_path):
    journal_file = tmp_path / "runs.db"

    async def begin():
        journal = SqliteJournal(journal_file)
        script = [ScriptedTurn("", calls=(ScriptedCall("paint", {"what": "rain"}),))]
        result = await Agent(ScriptedProvider(script), [paint], journal=journal).run("Paint.", run_id="waits")
        await journal.aclose()
        return result.waiting[0]

    def say(*arguments: str, stdin: bytes = b""):
        return toolspeak("say", *arguments, "--journal", "runs.db", cwd=tmp_path, reply=stdin)

    call_id = asyncio.run(begin())
    process = say("wai", "In blue, please. \x1b[31m")
    assert (process.returncode, process.stderr) == (
        0, b"toolspeak: sent to run waits: the run reads it once the open question is decided\n"
    )  # fmt: skip
    assert say("waits", "-", "--key", "k1", stdin="And größer.\n".encode()).returncode == 0
    again = say("waits", "something else", "--key", "k1")
    assert (again.returncode, b"counts once" in again.stderr) == (0, True)
    assert b"TEXT is empty" in say("waits", "  ").stderr
    refusal = say("nobody", "Hi")
    assert (refusal.returncode, b"nobody" in refusal.stderr) == (2, True)

    async def go_on():
        journal = SqliteJournal(journal_file)
        provider = ScriptedProvider(["Done."])
        await Agent(provider, [paint], journal=journal).resume("waits", {call_id: True})
        await journal.aclose()
        return [message.text for message in provider.requests[0].messages if message.role == "user"]

    assert "In blue, please. \x1b[31m\n\nAnd größer.\n" in asyncio.run(go_on())[-1]
    late_message = say("waits", "Too late.")
    assert (
        late_message.returncode,
        b"is over (answered) and reads no message; start another one" in late_message.stderr,
    ) == (
        2,
        True,
    )
