"""`!command`: runs a command of the person's own, and gives it to the model with the next message.

It runs as in the person's shell: without a question and outside of the sandbox, with all of their environment. It has
no input.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from toolspeak.chat.chat import Chat
from toolspeak.chat.display.call_lanes import CallLane
from toolspeak.chat.display.styled_text import StyledLine, truncate
from toolspeak.errors import ConfigurationError
from toolspeak.sandbox.processes import stopped_with_program
from toolspeak.tools.builtin.capture import Capture, printed_text
from toolspeak.tools.builtin.live_output import LiveOutput
from toolspeak.ui.format import one_line, printable

MOST_BYTES = 64 * 1024
"""How much output the model reads, and a person sees: the beginning and the end."""

_HEAD, _TAIL = 20, 20
"""Lines of the output that are shown."""


async def run_own_command(chat: Chat, command: str) -> None:
    """Runs a command line in the conversation's folder, and shows its output. Esc ends it."""
    if not command:
        raise ConfigurationError(
            "write the command after the `!`; a message that begins with `!` needs a space before it"
        )
    if os.name != "posix":
        raise ConfigurationError("`!` needs /bin/sh, which this system does not have")
    await chat.wait("your command", _run(chat, command))


async def _run(chat: Chat, command: str) -> str:
    lane, capture = CallLane(f"! {command}"), Capture(MOST_BYTES)
    lane.state, lane.started_at = "runs", chat.clock()
    chat.transcript.lanes["!"] = lane
    live = LiveOutput(lambda line: lane.output.append(printable(line)))
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        command,
        cwd=chat.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    is_ended = False

    def send(number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    try:
        assert process.stdout is not None, "it is a pipe"
        with stopped_with_program(send):
            while data := await process.stdout.read(64 * 1024):
                capture.add(data)
                live.add(data)
            await process.wait()
        is_ended = True
    finally:
        live.close()
        if not is_ended:
            send(signal.SIGKILL)  # what it left in the background ends with it
            await process.wait()
        output = printed_text(capture.text()).rstrip("\n")
        code = process.returncode
        end = f"exit code {code}" if is_ended and code is not None and code >= 0 else "ended before it was done"
        chat.next_message.add(
            f"[The user ran a command in the folder: {command}\n{end}; its output:]\n{output or '(none)'}"
        )
        _show(chat, command, "" if is_ended and code == 0 else end, output)
    return "· the model reads it with your next message"


def _show(chat: Chat, command: str, problem: str, output: str) -> None:
    columns = chat.front.columns
    sign, style = ("✗", "failed") if problem else ("✓", "done")
    heading: StyledLine = [(f"class:{style}", f"{sign} ! {one_line(command)}")]
    if problem:
        heading.append(("class:note", f"  {problem}"))
    lines = printable(output).expandtabs(4).split("\n") if output else []
    rows: list[StyledLine] = [[("", "    "), ("class:output", line)] for line in lines]
    if len(rows) > _HEAD + _TAIL:
        left_out = len(rows) - _HEAD - _TAIL
        rows = [*rows[:_HEAD], [("", "    "), ("class:note", f"… {left_out:,} more lines")], *rows[-_TAIL:]]
    chat.transcript.lanes.pop("!", None)
    chat.front.print([truncate(row, columns) for row in (heading, *rows)])
