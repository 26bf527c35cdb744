"""A program of one's own that asks at the terminal."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from toolspeak import Agent, tool
from toolspeak.testing import ScriptedCall, ScriptedProvider, ScriptedTurn
from toolspeak.ui import TerminalApprover

@tool
def order(item: str) -> str:
    "Orders an item."
    return f"ordered {item}"

turns = [ScriptedTurn("", calls=[ScriptedCall("order", {"item": "pear"})]), "That is all."]
result = Agent(ScriptedProvider(turns), [order], approve=TerminalApprover()).run_sync("Pears!")
print(result.status, *(each.text for message in result.messages for each in message.results))
"""


def screen_after(keys):
    """What is on the screen of the program when a person types these keys at its question."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as program:
        os.close(theirs)
        screen = b""
        while b"the run: " not in screen:
            screen += os.read(ours, 4096)
        os.write(ours, keys)
        try:
            while piece := os.read(ours, 4096):
                screen += piece
        except OSError:  # Linux: the other end is closed
            pass
        assert program.wait(120) == 0
    os.close(ours)
    return screen.decode()


@pytest.mark.over_a_second
def test_a_program_asks_at_its_terminal():
    screen = screen_after(b"y\n")
    assert 'item: "pear"' in screen
    assert "answered ordered pear" in screen
    assert "answered the call was rejected: too many" in screen_after(b"n too many\n")


def test_a_program_without_a_terminal_pauses():
    command = [sys.executable, "-c", PROGRAM]
    process = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, check=True
    )
    assert process.stdout.strip() == "awaiting_approval"
