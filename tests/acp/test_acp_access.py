"""What an editor gives the agent: unsaved files, terminals, pictures and files in prompts, MCP servers."""

import asyncio
import base64
import sys
from pathlib import Path

import pytest
from acp import RequestError
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    ClientCapabilities,
    EmbeddedResourceContentBlock,
    EnvVariable,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    SseMcpServer,
    TextResourceContents,
)
from scripted_editor import FILES, ScriptedEditor, connection, playbook, text

from patience import in_time
from toolspeak.data.events import RunStarted, ToolFinished
from toolspeak.data.messages import FilePart, ImagePart, TextPart
from toolspeak.journal import SqliteJournal

PIXEL = b"\x89PNG not really"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path


def in_editor(folder, editor, *turns, prompt=(), capabilities=None, servers=(), **variables):
    """Does one prompt in a new session. Returns the answer and the records of its run."""

    async def main():
        model = playbook(folder / "model.json", *turns)
        options = {"capabilities": capabilities, **variables}
        async with connection(editor, folder, "--model", model, **options) as (agent, _):
            session = await agent.new_session(cwd=str(folder / "work"), mcp_servers=list(servers))
            answer = await agent.prompt(session_id=session.session_id, prompt=list(prompt or text("Go.")))
        journal = SqliteJournal(folder / "data" / "toolspeak" / "toolspeak.db")
        (run,) = await journal.runs()
        records = await journal.read(run.run_id)
        await journal.aclose()
        return answer, [record.event for record in records]

    return asyncio.run(main())


def results(events):
    return [event.result.text for event in events if isinstance(event, ToolFinished)]


@pytest.mark.over_a_second
def test_unsaved_text_is_read_and_changes_appear_in_the_buffer(folder):
    place = folder / "work" / "a.txt"
    place.write_text("saved\n")
    editor = ScriptedEditor(*["allow_once"] * 4, buffers={str(place): "unsaved\n"})
    turns = [
        [("read", {"path": "a.txt"})],
        [("edit", {"path": "a.txt", "old": "unsaved", "new": "changed"})],
        [("append", {"path": "a.txt", "content": "more\n"})],
        [("write", {"path": "new/b.txt", "content": "b\n"})],
        [("read", {"path": "new/b.txt"})],
        [("write", {"path": "a.txt", "content": "all new\n"})],
        "Done.",
    ]
    _, events = in_editor(folder, editor, *turns, capabilities=ClientCapabilities(fs=FILES))
    assert editor.buffers == {str(place): "all new\n", str(folder / "work" / "new" / "b.txt"): "b\n"}
    assert place.read_text() == "saved\n"  # the editor saves, not the agent
    assert results(events)[0] == "unsaved\n"
    assert results(events)[4] == "b\n"
    diffs = [content for question, *_ in editor.questions for content in question.content if content.type == "diff"]
    assert [(diff.old_text, diff.new_text) for diff in diffs] == [
        ("unsaved\n", "changed\n"),
        ("changed\n", "changed\nmore\n"),
        (None, "b\n"),
        ("changed\nmore\n", "all new\n"),
    ]


@pytest.mark.over_a_second
def test_two_changes_of_one_buffer_in_one_turn_are_shown_one_after_the_other(folder):
    place = folder / "work" / "a.txt"
    place.write_text("saved\n")
    editor = ScriptedEditor(*["allow_once"] * 2, buffers={str(place): "one\ntwo\n"})
    edits = [("edit", {"path": "a.txt", "old": old, "new": new}) for old, new in (("one", "1"), ("two", "2"))]
    in_editor(folder, editor, edits, "Done.", capabilities=ClientCapabilities(fs=FILES))
    diffs = [(each["old_text"], each["new_text"]) for call in editor.calls.values() for each in call["content"]]
    assert diffs == [("one\ntwo\n", "1\ntwo\n"), ("1\ntwo\n", "1\n2\n")]


def test_the_workspace_confines_what_the_editor_is_asked_for(folder):
    (folder / "secret.txt").write_text("secret")
    (folder / "work" / "link").symlink_to(folder / "secret.txt")
    (folder / "work" / "data.bin").write_bytes(b"\x00\xff")
    editor = ScriptedEditor("allow_once", "allow_once")
    calls = [
        *[("read", {"path": path}) for path in ("../secret.txt", "link", str(folder / "secret.txt"), "data.bin")],
        ("write", {"path": "../evil.txt", "content": "x"}),
    ]
    _, events = in_editor(folder, editor, calls, "Done.", capabilities=ClientCapabilities(fs=FILES))
    assert editor.requests == []
    assert not any(result == "secret" for result in results(events))
    assert all(call["status"] == "failed" for call in editor.calls.values())


def test_an_editor_that_cannot_write_a_file_is_an_error_for_the_model(folder):
    class ReadOnlyEditor(ScriptedEditor):
        async def write_text_file(self, session_id, path, content, **kwargs):
            raise RequestError.internal_error({"details": "read-only"})

    editor = ReadOnlyEditor("allow_once")
    calls = [("write", {"path": "a.txt", "content": "x"})]
    _, events = in_editor(folder, editor, calls, "Done.", capabilities=ClientCapabilities(fs=FILES))
    assert "was not written by the user's editor" in results(events)[0]
    assert not (folder / "work" / "a.txt").exists()


def test_commands_run_in_terminals_of_the_editor(folder):
    def attempt(seconds):
        (folder / f"{seconds}" / "work").mkdir(parents=True)
        check_terminals(folder / f"{seconds}", seconds)

    in_time(attempt, 0.5, 10, 60)


def check_terminals(folder, seconds):
    """`seconds`: the time limit of the command that takes longer."""
    editor = ScriptedEditor("allow_once", "allow_once")
    commands = [
        ("shell", {"command": "echo $PWD $SECRET; exit 3"}),
        ("shell", {"command": "echo slow; exec sleep 600", "timeout": seconds}),
    ]
    _, events = in_editor(
        folder,
        editor,
        commands,
        "Done.",
        capabilities=ClientCapabilities(terminal=True),
        SECRET="x",
    )
    work = folder / "work"
    first, second = (event.result for event in events if isinstance(event, ToolFinished))
    assert first.content[0].value == {"exit_code": 3, "output": f"{work}\n"}
    assert second.content[0].value["output"].startswith("slow\n")
    notes = "".join(update.content.text for update in editor.of("agent_thought_chunk"))
    assert "commands have all your rights, and the environment of your editor: they run in its terminals" in notes
    assert f"ended after {seconds:g} seconds" in second.content[0].value["timed_out"]
    assert sorted(editor.requests) == [(kind, f"terminal-{i}") for kind in ("release", "terminal") for i in (0, 1)]
    shown_terminals = [
        content["terminal_id"]
        for call in editor.calls.values()
        for content in call["content"]
        if "terminal_id" in content
    ]
    assert shown_terminals == ["terminal-0", "terminal-1"]


def test_a_prompt_may_hold_pictures_and_files(folder):
    data = base64.b64encode(PIXEL).decode()
    resource = TextResourceContents(uri=f"file://{folder}/a%20b.py", text="x = 1\n")
    blob = BlobResourceContents(uri="file:///tmp/data.bin", blob=data)
    prompt = [
        *text("Look: "),
        ImageContentBlock(type="image", data=data, mime_type="image/png"),
        EmbeddedResourceContentBlock(type="resource", resource=resource),
        EmbeddedResourceContentBlock(type="resource", resource=blob),
        ResourceContentBlock(type="resource_link", uri=f"file://{folder}/c.py#L3", name="c.py"),
    ]
    _, events = in_editor(folder, ScriptedEditor(), "Nice.", prompt=prompt)
    (message,) = next(event for event in events if isinstance(event, RunStarted)).messages
    assert message.parts == (
        TextPart("Look: "),
        ImagePart("image/png", PIXEL),
        TextPart(f'\n<file path="{folder}/a b.py">\nx = 1\n\n</file>\n'),
        FilePart("data.bin", "application/octet-stream", PIXEL),
        TextPart(f"[c.py]({folder}/c.py#L3)"),
    )


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ([AudioContentBlock(type="audio", data="", mime_type="audio/wav")], "'audio' cannot be sent"),
        ([ImageContentBlock(type="image", data="%%%", mime_type="image/png")], "is not base64"),
        (text("  \n"), "the prompt is empty"),
        ([], "the prompt is empty"),
    ],
)
def test_a_prompt_that_no_model_can_read_is_refused(folder, prompt, problem):
    async def main():
        model = playbook(folder / "model.json", "Hi.")
        async with connection(ScriptedEditor(), folder, "--model", model) as (agent, _):
            session = await agent.new_session(cwd=str(folder / "work"), mcp_servers=[])
            with pytest.raises(RequestError, match=problem):
                await agent.prompt(session_id=session.session_id, prompt=prompt)

    asyncio.run(main())


@pytest.mark.over_a_second
def test_mcp_servers_come_with_the_session(folder):
    server = Path(__file__).parents[1] / "mcp" / "mcp_server.py"
    servers = [
        McpServerStdio(
            name="shop", command=sys.executable, args=[str(server), str(folder)], env=[EnvVariable(name="A", value="b")]
        ),
        McpServerStdio(name="gone", command="/there/is/no/such/program", args=[], env=[]),
        SseMcpServer(type="sse", name="old", url="http://127.0.0.1:9/sse", headers=[]),
    ]
    editor = ScriptedEditor("allow_once")
    _, events = in_editor(folder, editor, [("shop__echo", {"text": "hello"})], "Done.", servers=servers)
    for name in ("gone", "old"):
        assert f"the MCP server '{name}' cannot be used: " in editor.agent_text
    assert editor.agent_text.count("; the run goes on without its tools") == 2
    assert results(events) == ["hello"]


@pytest.mark.parametrize("files", [None, FILES])
def test_the_tools_work_in_additional_directories_too(folder, files):
    lib, docs = folder / "lib", folder / "docs"
    for place in (lib, docs):
        place.mkdir()
    (lib / "a.txt").write_text("one\n")
    (lib / "AGENTS.md").write_text("Speak like a pirate.\n")
    (folder / "secret.txt").write_text("secret")
    (lib / "link").symlink_to(folder / "secret.txt")
    calls = [
        ("read", {"path": f"{lib}/a.txt"}),
        ("edit", {"path": f"{lib}/a.txt", "old": "one", "new": "two"}),
        ("write", {"path": f"{docs}/new/b.txt", "content": "b"}),
        ("append", {"path": f"{docs}/new/b.txt", "content": "c"}),
        ("replace", {"path": f"{lib}", "old": "tw", "new": "Tw"}),
    ]
    looks = [
        ("list", {"prefix": f"{lib}"}),
        ("find", {"path": f"{lib}", "content": "one|Two"}),
        ("shell", {"command": f"echo more >> {lib}/a.txt"}),
    ]
    refusals = [("read", {"path": path}) for path in (f"{lib}/link", f"{lib}/../secret.txt", f"{folder}/secret.txt")]

    async def main():
        model = playbook(folder / "model.json", *([call] for call in calls), looks, refusals, "Done.")
        editor = ScriptedEditor("allow_once")  # the mode asks about the command alone
        arguments = ("--model", model, "--mode", "accept_edits")
        async with connection(editor, folder, *arguments, capabilities=ClientCapabilities(fs=files)) as (agent, _):
            places = {"cwd": str(folder / "work"), "mcp_servers": []}
            others = [str(lib), str(docs), str(lib)]
            session = (await agent.new_session(**places, additional_directories=others)).session_id
            await agent.prompt(session_id=session, prompt=text("Go."))
            (row,) = (await agent.list_sessions()).sessions
            assert row.additional_directories == [str(lib), str(docs)]
            for problem in ("lib", "", str(folder / "gone"), str(lib / "a.txt")):
                with pytest.raises(RequestError, match="each of additionalDirectories must be the absolute path"):
                    await agent.new_session(**places, additional_directories=[problem])
            await agent.load_session(**places, session_id=session)
            await agent.prompt(session_id=session, prompt=text("/undo"))
        return editor

    editor = asyncio.run(main())
    assert len(editor.questions) == 1
    calls_shown = list(editor.calls.values())[: len(calls) + len(looks) + len(refusals)]
    statuses = [call["status"] for call in calls_shown]
    assert statuses == ["completed"] * (len(calls) + len(looks)) + ["failed"] * len(refusals)
    listing, search = calls_shown[len(calls)], calls_shown[len(calls) + 1]
    assert f"{lib}/a.txt" in str(listing["raw_output"])
    assert f"{lib}/a.txt" in str(search["raw_output"])
    assert "secret" not in str([call.get("raw_output") for call in calls_shown[-3:]]).replace("secret.txt", "")
    if files is None:
        assert (lib / "a.txt").read_text() == "one\n"  # the undo knows both folders
        assert not (docs / "new" / "b.txt").exists()
    else:
        assert editor.buffers == {str(lib / "a.txt"): "Two\n", str(docs / "new" / "b.txt"): "bc"}
