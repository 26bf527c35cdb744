"""A conversation in an editor: what it sees of a turn, and what it is asked."""

import asyncio
import json
from pathlib import Path

import pytest
from acp import RequestError
from chat_screen import in_turn, reply
from loopback_server import serve
from scripted_editor import ScriptedEditor, connection, playbook, text

from toolspeak.data.approvals import Rule
from toolspeak.project.user_files.rules_file import RulesFile

EDIT = ("edit", {"path": "a.txt", "old": "two", "new": "three"})
COMMAND = ("shell", {"command": "echo hi >> log.txt; exit 3"})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\ntwo\n")
    return tmp_path


def in_editor(folder, editor, *turns, arguments=(), prompts=("Go.",), mode=None):
    """Does the prompts in a new session. Returns the answers."""

    async def main():
        model = playbook(folder / "model.json", *turns)
        async with connection(editor, folder, "--model", model, *arguments) as (agent, _):
            session = await agent.new_session(cwd=str(folder / "work"), mcp_servers=[])
            if mode is not None:
                await agent.set_session_mode(session_id=session.session_id, mode_id=mode)
            return [await agent.prompt(session_id=session.session_id, prompt=text(each)) for each in prompts]

    return asyncio.run(main())


def test_the_model_reads_which_folder_the_session_is_for(folder):
    async def main():
        async with serve(in_turn(reply("Done."))) as server:
            env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}
            async with connection(ScriptedEditor(), folder, "--model", "openai:m", "--dialect", "native", **env) as (
                agent,
                _,
            ):
                session = await agent.new_session(cwd=str(folder / "work"), mcp_servers=[])
                await agent.prompt(session_id=session.session_id, prompt=text("Go."))
            (request,) = (json.loads(each.body) for each in server.exchanges if each.body)
            assert f"- the folder: {folder / 'work'}\n" in request["messages"][0]["content"]

    asyncio.run(main())


def test_a_turn_shows_its_calls_and_asks_about_a_batch_at_once(folder):
    editor = ScriptedEditor("allow_once", "allow_once")
    turns = [[("read", {"path": "a.txt", "start": 2})], [EDIT, COMMAND], "All **done**."]
    (answer,) = in_editor(folder, editor, *turns)
    assert answer.stop_reason == "end_turn"
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0
    assert editor.agent_text == "All **done**."
    read, edit, shell = editor.calls.values()
    place = str(folder / "work" / "a.txt")
    assert (read["title"], read["kind"], read["status"]) == ("read a.txt", "read", "completed")
    assert read["locations"] == [{"path": place, "line": 2}]
    assert "two" in read["content"][0]["content"]["text"]
    assert read["raw_output"].startswith("two\n")
    diff = {"type": "diff", "path": place, "old_text": "one\ntwo\n", "new_text": "one\nthree\n"}
    assert (edit["kind"], edit["status"], edit["content"]) == ("edit", "completed", [diff])
    assert (shell["title"], shell["kind"], shell["status"]) == (COMMAND[1]["command"], "execute", "completed")
    assert shell["content"][0]["content"]["text"].endswith("exit code 3")
    # The question shows all that the call would do, and belongs to the call that is shown.
    (edit_question, options, extra), (shell_question, *_) = editor.questions
    assert [edit_question.tool_call_id, shell_question.tool_call_id] == list(editor.calls)[1:]
    assert diff in [each.model_dump(exclude_none=True) for each in edit_question.content]
    assert edit_question.raw_input == EDIT[1]
    assert COMMAND[1]["command"] in shell_question.content[-1].content.text
    assert [each.kind for each in options] == ["allow_once", "allow_always", "reject_once", "reject_always"]
    assert len(extra["toolspeak"]["digest"]) == 64
    assert (folder / "work" / "a.txt").read_text() == "one\nthree\n"
    (title,) = editor.of("session_info_update")
    assert title.title == "Go."


def test_a_call_ends_with_what_it_has_changed_and_a_loaded_session_shows_the_same(folder):
    edits = [("edit", {"path": "a.txt", "old": old, "new": new}) for old, new in (("one", "1"), ("two", "2"))]
    command = ("shell", {"command": "echo 3 >> a.txt; rm b.txt; printf '\\0' > c.bin"})
    (folder / "work" / "b.txt").write_text("bee\n")

    async def main():
        model = playbook(
            folder / "model.json", edits, [command], [("write", {"path": "d.txt", "content": "d"})], "Done."
        )
        editor, second = ScriptedEditor(*["allow_once"] * 4), ScriptedEditor()
        async with connection(editor, folder, "--model", model) as (agent, _):
            session = (await agent.new_session(cwd=str(folder / "work"), mcp_servers=[])).session_id
            await agent.prompt(session_id=session, prompt=text("Go."))
        async with connection(second, folder, "--model", model) as (agent, _):
            await agent.load_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
        return editor, second

    for editor in asyncio.run(main()):
        contents = [[each for each in call["content"] if "path" in each] for call in editor.calls.values()]
        diffs = [
            [(Path(each["path"]).name, each.get("old_text"), each["new_text"]) for each in rows] for rows in contents
        ]
        assert diffs == [
            [("a.txt", "one\ntwo\n", "1\ntwo\n")],
            [("a.txt", "1\ntwo\n", "1\n2\n")],  # when the question was asked, the first edit had not happened
            [("a.txt", "1\n2\n", "1\n2\n3\n"), ("b.txt", "bee\n", "")],
            [("d.txt", None, "d")],
        ]
        assert "No output." in list(editor.calls.values())[2]["content"][0]["content"]["text"]


def test_a_todo_list_is_the_plan(folder):
    editor = ScriptedEditor()
    states = ["completed", "in_progress", "pending"]
    items = [{"text": f"Step {state}\x1b", "state": state} for state in states]
    in_editor(folder, editor, [("todo", {"items": items})], "Done.")
    (plan,) = editor.of("plan")
    assert [(each.content, each.status) for each in plan.entries] == [(f"Step {state}␛", state) for state in states]


def test_what_a_hook_says_is_shown_and_own_tools_are_there(folder):
    hook = "{ command = 'echo no reads >&2; exit 1' }"
    config = folder / "config" / "toolspeak" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[hooks]\nPreToolUse = [{{ matcher = 'half', hooks = [{hook}] }}]\n")
    source = (
        "from toolspeak import tool\n\n@tool(read_only=True)\ndef half(number: int) -> float:\n    return number / 2\n"
    )
    (folder / "mine.py").write_text(source)
    editor = ScriptedEditor()
    arguments = ["--tools", f"{folder}/mine.py:half"]
    in_editor(folder, editor, [("half", {"number": 7})], "Done.", arguments=arguments)
    (call,) = editor.calls.values()
    assert call["status"] == "completed"
    assert "the PreToolUse hook" in editor.agent_text
    assert "no reads" in editor.agent_text


def test_calls_of_two_turns_have_different_ids(folder):
    editor = ScriptedEditor()
    read = [("read", {"path": "a.txt"})]
    in_editor(folder, editor, read, "One.", read, "Two.", prompts=["First.", "Second."])
    assert len(editor.calls) == 2
    assert {call["status"] for call in editor.calls.values()} == {"completed"}


@pytest.mark.parametrize(
    ("choices", "questions", "log", "statuses"),
    [
        (["reject_once", "allow_once"], 2, "hi\n", ["failed", "completed"]),
        (["allow_always"], 1, "hi\nhi\n", ["completed", "completed"]),
        (["reject_always"], 1, "", ["failed", "failed"]),
    ],
)
def test_a_choice_holds_once_or_always(folder, choices, questions, log, statuses):
    editor = ScriptedEditor(*choices)
    command = [("shell", {"command": "echo hi | tee -a log.txt"})]
    in_editor(folder, editor, command, command, "Done.")
    assert len(editor.questions) == questions
    assert [call["status"] for call in editor.calls.values()] == statuses
    place = folder / "work" / "log.txt"
    assert (place.read_text() if place.exists() else "") == log


def test_a_call_that_the_file_of_rules_approves_says_by_which_rule(folder):
    RulesFile(str(folder / "rules.jsonl")).add(Rule("approve", "shell"))
    editor = ScriptedEditor()
    in_editor(folder, editor, [COMMAND], "Done.", arguments=["--rules", str(folder / "rules.jsonl")])
    thoughts = "".join(update.content.text for update in editor.of("agent_thought_chunk"))
    assert "shell is allowed by rule 1 of rules.jsonl." in thoughts


def test_a_question_that_is_closed_ends_the_turn_and_the_next_one_goes_on(folder):
    editor = ScriptedEditor(None)
    first, second = in_editor(folder, editor, [COMMAND], "Another way, then.", prompts=["Go.", "Not like that."])
    assert [first.stop_reason, second.stop_reason] == ["cancelled", "end_turn"]
    assert editor.agent_text == "Another way, then."
    assert not (folder / "work" / "log.txt").exists()


def test_a_question_that_the_editor_cannot_ask_waits_and_is_asked_again(folder):
    editor = ScriptedEditor(RequestError.internal_error(), "allow_once")
    first, second = in_editor(folder, editor, [COMMAND], "Done.", prompts=["Go.", "Ask me now."])
    assert [first.stop_reason, second.stop_reason] == ["end_turn", "end_turn"]
    assert "Waiting for approval: shell" in editor.agent_text
    assert editor.agent_text.endswith("Done.")
    assert (folder / "work" / "log.txt").read_text() == "hi\n"


@pytest.mark.parametrize(
    ("mode", "questions", "statuses"),
    [
        ("ask", 2, ["completed", "completed"]),
        ("accept_edits", 1, ["completed", "completed"]),
        ("approve_all", 0, ["completed", "completed"]),
        ("plan", 0, ["failed", "failed"]),
    ],
)
def test_the_mode_decides_what_is_asked(folder, mode, questions, statuses):
    editor = ScriptedEditor("allow_once", "allow_once")
    # Commands in a sandbox, which write in the workspace alone, are commands all the same.
    in_editor(folder, editor, [EDIT, COMMAND], "Done.", mode=mode, arguments=["--sandbox", "auto"])
    assert len(editor.questions) == questions
    assert [call["status"] for call in editor.calls.values()] == statuses
    assert [update.current_mode_id for update in editor.of("current_mode_update")] == [mode]
    assert (folder / "work" / "log.txt").exists() == (mode != "plan")


def test_a_call_that_cannot_be_read_is_shown_as_failed(folder):
    editor = ScriptedEditor()
    broken_turn = {"text": "", "calls": [{"name": "read", "arguments": '{"path": '}]}
    in_editor(folder, editor, broken_turn, "Sorry.")
    (call,) = editor.calls.values()
    assert call["status"] == "failed"


def test_control_characters_of_the_model_and_of_files_do_not_reach_the_editor(folder):
    (folder / "work" / "a.txt").write_text("\x1b]0;title\x07two\n")
    editor = ScriptedEditor()
    in_editor(folder, editor, [("read", {"path": "a.txt\x1b[2J"})], [("read", {"path": "a.txt"})], "Hi \x1b[31mred.")
    display = editor.agent_text + "".join(
        call["title"] + call["content"][0]["content"]["text"] for call in editor.calls.values()
    )
    assert "\x1b" not in display
    assert "␛[31mred" in display


def test_a_model_that_fails_is_an_error_and_the_session_goes_on(folder):
    async def main():
        turns = [{"text": "Well", "error": "the server is on fire"}, "Back again."]
        model = playbook(folder / "model.json", *turns, follow=False)
        editor = ScriptedEditor()
        async with connection(editor, folder, "--model", model) as (agent, _):
            session = await agent.new_session(cwd=str(folder / "work"), mcp_servers=[])
            with pytest.raises(RequestError, match="the server is on fire"):
                await agent.prompt(session_id=session.session_id, prompt=text("Go."))
            return await agent.prompt(session_id=session.session_id, prompt=text("And now?"))

    assert asyncio.run(main()).stop_reason == "end_turn"


def test_a_message_during_a_turn_is_read_at_its_next_step(folder):
    async def main():
        model = playbook(folder / "model.json", [COMMAND], "You said: {{last}}", "And then: {{last}}")
        editor = ScriptedEditor()
        async with connection(editor, folder, "--model", model) as (agent, _):
            session = (await agent.new_session(cwd=str(folder / "work"), mcp_servers=[])).session_id
            first = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Go.")))
            early = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Softly.")))
            await editor.until(lambda: editor.questions)
            second = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Hurry.")))
            steering = await agent._conn.send_request("_session/steering", steer(session, "Please."))
            assert steering == {"outcome": "injected"}
            await editor.answer("allow_once")
            answers = [await first, await early, await second]
            assert [each.stop_reason for each in answers] == ["end_turn"] * 3
            assert [each.usage is not None for each in answers] == [True, False, False]
            answer = editor.agent_text
            await agent.load_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
            replay = [update.content.text for update in editor.of("user_message_chunk")]
            assert replay[:2] == ["Go.", "Softly."]
            assert {*replay[2:]} == {"Hurry.", "Please."}  # two requests at once
            assert answer == f"You said: {replay[-1]}"

    asyncio.run(main())


def steer(session, words, **steering):
    prompt = [{"type": "text", "text": words}]
    return {"sessionId": session, "prompt": prompt, "_meta": {"steering": steering}}


def test_a_message_for_a_turn_that_is_over_begins_one_or_is_left_to_the_editor(folder):
    async def main():
        model = playbook(folder / "model.json", "One: {{last}}", "Two: {{last}}")
        editor = ScriptedEditor()
        async with connection(editor, folder, "--model", model) as (agent, _):
            session = (await agent.new_session(cwd=str(folder / "work"), mcp_servers=[])).session_id
            await agent.prompt(session_id=session, prompt=text("Go."))
            own = steer(session, "Faster.", idleBehavior="promptRequired")
            outcome = await agent._conn.send_request("_session/steering", own)
            assert outcome == {"outcome": "promptRequired", "reason": "noRunningTurn"}
            assert await agent._conn.send_request("_session/steering", steer(session, "Faster.")) == {
                "outcome": "startedNewTurn"
            }
            await editor.until(lambda: editor.agent_text == "One: Go.Two: Faster.")
            command = await agent._conn.send_request("_session/steering", steer(session, "/usage"))
            assert command == {"outcome": "startedNewTurn"}
            await editor.until(lambda: "This session has used" in editor.agent_text)
            with pytest.raises(RequestError, match="is not open here"):
                await agent._conn.send_request("_session/steering", steer("x", "Hello?"))

    asyncio.run(main())


def test_slash_commands_are_answered_by_the_agent_and_not_by_the_model(folder):
    editor = ScriptedEditor("allow_once", "allow_once")
    skill = folder / "work" / ".agents" / "skills" / "brew"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: brew\ndescription: Brews tea.\n---\nBoil water.\n")
    prompts = ["/diff", "Go.", "/diff", "/undo", "/diff", "/tools", "/skills", "/usage", "/etc/hosts?"]
    turns = [[EDIT, COMMAND], "Done.", "It is a file."]
    answers = in_editor(folder, editor, *turns, prompts=prompts, arguments=["--window", "100000"])
    assert {answer.stop_reason for answer in answers} == {"end_turn"}
    (commands,) = editor.of("available_commands_update")
    assert {"model", "undo", "diff", "compact"} <= {each.name for each in commands.available_commands}
    answer = editor.agent_text
    assert answer.startswith("This session has changed no file.Done.```diff\n")
    assert "-two\n+three\n" in answer
    assert "- `a.txt`: undone" in answer
    assert "- `log.txt`: undone" in answer
    assert (folder / "work" / "a.txt").read_text() == "one\ntwo\n"
    assert not (folder / "work" / "log.txt").exists()
    assert "- `shell`: Run a command line" in answer
    assert "- `brew`: Brews tea." in answer
    assert "tokens, the price of the model is not known" in answer
    assert answer.endswith("It is a file.")
    assert [update.size for update in editor.of("usage_update")][:2] == [100_000, 100_000]


def test_a_conversation_is_summarised_when_the_user_asks_for_it(folder):
    editor = ScriptedEditor()
    prompts = ["/compact", "tea " * 2000, "milk " * 2000, "/compact", "And?", "And then?"]
    in_editor(folder, editor, *["Fine."] * 6, prompts=prompts)
    assert editor.agent_text.startswith("There is nothing to summarise yet.Fine.Fine.The history was compacted: ")
    assert "3 messages summarised (~" in editor.agent_text
    assert editor.agent_text.endswith("tokens).Fine.Fine.")


def test_the_calls_of_a_sub_agent_are_shown_and_asked_about_as_its_own(folder):
    helper = playbook(folder / "helper.json", [COMMAND], "Sub done.")
    agents, config = folder / "work" / ".agents" / "agents", folder / "config" / "toolspeak"
    for place in (agents, config):
        place.mkdir(parents=True)
    (agents / "clerk.md").write_text("---\nname: clerk\ndescription: Writes.\nmodel: helper\n---\nYou write.\n")
    (config / "config.toml").write_text(f'[aliases]\nhelper = "{helper}"\n')
    editor = ScriptedEditor("allow_once", "allow_once")
    in_editor(folder, editor, [("task", {"agent": "clerk", "task": "Write."})], "All done.")
    assert editor.agent_text == "All done."
    (task, task_call), (command, command_call) = editor.calls.items()
    assert [question.tool_call_id for question, *_ in editor.questions] == [task, command]
    assert [task_call["status"], command_call["status"]] == ["completed", "completed"]
    assert (folder / "work" / "log.txt").read_text() == "hi\n"
