"""The files the program goes by are not for its tools: a journal, the kept rules, configurations."""

import asyncio
import json
import os

import pytest

from forked_commands import completed_text
from toolspeak import Agent, Approval, Effects, Message, SqliteJournal, ToolCall, get_dialect, tool
from toolspeak.data.approvals import Rule
from toolspeak.data.events import ApprovalRequested, ToolFinished
from toolspeak.execute import StandingRules
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools.builtin import workspace_tools


def turn_with_calls(*calls):
    calls_made = tuple(ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    return get_dialect("cogency-json").render([Message("assistant", calls_made)])[0].text


def run(journal, tools, turns, **options):
    """The records of a run whose model calls."""

    async def main():
        try:
            result = await Agent(ScriptedProvider(turns), tools, journal=journal, **options).run("go")
            return await journal.read(result.run_id)
        finally:
            await journal.aclose()

    return [record.event for record in asyncio.run(main())]


def changing(path):
    return [
        ("write", {"path": path, "content": "gone", "overwrite": True}),
        ("append", {"path": path, "content": "gone"}),
        ("edit", {"path": path, "old": "a", "new": "b"}),
        ("line_edit", {"path": path, "startLine": 1, "endLine": 1, "newContent": "b"}),
        ("read", {"path": path}),
    ]


@pytest.mark.parametrize(
    "name", ["toolspeak.db", "toolspeak.db-wal", "toolspeak.db-shm", "link", "sub/../toolspeak.db"]
)
def test_the_journal_of_a_run_is_neither_changed_nor_read_by_its_tools(tmp_path, name):
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("toolspeak.db")
    journal = SqliteJournal(tmp_path / "toolspeak.db")
    events = run(journal, workspace_tools(tmp_path), [turn_with_calls(*changing(name)), "done"], approve="all")
    results = [event.result for event in events if isinstance(event, ToolFinished)]
    assert len(results) == 5
    for result in results:
        assert result.status != "success"
        assert "a journal of runs" in result.text or "contains '..'" in result.text
    assert sorted(os.listdir(tmp_path)) == ["link", "sub", "toolspeak.db"]


def test_another_name_of_the_journals_file_is_not_read_either(tmp_path):
    """To close the file would let go of the locks that SQLite has on it."""
    journal = SqliteJournal(tmp_path / "toolspeak.db")
    calls = [("shell", {"command": "ln toolspeak.db other"}), ("read", {"path": "other"})]
    events = run(journal, workspace_tools(tmp_path), [turn_with_calls(*calls), "done"], approve="all")
    write_result, read = [event.result for event in events if isinstance(event, ToolFinished)]
    assert write_result.status == "success"
    assert "'other' is a journal of runs" in read.text


def test_a_search_passes_the_journal_over(tmp_path):
    (tmp_path / "a.txt").write_text("SQLite format 3")
    journal = SqliteJournal(tmp_path / "toolspeak.db")
    calls = [("find", {"content": "SQLite format"})]
    events = run(journal, workspace_tools(tmp_path), [turn_with_calls(*calls), "done"], approve="all")
    (result,) = [event.result for event in events if isinstance(event, ToolFinished)]
    assert "a.txt" in result.text
    assert "toolspeak.db" not in result.text


def test_a_rule_does_not_let_a_call_pass_that_changes_the_journal(tmp_path):
    """Of a tool of the user's, which says what it writes: a person is asked."""

    @tool(effects=lambda path: Effects(writes={f"file:{tmp_path}/{path}"}))
    def put(path: str) -> str:
        "Writes a file."
        return "written"

    rules = StandingRules()
    rules.add(Rule("approve", "put"))
    calls = [("put", {"path": "a.txt"}), ("put", {"path": "toolspeak.db"})]
    for approval in (Approval(rules=rules), Approval(policy=[Rule("approve", "put")])):
        events = run(
            SqliteJournal(tmp_path / "toolspeak.db"), [put], [turn_with_calls(*calls), "done"], approve=approval
        )
        (question,) = [event for event in events if isinstance(event, ApprovalRequested)]
        assert question.call_id == "call_1_1"


def test_the_rules_and_the_servers_of_a_command_are_not_for_its_model(tmp_path):
    (tmp_path / "rules").write_text("")
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {}}')
    (tmp_path / "prices").write_text("{}")
    files = ("rules", ".mcp.json", "prices", "tape")
    book = {"turns": [turn_with_calls(*(call for file in files for call in changing(file)[:4])), "done"]}
    (tmp_path.parent / f"{tmp_path.name}.json").write_text(json.dumps(book))
    model = f"scripted:{tmp_path.parent / tmp_path.name}.json"
    options = ("--model", model, "--approve", "all", "--journal", "none", "--json")
    process = completed_text(
        ["run", *options, "--rules", "rules", "--mcp", ".mcp.json", "--prices", "prices", "--record", "tape", "go"],
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    lines = [line for line in process.stdout.splitlines() if "ToolFinished" in line]
    assert len(lines) == 16
    assert sum("no tool may change it" in line for line in lines) >= 8
    assert not any('"success"' in line for line in lines)
    assert (tmp_path / "prices").read_text() == "{}"
    assert (tmp_path / "rules").read_text() == ""
    assert (tmp_path / ".mcp.json").read_text() == '{"mcpServers": {}}'
