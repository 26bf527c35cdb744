"""What an odd or a hostile editor may send: it gets an error, and everything else goes on."""

import asyncio
import base64
import json
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from acp.schema import AgentCapabilities, AuthMethodAgent, InitializeResponse
from scripted_editor import AgentProcess, EndlessCommand, playbook

INITIALIZE = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1, "clientCapabilities": {}}}
COMMAND = [("shell", {"command": "echo hi >> log.txt"})]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path


class Wire:
    """Messages to and from the agent, as JSON. Whatever comes must be JSON-RPC, a message a line."""

    def __init__(self, process, reader, writer):
        self.process, self.reader, self.writer = process, reader, writer
        self.others = []

    async def send(self, *messages):
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
            self.writer.write(line + b"\n")
        await self.writer.drain()

    async def receive(self):
        async with asyncio.timeout(60):
            line = await self.reader.readline()
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    async def answer(self, number):
        """The answer to this request. What comes before is in `others`."""
        while True:
            for message in self.others:
                if "method" not in message and message["id"] == number:
                    self.others.remove(message)
                    return message
            self.others.append(await self.receive())

    async def request(self, method, **params):
        self.number = getattr(self, "number", 0) + 1
        await self.send({"id": self.number, "method": method, "params": params})
        return await self.answer(self.number)

    async def session(self, folder):
        answer = await self.request("session/new", cwd=str(folder / "work"), mcpServers=[])
        return answer["result"]["sessionId"]

    async def prompt(self, session, words="Go."):
        return await self.request("session/prompt", sessionId=session, prompt=[{"type": "text", "text": words}])


@asynccontextmanager
async def wire(folder, *turns, arguments=None, limit=256 * 1024 * 1024, **variables):
    model = ("--model", playbook(folder / "model.json", *turns)) if arguments is None else arguments
    process = AgentProcess(folder, *model, **variables)
    async with process.streams(limit) as (reader, writer):
        yield Wire(process, reader, writer)


def test_the_first_answer_says_what_the_agent_offers(folder):
    async def main():
        async with wire(folder, arguments=()) as one:
            await one.send(INITIALIZE)
            return (await one.answer(0))["result"]

    offer = InitializeResponse.model_validate(asyncio.run(main()))
    assert offer.protocol_version == 1
    assert isinstance(offer.agent_capabilities, AgentCapabilities)
    assert offer.agent_capabilities.load_session
    assert offer.agent_info.name == "toolspeak"
    (method,) = offer.auth_methods
    assert isinstance(method, AuthMethodAgent)


def test_the_first_answer_comes_before_the_agent_is_imported():
    program = """
import asyncio, json, sys
from toolspeak.acp.editor_connection import EditorConnection
import toolspeak.cli.server_commands.acp_command

class Lines:
    async def read(self):
        message, self.message = getattr(self, "message", %r), None
        return message
    async def write(self, line):
        print(json.loads(line)["result"]["protocolVersion"], *(each in sys.modules for each in ("pydantic", "rich")))

asyncio.run(EditorConnection(Lines(), None, lambda: None, has_model=True).serve())
"""
    message = json.dumps({"jsonrpc": "2.0", **INITIALIZE}).encode()
    process = subprocess.run([sys.executable, "-c", program % message], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["1", "False", "False"]


def test_without_a_model_a_session_asks_for_a_configuration(folder):
    async def main():
        async with wire(folder, arguments=()) as one:
            await one.send(INITIALIZE)
            login = await one.request("authenticate", methodId="configuration")
            return login, await one.request("session/new", cwd=str(folder / "work"), mcpServers=[])

    login, answer = asyncio.run(main())
    assert login["result"] == {}
    assert answer["error"]["code"] == -32000
    assert "--model openai:NAME" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b'{"method": "\\ud800"}', -32700),
        (b"[" * 100_000, -32600),
        (b'{"params": ' + b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "initialize"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 7}', -32600),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "initialize"}', -32602),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": {"protocolVersion": "one"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "nonsense/method", "params": {}}', -32601),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "session/prompt", "params": [1, 2]}', -32602),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "session/new", "params": {"cwd": "work"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "session/new", "params": {"cwd": "/no/such/folder"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "session/list", "params": {"cursor": "-1"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "session/load", "params": {"cwd": "/", "sessionId": "x"}}', -32002),
        (
            b'{"jsonrpc": "2.0", "id": 5, "method": "session/prompt", "params": {"sessionId": "x", "prompt": []}}',
            -32002,
        ),
    ],
)
def test_a_message_that_is_wrong_is_an_error_and_the_next_one_is_answered(folder, line, code):
    async def main():
        async with wire(folder, "Hi.") as one:
            await one.send(b"", line, INITIALIZE)
            error = await one.receive()
            answer = error if error.get("id") == 0 else await one.answer(0)
            if answer is error:
                error = await one.receive()
            return error, answer

    error, answer = asyncio.run(main())
    assert error["error"]["code"] == code
    assert error["error"]["message"]
    assert error["id"] == (5 if b'"id": 5' in line else None)
    assert answer["result"]["protocolVersion"] == 1


def test_notifications_are_never_answered(folder):
    async def main():
        async with wire(folder, "Hi.") as one:
            await one.send(
                {"method": "nonsense"},
                {"method": "$/cancel_request", "params": {"requestId": 3}},
                {"method": "session/cancel", "params": {"sessionId": "x"}},
                {"method": "session/cancel", "params": 7},
                {"id": 99, "result": {}},
                INITIALIZE,
            )
            return await one.receive()

    assert asyncio.run(main())["id"] == 0


@pytest.mark.over_a_second
def test_a_long_message_is_read_and_one_that_is_too_long_is_refused(folder):
    async def main():
        async with wire(folder, "Nice.") as one:
            await one.send(INITIALIZE)
            session = await one.session(folder)
            picture = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(bytes(30_000_000)).decode()}
            await one.send(
                {"id": 50, "method": "session/prompt", "params": {"sessionId": session, "prompt": [picture]}}
            )
            answer = await one.answer(50)
            await one.send(b'{"id": 51, "method": "' + b"x" * (65 * 1024 * 1024) + b'"}')
            return answer, await one.receive(), await one.request("session/list")

    answer, refusal, sessions = asyncio.run(main())
    assert answer["result"]["stopReason"] == "end_turn"
    assert "more than 67,108,864 bytes" in refusal["error"]["message"]
    assert len(sessions["result"]["sessions"]) == 1


def test_what_tools_and_the_model_print_stays_off_the_protocol(folder):
    async def main():
        noisy = [("shell", {"command": "echo noise; echo noise >&2; echo noise > /dev/tty"})]
        async with wire(folder, noisy, "Lone \ud800 surrogate.", arguments=None) as one:
            await one.send(INITIALIZE)
            session = await one.session(folder)
            await one.request("session/set_mode", sessionId=session, modeId="approve_all")
            answer = await one.prompt(session)
            return answer, one.others

    answer, others = asyncio.run(main())
    assert answer["result"]["stopReason"] == "end_turn"
    assert "surrogate." in str(others)


@pytest.mark.parametrize("closes", ["input", "output", "both"])
def test_an_agent_whose_editor_leaves_during_a_question_ends(folder, closes):
    async def main():
        async with wire(folder, COMMAND, "Done.") as one:
            await one.send(INITIALIZE)
            session = await one.session(folder)
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Go."}]}
            await one.send({"id": 9, "method": "session/prompt", "params": prompt})
            while (await one.receive()).get("method") != "session/request_permission":
                pass
            if closes != "input":
                one.process.output_transport.close()
            one.writer.close()
            return await one.process.wait(), one.process.errors.read_text()

    assert asyncio.run(main()) == (0, "")
    assert not (folder / "work" / "log.txt").exists()


def test_a_signal_ends_the_agent_and_its_commands(folder):
    async def main(command):
        async with wire(folder, [command.call], "Done.") as one:
            await one.send(INITIALIZE)
            session = await one.session(folder)
            await one.request("session/set_mode", sessionId=session, modeId="approve_all")
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Go."}]}
            await one.send({"id": 9, "method": "session/prompt", "params": prompt})
            await command.begins()
            one.process.command.send_signal(signal.SIGTERM)
            await command.ends()
            return await one.process.wait()

    with EndlessCommand(folder) as command:
        assert asyncio.run(main(command)) == 130


def test_too_many_requests_and_prompts_are_refused(folder):
    async def main():
        async with wire(folder, COMMAND, "Done.") as one:
            await one.send(INITIALIZE)
            session = await one.session(folder)
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Go."}]}
            await one.send(*({"id": 100 + i, "method": "session/prompt", "params": prompt} for i in range(20)))
            refusals = [await one.answer(number) for number in range(109, 120)]
            await one.send({"method": "session/cancel", "params": {"sessionId": session}})
            others = [await one.answer(number) for number in range(100, 109)]
            return refusals, others

    refusals, others = asyncio.run(main())
    assert all("prompts of this session wait already" in each["error"]["message"] for each in refusals)
    assert [each["result"]["stopReason"] for each in others] == ["cancelled"] * 9
