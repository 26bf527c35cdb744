# pyright: strict
"""What a run streams, an approver is asked, and an interceptor wraps."""

from typing import assert_type

from toolspeak import Agent, Approval, ApprovalRequest, Decision, Executor, Limits, Record, Rule, ToolCall, ToolResult
from toolspeak.data.deltas import TextDelta
from toolspeak.data.events import RunFinished
from toolspeak.interceptors import Cache, HumanFeedback, ModelRateLimit, ModelRetry, RateLimit, Retry, Timeout


async def ask(request: ApprovalRequest) -> bool:
    return request.effects.read_only


async def decide(request: ApprovalRequest) -> Decision:
    return Decision(request.call.name == "read", "only reads")


def refuse(request: ApprovalRequest) -> bool:
    return False


agent = Agent("openai:qwen3", approve=ask, limits=Limits(steps=3))
careful = Agent("openai:qwen3", approve=Approval(decide, policy=[Rule("reject", tool="shell")]))


async def watch() -> str:
    text = ""
    async for each in agent.stream("Look."):
        match each:
            case TextDelta(text=piece):
                assert_type(piece, str)
                text += piece
            case Record(event=RunFinished(answer=answer)):
                assert_type(answer, str)
                return answer
            case _:
                pass
    return text


Agent("openai:qwen3", approve="yes")  # wrong
Agent("openai:qwen3", approve=refuse)  # wrong
Agent("openai:qwen3", limits=3)  # wrong
Agent("openai:qwen3", steps=3)  # wrong
Limits(steps="3")  # wrong


def look_up(item: str) -> str:
    return item


async def ask_person(call: ToolCall, result: ToolResult | None) -> str | None:
    return None if result is None else call.name


guarded_agent = Agent(
    "openai:qwen3",
    interceptors=[
        Retry(2, tools=["look_up"]),
        ModelRetry(when=lambda error: error.code == "overloaded"),
        Cache(seconds=60),
        RateLimit(2, seconds=1.5, each=True),
        ModelRateLimit(10),
        Timeout({"look_up": 3}),
        HumanFeedback(ask_person, when="instead"),
    ],
)
Executor([look_up], interceptors=(Retry(), Timeout(5)))


async def own_loop(calls: list[ToolCall]) -> str:
    batch = await Executor([look_up], approve="all").run(calls)
    assert_type(batch.results, tuple[ToolResult, ...])
    return batch.results[0].text


Executor([look_up], approve=refuse)  # wrong
Executor(look_up)  # wrong
Executor([look_up], interceptors=(ModelRetry(),))  # wrong
Retry(when=lambda result: result.seconds)  # wrong
HumanFeedback(ask_person, when="later")  # wrong
HumanFeedback(look_up)  # wrong
