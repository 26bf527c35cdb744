"""`pydantic-ai` with its OpenAI chat model: its agent runs the tools."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

from cases import KEY, Case, main
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def converse(case: Case) -> None:
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{case.url}/v1", api_key=KEY))
    agent = Agent(model, tools=case.functions())

    async def watch(context: RunContext[None], events: AsyncIterable[Any]) -> None:
        async for _ in events:
            case.parts += 1

    result = await agent.run(case.task, event_stream_handler=watch if case.stream else None)
    answers = [message for message in result.all_messages() if isinstance(message, ModelResponse)]
    case.answer = result.output
    case.text = [answer.text or "" for answer in answers]
    case.finishes = [str(answer.finish_reason) for answer in answers]
    case.calls = [(call.tool_call_id, call.tool_name) for answer in answers for call in answer.tool_calls]
    case.usage = (answers[-1].usage.input_tokens, answers[-1].usage.output_tokens)


main(converse)
