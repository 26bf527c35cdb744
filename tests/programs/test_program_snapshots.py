"""Programs that go on from records that are not as they were: of another version, damaged, edited, without a tool."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from textwrap import dedent

import pytest

from toolspeak import Agent, Effects, tool
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

PROGRAM = """
import random
first = await read("a")
number = random.randrange(10**9)
print("first", first)
print(await write("b", str(number)))
number == int(await read("b"))
"""

ANSWER = "first 1\nwritten\ntrue"


class Desk:
    """An agent in code mode: each call of `process` stands for a process of its own."""

    def __init__(self, program=PROGRAM):
        self._program = program
        self.log = []
        self.files = {"a": "1"}

    def tools(self):
        @tool(effects=lambda path: Effects(reads={f"file:{path}"}))
        def read(path: str) -> str:
            "Reads."
            self.log.append(f"read {path}")
            return self.files[path]

        @tool(effects=lambda path, text: Effects(writes={f"file:{path}"}))
        def write(path: str, text: str) -> str:
            "Writes."
            self.log.append(f"write {path}")
            self.files[path] = text
            return "written"

        return [read, write]

    def process(self, text="", tools=None, change=None):
        """Starts the run; or goes on with the one in `text`, as `change` leaves where its program waits, and says yes
        to its question. Returns the result and the run as text."""

        async def work():
            turn = ScriptedTurn("", calls=[ScriptedCall("run_code", {"code": dedent(self._program).strip()})])
            model = ScriptedProvider([turn, "{{last}}"], follow=True)
            agent = Agent(model, self.tools() if tools is None else tools, code_mode=True)
            if not text:
                result = await agent.run("Go.")
            else:
                run = await agent.loads(text if change is None else with_positions(text, change))
                result = await agent.resume(run, dict.fromkeys(run.waiting, True))
            return result, await result.dumps()

        return asyncio.run(work())


def with_positions(text, change):
    """The run with other positions of its program; `change` gets each as a dict."""
    lines, count = [], 0
    for line in text.splitlines():
        data = json.loads(line)
        for value in values_in(data):
            if "numbers" in value:
                change(value)
                count += 1
        lines.append(json.dumps(data))
    assert count
    return "\n".join(lines)


def values_in(value):
    """Every dict in a value."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from values_in(each)


def test_the_snapshot_goes_on():
    desk = Desk()
    run, text = desk.process()
    assert run.status == "awaiting_approval"
    assert desk.process(text)[0].answer == ANSWER
    assert desk.log == ["read a", "write b", "read b"]


def without(position):
    del position["snapshot"]


def of_another_version(position):
    position["version"] = "pydantic-monty 0.1"


def damage(position):
    position["snapshot"] = position["snapshot"][:-40] + "A" * 40


def cut(position):
    position["snapshot"] = position["snapshot"][: len(position["snapshot"]) // 2]


def flip(position):
    data = bytearray(zlib.decompress(base64.b64decode(position["snapshot"])))
    data[len(data) // 2] ^= 0xFF
    position["snapshot"] = base64.b64encode(zlib.compress(bytes(data))).decode()


def no_text(position):
    position["snapshot"] = {"a": [1]}


@pytest.mark.parametrize("change", [without, of_another_version, damage, cut, flip, no_text])
def test_without_a_snapshot_the_program_gets_the_recorded_results_again(change):
    desk = Desk()
    assert desk.process(desk.process()[1], change=change)[0].answer == ANSWER
    assert desk.log == ["read a", "write b", "read b"]  # no call ran again


def test_a_program_that_differs_from_its_records_fails_and_says_what_it_has_done():
    desk = Desk("""
        import time
        x = await read("a")
        await write(f"f{time.time_ns()}", x)
        await write("z", x)
    """)
    _, text = desk.process()
    _, text = desk.process(text)
    result, _ = desk.process(text, change=without)
    assert "The program was interrupted and cannot go on: run again, it makes other calls than before." in result.answer
    assert '- read {"path": "a"}: done' in result.answer
    assert len(desk.log) == 3  # what had been asked about ran, and is reported
    assert '- write {"path": "z", "text": "1"}: done' in result.answer


def test_the_result_of_a_call_is_not_given_to_another_one():
    desk = Desk("""
        import time
        name = f"f{time.time_ns()}"
        print(await write(name, "x"), name)
        await read(name)
    """)
    _, text = desk.process()
    result, _ = desk.process(text, change=without)  # asks about one name, and has another one when it is run again
    assert "run again, it makes other calls than before" in result.answer
    assert len(desk.log) == 1
    assert "written" not in result.answer


def test_a_tool_that_is_gone_is_an_exception():
    desk = Desk("""
        try:
            await write("b", "2")
        except NameError as error:
            print("gone", error)
        await read("a")
    """)
    _, text = desk.process()
    result, _ = desk.process(text, tools=desk.tools()[:1])
    assert (result.status, desk.log) == ("answered", ["read a"])
    assert result.answer.startswith("gone write: ")
    assert result.answer.endswith("1")


def test_large_values_are_not_recorded_with_every_call():
    desk = Desk("""
        rows = ["x%d" % n for n in range(100_000)]
        for n in range(20):
            await read(f"f{n}")
        await write("b", str(len(rows)))
        await read("b")
    """)
    desk.files.update({f"f{n}": str(n) for n in range(20)})
    run, text = desk.process()
    assert run.status == "awaiting_approval"
    assert len(text) < 10_000_000
    assert desk.process(text)[0].answer == "100000"
    assert desk.log.count("write b") == 1
