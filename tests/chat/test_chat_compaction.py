"""The conversation is summarised: because the person wants it, or because the model's window is full."""

from __future__ import annotations

import asyncio
import json

import pytest
from chat_screen import chat, reply, turn_behind_gate, user_hooks
from loopback_server import whole

OVERFLOW = whole(
    "400 Bad Request",
    b'{"error": {"message": "maximum context length is 9 tokens", "code": "context_length_exceeded"}}',
)
NOT_FOUND = whole("404 Not Found", b'{"error": {"message": "there is no model nope"}}')


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


LONG = "A long answer with many words. " * 40


async def ask_twice(person):
    for text, end in (("tell me much", "One."), ("tell me more", "Two.")):
        person.type(f"{text}\r")
        await person.until(end)
        await person.until_idle()


def test_a_conversation_is_compacted_at_once_and_the_next_message_follows_its_summary(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        summary = turn_behind_gate(gate, "The summary ", more=("of it all.",))
        answers = reply(f"{LONG}One."), reply(f"{LONG}Two."), summary, reply("Yes.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("/compact\r")
            await person.until("there is nothing to summarise yet")
            await ask_twice(person)
            person.type("/compact\r")
            await person.until("waiting for the summary")
            person.type("do you remember?\r")
            await person.until("⧗ queued: do you remember?")
            gate.set()
            await person.until("the history was compacted: 4 messages summarised (~")
            await person.until("Yes.")
            assert "The summary of it all." in person.request()
            assert "tell me much" not in person.request()

    asyncio.run(main())


def test_a_compaction_that_is_interrupted_or_refused_leaves_the_conversation_as_it_is(monkeypatch, folder, tmp_path):
    async def main():
        answers = reply(f"{LONG}One."), reply(f"{LONG}Two."), turn_behind_gate(asyncio.Event(), "The"), reply("Yes.")
        async with chat(monkeypatch, folder, *answers) as person:
            await ask_twice(person)
            person.type("/compact\r")
            await person.until("waiting for the summary")
            person.type("\x1b")
            await person.until("· interrupted")
            await person.until_idle()
            (folder / "keep").touch()
            person.type("/compact\r")
            await person.until("keeps the conversation as it is: I need it")
            await person.until("the conversation stays as it is")
            person.type("do you remember?\r")
            await person.until("Yes.")
            assert "tell me much" in person.request()

    user_hooks(monkeypatch, tmp_path, "PreCompact", "test -e keep && { echo I need it >&2; exit 2; }; exit 0")
    asyncio.run(main())


def test_a_conversation_that_outgrows_the_window_is_summarised_and_goes_on(monkeypatch, folder):
    async def main():
        answers = reply("First. " * 300), reply("Second. " * 300), OVERFLOW, reply("A summary."), reply("Third.")
        async with chat(monkeypatch, folder, *answers, OVERFLOW) as person:
            for number, end in (("one", "First."), ("two", "Second."), ("three", "Third.")):
                person.type(f"{number}\r")
                await person.until(end)
                await person.until_idle()
            assert any("the history was compacted" in row for row in person.terminal.everything)
            messages = json.loads(person.request())["messages"]
            assert [message["content"] for message in messages if message["content"] == "three"] == ["three"]
            assert "A summary." in person.request()
            assert "First. First." not in person.request()
            rows = person.terminal.everything
            assert not any("✗" in row or "HTTP" in row for row in rows)
            assert sum(row == "› three" for row in rows) == 1
            person.type("/sessions\r")
            await person.until("/sessions NUMBER continues one")
            assert not any("(fork)" in row or " 2  " in row for row in person.terminal.everything)
            person.type("four\r")
            await person.until("does not fit into the model's window")
            await person.until_idle()
            assert any(row == "› four" for row in person.terminal.lines)

    asyncio.run(main())


def test_a_message_that_fits_once_the_last_turn_is_summarised_too_is_sent(monkeypatch, folder):
    """As after /compact: a long last turn stays at first."""

    async def main():
        answers = reply("First. " * 300), reply("Second. " * 3_000), OVERFLOW, reply("A summary."), OVERFLOW
        async with chat(monkeypatch, folder, *answers, reply("Shorter."), reply("Third.")) as person:
            for number, end in (("one", "First."), ("two", "Second."), ("three", "Third.")):
                person.type(f"{number}\r")
                await person.until(end)
                await person.until_idle()
            assert "Second. Second." in person.request(4)  # with the first summary
            assert "Shorter." in person.request()
            assert "Second. Second." not in person.request()
            rows = person.terminal.everything
            assert sum("the history was compacted" in row for row in rows) == 2
            assert sum(row == "› three" for row in rows) == 1

    asyncio.run(main())


@pytest.mark.parametrize("failure", [NOT_FOUND, reply(""), reply("More words than it had before. " * 200)])
def test_a_conversation_of_which_no_summary_can_be_had_stays_as_it_was(monkeypatch, folder, failure):
    async def main():
        answers = reply(f"{LONG}One."), reply(f"{LONG}Two."), failure, reply("Yes.")
        async with chat(monkeypatch, folder, *answers) as person:
            await ask_twice(person)
            person.type("/compact\r")
            await person.until("✗ the conversation could not be summarised: ")
            await person.until_idle()
            assert not any("was compacted" in row for row in person.terminal.everything)
            person.type("do you remember?\r")
            await person.until("Yes.")
            assert f"{LONG}One." in person.request()

    asyncio.run(main())


def test_a_message_that_does_not_fit_comes_back_if_no_summary_can_be_had_and_can_be_sent_again(monkeypatch, folder):
    async def main():
        answers = (
            reply(f"{LONG}One."),
            reply(f"{LONG}Two."),
            OVERFLOW,
            NOT_FOUND,
            OVERFLOW,
            reply("Short."),
            reply("Yes."),
        )
        async with chat(monkeypatch, folder, *answers) as person:
            await ask_twice(person)
            person.type("three\r")
            await person.until("✗ the conversation could not be summarised: ")
            await person.until(lambda: person.terminal.lines[-2:-1] == ["› three"])
            person.type("\r")
            await person.until("Yes.")
            await person.until_idle()
            assert "Short." in person.request()
            contents = [message["content"] for message in json.loads(person.request())["messages"]]
            assert contents.count("three") == 1

    asyncio.run(main())


def test_one_long_answer_is_summarised_and_the_numbers_count_what_the_model_reads(monkeypatch, folder):
    """The tools, which every request holds, are there after the summary, too."""

    async def main():
        usage = {"prompt_tokens": 5000, "completion_tokens": 300, "total_tokens": 5300}
        answers = reply(f"{LONG}One.", usage=usage), reply("It was about words."), reply("Yes.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("tell me much\r")
            await person.until("5,300 tokens")
            await person.until_idle()
            person.type("/compact\r")
            await person.until("2 messages summarised (~5,300 → ~5,0")
            await person.until("5,0")
            person.type("/compact\r")
            await person.until("✗ there is nothing to summarise")
            person.type("and?\r")
            await person.until("Yes.")
            assert "It was about words." in person.request()
            assert LONG not in person.request()

    asyncio.run(main())


def test_commands_during_a_turn_show_that_they_wait(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        async with chat(monkeypatch, folder, turn_behind_gate(gate, "Working", more=(".",))) as person:
            person.type("begin\r")
            await person.until("Working")
            person.type("/compact\r/new\r")
            for command in ("/compact", "/new"):
                await person.until(f"⧗ after this turn (Esc interrupts it): {command}")
            gate.set()
            await person.until("a new conversation begins")
            assert not any("⧗" in row for row in person.terminal.everything)

    asyncio.run(main())
