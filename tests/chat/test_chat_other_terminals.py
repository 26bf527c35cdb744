"""One conversation at two terminals: each says what the other does."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from chat_screen import calls, chat, reply, turn_behind_gate


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


def test_what_another_terminal_has_said_is_shown_before_the_next_message(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, reply("First."), reply("Third.")) as one:
            one.type("number one\r")
            await one.until("First.")
            await one.until_idle()
            async with chat(monkeypatch, folder, reply("Second."), continue_last=True) as other:
                await other.until("goes on: number one")
                await other.until_idle()
                other.type("number two\r")
                await other.until("Second.")
                await other.until_idle()
            one.type("number three\r")
            await one.until("Third.")
            rows = [row.strip() for row in one.terminal.everything]
            start = rows.index("· another terminal has gone on with this conversation:")
            assert [row for row in rows[start + 1 :] if row][:3] == ["› number two", "Second.", "› number three"]
            assert rows.count("First.") == 1
            await one.until_idle()
            one.type("number four\r")
            await one.until("› number four")
            assert sum("another terminal" in row for row in one.terminal.everything) == 1

    asyncio.run(main())


def test_a_conversation_whose_turn_goes_on_elsewhere_is_waited_for(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        async with chat(monkeypatch, folder, turn_behind_gate(gate, "Slow ", more=("answer.",))) as one:
            one.type("go\r")
            await one.until("Slow")
            async with chat(monkeypatch, folder, reply("Yes."), continue_last=True, columns=140) as other:
                await other.until(f"process {os.getpid()} of this machine works on the last turn, which began at ")
                await other.until("waiting for the other process")
                gate.set()
                await other.until("the other process has ended its turn")
                await other.until("Slow answer.")
                await other.until_idle()
                other.type("is that all?\r")
                await other.until("Yes.")
                texts = [message["content"] for message in json.loads(other.request())["messages"]]
                assert texts[-3:] == ["go", "Slow answer.", "is that all?"]

    asyncio.run(main())


def test_who_does_not_wait_reads_which_process_it_is_and_keeps_the_message(monkeypatch, folder):
    async def main():
        write = calls(("write", json.dumps({"path": "b.txt", "content": "two\n"})))
        async with chat(monkeypatch, folder, write, reply("Done.")) as one:
            one.type("go\r")
            await one.until("Run it?")
            async with chat(monkeypatch, folder, reply("Hello."), continue_last=True, columns=140) as other:
                await other.until("waiting for the other process")
                other.type("\x1b")
                await other.until_idle()
                other.type("hello\r")
                await other.until(f"is still going on in process {os.getpid()} of this machine, since ")
                await other.until("/new begins another conversation")
                await other.until(lambda: any(row == "› hello" for row in other.terminal.lines[-4:]))
                other.type("\x15/new\r")
                await other.until("a new conversation begins")
                other.type("hello\r")
                await other.until("Hello.")
            assert not (folder / "b.txt").exists()

    asyncio.run(main())
