"""Compares two models on the same tasks: correct answers, steps, tokens and malformed calls.

python examples/evaluate_models.py
python examples/evaluate_models.py ollama:qwen3:8b ollama:llama3.1:8b
"""

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path

from toolspeak import Agent, Limits, MalformedCall, ProviderError, RunResult, tool

SCRIPTS = Path(__file__).parent / "scripts"
MODELS = [f"scripted:{SCRIPTS}/evaluate_models_{name}.json" for name in ("good", "weak")]
TASKS = {"What is 19 + 23?": "42", "What is 6 * 7?": "42", "How many letters has `strawberry`?": "10"}


@tool(read_only=True)
def calculate(first: float, operator: str, second: float) -> float:
    """Calculates; the operator is +, -, * or /."""
    return {"+": first + second, "-": first - second, "*": first * second, "/": first / (second or 1)}[operator]


@tool(read_only=True)
def count_letters(word: str) -> int:
    """How many letters a word has."""
    return len(word)


@dataclass
class Score:
    right: int = 0
    steps: int = 0
    tokens: int = 0
    malformed_calls: int = 0
    problems: list[str] = field(default_factory=list[str])

    def add(self, task: str, expected: str, result: RunResult) -> None:
        self.right += expected in result.answer
        self.steps += len(result.steps)
        self.tokens += result.usage.output or 0
        self.malformed_calls += sum(
            isinstance(part, MalformedCall) for step in result.steps for part in step.message.parts
        )
        if expected not in result.answer:
            self.problems.append(f"{task} {result}")


async def evaluate(model: str) -> Score:
    score = Score()
    for task, expected in TASKS.items():
        agent = Agent(model, [calculate, count_letters], dialect="hermes", limits=Limits(steps=6))
        try:
            score.add(task, expected, await agent.run(task))
        except ProviderError as error:
            score.problems.append(f"{task} {error}")
    return score


async def main(models: list[str]) -> None:
    scores = await asyncio.gather(*map(evaluate, models))
    print(f"{'model':40} {'right':>7} {'steps':>6} {'tokens':>7} {'malformed':>10}")
    for model, score in zip(models, scores, strict=True):
        name = model.rpartition("/")[2]
        print(
            f"{name:40} {score.right:>3} / {len(TASKS)} {score.steps:>6} {score.tokens:>7} {score.malformed_calls:>10}"
        )
        for problem in score.problems:
            print(f"    {problem}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or MODELS))
