"""The `/` commands, attached files, and the configuration of the conversation."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path

import pytest
from chat_screen import calls, chat, reply, turn_behind_gate, user_hooks
from loopback_server import whole

from toolspeak.journal import open_journal

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    return place


def parts(person) -> list:
    """The parts of the last message that the model was sent."""
    content = json.loads(person.request())["messages"][-1]["content"]
    return [content] if isinstance(content, str) else content


def test_diff_and_undo_of_the_last_turn(monkeypatch, folder):
    async def main():
        (folder / "a.txt").write_text("one\n")
        arguments = json.dumps({"path": "b.txt", "content": "two\n"})
        async with chat(monkeypatch, folder, calls(("write", arguments)), reply("Done."), approve="all") as person:
            person.type("go\r")
            await person.until("Done.")
            await person.until_idle()
            person.type("/diff\r")
            await person.until("+two")
            person.type("/undo\r")
            await person.until("Take these changes back?")
            assert (folder / "b.txt").exists()
            person.type("y\r")
            await person.until("brings the changes back")
            assert not (folder / "b.txt").exists()
            assert (folder / "a.txt").read_text() == "one\n"

    asyncio.run(main())


def test_the_model_reads_which_files_were_taken_back_and_brought_back(monkeypatch, folder):
    async def main():
        arguments = json.dumps({"path": "b.txt", "content": "two\n"})
        answers = calls(("write", arguments)), reply("Done."), *(reply(f"Answer {number}.") for number in range(3))
        async with chat(monkeypatch, folder, *answers, approve="all", columns=200) as person:

            async def say(number: int) -> str:
                person.type(f"message {number}\r")
                await person.until(f"Answer {number}.")
                await person.until_idle()
                return json.dumps(parts(person))

            async def undo(name: str, end: str) -> None:
                person.type(f"/undo {name}\r")
                await person.until(lambda: any("these changes" in row for row in person.terminal.lines))
                person.type("y\r")
                await person.until(f"; /undo {end} ")

            person.type("go\r")
            await person.until("Done.")
            await person.until_idle()
            await undo("", "undo-1")
            assert "b.txt: gone" in await say(0)
            assert any("+ files that the user changed with undo" in row for row in person.terminal.everything)
            assert "undo" not in await say(1)
            await undo("undo-1", "undo-2")
            assert "b.txt: has another content now" in await say(2)

    asyncio.run(main())


@pytest.mark.parametrize(("name", "text"), [("talk.md", "## You"), ("talk.json", "toolspeak_session")])
def test_the_conversation_is_written_to_a_file(monkeypatch, folder, name, text):
    async def main():
        async with chat(monkeypatch, folder, reply("An answer.")) as person:
            person.type("a question\r")
            await person.until("An answer.")
            await person.until_idle()
            person.type(f"/export {name}\r")
            await person.until("written to")
            content = (folder / name).read_text()
            assert text in content
            assert "a question" in content
            assert "An answer." in content
            person.type(f"/export {name}\r")
            await person.until("is there already")
            assert (folder / name).read_text() == content

    asyncio.run(main())


def test_a_new_conversation_and_back_to_the_old_one(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, reply("First."), reply("Second."), reply("Third.")) as person:
            person.type("one\r")
            await person.until("First.")
            await person.until_idle()
            person.type("/new\r")
            await person.until("a new conversation begins")
            person.type("two\r")
            await person.until("Second.")
            await person.until_idle()
            assert "one" not in [message["content"] for message in json.loads(person.request())["messages"]]
            person.type("/sessions\r")
            await person.until("/sessions NUMBER continues one")
            person.type("/sessions 2\r")
            await person.until("goes on: one")
            person.type("three\r")
            await person.until("Third.")
            texts = [message["content"] for message in json.loads(person.request())["messages"]]
            assert texts[-3:] == ["one", "First.", "three"]

    asyncio.run(main())


def test_a_message_after_new_is_for_the_new_conversation_also_while_the_model_answers(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        async with chat(monkeypatch, folder, turn_behind_gate(gate, "First.\n\n"), reply("Second.")) as person:
            person.type("one\r")
            await person.until("First.")
            person.type("/new\r")
            await person.until("after this turn (Esc interrupts it): /new")
            person.type("two\r")
            await person.until("after this turn (Esc interrupts it): two")
            gate.set()
            await person.until("Second.")
            texts = [message["content"] for message in json.loads(person.request())["messages"]]
            assert "two" in texts
            assert "one" not in texts

    asyncio.run(main())


def test_a_conversation_of_another_folder_is_not_continued_here(monkeypatch, folder):
    async def main():
        other = folder.parent / "other"
        other.mkdir()
        async with chat(monkeypatch, other, reply("Hello.")) as first:
            first.type("hello\r")
            await first.until("Hello.")
            await first.until_idle()
        async with chat(monkeypatch, folder, reply("Hello."), columns=200) as second:
            journal = open_journal(str(folder.parent / "chat.db"))
            (session,) = [each.session_id for each in await journal.sessions()]
            await journal.aclose()
            for part in session[0], "1":  # it begins so; and the list of this folder is empty
                second.type(f"/sessions {part}\r")
                await second.until(f"/sessions {part}: there is no such number; this folder has 0 conversations")
            second.type(f"/sessions {session[:8]}\r")
            await second.until(f"this conversation is of {other}")
            second.type("hi\r")
            await second.until("Hello.")
            assert "hello" not in [message["content"] for message in json.loads(second.request())["messages"]]

    asyncio.run(main())


@pytest.mark.over_a_second
def test_the_conversation_that_was_used_last_is_continued_and_one_that_waits_is_named(monkeypatch, folder):
    """One that began before and was used later; and another one whose question nobody has answered."""

    async def main():
        write = calls(("write", json.dumps({"path": "b.txt", "content": "two\n"})))
        async with chat(monkeypatch, folder, write, reply("Done.")) as first:
            first.type("the first\r")
            await first.until("Run it?")
            async with chat(monkeypatch, folder, reply("Hello.")) as second:
                second.type("the second\r")
                await second.until("Hello.")
                await second.until_idle()
            first.type("y\r")
            await first.until("Done.")
            await first.until_idle()
        async with chat(monkeypatch, folder, write) as third:
            third.type("the third\r")
            await third.until("Run it?")
        async with chat(monkeypatch, folder, reply("Hello.")) as fourth:
            fourth.type("/sessions\r")
            await fourth.until("the third  (interrupted)")
            await fourth.until("/sessions NUMBER continues one")
            rows = [row for row in fourth.terminal.everything if "  the " in row and "third" not in row]
            assert [row.split("  ")[-1] for row in rows] == ["the first", "the second"]
            fourth.type("/sessions 9\r")
            await fourth.until("there is no such number; this folder has 3 conversations")
            fourth.type("the fourth\r")
            await fourth.until("Hello.")
            await fourth.until_idle()
        async with chat(monkeypatch, folder, reply("Yes."), continue_last=True) as fifth:
            await fifth.until("is interrupted, too: /sessions lists it")
            await fifth.until("goes on: the fourth")

    asyncio.run(main())


def test_hooks_add_to_queued_messages_and_leave_them_out(monkeypatch, folder, tmp_path):
    async def main():
        gate = asyncio.Event()
        answers = turn_behind_gate(gate, "Working", more=(".",)), reply("I saw it.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("begin\r")
            await person.until("Working")
            person.type("a secret\r")
            person.type("and hurry\r")
            await person.until("⧗ queued: and hurry")
            gate.set()
            await person.until("a UserPromptSubmit hook blocks your message `a secret`: no secrets")
            await person.until("I saw it.")
            await person.until_idle()
            rows = person.terminal.everything
            assert "› and hurry" in rows
            assert "› a secret" not in rows
            assert not any("queued" in row for row in rows)
            assert "and hurry" in person.request()
            assert "it is Friday" in person.request()
            assert "a secret" not in person.request()
            assert len(person.turns) == 2

    hook = "grep -q secret && { echo no secrets >&2; exit 2; }; echo it is Friday"
    user_hooks(monkeypatch, tmp_path, "UserPromptSubmit", hook)
    asyncio.run(main())


def test_settings_change_between_turns(monkeypatch, folder):
    async def main():
        gate = asyncio.Event()
        async with chat(monkeypatch, folder, turn_behind_gate(gate, "Wait. "), reply("Other.")) as person:
            person.type("go\r")
            await person.until("Wait.")
            person.type("/model openai:other\r")
            await person.until("after this turn (Esc interrupts it): /model openai:other")
            gate.set()
            await person.until("the model is openai:other")
            person.type("/approve nothing\r")
            await person.until("there is no 'nothing'")
            person.type("/approve none\r")
            await person.until("approves none")
            person.type("/dialect hermes\r")
            await person.until("written in: hermes")
            person.type("/dialect nonsense\r")
            await person.until("nonsense")
            person.type("again\r")
            await person.until("Other.")
            assert json.loads(person.request())["model"] == "other"
            assert "<tool_call>" in person.request()
            person.type("/cost\r")
            await person.until("this conversation:")
            person.type("/tools\r")
            await person.until("shell")
            person.type("/nonsens\r")
            await person.until("there is no command '/nonsens'")

    asyncio.run(main())


def test_the_models_of_the_server_are_listed_and_completed(monkeypatch, folder):
    async def main():
        names = ("coder-7b", "coder-32b", "writer")
        async with chat(monkeypatch, folder, reply("Yes."), models=names, model="") as person:
            await person.until("lists those of the server")
            person.type("/model\r")
            await person.until("the server has coder-32b, coder-7b, writer")
            person.type("/model coder-7\t\r")
            await person.until("the model is coder-7b")
            await person.until("the next conversation begins with it")
            person.type("/model openai:coder-8b\r")
            await person.until("! the server does not list it; it has coder-7b")
            person.type("/model openai:writer\r")
            await person.until("the model is openai:writer")
            person.type("hello\r")
            await person.until("Yes.")
            assert json.loads(person.request())["model"] == "writer"
            assert sum("does not list it" in row for row in person.terminal.everything) == 1

    asyncio.run(main())


def test_a_name_as_the_server_lists_it_is_a_model_of_the_same_provider(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, reply("Yes."), models=("m", "qwen3:8b"), model="openai:m") as person:
            person.type("/model qwen3:8b\r")
            await person.until("the model is openai:qwen3:8b")
            person.type("hello\r")
            await person.until("Yes.")
            assert json.loads(person.request())["model"] == "qwen3:8b"

    asyncio.run(main())


def test_an_undo_that_is_undone_says_that_the_changes_come_back(monkeypatch, folder):
    async def main():
        arguments = [json.dumps({"path": path, "content": "two\n"}) for path in ("b.txt", "c.txt")]
        answers = calls(*(("write", each) for each in arguments)), reply("Done.")
        async with chat(monkeypatch, folder, *answers, approve="all", rows=60) as person:
            person.type("go\r")
            await person.until("Done.")
            await person.until_idle()
            person.type("/diff\r")
            await person.until("+++ b/c.txt")
            rows = person.terminal.everything
            heads = [rows.index(f"  created  {name}  +1 -0") for name in ("b.txt", "c.txt")]
            assert heads[0] < heads[1] < rows.index("--- /dev/null")
            person.type("/undo\r")
            await person.until("Take these changes back?")
            person.type("y\r")
            await person.until("2 paths undone")
            person.type("/undo undo-1\r")
            await person.until("Make these changes again?")
            person.type("y\r")
            await person.until("2 paths restored")
            assert (folder / "b.txt").read_text() == "two\n"

    asyncio.run(main())


def test_a_message_in_place_of_an_answer_is_not_lost(monkeypatch, folder):
    async def main():
        arguments = json.dumps({"path": "b.txt", "content": "two\n"})
        async with chat(monkeypatch, folder, calls(("write", arguments)), reply("Done."), approve="all") as person:
            person.type("go\r")
            await person.until("Done.")
            await person.until_idle()
            person.type("/undo\r")
            await person.until("Take these changes back?")
            person.type("why did you write it?\r")
            await person.until("nothing was changed")
            await person.until("› why did you write it?")
            person.type("\x03")
            (folder / "b.txt").write_text("mine\n")
            person.type("/undo\r")
            await person.until("0 paths to undo")
            person.type("hello\r")
            await person.until("› hello")  # no question is open: it is a message
            assert (folder / "b.txt").read_text() == "mine\n"

    asyncio.run(main())


def test_what_goes_with_a_message_is_shown(monkeypatch, folder):
    async def main():
        (folder / "a.py").write_text("1\n2\n3\n")
        (folder / "dot.png").write_bytes(PIXEL)
        (folder / "lib" / "sub").mkdir(parents=True)
        (folder / "lib" / "b.py").touch()
        async with chat(monkeypatch, folder, reply("Seen.")) as person:
            person.type("@a.py @dot.png @lib\r")
            await person.until("Seen.")
            rows = [row.strip() for row in person.terminal.everything]
            assert "+ file a.py (3 lines)" in rows
            assert f"+ an image of {len(PIXEL)} bytes (image/png)" in rows
            assert "+ folder lib (2 lines)" in rows
            assert "b.py\\nsub/" in person.request()

    asyncio.run(main())


def test_lines_of_a_file_and_an_image_go_with_the_message(monkeypatch, folder):
    async def main():
        (folder / "a.py").write_text("".join(f"line {i}\n" for i in range(1, 31)))
        (folder / "dot.png").write_bytes(PIXEL)
        async with chat(monkeypatch, folder, reply("Seen.")) as person:
            person.type("look at @a.py:10-12, and @dot.png\r")
            await person.until("Seen.")
            text = json.dumps(parts(person))
            assert "line 10\\\\nline 12" not in text
            assert "line 10" in text
            assert "line 12" in text
            assert "line 13" not in text
            assert "image/png;base64" in text

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("@no/such.py", "there is no such file"),
        ("@big.txt", "attach some of its lines"),
        ("@a.py:40-50", "it has the lines 1 to 30"),
        ("@data.bin", "neither UTF-8 text"),
    ],
)
def test_a_file_that_cannot_go_along_is_said_and_the_message_is_kept(monkeypatch, folder, text, problem):
    async def main():
        (folder / "a.py").write_text("".join(f"line {i}\n" for i in range(1, 31)))
        (folder / "big.txt").write_text("x" * 100_000)
        (folder / "data.bin").write_bytes(b"\xff\xfe\x00")
        async with chat(monkeypatch, folder, reply("Seen.")) as person:
            person.type(f"look at {text}\r")
            await person.until(problem)
            await person.until(lambda: any(row.startswith(f"› look at {text}") for row in person.terminal.lines))
            assert person.server.exchanges == []

    asyncio.run(main())


def test_an_image_that_the_model_refuses_does_not_end_the_conversation(monkeypatch, folder):
    async def main():
        (folder / "dot.png").write_bytes(PIXEL)
        answers = reply("Hello."), whole("400 Bad Request", b'{"error": {"message": "no images"}}'), reply("Fine.")
        async with chat(monkeypatch, folder, *answers) as person:
            person.type("hi\r")
            await person.until("Hello.")
            await person.until_idle()
            person.type("look at @dot.png\r")
            await person.until("no images")
            await person.until("goes on without this message")
            person.type("\x15never mind\r")
            await person.until("Fine.")
            assert "data:image" not in person.request()
            assert "hi" in person.request()

    asyncio.run(main())


def test_a_project_configuration_is_shown_and_trusted_first(monkeypatch, folder):
    async def main():
        (folder / ".git").mkdir()
        (folder / ".toolspeak").mkdir()
        (folder / ".toolspeak" / "config.toml").write_text('instructions = "Speak like a pirate."\n')
        async with chat(monkeypatch, folder, reply("Arr."), idle=False) as person:
            await person.until("Speak like a pirate.")
            await person.until("Trust it, until its content changes?")
            person.type("y\r")
            await person.until_idle()
            person.type("hi\r")
            await person.until("Arr.")
            assert "Speak like a pirate." in person.request()

    asyncio.run(main())


def test_an_mcp_server_asks_the_person_during_a_call(monkeypatch, folder):
    monkeypatch.setenv("PATH", str(folder))  # a machine without an editor
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    look = {
        "name": "look",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    offer = {"tools/list": {"tools": [look]}, "asks": {"message": "Who are you?", "requestedSchema": schema}}
    offer_server(folder, offer)

    async def main():
        answers = (calls(("s__look", "{}")), reply("Thanks."))
        async with chat(monkeypatch, folder, *answers, mcp=str(folder / "mcp.json")) as person:
            person.type("look\r")
            await person.until("Who are you?")
            await person.until("Run it?")
            person.type("e\r")
            await person.until("Arguments: ")
            person.type('\x01\x0b{"name": "Ann"}\r')
            await person.until('name: "Ann"')
            person.type("y\r")
            await person.until("Thanks.")
            assert json.loads((folder / "answers").read_text()) == {"action": "accept", "content": {"name": "Ann"}}

    asyncio.run(main())


def offer_server(folder: Path, offer: dict) -> None:
    """Writes the file of a server that offers this."""
    (folder / "offer.json").write_text(json.dumps(offer))
    server = str(Path(__file__).parents[1] / "mcp" / "offering_server.py")
    entry = {"mcpServers": {"s": {"command": sys.executable, "args": [server, str(folder)]}}}
    (folder / "mcp.json").write_text(json.dumps(entry))


def test_a_prompt_of_an_mcp_server_is_a_command_whose_text_attaches_no_file(monkeypatch, folder):
    (folder / "secret.txt").write_text("the secret")
    text = {"type": "text", "text": "Review a.py. @secret.txt \x1b[2J"}
    fields = [{"name": "file", "required": True}]
    offer = {
        "capabilities": {"prompts": {}},
        "tools/list": {"tools": []},
        "prompts/list": {"prompts": [{"name": "review", "description": "Reviews.", "arguments": fields}]},
        "prompts/get": {"messages": [{"role": "user", "content": text}]},
    }
    offer_server(folder, offer)

    async def main():
        async with chat(monkeypatch, folder, reply("Looks good."), mcp=str(folder / "mcp.json")) as person:
            person.type("/prompts\r")
            await person.until("/s__review file=…")
            person.type("/s__review\r")
            await person.until("file is missing")
            person.type("/s__other x\r")
            await person.until("there is no command")
            person.type("/s__review a.py\r")
            await person.until("Looks good.")
            assert "Review a.py. @secret.txt" in json.dumps(parts(person))
            assert "the secret" not in person.request()

    asyncio.run(main())


def test_a_model_that_the_server_does_not_have_chooses_no_dialect_and_the_way_back_is_named(monkeypatch, folder):
    async def by_model(exchange):
        is_there = exchange.json["model"] == "m"
        await (reply("Here I am.") if is_there else whole("404 Not Found", b'{"error": {"message": "no such model"}}'))(
            exchange
        )

    async def main():
        async with chat(monkeypatch, folder, by_model, dialect="auto", columns=120) as person:
            person.type("hello\r")
            await person.until("Here I am.")
            await person.until_idle()
            status = person.terminal.lines[-1]
            assert " · openai:m · " in status
            person.type("/model openai:nope\r")
            await person.until("the model is openai:nope")
            person.type("again\r")
            await person.until("no such model")
            await person.until("· /model openai:m goes back to the model before")
            await person.until_idle()
            assert person.terminal.lines[-1].startswith("your turn · openai:nope · ")
            assert not any(each in person.terminal.lines[-1] for each in ("cogency", "native"))
            person.type("/model openai:m\r")
            await person.until("the model is openai:m")
            person.type("once more\r")
            await person.until(lambda: sum("Here I am." in row for row in person.terminal.everything) == 2)
            await person.until_idle()
            settings = [row.split(" · ") for row in (status, person.terminal.lines[-1])]
            assert len({tuple(each for each in row if "token" not in each) for row in settings}) == 1

    asyncio.run(main())


def test_the_tools_of_programs_are_listed_too(monkeypatch, folder):
    async def main():
        async with chat(monkeypatch, folder, reply("Yes."), code_mode="yes", rows=60) as person:
            person.type("/tools\r")
            await person.until("a program of run_code can call these, besides:")
            await person.until("shell  Run a command line")
            rows = person.terminal.everything
            start = next(number for number, row in enumerate(rows) if "a program of run_code" in row)
            assert any(row.startswith("run_code  Run a Python program") for row in rows[:start])
            assert any("instead of many turns." in row for row in rows[:start])
            names = {row.split("  ")[0] for row in rows[start + 1 :] if row[:1].isalpha()}
            assert {"read", "write", "edit", "shell", "find"} <= names
            assert "todo" not in names

    asyncio.run(main())
