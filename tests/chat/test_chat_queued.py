"""What a person has sent and the model has not read: it comes back into the input, and is lost with nothing."""

from __future__ import annotations

import asyncio
import json

import pytest
from chat_screen import calls, chat, reply, turn_behind_gate
from loopback_server import whole


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


def write(path: str, content: str) -> tuple[str, str]:
    return "write", json.dumps({"path": path, "content": content})


def user_texts(person) -> list[str]:
    return [each["content"] for each in json.loads(person.request())["messages"] if each["role"] == "user"]


def test_up_takes_a_queued_message_back_to_be_edited(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        answers = turn_behind_gate(gate, "Working", more=(".",)), reply("I saw it.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("begin\r")
            await person.until("Working")
            person.type("one\r")
            await person.until("⧗ queued: one")
            person.type("two\r")
            await person.until("⧗ queued: two")
            person.type("\x1b[A")
            await person.until(lambda: "› two" in person.terminal.lines)
            await person.until(lambda: not any("queued: two" in row for row in person.terminal.lines))
            person.type(" and three\r")
            await person.until("⧗ queued: two and three")
            gate.set()
            await person.until("I saw it.")
            assert user_texts(person) == ["begin", "one", "two and three"]

    asyncio.run(main())


def test_what_waits_when_q_ends_the_turn_comes_back(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, calls(write("a", "1")), reply("Fine.")) as person:
            person.type("go\r")
            await person.until("Run it?")
            person.type("\tand then?\r")
            await person.until("⧗ queued: and then?")
            person.type("q\r")
            await person.until_idle()
            assert "› and then?" in person.terminal.lines
            assert sum("and then?" in row for row in person.terminal.everything) == 1
            person.type("\r")
            await person.until("Fine.")
            assert user_texts(person)[-1] == "and then?"

    asyncio.run(main())


@pytest.mark.over_a_second
def test_a_queued_message_outlives_the_terminal(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, calls(write("a", "1"))) as person:
            person.type("go\r")
            await person.until("Run it?")
            person.type("\tand then?\r")
            await person.until("⧗ queued: and then?")
        async with chat(monkeypatch, folder, reply("Fine."), reply("Then this."), continue_last=True) as person:
            await person.until("what you had written and the model has not read is in the input again")
            await person.until("› and then?")
            await person.until("Run it? › your answer")  # what the program wrote into the input takes no keys
            person.type("y\r")
            await person.until("Fine.")
            await person.until_idle()
            assert "and then?" not in person.request()
            person.type("\r")
            await person.until("Then this.")
            assert user_texts(person)[-1] == "and then?"
            await person.until_idle()
        async with chat(monkeypatch, folder, reply("Yes."), continue_last=True) as person:
            await person.until_idle()
            assert not any("in the input again" in row for row in person.terminal.everything)

    asyncio.run(main())


def test_a_message_that_reached_no_model_is_said_to_stay(monkeypatch, folder):
    async def main():
        answers = whole("404 Not Found", b'{"error": {"message": "no such model"}}'), reply("Here.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("hello\r")
            await person.until("your message stays in the conversation: say how to go on")
            await person.until_idle()
            person.type("again\r")
            await person.until("Here.")
            assert user_texts(person) == ["hello", "again"]

    asyncio.run(main())


def test_approve_all_counts_for_the_turn_that_asks(monkeypatch, folder):
    async def main():
        answers = calls(write("a", "1"), write("b", "2")), calls(write("c", "3")), reply("Done.")
        async with chat(monkeypatch, folder, *answers, columns=60, rows=40) as person:
            person.type("go\r")
            await person.until("2 of 2 calls wait")
            person.type("\t/approve all\r")
            await person.until("Done.")
            await person.until_idle()
            assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "c"]
            assert "approves all" in person.terminal.lines[-1]

    asyncio.run(main())


def test_the_whole_rest_of_a_question_is_shown_by_one_answer(monkeypatch, folder):
    content = "".join(f"{i} is the line\n" for i in range(300))

    async def main():
        async with chat(monkeypatch, folder, calls(write("a", content)), reply("Done.")) as person:
            person.type("go\r")
            await person.until("more characters: (s)how the next, or the (w)hole, first")
            person.type("w\r")
            await person.until("+299 is the line")
            await person.until("Run it? › your answer")
            assert not (folder / "a").exists()
            rows = [row.strip() for row in person.terminal.everything]
            assert [row for row in rows if row.endswith("is the line") and row[0] == "+"] == [
                f"+{i} is the line" for i in range(300)
            ]
            person.type("y\r")
            await person.until("Done.")
            assert (folder / "a").read_text() == content

    asyncio.run(main())
