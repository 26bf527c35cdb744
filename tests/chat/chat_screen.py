"""The conversation at an emulated terminal, in this process: what a person sees, and keys that the test types."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pyte
from loopback_server import STREAM_HEAD, Answer, Exchange, Server, event, http_chunks, says, serve, whole
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.base import PipeInput

from toolspeak.chat.terminal.screen import Screen
from toolspeak.chat.terminal.steady_output import SteadyOutput
from toolspeak.cli.chat_work import hold_conversation

DEADLINE = 120.0  # a limit for what hangs: a machine may stand still for seconds


class Terminal(io.TextIOBase):
    """What the program writes to, drawn by pyte. `writes` are the pieces that reached it."""

    encoding = "utf-8"

    def __init__(self, columns: int, rows: int) -> None:
        self.emulator = pyte.HistoryScreen(columns, rows, history=20_000, ratio=0.5)
        self._stream = pyte.Stream(self.emulator)
        self.writes: list[str] = []
        self.news = asyncio.Event()

    def write(self, text: str) -> int:
        self.writes.append(text)
        self._stream.feed(text)
        self.news.set()
        return len(text)

    def isatty(self) -> bool:
        return True

    def resize(self, columns: int, rows: int) -> None:
        self.emulator.resize(rows, columns)

    @property
    def size(self) -> Size:
        return Size(rows=self.emulator.lines, columns=self.emulator.columns)

    @property
    def lines(self) -> list[str]:
        """The rows of the screen, without the empty ones at its end."""
        rows = [row.rstrip() for row in self.emulator.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def everything(self) -> list[str]:
        """The scrollback, and the rows of the screen."""
        columns = self.emulator.columns
        above = ["".join(row[x].data for x in range(columns)).rstrip() for row in self.emulator.history.top]
        return [*above, *self.lines]


class ChatScreen:
    """The conversation, and its person."""

    def __init__(self, terminal: Terminal, keys: PipeInput, screen: Screen, server: Server) -> None:
        self.terminal, self.screen, self.server = terminal, screen, server
        self._keys = keys

    def type(self, keys: str) -> None:
        """Types the keys; `\\r` is Enter."""
        self._keys.send_text(keys)

    async def paste(self, text: str) -> None:
        """Pastes a text, as terminals send it. It may be longer than a pipe holds."""
        await asyncio.to_thread(self._keys.send_text, f"\x1b[200~{text}\x1b[201~")

    async def until(self, condition: str | Callable[[], bool]) -> None:
        """Waits until a text is on the screen or in its scrollback, or a condition holds."""
        holds = condition if callable(condition) else lambda: any(condition in row for row in self.terminal.everything)
        try:
            async with asyncio.timeout(DEADLINE):
                while not holds():
                    self.terminal.news.clear()
                    await self.terminal.news.wait()
        except TimeoutError:
            screen_text = "\n".join(self.terminal.everything)
            raise AssertionError(f"{condition!r} is not on the screen:\n{screen_text}") from None

    async def until_idle(self) -> None:
        """Waits until it is the person's turn."""
        await self.until(lambda: any("your turn" in row for row in self.terminal.lines))

    def request(self, number: int = -1) -> str:
        """What the model was sent, as text."""
        return self.turns[number].body.decode()

    @property
    def turns(self) -> list[Exchange]:
        """The requests for a turn of the model."""
        return [exchange for exchange in self.server.exchanges if exchange.body]


def reply(*pieces: str, usage: dict[str, int] | None = None) -> Answer:
    """A model's turn of text, in these pieces. `usage`: the tokens that the server counts."""
    return turn_behind_gate(None, *pieces, usage=usage)


def in_turn(*answers: Answer, models: Sequence[str] = ()) -> Answer:
    """The answers to requests for a turn, the last one for ever. `models`: what the server lists; without
    them it does not say what it has."""
    count = 0

    async def answer(exchange: Exchange) -> None:
        nonlocal count
        if not exchange.body:
            listing = json.dumps({"data": [{"id": name} for name in models]}).encode()
            await whole("200 OK" if models else "404 Not Found", listing)(exchange)
            return
        count += 1
        await answers[min(count, len(answers)) - 1](exchange)

    return answer


def turn_behind_gate(
    gate: asyncio.Event | None, *pieces: str, more: tuple[str, ...] = (), usage: dict[str, int] | None = None
) -> Answer:
    """A turn whose pieces `more` come only once the gate is open."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for piece in pieces:
            await exchange.send(http_chunks([event(says(piece))]))
        if gate is not None:
            gate_task, end_task = asyncio.create_task(gate.wait()), asyncio.create_task(exchange.reader.read())
            await asyncio.wait([gate_task, end_task], return_when=asyncio.FIRST_COMPLETED)
            end_task.cancel()
            await asyncio.wait([end_task])
            if not gate.is_set():
                gate_task.cancel()
                return
        for piece in more:
            await exchange.send(http_chunks([event(says(piece))]))
        end = [event(says("", "stop")), event("[DONE]")]
        if usage is not None:
            end.insert(1, event({"model": "m-1", "choices": [], "usage": usage}))
        await exchange.send(http_chunks(end), b"0\r\n\r\n")

    return answer


def calls(*calls_: tuple[str, str]) -> Answer:
    """A model's turn with native calls, by name and JSON arguments."""

    async def answer(exchange: Exchange) -> None:
        functions = [
            {"index": i, "id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(calls_)
        ]
        delta = {"model": "m-1", "choices": [{"index": 0, "delta": {"tool_calls": functions}, "finish_reason": None}]}
        last = {"model": "m-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n")
        await exchange.send(http_chunks([event(delta), event(last), event("[DONE]")]), b"0\r\n\r\n")

    return answer


def user_hooks(monkeypatch, tmp_path, event, command):
    """Configures a hook of the user."""
    config = tmp_path / "config" / "toolspeak" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[hooks]\n{event} = [{{ hooks = [{{ command = {json.dumps(command)} }}] }}]\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@asynccontextmanager
async def chat(
    monkeypatch,
    folder: Path,
    *answers: Answer,
    columns: int = 80,
    rows: int = 24,
    journal: str | None = None,
    continue_last: bool = False,
    idle: bool = True,
    models: Sequence[str] = (),
    **choices: str,
) -> AsyncGenerator[ChatScreen]:
    """A conversation with a model of these answers, in a folder. `idle`: begin once it is the person's turn.
    `models`: what the server lists."""
    terminal = Terminal(columns, rows)
    async with serve(in_turn(*answers, models=models)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("XDG_DATA_HOME", str(folder.parent / "data"))  # it remembers the models that are chosen
        with create_pipe_input() as keys:
            lines: asyncio.Queue[str] = asyncio.Queue()
            output = SteadyOutput(terminal, lambda: terminal.size, term="xterm-256color", enable_cpr=False)
            screen = Screen(lines.put_nowait, folder, terminal_input=keys, output=output)

            def work() -> Awaitable[None]:
                return hold_conversation(
                    screen,
                    lines,
                    str(folder),
                    {"model": "openai:m", "dialect": "native", **choices},
                    journal=journal or str(folder.parent / "chat.db"),
                    session=None,
                    continue_last=continue_last,
                    thoughts=False,
                )

            chat_task = asyncio.create_task(screen.run(work))
            person = ChatScreen(terminal, keys, screen, server)
            try:
                if idle and not continue_last:
                    await person.until_idle()
                yield person
            finally:
                screen.leave()
                await asyncio.wait([chat_task])
                chat_task.result()
