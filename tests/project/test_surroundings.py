"""What the prompt says of the folder, the system and the date."""

from __future__ import annotations

import asyncio
import datetime
import json
import platform

import pytest
from chat_screen import chat, in_turn, reply
from configured_folder import ConfiguredFolder
from loopback_server import serve


@pytest.fixture
def folder(tmp_path):
    return ConfiguredFolder(tmp_path)


def system_of(body: bytes) -> str:
    """The system prompt of a request."""
    first = json.loads(body)["messages"][0]
    assert first["role"] == "system"
    return first["content"]


def run(folder, *arguments):
    """The system prompts of the requests of a command."""

    async def main():
        async with serve(in_turn(reply("Done."))) as server:
            env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "a-key-of-this-test"}
            process = await asyncio.to_thread(folder.toolspeak, *arguments, **env)
            assert process.returncode == 0, process.stderr
            return [system_of(each.body) for each in server.exchanges if each.body]

    return asyncio.run(main())


TASK = ("run", "Hi", "--model", "openai:m", "--dialect", "native")


def test_a_run_reads_the_folder_the_system_the_date_and_git(folder):
    days = {datetime.date.today()}
    (prompt,) = run(folder, *TASK)
    days |= {datetime.date.today()}  # if the test runs at midnight
    assert f"- the folder: {folder.work}\n" in prompt
    assert "- in a git repository: yes\n" in prompt
    assert f"- the system: {platform.system()} " in prompt
    assert any(f"{day:%A, %Y-%m-%d}" in prompt for day in days)
    (prompt,) = run(folder, *TASK, "--workspace", str(folder.home))
    assert f"- the folder: {folder.home}\n" in prompt
    assert "- in a git repository: no\n" in prompt


def test_a_setting_leaves_it_out(folder):
    folder.user("surroundings = false\n")
    (prompt,) = run(folder, *TASK)
    assert "Where you work" not in prompt
    assert str(folder.work) not in prompt


def test_a_recording_is_played_in_another_folder(folder):
    cassette = str(folder.home / "run.jsonl")
    (prompt,) = run(folder, *TASK, "--record", cassette)
    assert str(folder.work) not in prompt
    process = folder.toolspeak(*TASK[:2], *TASK[4:], "--replay", cassette, cwd=folder.home)
    assert (process.returncode, process.stdout) == (0, "Done.\n"), process.stderr


def test_each_turn_of_a_conversation_begins_with_the_same_prompt(monkeypatch, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()

    async def main():
        async with chat(monkeypatch, folder, reply("One."), reply("Two.")) as person:
            for text, answer in (("first", "One."), ("second", "Two.")):
                person.type(f"{text}\r")
                await person.until(answer)
                await person.until_idle()
            first, second = (system_of(each.body) for each in person.turns)
            assert f"- the folder: {folder}\n" in first
            assert first == second

    asyncio.run(main())
