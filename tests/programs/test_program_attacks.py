"""Programs of a model that means harm, and results that others made so: the rest of the run goes on."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from toolspeak import Agent, Effects, Limits, MemoryJournal, tool
from toolspeak.data.events import ToolFinished, ToolStarted
from toolspeak.programs import CodeMode
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn


class Desk:
    """An agent whose model writes these programs in one turn. `log` has what its tools were called with."""

    def __init__(self, *codes: str, mode: CodeMode | bool = True, only_reads: bool = False) -> None:
        self.log: list[str] = []

        @tool(read_only=True)
        async def read(text: str) -> str:
            "Reads."
            self.log.append(text[:20])
            return "fine"

        @tool(read_only=True)
        def odd(kind: str) -> object:
            "Returns what a file may hold."
            if kind == "failure":
                raise ValueError("half \ud800 of it")
            return {"text": "a\ud83db", "whole": "\ud83d\ude00", "value": {"k\udfff": ["\ud800"]}}[kind]

        @tool(effects=Effects(writes={"x:"}))
        async def write(text: str) -> str:
            "Writes."
            self.log.append(text[:20])
            return "written"

        @tool(read_only=True)
        async def take(value: object) -> str:
            "Takes anything."
            self.log.append("took")
            return "fine"

        turn = ScriptedTurn("", calls=[ScriptedCall("run_code", {"code": code}) for code in codes])
        self.journal = MemoryJournal()
        self.agent = Agent(
            ScriptedProvider([turn, "{{last}}"]),
            [read, odd, take] if only_reads else [read, odd, take, write],
            approve="all",
            code_mode=mode,
            journal=self.journal,
            limits=Limits(repeats=None, failures=None),
        )

    def answer(self) -> str:
        return self.agent.run_sync("Go.").answer


REFUSED_CALLS = (
    "x = 'a' * 8_000_000\nwhile True:\n    try:\n        await take(*[x, x])\n    except TypeError:\n        pass"
)
MANY_AT_ONCE = "import asyncio\nx = 'a' * 8_000_000\nawait asyncio.gather(*[read(x) for _ in range(20)])"
ONE_BY_ONE = "for n in range(10): await write(str(n) * 20_000_000)"


@pytest.mark.over_a_second
@pytest.mark.parametrize(("code", "most"), [(MANY_AT_ONCE, 0), (ONE_BY_ONE, 3), (REFUSED_CALLS, 0)])
def test_arguments_that_grow_without_end_stop_the_program(code, most):
    """One value may be passed to a thousand calls, and each of them is recorded with it."""
    desk = Desk(code)
    assert "the arguments of its calls have more than 64 MB in all" in desk.answer()
    assert len(desk.log) <= most


DOUBLES = "x = ['a']\nfor _ in range(100): x = [x, x]\n"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (f"{DOUBLES}x", "(The value has more than 64 MB."),
        (f"{DOUBLES}x.append(float('nan'))\nx", "(The value has more than 64 MB."),
        (f"{DOUBLES}await take(x)", "the arguments of its calls have more than 64 MB"),
        (
            "x = 'a' * 1_000_000\nawait take([x] * 100)",
            "the arguments of its calls have more than 64 MB",
        ),
        ("x = 'a' * 1_000_000\n[x] * 100", "(The value has more than 64 MB."),
        (
            "class A: pass\nx = A()\nfor _ in range(100):\n    y = A()\n    y.a = y.b = x\n    x = y\nx",
            "more than 64 MB.",
        ),
        ("x = {'a': 1}\nfor _ in range(100): x = {'a': x, 'b': x}\n{1: (x, x)}", "(The value has more than 64 MB."),
    ],
    ids=["a value", "a value that is no JSON", "an argument", "a long argument", "a long value", "objects", "dicts"],
)
def test_a_small_value_with_more_parts_than_can_be_written_holds_up_nobody(code, text):
    desk = Desk(code)
    assert text in desk.answer()
    assert desk.log == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("text", "a\ufffdb"),
        ("whole", "\U0001f600"),
        ("value", "{'k\ufffd': ['\ufffd']}"),
        ("failure", "half \ufffd of it"),
    ],
)
def test_halves_of_characters_in_a_result_end_no_program(kind, text):
    desk = Desk(f"try:\n    print(await odd('{kind}'))\nexcept Exception as e:\n    print(e)\nawait read('after')")
    answer = desk.answer()
    assert text in answer
    assert desk.log == ["after"]


@pytest.mark.over_a_second
@pytest.mark.parametrize("line", ["time.sleep(0)", "await read(*json.loads('[1, 2]'))"], ids=["a sleep", "a call"])
def test_a_loop_that_keeps_the_host_busy_ends(line):
    code = f"import json\nimport time\nwhile True:\n    try:\n        {line}\n    except Exception:\n        pass"
    answer = Desk(code, mode=CodeMode(calls=1, seconds=60)).answer()
    assert "it called, slept or asked for a name more than 10010 times" in answer


def test_an_error_of_any_length_is_cut():
    desk = Desk("await write('x')\nraise ValueError('y' * 1_000_000)", mode=CodeMode(output=1000))
    answer = desk.answer()
    assert "ValueError: yyy" in answer
    assert '- write {"text": "x"}: done' in answer
    assert len(answer) < 1500


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interpreter_whose_host_is_killed_does_not_compute_for_ever():
    """The host ends it, at the limit of seconds and during the check of its types; without the host the kernel does."""
    limits: list[str] = []

    @tool(read_only=True)
    def look() -> str:
        "Looks at the limits of the processes that belong to this one."
        for task in Path("/proc/self/task").iterdir():
            limits.extend(Path(f"/proc/{pid}/limits").read_text() for pid in (task / "children").read_text().split())
        return ""

    turn = ScriptedTurn("", calls=[ScriptedCall("run_code", {"code": "await look()"})])
    agent = Agent(ScriptedProvider([turn, "Done."]), [look], code_mode=CodeMode(seconds=7))
    assert agent.run_sync("Go.").answer == "Done."
    assert any(re.search(r"Max cpu time +74 +74 ", each) for each in limits), limits
    assert any(re.search(r"Max core file size +0 +0 ", each) for each in limits), limits


def test_a_turn_of_many_programs_starts_few_processes_at_once():
    async def work() -> Counter[str]:
        desk = Desk(*["await read('x')"] * 20, only_reads=True)
        result = await desk.agent.run("Go.")
        going, numbers = 0, Counter[str]()
        for record in await desk.journal.read(result.run_id):
            if isinstance(record.event, ToolStarted):
                going += 1
                numbers["all"] += 1
                numbers["most at once"] = max(numbers["most at once"], going)
            elif isinstance(record.event, ToolFinished):
                going -= 1
        return numbers

    assert asyncio.run(work()) == {"all": 20, "most at once": 8}
