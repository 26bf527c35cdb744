"""The sandbox of MCP servers and of workers, and a model that tries every way out in one run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from escape_attempts import ATTEMPTS, MARK, SECRET, EscapeStage
from sandbox_levels import problem_with

from toolspeak.data.codec import loads
from toolspeak.data.events import Record, ToolFinished, ToolStarted
from toolspeak.errors import ConfigurationError, McpError
from toolspeak.journal import SqliteJournal
from toolspeak.mcp import McpServers, ServerSandbox, StdioServer, confine_servers, read_servers

pytestmark = pytest.mark.skipif(
    bool(problem_with("bubblewrap") and problem_with("landlock")),
    reason=f"{problem_with('bubblewrap')}; {problem_with('landlock')}",
)

SERVER = '''
import sys
from mcp.server import MCPServer

server = MCPServer("notes")

@server.tool()
def write(path: str, text: str) -> str:
    """Writes a file."""
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        return f"failed: {error.strerror}"
    return "written"

server.run()
'''


def server_in(folder: Path, sandbox: object) -> Path:
    (folder / "server.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": [str(folder / "server.py")], "cwd": str(folder)}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"notes": entry if sandbox is None else {**entry, "sandbox": sandbox}}}))
    return file


async def write(servers: tuple, *paths: Path) -> list[str]:
    async with McpServers(servers) as connections:
        tool = connections.tools.get("notes__write")
        assert tool is not None
        texts: list[str] = []
        for path in paths:
            answer = await tool.function({"path": str(path), "text": "new"})
            texts.append(str(answer))
        return [tool.boundary, *texts]


@pytest.mark.over_a_second
def test_a_server_changes_what_its_entry_names(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    servers = read_servers(server_in(tmp_path, {"writable": ["notes"]}))
    level, inside, outside = asyncio.run(write(servers, tmp_path / "notes" / "a", tmp_path / "b"))
    assert level in ("bubblewrap", "landlock")
    assert "written" in inside
    assert "failed" in outside
    assert [(tmp_path / "notes" / "a").exists(), (tmp_path / "b").exists()] == [True, False]


@pytest.mark.over_a_second
@pytest.mark.parametrize(("entry", "is_required", "is_held"), [
    (None, False, False), (None, True, True), (True, False, True), (False, True, False),
])  # fmt: skip
def test_an_entry_says_whether_there_is_a_sandbox(tmp_path: Path, entry: object, is_required: bool, is_held: bool):
    servers = read_servers(server_in(tmp_path, entry))
    level, text = asyncio.run(write(confine_servers(servers) if is_required else servers, tmp_path / "a"))
    assert (level != "none", "failed" in text) == (is_held, is_held)


@pytest.mark.parametrize("entry", ["yes", {"allow": []}, {"writable": "."}, {"allowNet": ["http://a.example"]}])
def test_a_mistake_in_an_entry_names_the_place(tmp_path: Path, entry: object):
    with pytest.raises(ConfigurationError, match=r"mcp\.json: mcpServers\.notes\.sandbox"):
        read_servers(server_in(tmp_path, entry))


def test_a_server_whose_sandbox_cannot_be_kept_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    key_folder = tmp_path / "home" / ".ssh"
    key_folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no `bwrap`
    if problem_with("landlock"):
        pytest.skip(problem_with("landlock"))
    (tmp_path / "server.py").write_text(SERVER)
    sandbox = ServerSandbox(writable=(str(tmp_path / "home"),))
    server = StdioServer("notes", sys.executable, (str(tmp_path / "server.py"),), {}, str(tmp_path), sandbox)
    with pytest.raises(McpError, match="Landlock cannot keep it"):
        asyncio.run(write((server,), tmp_path / "a"))


AGENTS = """
import json, os
from toolspeak import Agent
from toolspeak.journal import SqliteJournal
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.testing import ScriptedCall, ScriptedTurn
from toolspeak.tools.builtin import workspace_tools

folder = os.environ["FOLDER"]
call = ScriptedCall("shell", {"command": "echo new > inside; echo new > ../outside; true"})
agent = Agent(
    ScriptedProvider([ScriptedTurn("", calls=[call]), "Done."]),
    workspace_tools(os.path.join(folder, "work")),
    approve="all",
    name="agent",
    journal=SqliteJournal(os.path.join(folder, "journal.db")),
)
"""


@pytest.mark.over_a_second
@pytest.mark.parametrize(("options", "is_held"), [((), True), (("--sandbox", "off"), False)])
def test_a_worker_holds_the_commands_of_its_agents(tmp_path: Path, options: tuple[str, ...], is_held: bool):
    (tmp_path / "work").mkdir()
    (tmp_path / "agents_here.py").write_text(AGENTS)
    env = {**os.environ, "FOLDER": str(tmp_path)}
    toolspeak = [sys.executable, "-m", "toolspeak"]
    submit = [*toolspeak, "submit", "agent", "task", "--journal", str(tmp_path / "journal.db")]
    subprocess.run(submit, env=env, check=True, timeout=60, stdout=subprocess.DEVNULL)
    command = [*toolspeak, "worker", str(tmp_path / "agents_here.py"), *options]
    worker = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)

    async def result_of_run() -> list[Record]:
        journal = SqliteJournal(tmp_path / "journal.db")
        try:
            (info,) = await journal.runs()
            async with asyncio.timeout(60):
                async for _ in journal.follow(info.run_id):
                    info = await journal.run(info.run_id)
                    assert info is not None
                    if info.status == "answered":
                        break
            return await journal.read(info.run_id)
        finally:
            await journal.aclose()

    try:
        records = asyncio.run(result_of_run())
    finally:
        worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=60)
    levels = [each.event.sandbox for each in records if isinstance(each.event, ToolStarted)]
    assert [level in ("bubblewrap", "landlock") for level in levels] == [is_held], errors
    assert (tmp_path / "work" / "inside").exists()
    assert (tmp_path / "outside").exists() == (not is_held)
    assert "sandbox: " in errors


def run_model(
    folder: Path, stage: EscapeStage, turns: Sequence[Sequence[Mapping[str, object]]], *options: str
) -> subprocess.CompletedProcess[str]:
    """Runs a model that makes these calls, each turn's together, on the command line: everything is approved."""
    book = folder / "model.json"
    texts = ["\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in turn) for turn in turns]
    book.write_text(json.dumps({"turns": [*texts, "Done."]}))
    return subprocess.run(
        [sys.executable, "-m", "toolspeak", "run", "task", "--model", f"scripted:{book}", "--dialect", "hermes",
         "--approve", "all", "--json", "--sandbox", "required", "--allow-net", "api.example:443",
         "--rules", str(stage.workspace / "rules.json"), "--journal", str(folder / "runs.db"), *options],
        cwd=stage.workspace,
        env={**os.environ, "HOME": str(stage.home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path) -> Generator[EscapeStage]:
    """What a model tries to reach, with a home of its own."""
    if problem_with("bubblewrap"):
        pytest.skip(problem_with("bubblewrap"))
    home = tmp_path / "home"
    home.mkdir()
    stage = EscapeStage(tmp_path, home)
    yield stage
    stage.close()


@pytest.mark.over_a_second
def test_a_model_that_tries_every_way_out_gets_nothing(tmp_path: Path, stage: EscapeStage):
    # The stage's journal is none of this run's: `test_the_journal_in_the_workspace_is_not_seen` has a real one.
    attempts = [attempt for attempt in ATTEMPTS if "journal" not in attempt.name]
    commands = [stage.command(attempt) for attempt in attempts if not attempt.is_python]
    scripts = []
    for number, attempt in enumerate(each for each in attempts if each.is_python):
        stage.command(attempt)
        script = stage.workspace / f"attempt-{number}.py"
        (stage.workspace / "attempt.py").rename(script)
        scripts.append(f"{sys.executable} -I -S {script.name} 2>/dev/null")
    calls = [
        {"name": "shell", "arguments": {"command": command, "network": network}}
        for command in (*commands, *scripts)
        for network in (False, True)
    ]
    assert len(calls) >= 100
    turns = [calls[at : at + 20] for at in range(0, len(calls), 20)]
    result = run_model(tmp_path, stage, turns)
    assert result.returncode == 0, result.stderr
    records = [each for each in map(loads, result.stdout.splitlines()) if isinstance(each, Record)]
    results = [each.event.result for each in records if isinstance(each.event, ToolFinished)]
    assert len(results) == len(calls)
    assert {each.event.sandbox for each in records if isinstance(each.event, ToolStarted)} == {"bubblewrap"}
    assert not [each.text for each in results if SECRET in each.text]
    assert not stage.is_out("")


class Redirect(BaseHTTPRequestHandler):
    """Answers with a redirect to the address in `target`."""

    target = ""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


PROGRAM = """
import asyncio
async def attempt(call):
    try:
        return str(await call)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
calls = [shell(command=command, network=network) for command in %r for network in (False, True)]
calls += [notes__write(path=path, text=%r) for path in %r]
calls += [fetch(url=url) for url in %r]
for result in await asyncio.gather(*[attempt(call) for call in calls]):
    print(repr(result)[:300])
"""


@pytest.mark.over_a_second
def test_a_program_an_mcp_server_and_the_web_bring_nothing_out(tmp_path: Path, stage: EscapeStage):
    """The same by code mode, beside calls of a server in a sandbox, and URLs of this machine."""
    redirecting = ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    threading.Thread(target=redirecting.serve_forever, daemon=True).start()
    try:
        port, allowed_port = stage.sockets.tcp, redirecting.server_address[1]
        Redirect.target = f"http://127.0.0.1:{port}/{MARK}"
        commands = [
            stage.command(attempt)
            for attempt in ATTEMPTS
            if not attempt.is_python and "journal" not in attempt.name
        ]  # fmt: skip
        paths = [str(stage.outside / "file"), str(stage.workspace / ".git" / "hooks" / "pre-commit"),
                 str(stage.home / ".bashrc"), str(stage.workspace / "rules.json")]  # fmt: skip
        hosts = ("127.0.0.1", "localhost", "[::1]", "127.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0")
        urls = [f"http://{host}:{port}/{MARK}" for host in hosts]
        urls += [f"http://127.0.0.1:{allowed_port}/", f"http://user:{MARK}@127.0.0.1:{allowed_port}/"]
        servers = server_in(tmp_path, {"writable": []})
        code = PROGRAM % (commands, MARK, paths, urls)
        count = 2 * len(commands) + len(paths) + len(urls)
        assert count >= 100
        direct = [{"name": "run_code", "arguments": {"code": code}}]
        options = ("--code-mode", "--web", "--web-allow", f"127.0.0.1:{allowed_port}", "--mcp", str(servers))
        result = run_model(tmp_path, stage, [direct], "--defer", "none", *options)
        assert result.returncode == 0, result.stderr
        (text,) = [
            record.event.result.text
            for record in map(loads, result.stdout.splitlines())
            if isinstance(record, Record) and isinstance(record.event, ToolFinished)
        ]
        assert len(text.splitlines()) == count, text
        assert text.count(f"{Redirect.target} was not fetched: 127.0.0.1 is at 127.0.0.1") == 2  # and by the redirect
        assert SECRET not in text
        assert not stage.is_out("")
    finally:
        redirecting.shutdown()
        redirecting.server_close()
