"""What a person sees of the conversation at 40, 80 and 200 columns, and what the keys do."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest
from chat_screen import DEADLINE, calls, chat, reply, turn_behind_gate
from loopback_server import whole

from toolspeak.chat.terminal.message_input import history_of
from toolspeak.chat.terminal.screen import Screen
from toolspeak.journal.sqlite import SqliteJournal

ANSWER = """\
# Plan

Two steps, of which the **first** is long enough to be wrapped at forty columns:

- read `a.py`
- change 日本語

| file | lines |
|---|--:|
| a.py | 12 |

```python
def f():
    return 1
```
"""


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_an_answer_is_shown_as_it_streams_and_stays(monkeypatch, folder, columns):
    async def main():
        pieces = [ANSWER[i : i + 5] for i in range(0, len(ANSWER), 5)]
        async with chat(monkeypatch, folder, reply(*pieces), columns=columns, rows=30) as person:
            person.type("How?\r")
            await person.until("return 1")
            await person.until_idle()
            rows = person.terminal.everything
        start = rows.index("› How?")
        expected_rows = {
            40: ["Two steps, of which the first is long", "enough to be wrapped at forty columns:"],
            80: ["Two steps, of which the first is long enough to be wrapped at forty columns:"],
        }
        expected = [
            *("› How?", "", "Plan", ""),
            *expected_rows.get(columns, expected_rows[80]),
            *("", "• read a.py", "• change 日本語", "", "file │ lines", "─────┼──────", "a.py │    12", ""),
            *("  def f():", "      return 1"),
        ]
        assert [row.replace("日 本 語", "日本語") for row in rows[start : start + len(expected)]] == expected
        assert all(len(row) <= columns for row in rows)

    asyncio.run(main())


def test_a_path_is_completed_by_any_part_of_its_name(monkeypatch, folder):
    (folder / "ledger").mkdir()
    (folder / "ledger" / "money.py").write_text("x\n")
    (folder / "README.md").write_text("y\n")
    (folder / "build").mkdir()
    (folder / "build" / "money.o").touch()
    (folder / ".gitignore").write_text("build/\n")

    async def main():
        async with chat(monkeypatch, folder, reply("Seen.")) as person:
            person.type("@mon\t")
            await person.until("› @ledger/money.py")
            person.type(" @re\t")
            await person.until("› @ledger/money.py @README.md")

    asyncio.run(main())


def test_no_color_turns_colours_off(monkeypatch, folder):
    async def colours() -> list[str]:
        async with chat(monkeypatch, folder, reply(ANSWER)) as person:
            person.type("How?\r")
            await person.until("return 1")
            await person.until_idle()
            return re.findall(r"\x1b\[[\d;]*?(?:[34]\d|9\d)[\d;]*m", "".join(person.terminal.writes))

    assert asyncio.run(colours())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not set(asyncio.run(colours())) - {"\x1b[39m", "\x1b[49m"}


def test_what_is_above_is_never_written_again(monkeypatch, folder):
    """A terminal of ten rows gets an answer of sixty lines: each line once, in order."""

    async def main():
        answer = "\n\n".join(f"line {i}." for i in range(60))
        async with chat(monkeypatch, folder, reply(*(f"{each} " for each in answer.split(" "))), rows=10) as person:
            person.type("go\r")
            await person.until("line 59.")
            await person.until_idle()
            rows = [row for row in person.terminal.everything if row.startswith("line ")]
        assert rows == [f"line {i}." for i in range(60)]

    asyncio.run(main())


def test_a_resize_while_it_streams_loses_nothing(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        words = [f"word{i} " for i in range(40)]
        answer = turn_behind_gate(gate, *words, more=("\n\nThe end.",))
        async with chat(monkeypatch, folder, answer, columns=80) as person:
            person.type("go\r")
            await person.until("word39")
            person.terminal.resize(40, 20)
            await person.until(lambda: any("word39" in row for row in person.terminal.lines))
            gate.set()
            await person.until("The end.")
            await person.until_idle()
            text = " ".join(" ".join(person.terminal.everything).split())
        assert " ".join(words).replace("  ", " ").strip() in text
        assert all(len(row) <= 40 for row in person.terminal.lines)

    asyncio.run(main())


def test_a_message_while_it_works_is_queued_and_read_next(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        answers = turn_behind_gate(gate, "Working", more=(".",)), reply("I saw it.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("begin\r")
            await person.until("Working")
            person.type("and hurry\r")
            await person.until("⧗ queued: and hurry")
            gate.set()
            await person.until("I saw it.")
            await person.until_idle()
            rows = person.terminal.everything
            assert rows.index("› begin") < rows.index("› and hurry")
            assert not any("queued" in row for row in rows)
            assert "and hurry" in person.request()

    asyncio.run(main())


def test_escape_interrupts_and_the_conversation_keeps_what_was_said(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        async with chat(
            monkeypatch, folder, turn_behind_gate(gate, "The first half is said."), reply("The rest.")
        ) as person:
            person.type("tell me\r")
            await person.until("The first half")
            person.type("later\r")
            await person.until("queued: later")
            person.type("\x1b")
            await person.until("interrupted")
            await person.until(lambda: any(row == "› later" for row in person.terminal.lines))  # in the input again
            person.type("\r")
            await person.until("The rest.")
            assert "tell me" in person.request()
            assert "The first half" in person.request()

    asyncio.run(main())


def test_a_paste_of_ten_thousand_lines_is_one_line_here_and_whole_for_the_model(monkeypatch, folder):
    async def main():
        paste = "\n".join(f"row {i}" for i in range(10_000))
        async with chat(monkeypatch, folder, reply("Read.")) as person:
            person.type("what is ")
            await person.paste(paste)
            await person.until("› what is [pasted 10,000 lines #1]")
            person.type("\r")
            await person.until("Read.")
            await person.until("… 9,988 more lines")
            assert json.loads(person.request())["messages"][-1]["content"] == f"what is {paste}"

    asyncio.run(main())


def test_nothing_from_a_model_or_a_tool_controls_the_terminal(monkeypatch, folder):
    evil = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b1mC1\u202eleft\r\nnext\rback"

    async def main():
        (folder / "evil\x1b[2J.txt").write_text(evil)
        (folder / "evil.txt").write_text(evil)
        answers = (
            calls(("read", '{"path": "evil.txt"}'), ("nothing\x1b[2J", "{}")),
            reply(*evil, f"`{evil}`\n\n# {evil}"),
        )
        async with chat(monkeypatch, folder, *answers) as person:
            person.type(f"read @evil.txt {evil}\r".replace("\r\n", " ").replace("\x1b", "").replace("\x07", ""))
            await person.until("next")
            await person.until_idle()
            output = "".join(person.terminal.writes)
            rows = "\n".join(person.terminal.everything)
        assert "␛[31mred" in rows
        for control in ("\x1b]0", "\x1b[2J", "\x1b[31mred", "\x9b", "\u202e", "\x07"):
            assert control not in output, control

    asyncio.run(main())


def test_thoughts_are_folded_until_a_key_shows_them(monkeypatch, folder):
    async def main():
        answers = reply("<think>I wonder\nabout it.</think>Four."), reply("<think>Again I wonder.</think>Five.")
        async with chat(monkeypatch, folder, *answers, dialect="hermes") as person:
            person.type("2+2\r")
            await person.until("Four.")
            await person.until_idle()
            assert not any("wonder" in row for row in person.terminal.everything)
            assert any("thought for" in row for row in person.terminal.everything)
            person.type("\x14")
            await person.until("about it.")
            person.type("3+2\r")
            await person.until("Again I wonder.")

    asyncio.run(main())


def test_wide_characters_in_the_input(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, reply("はい。"), columns=40) as person:
            person.type("漢字" * 12)
            await person.until(lambda: sum("漢" in row for row in person.terminal.lines) == 2)
            person.type("\r")
            await person.until("はい。")
            assert "漢字" * 12 in person.request()

    asyncio.run(main())


def test_commands_and_paths_are_completed(monkeypatch, folder):
    async def main():
        (folder / "notes of mine.md").write_text("the secret word is plum")
        async with chat(monkeypatch, folder, reply("plum")) as person:
            person.type("/he")
            await person.until("show the commands and keys")
            person.type("\t\r")
            await person.until("summarise the conversation")
            person.type("/appr\tn\t")
            await person.until("/approve none")
            person.type("\x03see @not")
            await person.until(lambda: any(row.strip() == "notes of mine.md" for row in person.terminal.lines))
            person.type("\t")
            await person.until('see @"notes of mine.md"')
            person.type("\r")
            await person.until("plum")
            assert "the secret word is plum" in person.request()

    asyncio.run(main())


def test_the_history_is_there_in_the_next_conversation(monkeypatch, folder, tmp_path):
    async def main():
        file = tmp_path / "data" / "chat-history"
        history, problem = history_of(file)
        assert problem == ""
        history.append_string("an earlier\nmessage")
        assert file.stat().st_mode & 0o777 == 0o600
        again, _ = history_of(file)
        assert [each async for each in again.load()] == ["an earlier\nmessage"]

    asyncio.run(main())


def test_earlier_messages_are_searched(monkeypatch, folder):
    """Esc takes what was found into the input, and does not interrupt."""

    async def main():
        gate = asyncio.Event()
        answers = reply("First."), reply("Second."), turn_behind_gate(gate, "Third ", more=("time.",)), reply("Fourth.")
        async with chat(monkeypatch, folder, *answers) as person:
            for text, end in (("fix the tests", "First."), ("something else", "Second.")):
                person.type(f"{text}\r")
                await person.until(end)
                await person.until_idle()
            person.type("more\r")
            await person.until("Third")
            person.type("\x12the t")
            await person.until("earlier message: the t")
            person.type("\x1b")
            await person.until(lambda: "› fix the tests" in person.terminal.lines[-3:])
            person.type("\x12zzz")
            await person.until("no earlier message has this: zzz")
            person.type("\x1b")
            await person.until(lambda: "› fix the tests" in person.terminal.lines[-3:])
            gate.set()
            await person.until("Third time.")
            await person.until_idle()
            person.type("\r")
            await person.until("Fourth.")
            assert json.loads(person.request())["messages"][-1]["content"] == "fix the tests"

    asyncio.run(main())


def test_a_failure_of_the_model_is_shown_and_the_conversation_goes_on(monkeypatch, folder):
    async def main():
        answers = whole("404 Not Found", b'{"error": {"message": "no such model"}}'), reply("Here.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("hello\r")
            await person.until("no such model")
            await person.until_idle()
            person.type("again\r")
            await person.until("Here.")
            assert "hello" in person.request()

    asyncio.run(main())


def test_ctrl_c_twice_leaves_and_says_how_to_continue(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, reply("Yes.")) as person:
            person.type("are you there?\r")
            await person.until("Yes.")
            await person.until_idle()
            person.type("unfinished\x03")
            await person.until("Ctrl-C again leaves")
            person.type("\x03")
            await person.until("continues this conversation")
        assert isinstance(person.screen, Screen)

    asyncio.run(main())


def fifos(folder: Path, *names: str) -> None:
    for name in names:
        os.mkfifo(folder / name)


def test_what_the_model_says_while_the_editor_is_open_is_shown_afterwards(monkeypatch, folder, tmp_path):
    fifos(tmp_path, "opened", "close")
    script = tmp_path / "editor"
    script.write_text(f'#!/bin/sh\necho > "{tmp_path}/opened"\ncat "{tmp_path}/close" > "$1"\n')
    script.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(script))

    async def has_answered(journal: SqliteJournal) -> None:
        while [run.status for run in await journal.runs()] != ["answered"]:  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(0.01)

    async def main():
        gate = asyncio.Event()
        parts = [f"\n\nPart {number} of it." for number in range(2, 7)]
        journal = SqliteJournal(tmp_path / "chat.db")
        answers = turn_behind_gate(gate, "Part 1 of it.", more=tuple(parts)), reply("Yes.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("tell me\r")
            await person.until("Part 1")
            person.type("and \x07")
            await asyncio.to_thread((tmp_path / "opened").read_text)
            writes_before = len(person.terminal.writes)
            gate.set()
            await asyncio.wait_for(has_answered(journal), DEADLINE)
            assert not any("Part" in text for text in person.terminal.writes[writes_before:])
            await asyncio.to_thread((tmp_path / "close").write_text, "and what then?\n")
            await person.until("› and what then?")
            await person.until("Part 6")
            rows = [row for row in person.terminal.everything if row.startswith("Part")]
            assert rows == [f"Part {number} of it." for number in range(1, 7)]
            person.type("\r")
            await person.until("Yes.")
            assert "and what then?" in person.request()
        await journal.aclose()

    asyncio.run(main())


def test_the_editor_key_says_at_a_question_what_it_opens(monkeypatch, folder):
    async def main():
        arguments = json.dumps({"path": "a.txt", "content": "x"})
        async with chat(monkeypatch, folder, calls(("write", arguments)), reply("Done.")) as person:
            person.type("go\r")
            await person.until("Run it?")
            person.type("\x07")
            await person.until("Ctrl-G opens your message: Tab goes to it")
            person.type("y\r")
            await person.until("Done.")

    asyncio.run(main())
