"""The conversation in tmux, which is a terminal that wraps its lines anew (`make test-terminal`): real processes, real
keys, and what is left after a kill."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from chat_screen import calls, in_turn, reply, turn_behind_gate
from loopback_server import Answer, Server, serve

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
DEADLINE = 60.0


class Tmux:
    """A tmux server of its own, with one window."""

    def __init__(self, folder: Path, columns: int, rows: int) -> None:
        self._socket, self._folder = str(folder / "tmux"), folder
        self._command("new-session", "-d", "-x", str(columns), "-y", str(rows), "sh")

    def _command(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self._folder).stdout

    def type(self, *keys: str) -> None:
        """Types texts and keys by tmux's names, such as Enter."""
        self._command("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self._command("resize-window", "-x", str(columns), "-y", str(rows))

    def rows(self, *, scrollback: bool = True) -> list[str]:
        """The rows of the screen, with those above it."""
        return self._command("capture-pane", "-p", *(("-S", "-") if scrollback else ())).rstrip("\n").split("\n")

    async def until(self, condition: str | Callable[[list[str]], bool]) -> None:
        """Waits until a text is there, or a condition of the rows holds."""
        rows: list[str] = []
        for _ in range(int(DEADLINE / 0.1)):
            rows = self.rows()
            if condition(rows) if callable(condition) else any(condition in row for row in rows):
                return
            await asyncio.sleep(0.1)  # tmux tells nobody that its screen has changed
        raise AssertionError(f"{condition!r} is not there:\n" + "\n".join(rows))

    def kill_program(self) -> None:
        """Kills the program in the window as `kill -9` does."""
        shell = self._command("display-message", "-p", "#{pane_pid}").strip()
        pids = subprocess.run(["pgrep", "-P", shell], check=True, capture_output=True, text=True).stdout.split()
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], check=False, capture_output=True)


@asynccontextmanager
async def terminal(
    tmp_path: Path, *answers: Answer, columns: int = 80, rows: int = 24, term: str = ""
) -> AsyncGenerator[tuple[Tmux, Server, str]]:
    """A window of tmux, a model, and the command line of the conversation."""
    (tmp_path / "project").mkdir(exist_ok=True)
    tmux = Tmux(tmp_path, columns, rows)
    async with serve(in_turn(*answers)) as server:
        words = [
            f"cd {tmp_path}/project;",
            *((f"TERM={term}",) if term else ()),
            f"HOME={tmp_path} XDG_DATA_HOME={tmp_path} TOOLSPEAK_JOURNAL={tmp_path}/t.db",
            f"PYTHONPATH={os.environ.get('PYTHONPATH', '')} OPENAI_API_KEY=none OPENAI_BASE_URL={server.base_url}",
            f"exec {sys.executable} -m toolspeak chat --model openai:m --dialect native",
        ]
        try:
            yield tmux, server, f"({' '.join(words)})"
        finally:
            tmux.close()


def test_a_conversation_in_tmux(tmp_path):
    async def main():
        answer = "\n\n".join(f"Paragraph {i} of **many**." for i in range(30))
        async with terminal(tmp_path, reply(answer)) as (tmux, _, command):
            tmux.type(command, "Enter")
            await tmux.until("your turn")
            tmux.type("hello", "Enter")
            await tmux.until("Paragraph 29 of many.")
            await tmux.until(lambda rows: "your turn" in rows[-1])
            paragraphs = [row for row in tmux.rows() if row.startswith("Paragraph")]
            assert paragraphs == [f"Paragraph {i} of many." for i in range(30)]
            tmux.type("C-d")
            await tmux.until("continues this conversation")

    asyncio.run(main())


@pytest.mark.parametrize("columns", [40, 120])
def test_a_window_that_is_resized_while_the_model_writes(tmp_path, columns):
    """Lines that were written stay; the input and the status line are there once."""

    async def main():
        gate = asyncio.Event()
        answer = turn_behind_gate(gate, "First line.\n\n", "Second ", "part ", "of it. ", more=("More.\n\nThe end.",))
        async with terminal(tmp_path, answer) as (tmux, _, command):
            tmux.type(command, "Enter")
            await tmux.until("your turn")
            tmux.type("go", "Enter")
            await tmux.until("Second part")
            tmux.resize(columns, 20)
            await tmux.until(lambda rows: sum("Second part" in row for row in rows) == 1)
            gate.set()
            await tmux.until("The end.")
            await tmux.until(lambda rows: any("your turn" in row for row in rows))
            rows = tmux.rows()
            for text in ("First line.", "Second part of it. More.", "The end.", "your turn"):
                assert sum(text in row for row in rows) == 1, (text, rows)
            assert sum("Esc interrupts" in row for row in rows) == 0

    asyncio.run(main())


def test_a_killed_conversation_goes_on_and_asks_again(tmp_path):
    async def main():
        answers = calls(("shell", '{"command": "touch ran"}')), reply("All done.")
        async with terminal(tmp_path, *answers) as (tmux, server, command):
            tmux.type(command, "Enter")
            await tmux.until("your turn")
            tmux.type("do it", "Enter")
            await tmux.until("Run it?")
            tmux.kill_program()
            await tmux.until("Killed")
            tmux.type("stty sane; clear; echo sane", "C-j")  # the terminal is as the program had it
            await tmux.until(lambda rows: "sane" in rows)  # before that, Enter would end no line
            tmux.type(command.replace("chat --model", "chat -c --model"), "Enter")
            await tmux.until("the last turn has not ended")
            await tmux.until("Run it?")
            assert not (tmp_path / "project" / "ran").exists()
            tmux.type("y", "Enter")
            await tmux.until("All done.")
            assert (tmp_path / "project" / "ran").exists()
            assert sum(bool(exchange.body) for exchange in server.exchanges) == 2

    asyncio.run(main())


def test_a_queued_message_survives_a_killed_terminal(tmp_path):
    async def main():
        answers = calls(("shell", '{"command": "touch ran"}')), reply("All done.")
        async with terminal(tmp_path, *answers) as (tmux, server, command):
            tmux.type(command, "Enter")
            await tmux.until("your turn")
            tmux.type("do it", "Enter")
            await tmux.until("Run it?")
            tmux.type("Tab")
            tmux.type("and then?", "Enter")
            await tmux.until("queued: and then?")
            tmux.kill_program()
            await tmux.until("Killed")
            tmux.type("stty sane; clear; echo sane", "C-j")
            await tmux.until(lambda rows: "sane" in rows)
            tmux.type(command.replace("chat --model", "chat -c --model"), "Enter")
            await tmux.until("is in the input again")
            await tmux.until(lambda rows: any(row.startswith("› and then?") for row in rows))
            await tmux.until("Run it?")
            assert not any(b"and then?" in exchange.body for exchange in server.exchanges)

    asyncio.run(main())


def test_a_terminal_that_cannot_move_its_cursor(tmp_path):
    async def main():
        answers = calls(("shell", '{"command": "touch ran"}')), reply("All **done**.")
        async with terminal(tmp_path, *answers, term="dumb") as (tmux, _, command):
            tmux.type(command, "Enter")
            await tmux.until("> ")
            tmux.type("do it", "Enter")
            await tmux.until("Run it?")
            tmux.type("y", "Enter")
            await tmux.until("All done.")
            assert (tmp_path / "project" / "ran").exists()
            tmux.type("/quit", "Enter")
            await tmux.until("continues this conversation")

    asyncio.run(main())
