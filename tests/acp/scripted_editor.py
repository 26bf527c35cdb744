"""An editor for tests: the SDK's own client, with files, terminals and a user who answers questions."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from acp import RequestError, connect_to_agent
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    TextContentBlock,
    WaitForTerminalExitResponse,
)

from forked_commands import Command

FILES = FileSystemCapabilities(read_text_file=True, write_text_file=True)


class ScriptedEditor:
    """Implements the SDK's `Client`. `answers` are the options that the user chooses, in the order of the questions;
    None closes the question. `form_answers` are the answers to forms and addresses. `buffers` are unsaved files."""

    def __init__(self, *answers, buffers=(), form_answers=()):
        self.answers = list(answers)
        self.form_answers = list(form_answers)
        self.forms = []
        self.buffers = dict(buffers)
        self.updates = []
        self.questions = []
        self.requests = []
        self.terminals = {}
        self._news = asyncio.Condition()

    def on_connect(self, conn):
        self.agent = conn

    async def _add(self, items, item):
        items.append(item)
        async with self._news:
            self._news.notify_all()

    async def until(self, condition):
        """Waits until the condition holds; it is looked at after each message of the agent."""
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(condition)

    async def session_update(self, session_id, update, **kwargs):
        await self._add(self.updates, update)

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        await self._add(self.questions, (tool_call, options, kwargs))
        await self.until(lambda: bool(self.answers))
        answer = self.answers.pop(0)
        if isinstance(answer, RequestError):
            raise answer
        if answer is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(option_id=answer, outcome="selected"))

    async def create_elicitation(self, message, mode, **kwargs):
        await self._add(self.forms, (message, mode))
        answer = self.form_answers.pop(0)
        if isinstance(answer, RequestError):
            raise answer
        return answer

    async def answer(self, answer):
        await self._add(self.answers, answer)

    async def read_text_file(self, session_id, path, line=None, limit=None, **kwargs):
        await self._add(self.requests, ("read", path))
        if path in self.buffers:
            return ReadTextFileResponse(content=self.buffers[path])
        try:
            return ReadTextFileResponse(content=_disk_text(path))
        except OSError:
            raise RequestError.resource_not_found(path) from None

    async def write_text_file(self, session_id, path, content, **kwargs):
        await self._add(self.requests, ("write", path))
        self.buffers[path] = content

    async def create_terminal(
        self, session_id, command, args=None, env=None, cwd=None, output_byte_limit=None, **kwargs
    ):
        environment = {each.name: each.value for each in env or ()}
        process = await asyncio.create_subprocess_exec(
            command, *args, cwd=cwd, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        terminal_id = f"terminal-{len(self.terminals)}"
        self.terminals[terminal_id] = (process, asyncio.ensure_future(process.communicate()))
        await self._add(self.requests, ("terminal", terminal_id))
        return CreateTerminalResponse(terminal_id=terminal_id)

    async def wait_for_terminal_exit(self, session_id, terminal_id, **kwargs):
        process, output = self.terminals[terminal_id]
        await asyncio.shield(output)
        return WaitForTerminalExitResponse(**_exit(process))

    async def terminal_output(self, session_id, terminal_id, **kwargs):
        process, output = self.terminals[terminal_id]
        text = (await asyncio.shield(output))[0].decode()
        return TerminalOutputResponse(output=text, truncated=False, exit_status=TerminalExitStatus(**_exit(process)))

    async def kill_terminal(self, session_id, terminal_id, **kwargs):
        self.terminals[terminal_id][0].kill()

    async def release_terminal(self, session_id, terminal_id, **kwargs):
        process, _ = self.terminals[terminal_id]
        if process.returncode is None:
            process.kill()
        await self._add(self.requests, ("release", terminal_id))

    # what came

    def of(self, kind):
        """The updates of this kind."""
        return [update for update in self.updates if update.session_update == kind]

    @property
    def agent_text(self):
        """What the agent said."""
        return "".join(update.content.text for update in self.of("agent_message_chunk"))

    @property
    def calls(self):
        """The fields of each call, as the updates leave it."""
        calls = {}
        for update in self.updates:
            if update.session_update in ("tool_call", "tool_call_update"):
                changes = update.model_dump(exclude_none=True, exclude={"session_update"})
                calls.setdefault(update.tool_call_id, {}).update(changes)
        return calls


def _disk_text(path):
    return Path(path).read_text()


def _exit(process):
    code = process.returncode
    return {"exit_code": code} if code is None or code >= 0 else {"signal": str(-code)}


def playbook(path, *turns, **options):
    """Writes a playbook for a scripted model. A turn is a text, or a list of calls as (name, arguments)."""
    entries = [
        turn
        if isinstance(turn, str | dict)
        else {"text": "", "calls": [{"name": name, "arguments": arguments} for name, arguments in turn]}
        for turn in turns
    ]
    path.write_text(json.dumps({"turns": entries, "follow": True, **options}))
    return f"scripted:{path}"


def environment(folder, **variables):
    """A user without a configuration, whose journal is in the folder."""
    parent_environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    places = {"XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
    return {**parent_environment, **places, **variables}


class AgentProcess:
    """`toolspeak acp`, with pipes for its standard input and output; its standard error is a file."""

    def __init__(self, folder, *arguments, **variables):
        self.errors = folder / "errors.txt"
        ends = [*os.pipe(), *os.pipe()]
        with self.errors.open("ab") as errors:
            streams = (ends[0], ends[3], errors.fileno())
            self.command = Command(
                ["acp", "--sandbox", "off", *arguments],
                cwd=folder,
                env=environment(folder, **variables),
                streams=streams,
                session=True,
            )
        os.close(ends[0])
        os.close(ends[3])
        self.output, self.input = ends[2], ends[1]

    @asynccontextmanager
    async def streams(self, limit=64 * 1024 * 1024):
        """Yields the reader of its output and the writer of its input. At the end the process is killed."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=limit)
        self.output_transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self.output, "rb", buffering=0)
        )
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(self.input, "wb", buffering=0)
        )
        try:
            yield reader, asyncio.StreamWriter(transport, protocol, reader, loop)
        finally:
            self.command.kill()
            self.output_transport.close()
            if not transport.is_closing():
                transport.abort()
            await asyncio.sleep(0)  # transports close in the loop's next turn

    async def wait(self):
        """Its exit code."""
        return await asyncio.to_thread(self.command.wait, 120)


@asynccontextmanager
async def connection(editor, folder, *arguments, capabilities=None, ends=True, **variables):
    """Starts the agent and connects the editor to it. Yields the connection and the process, which ends by itself
    unless `ends` is False."""
    process = AgentProcess(folder, *arguments, **variables)
    async with process.streams() as (reader, writer):
        agent = connect_to_agent(editor, writer, reader, use_unstable_protocol=True)
        await agent.initialize(protocol_version=1, client_capabilities=capabilities or ClientCapabilities())
        yield agent, process
        await agent.close()
        writer.close()
        assert await process.wait() == 0 or not ends


class EndlessCommand:
    """A command that runs until it is killed. It says when it has begun, and that it has ended."""

    def __init__(self, folder):
        self._pipe = folder / "alive"
        os.mkfifo(self._pipe)
        line = f"exec 3> {shlex.quote(str(self._pipe))}; echo $$ >&3; exec sleep 600"
        self.call = ("shell", {"command": line, "timeout": 1000})

    async def begins(self):
        self._file = await asyncio.to_thread(self._pipe.open)
        self._pid = int(await asyncio.to_thread(self._file.readline))

    async def ends(self):
        """Returns once no process holds the pipe."""
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(self._file.read) == ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def text(words):
    return [TextContentBlock(type="text", text=words)]
