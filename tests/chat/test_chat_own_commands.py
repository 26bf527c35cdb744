"""`!command` in the conversation, and what the next conversation knows of the last one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil

import pytest
from chat_screen import calls, chat, reply, turn_behind_gate


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


def last_message(person) -> str:
    content = json.loads(person.request())["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def test_the_model_reads_the_command_and_its_output_with_the_next_message_and_once(monkeypatch, folder):
    async def main():
        (folder / "a.txt").write_text("alpha\n")
        async with chat(monkeypatch, folder, reply("I see."), reply("Yes.")) as person:
            person.type("!ls; printf '\\033[31mred\\033[0m \\007\\n'; exit 3\r")
            await person.until("the model reads it with your next message")
            screen_text = "\n".join(person.terminal.everything)
            assert "✗ ! ls" in screen_text
            assert "exit code 3" in screen_text
            assert "    a.txt" in screen_text
            assert "    red ␇" in screen_text
            assert not any("\x07" in each for each in person.terminal.writes)
            assert person.turns == []
            person.type("what is there?\r")
            await person.until("I see.")
            await person.until_idle()
            text = last_message(person)
            assert text.startswith("what is there?\n\n[The user ran a command in the folder: ls; printf")
            assert "exit code 3; its output:]\na.txt\nred \x07" in text
            person.type("and now?\r")
            await person.until("Yes.")
            assert last_message(person) == "and now?"

    asyncio.run(main())


def test_a_long_output_is_cut_for_both_and_both_read_so(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, reply("Much.")) as person:
            person.type("!seq 1 100000\r")
            await person.until("more lines")
            person.type("look\r")
            await person.until("Much.")
            text = last_message(person)
            assert "bytes left out" in text
            assert text.endswith("\n100000")
            assert len(text) < 70_000

    asyncio.run(main())


def test_esc_ends_a_command_and_what_it_started(monkeypatch, folder):
    async def main():
        os.mkfifo(folder / "alive")
        async with chat(monkeypatch, folder, reply("Well.")) as person:
            person.type("!exec 3> alive; echo begun; sleep 600 & sleep 600\r")
            with await asyncio.to_thread((folder / "alive").open) as alive:
                await person.until("begun")
                person.type("\x1b")
                await person.until("interrupted")
                assert await asyncio.to_thread(alive.read) == ""  # nobody holds it any more
            await person.until_idle()
            person.type("hm\r")
            await person.until("Well.")
            assert "ended before it was done; its output:]\nbegun" in last_message(person)

    asyncio.run(main())


def test_a_command_during_a_turn_follows_after_it(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        async with chat(monkeypatch, folder, turn_behind_gate(gate, "Half", more=(" done.",))) as person:
            person.type("go\r")
            await person.until("Hal")
            person.type("!touch after\r")
            await person.until("⧗")
            assert not (folder / "after").exists()
            gate.set()
            await person.until("✓ ! touch after")
            assert (folder / "after").exists()

    asyncio.run(main())


def test_a_space_makes_it_a_message_and_nothing_is_no_command(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, reply("Hm.")) as person:
            person.type("!\r")
            await person.until("write the command after the `!`")
            person.type(" !important\r")
            await person.until("Hm.")
            assert last_message(person).strip() == "!important"

    asyncio.run(main())


@pytest.fixture
def home(tmp_path):
    return tmp_path / "data" / "toolspeak"


def test_the_model_of_the_last_conversation_is_that_of_the_next_one(monkeypatch, folder, home):
    async def main():
        async with chat(monkeypatch, folder, reply("One."), models=("first", "second")) as person:
            person.type("/model openai:second\r")
            await person.until("the next conversation begins with it")
            person.type("/model openai:nope\r")  # the server does not have it: not remembered
            await person.until("the server does not list it")
        elsewhere = folder.parent / "elsewhere"
        elsewhere.mkdir()
        for place in (folder, elsewhere):
            async with chat(monkeypatch, place, reply("Two."), model="", models=("first", "second")) as person:
                await person.until("the model is openai:second, as you chose it with /model")
                person.type("hi\r")
                await person.until("Two.")
                assert json.loads(person.request())["model"] == "second"
        async with chat(monkeypatch, folder, reply("Three."), model="openai:first") as person:
            person.type("hi\r")
            await person.until("Three.")
            assert json.loads(person.request())["model"] == "first"

    asyncio.run(main())
    assert home.joinpath("models.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', "\x00"])
def test_a_broken_file_of_models_is_no_model(monkeypatch, folder, home, content):
    async def main():
        home.mkdir(parents=True)
        (home / "models.json").write_text(content)
        async with chat(monkeypatch, folder, reply("x"), model="") as person:
            await person.until("No model is chosen")

    asyncio.run(main())


def test_a_conversation_goes_on_in_a_folder_that_was_made_anew(monkeypatch, folder):
    async def main():
        monkeypatch.chdir(folder)
        async with chat(
            monkeypatch, folder, reply("One."), reply("Two."), journal=str(folder.parent / "j.db")
        ) as person:
            person.type("hi\r")
            await person.until("One.")
            await person.until_idle()
            shutil.rmtree(folder)
            person.type("still there?\r")
            # The path is of any length: the text breaks anywhere.
            message = "".join(f"the folder {folder} is gone:".split())
            await person.until(lambda: message in "".join("".join(person.terminal.everything).split()))
            await person.until(lambda: any("› still there?" in row for row in person.terminal.lines))
            folder.mkdir()
            person.type("\r")
            await person.until("Two.")

    asyncio.run(main())


def test_how_calls_ended_is_shown_again_when_the_conversation_goes_on(monkeypatch, folder):
    async def main():
        edit = "edit", json.dumps({"path": "a.txt", "old": "nowhere", "new": "x"})
        long_name = "a long name of a folder " * 5
        turn = calls(edit, ("shell", '{"command": "exit 3"}'), ("find", json.dumps({"pattern": long_name})))
        (folder / "a.txt").write_text("text")
        async with chat(monkeypatch, folder, turn, reply("Done."), approve="all", sandbox="off") as person:
            person.type("go\r")
            await person.until("Done.")
            await person.until_idle()
        async with chat(monkeypatch, folder, reply("x"), continue_last=True) as person:
            await person.until("Done.")
            rows = person.terminal.everything
            assert any(row.startswith("✗ edit") and "nowhere" in row for row in rows)
            assert any("occurs 0 times" in row for row in rows)
            assert any(row.startswith("✗ shell") and "exit 3" in row for row in rows)
            start = next(number for number, row in enumerate(rows) if row.startswith("✓ find"))
            words = " ".join(rows[start].split()[3:] + rows[start + 1].split()).strip('" ')
            assert words == long_name.strip()  # no word is broken

    asyncio.run(main())


def test_a_list_of_things_to_do_is_a_list_again_when_the_conversation_goes_on(monkeypatch, folder):
    async def main():
        items = [{"text": "Read", "state": "completed"}, {"text": "Write", "state": "pending"}]
        todo = calls(("todo", json.dumps({"items": items})))
        async with chat(monkeypatch, folder, todo, reply("Done.")) as person:
            person.type("go\r")
            await person.until("Done.")
            await person.until_idle()
        async with chat(monkeypatch, folder, reply("x"), continue_last=True) as person:
            await person.until("Done.")
            screen_text = "\n".join(person.terminal.everything)
            assert "✓ todo" in screen_text
            assert "☑ Read" in screen_text
            assert "☐ Write" in screen_text
            assert "items" not in screen_text

    asyncio.run(main())
