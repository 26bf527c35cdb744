"""`toolspeak mcp serve`: processes that a client starts, kills and starts again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_clients import YES, Person, client_of, client_of_command, command, text_of
from terminal_harness import TerminalProcess

from forked_commands import Command, completed_text
from toolspeak.tools.builtin import WORKSPACE_TOOLS

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}

SHOP = '''
import asyncio, os
from pathlib import Path
from toolspeak import Agent, Effects, tool
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

LOG = Path(os.environ["SHOP_LOG"])

def note(line: str) -> None:
    with LOG.open("a") as file:
        file.write(line + "\\n")

@tool(effects=Effects(writes={"shop:"}))
def order(item: str) -> str:
    """Orders an item."""
    print("a tool that prints")
    note(f"order {item}")
    return f"ordered {item}"

@tool(read_only=True, timeout=None)
async def hangs() -> str:
    """Never ends."""
    note("hangs")
    await asyncio.Event().wait()
    return "never"

@tool(read_only=True)
def prints_much() -> str:
    """Returns much."""
    return "x" * 15_000

@tool(effects=Effects(writes={"shop:"}))
def dies(item: str) -> str:
    """Takes effect, and ends the process."""
    note(f"dies {item}")
    if len(LOG.read_text().splitlines()) == 1:
        os._exit(9)
    return "it lives"

tools = [order, hangs, dies, prints_much]
turns = [ScriptedTurn("", calls=[ScriptedCall("order", {"item": "pear"})]), "The pear is ordered."]
buyer = Agent(
    ScriptedProvider(turns, follow=True), [order], name="buyer", description="Buys.", journal=SqliteJournal("runs.db")
)
'''


class Server:
    """The command, to which a test writes messages of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self.process = Command(
            ["mcp", "serve", "--journal", str(folder / "calls.db"), *arguments],
            cwd=folder,
            env=environment(folder),
            streams=(theirs_in, theirs_out, 2),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.input, self.output = os.fdopen(ours_out, "wb", buffering=0), os.fdopen(ours_in, "rb")

    def send(self, number: int | str, method: str, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": META, **params}}
        self.input.write(json.dumps(message).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        """The next message; {} once the process has ended."""
        return json.loads(self.output.readline() or b"{}")

    def call(self, number: int, name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
        self.send(number, "tools/call", name=name, arguments=arguments, **more)
        return self.answer()

    def end(self) -> int:
        """Closes its input. Returns the exit code."""
        self.input.close()
        try:
            return self.process.wait(60)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self.input.close()
        self.output.close()


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "SHOP_LOG": str(folder / "log"), "TOOLSPEAK_JOURNAL": str(folder / "calls.db")}


def log(folder: Path) -> list[str]:
    path = folder / "log"
    return path.read_text("utf-8").splitlines() if path.exists() else []


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    return tmp_path


def text(answer: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in answer["result"]["content"])


def test_an_agents_run_that_waits_goes_on_in_another_process_after_a_kill(shop):
    first = Server(shop, "--agent", "shop.py:buyer")
    question = first.call(1, "buyer", {"task": "Buy a pear."})["result"]
    assert question["resultType"] == "input_required"
    first.kill()
    yes = {key: {"action": "accept", "content": YES} for key in question["inputRequests"]}
    more = {"requestState": question["requestState"], "inputResponses": yes}
    second = Server(shop, "--agent", "shop.py:buyer")
    assert text(second.call(1, "buyer", {"task": "Buy a pear."}, **more)) == "The pear is ordered."
    assert text(second.call(2, "buyer", {"task": "Buy a pear."}, **more)) == "The pear is ordered."
    other_task = second.call(3, "buyer", {"task": "Buy a house."}, **more)
    assert "invalid request state" in other_task["error"]["message"]
    assert second.end() == 0
    assert log(shop) == ["order pear"]


def test_a_call_in_doubt_after_a_kill_is_asked_about_and_not_repeated(shop):
    own_id = {**META, "toolspeak/call-id": "mine"}
    first = Server(shop, "--tools", "shop.py:tools")
    question = first.call(1, "dies", {"item": "x"}, _meta=own_id)["result"]
    yes = {key: {"action": "accept", "content": YES} for key in question["inputRequests"]}
    more = {"requestState": question["requestState"], "inputResponses": yes}
    assert first.call(2, "dies", {"item": "x"}, **more) == {}
    first.kill()
    second = Server(shop, "--tools", "shop.py:tools")
    # The old answer does not count for the question whether it may run again.
    question = second.call(1, "dies", {"item": "x"}, **more)["result"]
    assert question["resultType"] == "input_required"
    ((key, form),) = question["inputRequests"].items()
    assert key not in yes
    assert "started" in form["params"]["message"]
    no = {key: {"action": "decline"}}
    refusal = second.call(2, "dies", {"item": "x"}, requestState=question["requestState"], inputResponses=no)
    assert refusal["result"]["isError"]
    assert second.end() == 0
    assert log(shop) == ["dies x"]


def test_a_request_that_is_sent_twice_runs_once_and_prints_do_not_touch_the_messages(shop):
    server = Server(shop, "--tools", "shop.py:tools", "--approve", "all")
    answers = [server.call(7, "order", {"item": "fig"}) for _ in range(2)]
    assert [text(each) for each in answers] == ["ordered fig"] * 2
    server.send("7", "tools/call", name="order", arguments={"item": "fig"})  # another id
    assert text(server.answer()) == "ordered fig"
    assert server.end() == 0
    assert log(shop) == ["order fig"] * 2


@pytest.mark.parametrize("answer", [{"action": 7}, {}, {"action": "accept", "content": {"approve": "yes"}}])
def test_an_odd_answer_of_an_older_client_approves_nothing(answer, shop):
    server = Server(shop, "--tools", "shop.py:tools")
    about = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "odd", "version": "1"}}
    server.send(1, "initialize", **about, capabilities={"elicitation": {}}, _meta={})
    assert server.answer()["result"]["protocolVersion"] == "2025-11-25"
    server.input.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    server.send(2, "tools/call", name="order", arguments={"item": "fig"}, _meta={})
    while (message := server.answer()).get("method") == "elicitation/create":
        line = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
        server.input.write(json.dumps(line).encode() + b"\n")
    assert message["id"] == 2
    assert message["result"]["isError"]
    assert server.end() == 0
    assert log(shop) == []


def test_what_is_no_message_ends_nothing(shop):
    server = Server(shop, "--tools", "shop.py:tools", "--approve", "all")
    for line in (b"x" * 50_000_000, b"\xff\xfe\0", b"[]", b"{", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": 1}'):
        server.input.write(line + b"\n")
    server.send("after", "tools/call", name="order", arguments={"item": "fig"})
    answer: dict[str, Any] = {}
    while answer.get("id") != "after":
        answer = server.answer()
        assert answer, "the server has ended"
    assert text(answer) == "ordered fig"
    peak = Path(f"/proc/{server.process.pid}/status")
    if peak.exists():
        kilobytes = int(peak.read_text().partition("VmHWM:")[2].split()[0])
        assert kilobytes < 400_000
    assert server.end() == 0


def test_a_client_that_leaves_during_a_call_leaves_no_process_behind(shop):
    server = Server(shop, "--tools", "shop.py:tools")
    server.send(1, "tools/call", name="hangs", arguments={})
    while not log(shop):
        assert server.process.poll() is None
    assert server.end() == 0
    listing = completed_text(["sessions", "--json"], cwd=shop, env=environment(shop))
    assert "running" not in listing.stdout


@pytest.mark.over_a_second
def test_a_client_that_does_not_read_holds_nothing_up_when_it_leaves(shop):
    server = Server(shop, "--tools", "shop.py:tools")
    for number in range(100):
        server.send(number, "tools/call", name="prints_much", arguments={})
    server.send(1000, "tools/call", name="hangs", arguments={})
    while not log(shop):
        assert server.process.poll() is None
    server.output.close()
    assert server.end() in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--http", "0.0.0.0:0"], "there are no API keys"),
        (["--http", "8666"], "write HOST:PORT"),
        (["--api-keys", "keys"], "are for --http"),
        (["--tools", "nothing.py:tools"], "nothing.py"),
        (["--agent", "shop.py:nobody"], "nobody"),
    ],
)
def test_a_wrong_option_is_named(arguments, problem, shop):
    process_result = completed_text(["mcp", "serve", *arguments], cwd=shop, env=environment(shop))
    assert process_result.returncode == 2
    assert problem in process_result.stderr
    assert "Traceback" not in process_result.stderr


@pytest.mark.over_a_second
def test_the_built_in_tools_over_http_with_keys_write_and_undo(tmp_path):
    (tmp_path / "keys").write_text("key-of-a-client-1234\n", "utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "toolspeak", "mcp", "serve", "--http", "127.0.0.1:0", "--api-keys", "keys"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        while "http://" not in (line := process.stderr.readline()):
            assert line, "it has ended"
        url = f"http://{line.rpartition('http://')[2].strip()}"

        async def main() -> None:
            async with client_of(url, key="key-of-a-client-1234", elicitation_callback=Person(YES)) as client:
                names = [each.name for each in (await client.list_tools()).tools]
                assert names == list(WORKSPACE_TOOLS)
                assert not (await client.call_tool("write", {"path": "a.txt", "content": "one\n"})).is_error
                again = {"path": "a.txt", "content": "two\n", "overwrite": True}
                assert not (await client.call_tool("write", again)).is_error  # the client knows the file
                assert "two" in text_of(await client.call_tool("read", {"path": "a.txt"}))

        asyncio.run(main())
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert (tmp_path / "a.txt").read_text() == "two\n"
    undo_result = completed_text(["undo", "--yes"], cwd=tmp_path, env=environment(tmp_path))
    assert undo_result.returncode == 0, undo_result.stderr


@pytest.mark.over_a_second
def test_the_sdks_client_starts_the_command(shop):
    person = Person(YES)

    async def main() -> None:
        parameters = command("--tools", "shop.py:order", "--journal", "none", env=environment(shop), cwd=shop)
        async with client_of_command(parameters, "legacy", elicitation_callback=person) as client:
            assert text_of(await client.call_tool("order", {"item": "plum"})) == "ordered plum"

    asyncio.run(main())
    assert log(shop) == ["order plum"]


def test_whoever_starts_it_at_a_terminal_reads_what_it_is_for_and_ends_it(shop):
    with TerminalProcess("mcp", "serve", "--tools", "shop.py:tools", cwd=shop, env=environment(shop)) as process:
        process.read_until("a client starts this command")
        process.read_until("Ctrl-C ends it.")
        process.signal(signal.SIGINT)
        code, screen = process.finish()
    assert code == 130
    assert "Traceback" not in screen
