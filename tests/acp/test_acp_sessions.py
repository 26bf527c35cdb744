"""Sessions of an editor: loaded again after a crash, cancelled, forked, listed, closed and deleted."""

import asyncio
import json
import signal

import pytest
from acp import RequestError
from loopback_server import STREAM_HEAD, event, http_chunks, says, serve, stream, until_client_leaves, whole
from scripted_editor import EndlessCommand, ScriptedEditor, connection, playbook, text

COMMAND = ("shell", {"command": "echo hi >> log.txt"})


MODELS = {"one": [[COMMAND], "I am one."], "two": ["", "", "I am two."]}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\ntwo\n")
    return tmp_path


async def new_session(agent, folder):
    return (await agent.new_session(cwd=str(folder / "work"), mcp_servers=[])).session_id


def test_a_cancelled_command_is_killed_and_the_session_goes_on(folder):
    async def main(command):
        editor = ScriptedEditor("allow_once")
        name, arguments = command.call
        turn_with_text = {"text": "I wait.", "calls": [{"name": name, "arguments": arguments}]}
        model = playbook(folder / "model.json", turn_with_text, "{{last}}")
        async with connection(editor, folder, "--model", model) as (agent, _):
            session = await new_session(agent, folder)
            turn = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Go.")))
            second = asyncio.create_task(agent.prompt(session_id=session, prompt=text("And then?")))
            await command.begins()
            await agent.cancel(session_id=session)
            assert [(await turn).stop_reason, (await second).stop_reason] == ["cancelled", "cancelled"]
            await command.ends()
            assert [call["status"] for call in editor.calls.values()] == ["failed"]
            answer = await agent.prompt(session_id=session, prompt=text("What happened?"))
            assert answer.stop_reason == "end_turn"
        return editor

    with EndlessCommand(folder) as command:
        editor = asyncio.run(main(command))
    assert editor.agent_text.startswith("I wait.")


@pytest.mark.parametrize("capabilities", ["load", "resume"])
def test_a_question_that_a_killed_process_asked_is_asked_again(folder, capabilities):
    async def main():
        model = playbook(folder / "model.json", "Hello.", [COMMAND], "Done.", "You are welcome.")
        first = ScriptedEditor()
        async with connection(first, folder, "--model", model, ends=False) as (agent, process):
            session = await new_session(agent, folder)
            await agent.prompt(session_id=session, prompt=text("Hello?"))
            turn = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Go.")))
            await first.until(lambda: first.questions)
            process.command.send_signal(signal.SIGKILL)
            with pytest.raises(ConnectionError):
                await turn
        second = ScriptedEditor("allow_once")
        async with connection(second, folder, "--model", model) as (agent, _):
            again = {"load": agent.load_session, "resume": agent.resume_session}[capabilities]
            state = await again(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
            assert state.modes.current_mode_id == "ask"
            await second.until(lambda: second.agent_text.endswith("Done."))
            await agent.prompt(session_id=session, prompt=text("Thanks."))
        return first, second

    first, second = asyncio.run(main())
    assert (folder / "work" / "log.txt").read_text() == "hi\n"
    assert len(second.questions) == 1
    assert first.questions[0][2]["toolspeak"]["digest"] == second.questions[0][2]["toolspeak"]["digest"]
    assert first.questions[0][0].tool_call_id == second.questions[0][0].tool_call_id
    assert [call["status"] for call in second.calls.values()] == ["completed"]
    replay = [update.content.text for update in second.of("user_message_chunk")]
    assert replay == (["Hello?", "Go."] if capabilities == "load" else [])
    assert second.agent_text.startswith("Hello." if capabilities == "load" else "Done.")


def test_a_command_of_a_killed_process_is_a_question_and_the_message_is_added(folder):
    async def main(command):
        model = playbook(folder / "model.json", [command.call], "It was not run again.")
        first = ScriptedEditor("allow_once")
        async with connection(first, folder, "--model", model, ends=False) as (agent, process):
            session = await new_session(agent, folder)
            turn = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Go.")))
            await command.begins()
            process.command.send_signal(signal.SIGKILL)
            with pytest.raises(ConnectionError):
                await turn
        second = ScriptedEditor("reject_once")
        async with connection(second, folder, "--model", model, "--mode", "approve_all") as (agent, _):
            await agent.load_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
            await second.until(lambda: "was interrupted" in second.agent_text)
            assert second.questions == []
            await agent.prompt(session_id=session, prompt=text("Go on."))
            third = ScriptedEditor()
            async with connection(third, folder, "--model", model) as (reader, _):
                await reader.load_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
        return second, third

    with EndlessCommand(folder) as command:
        second, third = asyncio.run(main(command))
    assert "may have taken effect" in second.questions[0][0].content[0].content.text
    assert second.agent_text.endswith("It was not run again.")
    assert [update.content.text for update in third.of("user_message_chunk")] == ["Go.", "Go on."]
    assert third.agent_text == "It was not run again."


def test_an_editor_that_leaves_during_a_question_leaves_it_open(folder):
    async def main():
        model = playbook(folder / "model.json", [COMMAND], "Done.")
        first = ScriptedEditor()
        async with connection(first, folder, "--model", model) as (agent, _):
            session = await new_session(agent, folder)
            turn = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Go.")))
            await first.until(lambda: first.questions)
        with pytest.raises(ConnectionError):
            await turn
        second = ScriptedEditor("reject_once")
        async with connection(second, folder, "--model", model) as (agent, _):
            await agent.load_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
            await second.until(lambda: second.agent_text.endswith("Done."))

    asyncio.run(main())
    assert not (folder / "work" / "log.txt").exists()


def test_two_editors_do_not_work_on_one_session_at_the_same_time(folder):
    async def main():
        model = playbook(folder / "model.json", [COMMAND], "Done.", "And more.")
        first, second = ScriptedEditor(), ScriptedEditor()
        async with connection(first, folder, "--model", model) as (one, _):
            session = await new_session(one, folder)
            turn = asyncio.create_task(one.prompt(session_id=session, prompt=text("Go.")))
            await first.until(lambda: first.questions)
            async with connection(second, folder, "--model", model) as (other, _):
                await other.load_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
                await second.until(lambda: "Another process" in second.agent_text)
                with pytest.raises(RequestError, match=r"process \d+ of this machine works on this session"):
                    await other.prompt(session_id=session, prompt=text("Me too."))
                await first.answer("allow_once")
                assert (await turn).stop_reason == "end_turn"
                answer = await other.prompt(session_id=session, prompt=text("Now me."))
        return second, answer

    second, answer = asyncio.run(main())
    assert answer.stop_reason == "end_turn"
    assert second.questions == []
    assert second.agent_text.endswith("And more.")


def test_sessions_are_listed_forked_closed_and_deleted(folder):
    (folder / "other").mkdir()

    async def main():
        model = playbook(folder / "model.json", [("read", {"path": "a.txt"})], "One.", "Two.", follow=True)
        editor = ScriptedEditor()
        async with connection(editor, folder, "--model", model) as (agent, _):
            session = await new_session(agent, folder)
            assert (await agent.list_sessions()).sessions == []  # nothing was said
            await agent.prompt(session_id=session, prompt=text("First."))
            (row,) = (await agent.list_sessions(cwd=str(folder / "work"))).sessions
            assert (row.session_id, row.cwd, row.title) == (session, str(folder / "work"), "First.")
            assert (await agent.list_sessions(cwd=str(folder / "other"))).sessions == []
            fork = (await agent.fork_session(cwd=str(folder / "work"), session_id=session, mcp_servers=[])).session_id
            await agent.prompt(session_id=fork, prompt=text("Second."))
            assert editor.agent_text == "One.Two."
            await agent.load_session(cwd=str(folder / "work"), session_id=fork, mcp_servers=[])
            assert [update.content.text for update in editor.of("user_message_chunk")] == ["First.", "Second."]
            assert [call["status"] for call in editor.calls.values()] == ["completed", "completed"]
            assert len((await agent.list_sessions()).sessions) == 2
            await agent.close_session(session_id=fork)
            with pytest.raises(RequestError, match="is not open here"):
                await agent.prompt(session_id=fork, prompt=text("Still there?"))
            await agent._conn.send_request("session/delete", {"sessionId": fork})
            assert [each.session_id for each in (await agent.list_sessions()).sessions] == [session]
            with pytest.raises(RequestError, match="there is no session"):
                await agent.load_session(cwd=str(folder / "work"), session_id=fork, mcp_servers=[])

    asyncio.run(main())


def test_a_model_that_is_chosen_during_a_turn_answers_the_next_one(folder):
    async def main():
        first, second = (playbook(folder / f"{name}.json", *turns) for name, turns in MODELS.items())
        editor = ScriptedEditor()
        async with connection(editor, folder, "--model", first, "--model", second) as (agent, _):
            session = await new_session(agent, folder)
            turn = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Go.")))
            await editor.until(lambda: editor.questions)
            await agent.set_config_option(session_id=session, config_id="model", value=second)
            await agent.set_session_mode(session_id=session, mode_id="plan")
            await editor.answer("allow_once")
            await turn
            await agent.prompt(session_id=session, prompt=text("And now?"))
        return editor

    editor = asyncio.run(main())
    assert editor.agent_text == "I am one.I am two."
    assert (folder / "work" / "log.txt").read_text() == "hi\n"  # the question was asked in the mode before


def test_a_session_keeps_the_model_that_was_chosen(folder):
    async def main():
        first, second = (playbook(folder / f"{name}.json", f"I am {name}.") for name in ("one", "two"))
        editor = ScriptedEditor()
        arguments = ("--model", first, "--model", second)
        async with connection(editor, folder, *arguments) as (agent, _):
            state = await agent.new_session(cwd=str(folder / "work"), mcp_servers=[])
            (model,) = [option for option in state.config_options if option.id == "model"]
            assert (model.current_value, [each.value for each in model.options]) == (first, [first, second])
            changes = {"session_id": state.session_id, "config_id": "model"}
            with pytest.raises(RequestError, match="nonsense"):
                await agent.set_config_option(**changes, value="nonsense:x")
            await agent.set_config_option(**changes, value=second)
            await agent.prompt(session_id=state.session_id, prompt=text("Who are you?"))
            await agent.load_session(cwd=str(folder / "work"), session_id=state.session_id, mcp_servers=[])
            await agent.prompt(session_id=state.session_id, prompt=text("/model"))
        return editor

    editor = asyncio.run(main())
    assert editor.agent_text.startswith("I am two.")
    assert f"The model is `scripted:{folder / 'two.json'}`" in editor.agent_text


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_session_keeps_the_mode_that_was_chosen(folder, moment):
    async def main():
        model = playbook(folder / "model.json", [COMMAND], "Done.")
        first, second, third = ScriptedEditor(), ScriptedEditor(), ScriptedEditor()
        async with connection(first, folder, "--model", model, "--mode", "accept_edits") as (agent, _):
            session = await new_session(agent, folder)
            changes = {"session_id": session, "mode_id": "plan"}
            if moment == "before":
                await agent.set_session_mode(**changes)
            turn = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Go.")))
            if moment != "before":
                await first.until(lambda: first.questions)
            if moment == "during":
                await agent.set_session_mode(**changes)
            await first.answer("allow_once")
            await turn
            if moment == "after":
                await agent.set_session_mode(**changes)
        async with connection(second, folder, "--model", model, "--mode", "approve_all") as (agent, _):
            state = await agent.load_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
            assert state.modes.current_mode_id == "plan"
            fork = await agent.fork_session(cwd=str(folder / "work"), session_id=session, mcp_servers=[])
            assert fork.modes.current_mode_id == "plan"
            await agent.set_session_mode(session_id=session, mode_id="approve_all")
        async with connection(third, folder, "--model", model) as (agent, _):
            state = await agent.resume_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
            assert state.modes.current_mode_id == "approve_all"

    asyncio.run(main())


def test_a_mode_that_nobody_chose_is_not_kept(folder):
    async def main():
        model = playbook(folder / "model.json", "Hello.")
        async with connection(ScriptedEditor(), folder, "--model", model, "--mode", "approve_all") as (agent, _):
            session = await new_session(agent, folder)
            await agent.prompt(session_id=session, prompt=text("Hello?"))
        async with connection(ScriptedEditor(), folder, "--model", model) as (agent, _):
            state = await agent.load_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
            assert state.modes.current_mode_id == "ask"

    asyncio.run(main())


def test_a_cancelled_answer_stays_in_the_conversation(folder):
    async def main():
        pieces = [event(says(words)) for words in ("The first planet ", "is Mercury.")]
        beginning = [STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks(pieces)]
        finish = stream(event(says("Venus.", "stop")), event("[DONE]"))
        async with serve(until_client_leaves(lambda: server, *beginning), finish) as server:
            editor = ScriptedEditor()
            variables = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}
            async with connection(editor, folder, "--model", "openai:any", "--dialect", "native", **variables) as (
                agent,
                _,
            ):
                session = await new_session(agent, folder)
                turn = asyncio.create_task(agent.prompt(session_id=session, prompt=text("Name the planets.")))
                await editor.until(lambda: "Mercury" in editor.agent_text)
                await agent.cancel(session_id=session)
                assert (await turn).stop_reason == "cancelled"
                await agent.prompt(session_id=session, prompt=text("Go on."))
                await agent.load_session(cwd=str(folder / "work"), mcp_servers=[], session_id=session)
            turns = [each for each in server.exchanges if each.request_line.startswith("POST")]
            return editor, [(each["role"], each["content"]) for each in turns[-1].json["messages"]]

    editor, messages = asyncio.run(main())
    conversation = [("user", "Name the planets."), ("assistant", "The first planet is Mercury."), ("user", "Go on.")]
    assert messages[-3:] == conversation
    assert editor.agent_text == "The first planet is Mercury.Venus." * 2


def test_usage_is_shown_with_the_window_that_the_server_gives_the_model(folder):
    async def main():
        answer = stream(event({**says("Hi.", "stop"), "usage": {"prompt_tokens": 90, "completion_tokens": 10}}))
        models = whole("200 OK", json.dumps({"data": [{"id": "m", "max_model_len": 4096}]}).encode())
        async with serve(answer, models, answer) as server:
            editor = ScriptedEditor()
            variables = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}
            arguments = ("--model", "openai:m", "--dialect", "native")
            async with connection(editor, folder, *arguments, **variables) as (agent, _):
                session = await new_session(agent, folder)
                for words in ("Hello?", "And?"):
                    await agent.prompt(session_id=session, prompt=text(words))
        return editor

    editor = asyncio.run(main())
    assert [(update.used, update.size) for update in editor.of("usage_update")] == [(100, 4096)] * 2
