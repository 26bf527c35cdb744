"""A person edits a call before it runs: in an editor, or on the line where there is none."""

from __future__ import annotations

import asyncio
import json

import pytest
from chat_screen import calls, chat, reply

_PROGRAM = 'def f():\n    """Counts\\tdown."""\n    return 1\n'


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.fixture
def no_editor(monkeypatch, tmp_path):
    """A machine without an editor."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)


def editor_is(monkeypatch, tmp_path, command):
    """An editor that runs a command, with the file as $1."""
    script = tmp_path / "my-editor"
    script.write_text(f'#!/bin/sh\ncp "$1" "{tmp_path}/seen"\n{command}\n')
    script.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(script))


def test_arguments_that_are_edited_on_the_line_are_shown_and_run(monkeypatch, folder, no_editor):
    async def main():
        answers = calls(("write", json.dumps({"path": "wrong", "content": "x"}))), reply("Done.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("go\r")
            await person.until("Run it?")
            person.type("e\r")
            await person.until("Enter takes your version, Esc leaves the call as it is.")
            await person.until("Arguments:")
            person.type("\x15" + '{"path": "right", "content": "x"}\r')
            await person.until("+++ right")
            assert not (folder / "right").exists()
            person.type("y\r")
            await person.until("Done.")
            assert (folder / "right").exists()
            assert not (folder / "wrong").exists()

    asyncio.run(main())


def test_escape_leaves_the_edit_and_not_the_turn(monkeypatch, folder, no_editor):
    async def main():
        answers = calls(*(("write", json.dumps({"path": name, "content": "x"})) for name in "ab")), reply("Done.")
        async with chat(monkeypatch, folder, *answers, rows=40) as person:
            person.type("go\r")
            await person.until("2 of 2 calls wait")
            person.type("y\r")
            await person.until("1 of 2 calls wait")
            person.type("e\r")
            await person.until("Arguments:")
            person.type("\x1b")
            await person.until("The arguments are unchanged.")
            await person.until("Run it? › your answer")
            person.type("y\r")
            await person.until("Done.")
            assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]

    asyncio.run(main())


def test_a_text_of_several_lines_is_edited_as_it_is_and_the_question_shows_what_differs(monkeypatch, folder, tmp_path):
    editor_is(monkeypatch, tmp_path, "sed -i 's/return 1/return 2/' \"$1\"")

    async def main():
        answers = calls(("write", json.dumps({"path": "a.py", "content": _PROGRAM}))), reply("Done.")
        async with chat(monkeypatch, folder, *answers, rows=50) as person:
            person.type("go\r")
            await person.until("Run it?")
            person.type("e\r")
            await person.until("opens the call. Save and leave it")
            await person.until("your version; it differs from the model's in:")
            await person.until("Run it? › your answer")
            rows = [row.strip() for row in person.terminal.everything]
            start = next(i for i, row in enumerate(rows) if row.startswith("your version;"))
            assert rows[start + 1 : start + 3] == ["-    return 1", "+    return 2"]
            assert _PROGRAM in (tmp_path / "seen").read_text()
            assert not (folder / "a.py").exists()
            person.type("y\r")
            await person.until("Done.")
            assert (folder / "a.py").read_text() == _PROGRAM.replace("return 1", "return 2")

    asyncio.run(main())


@pytest.mark.parametrize(
    "content",
    ["ends'\nwith a quote'", "'''\n\"\"\"\n\\", "no end\n  of line", "\r\n\x07\x7f\n", "\u2028\n"],
)
def test_every_text_comes_back_from_the_editor_as_it_was(monkeypatch, folder, tmp_path, content):
    """The editor changes the path, and nothing else: what runs has the same text."""
    editor_is(monkeypatch, tmp_path, "sed -i 's/77/78/' \"$1\"")

    async def main():
        arguments = {"path": "77.txt", "content": content}
        async with chat(
            monkeypatch, folder, calls(("write", json.dumps(arguments))), reply("Done."), rows=50
        ) as person:
            person.type("go\r")
            await person.until("Run it?")
            person.type("e\r")
            await person.until("your version; it differs from the model's in:")
            await person.until("Run it? › your answer")
            person.type("y\r")
            await person.until("Done.")
            assert (folder / "78.txt").read_bytes() == content.encode()

    asyncio.run(main())


def test_a_mistake_in_the_editor_is_named_and_the_next_edit_goes_on_from_it(monkeypatch, folder, tmp_path):
    command = 'if grep -q oops "$1"; then sed -i /oops/d "$1"; else echo oops >> "$1"; fi'
    editor_is(monkeypatch, tmp_path, command)

    async def main():
        answers = calls(("write", json.dumps({"path": "a.py", "content": _PROGRAM}))), reply("Done.")
        async with chat(monkeypatch, folder, *answers, rows=50) as person:
            person.type("go\r")
            await person.until("Run it?")
            person.type("e\r")
            await person.until("this is not TOML with arguments")
            await person.until("Run it? › your answer")
            person.type("e\r")
            await person.until("The arguments are unchanged.")
            assert "oops" in (tmp_path / "seen").read_text()
            person.type("y\r")
            await person.until("Done.")
            assert (folder / "a.py").read_text() == _PROGRAM

    asyncio.run(main())
