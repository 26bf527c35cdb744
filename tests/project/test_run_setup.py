"""The settings of a run in its first record, as `resume` reads them: today's, older ones and others."""

import asyncio
import json

import pytest

from forked_commands import completed_text
from toolspeak.data.values import evolve
from toolspeak.journal import SqliteJournal

OLDEST = ("model", "dialect", "workspace", "approve", "schedule", "starts_in")
"""The fields of the first version."""


@pytest.fixture
def resume(tmp_path, monkeypatch):
    """Resumes a run whose first record holds the settings of a `toolspeak run`, changed by a function."""
    book = tmp_path / "book.json"
    book.write_text(json.dumps({"turns": ["Done."], "follow": True}), encoding="utf-8")
    place = str(tmp_path / "toolspeak.db")
    monkeypatch.setenv("TOOLSPEAK_JOURNAL", place)
    process = completed_text(["run", "a task", "--model", f"scripted:{book}", "--window", "9000"], cwd=tmp_path)
    assert process.returncode == 0, process.stderr

    async def copy_run(change):
        journal = SqliteJournal(place)
        try:
            (info,) = await journal.runs()
            first = (await journal.read(info.run_id, 0, 1))[0]
            alone = evolve(first.event, session_id=None, session_version=0, setup=change(dict(first.event.setup)))
            await journal.append(evolve(first, run_id="copy", event=alone))
        finally:
            journal.close()

    def resume(change):
        asyncio.run(copy_run(change))
        return completed_text(["resume", "copy"], cwd=tmp_path)

    return resume


def test_the_settings_of_today_are_read(resume):
    process = resume(lambda setup: setup)
    assert (process.returncode, process.stdout) == (0, "Done.\n"), process.stderr


def test_settings_that_lack_the_newer_fields_have_their_defaults(resume):
    process = resume(lambda setup: {name: setup[name] for name in OLDEST})
    assert (process.returncode, process.stdout) == (0, "Done.\n"), process.stderr


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"window": "9000"}, "`int | null`, got `str` - at `$.window`"),
        ({"window": True}, "`int | null`, got `bool` - at `$.window`"),
        ({"mcp": None}, "`str`, got `null` - at `$.mcp`"),
        ({"schedule": "fast"}, "Invalid enum value 'fast' - at `$.schedule`"),
        ({"network": "none"}, "unknown settings: network"),
    ],
)
def test_settings_that_cannot_be_read_are_refused_and_not_left_out(resume, change, problem):
    process = resume(lambda setup: {**setup, **change})
    assert process.returncode == 2
    assert problem in process.stderr
    assert "resume it with the version that started it" in process.stderr


def test_a_run_of_another_program_is_refused(resume):
    process = resume(lambda _: {"shop": "books"})
    assert process.returncode == 2
    assert "was not started by `toolspeak run`" in process.stderr
