"""Compares ten tasks of several calls with and without programs, and a program's call with a plain one.

    python benchmarks/code_mode.py [--calls 200] [--rounds 5]

The models are scripted (`programs/shop.py`): without programs a model calls tools turn by turn, all calls at once that
do not depend on each other; with programs it writes one. Both must come to the same answer and make the same changes.

- `turns`: requests to the model.
- `input`: the tokens that the model reads in all turns: definitions of tools, and the conversation.
- `new`: those of them that were not in the turn before, which a server's prompt cache does not have.
- `output`: the tokens that it writes.

A token is up to four letters or digits of a word, a sign, or a run of white space longer than a space: the same count
for both. Exits with 1 if an answer differs, or if programs save no turn.

The second table has the CPU time of this process and the wall time of a call, as medians over the rounds, with a
journal in memory: as one of a turn's calls, alone in a turn, and in a program (one by one, and in a gather).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from programs.shop import TASKS, Call, Shop, Task

from toolspeak import Agent, CodeMode, Limits, tool
from toolspeak.data.messages import JsonPart, Message, TextMessage, ToolCall
from toolspeak.providers.scripted_provider import ScriptedCall, ScriptedProvider, ScriptedTurn

_TOKEN = re.compile(r"\w{1,4}|[^\w\s]|\s{2,}")


def tokens(text: str) -> int:
    return len(_TOKEN.findall(text))


def turn_of(calls: Sequence[Call]) -> ScriptedTurn:
    return ScriptedTurn("", calls=[ScriptedCall(name, arguments) for name, arguments in calls])


def model_of(task: Task, *, programs: bool) -> ScriptedProvider:
    """A model that does the task."""
    if programs:
        return ScriptedProvider([turn_of([("run_code", {"code": task.code.strip()})]), "{{last}}"], tools=True)

    def turn(messages: Sequence[Message | TextMessage]) -> str | ScriptedTurn:
        values = [
            [
                next((part.value for part in result.content if isinstance(part, JsonPart)), result.text)
                for result in message.results
            ]
            for message in messages
            if isinstance(message, Message) and message.results
        ]
        following = task.rounds[len(values)](*values)
        return following if isinstance(following, str) else turn_of(following)

    return ScriptedProvider([turn] * len(task.rounds), tools=True)


def texts_of(messages: Sequence[Message | TextMessage]) -> list[str]:
    """What the model reads of a conversation, a text for each message."""
    texts: list[str] = []
    for message in messages:
        assert isinstance(message, Message), "the calls are native"
        calls = [f"{call.name} {json.dumps(dict(call.arguments))}" for call in message.calls if type(call) is ToolCall]
        texts.append(" ".join([message.text, *calls, *(result.text for result in message.results)]))
    return texts


def measure(task: Task, *, programs: bool) -> tuple[dict[str, int], str, list[str]]:
    """The figures of a task, its answer, and what it changed."""
    shop, model = Shop(), model_of(task, programs=programs)
    agent = Agent(model, shop.tools(), code_mode=programs, approve="all", limits=Limits(repeats=None))
    result = agent.run_sync(task.task)
    figures = {"turns": 0, "input": 0, "new": 0, "output": 0}
    before = 0
    for request in model.requests:
        definitions = [f"{each.name} {each.description} {json.dumps(dict(each.parameters))}" for each in request.tools]
        size = sum(map(tokens, [*definitions, *texts_of(request.messages)]))
        figures["turns"] += 1
        figures["input"] += size
        figures["new"] += size - before
        before = size
    figures["output"] = sum(map(tokens, texts_of([each for each in result.messages if each.role == "assistant"])))
    return figures, result.answer.strip(), sorted(shop.changes)


def compare() -> bool:
    """Prints the table of the tasks. Whether the answers agree and programs save turns."""
    print(f"{'':58}{'without programs':>28}{'with':>28}")
    columns = f"{'turns':>6}{'input':>8}{'new':>7}{'output':>7}"
    print(f"{'task':58}{columns}{columns}")
    sums: list[dict[str, int]] = [{"turns": 0, "input": 0, "new": 0, "output": 0} for _ in range(2)]
    good = True
    for task in TASKS:
        (plain, answer, changes), (short, other, other_changes) = (
            measure(task, programs=programs) for programs in (False, True)
        )
        good = good and answer == other and changes == other_changes and short["turns"] < plain["turns"]
        for total, figures in zip(sums, (plain, short), strict=True):
            for name, value in figures.items():
                total[name] += value
        print(f"{task.task[:57]:58}{row(plain)}{row(short)}{'' if answer == other else f'  {answer} / {other}'}")
    print(f"{'together':58}{row(sums[0])}{row(sums[1])}")
    print(f"{'with / without':58}{'':28}" + "".join(f"{sums[1][key] / sums[0][key]:>7.2f}" for key in sums[0]))
    return good


def row(figures: dict[str, int]) -> str:
    return f"{figures['turns']:>6}{figures['input']:>8}{figures['new']:>7}{figures['output']:>7}"


@tool(read_only=True)
async def look(number: int) -> int:
    """Looks."""
    return number


def one_turn(count: int) -> ScriptedProvider:
    return ScriptedProvider([turn_of([("look", {"number": n}) for n in range(count)]), "Done."], tools=True)


def turns(count: int) -> ScriptedProvider:
    return ScriptedProvider([*(turn_of([("look", {"number": n})]) for n in range(count)), "Done."], tools=True)


def program(code: str) -> Callable[[int], ScriptedProvider]:
    return lambda count: ScriptedProvider([turn_of([("run_code", {"code": code % count})]), "Done."], tools=True)


WAYS: dict[str, tuple[Callable[[int], ScriptedProvider], bool]] = {
    "one of a turn's calls": (one_turn, False),
    "alone in a turn": (turns, False),
    "in a program, one by one": (program("for n in range(%d): await look(n)"), True),
    "in a program, in a gather": (program("import asyncio\nawait asyncio.gather(*[look(n) for n in range(%d)])"), True),
    "the program alone": (program("%d"), True),
}


async def cost(count: int, rounds: int) -> None:
    """Prints what a call costs."""
    print(f"\na call in microseconds, of {count}{'CPU':>20}{'wall':>9}")
    for name, (make_model, programs) in WAYS.items():
        times: list[tuple[float, float]] = []
        for _ in range(rounds + 1):
            mode = programs and CodeMode(calls=count)
            agent = Agent(make_model(count), [look], code_mode=mode, limits=Limits(steps=None, repeats=None))
            began = time.process_time(), time.perf_counter()
            assert (await agent.run("Go.")).answer == "Done."
            times.append((time.process_time() - began[0], time.perf_counter() - began[1]))
        divisor = 1 if name == "the program alone" else count
        cpu, wall = (statistics.median(each[at] for each in times[1:]) / divisor * 1e6 for at in (0, 1))
        print(f"{name:38}{cpu:>14.0f}{wall:>9.0f}{'  (as a whole)' if divisor == 1 else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares tasks with and without programs.")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    good = compare()
    asyncio.run(cost(arguments.calls, arguments.rounds))
    sys.exit(not good)


if __name__ == "__main__":
    main()
