"""Which of the two inputs has the keys while a question is open: what is typed for one never reaches the other."""

from __future__ import annotations

import asyncio
import json

import pytest
from chat_screen import calls, chat, reply, turn_behind_gate


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


def shell(command: str) -> tuple[str, str]:
    return "shell", json.dumps({"command": command})


def test_a_question_that_comes_while_a_message_is_written_leaves_it_the_keys(monkeypatch, folder):
    """Its letters are no answer, the first Enter says that a question is there, and after the message the keys go to
    the question."""

    async def main():
        async with chat(monkeypatch, folder, calls(shell("touch ran")), reply("Refused.")) as person:
            person.type("go\ry")
            await person.until("You write a message here · Tab goes to the question")
            assert any(row == "Run it? › (Tab: answer here)" for row in person.terminal.lines)
            person.type("es\r")
            await person.until("A question has come: Tab answers it, Enter again sends your message.")
            assert not any("queued" in row for row in person.terminal.everything)
            person.type("\r")
            await person.until("queued: yes")
            await person.until("Run it? › your answer")
            assert not (folder / "ran").exists()
            person.type("n\r")
            await person.until("Refused.")
            assert not (folder / "ran").exists()
            assert json.loads(person.request())["messages"][-1]["content"] == "yes"

    asyncio.run(main())


def test_an_answer_after_a_message_goes_to_the_question(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, calls(shell("touch ran")), reply("Done.")) as person:
            person.type("go\r")
            await person.until("Tab: write a message instead")
            person.type("\t")
            await person.until("your message · Tab: answer the question")
            person.type("and be quick\ry\r")
            await person.until("Done.")
            assert (folder / "ran").exists()
            assert json.loads(person.request())["messages"][-1]["content"] == "and be quick"

    asyncio.run(main())


@pytest.mark.over_a_second
def test_the_next_question_of_a_batch_keeps_the_keys_from_a_draft(monkeypatch, folder):
    async def main():
        answers = calls(*(shell(f"touch {name}") for name in "abc")), reply("Done.")
        async with chat(monkeypatch, folder, *answers, rows=40) as person:
            person.type("go\r")
            await person.until("3 of 3 calls wait")
            person.type("\tdraft text\t")
            await person.until("› draft text  (Tab: go on with this message)")
            for number in (2, 1):
                person.type("y\r")
                await person.until(f"{number} of 3 calls wait")
                assert any(row == "› draft text  (Tab: go on with this message)" for row in person.terminal.lines)
            person.type("n\r")
            await person.until("Done.")
            await person.until_idle()
            assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
            assert "› draft text" in person.terminal.lines
            assert "draft text" not in person.request()

    asyncio.run(main())


def test_the_hint_of_an_empty_message_is_away_while_earlier_ones_are_searched(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        async with chat(monkeypatch, folder, reply("First."), turn_behind_gate(gate)) as person:
            person.type("tidy the table\r")
            await person.until("First.")
            await person.until_idle()
            person.type("\x12tidy")
            await person.until(lambda: "› tidy the table" in person.terminal.lines)

    asyncio.run(main())


def test_ctrl_c_empties_what_was_written_since_the_last_one_before_it_leaves(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, reply("First.")) as person:
            person.type("one\x03")
            await person.until("Ctrl-C again leaves.")
            person.type("two\x03hello\r")
            await person.until("First.")
            assert json.loads(person.request())["messages"][-1]["content"] == "hello"

    asyncio.run(main())
