"""`openai-agents` over either API: `python agents_sdk.py chat` or `responses`; its runner runs the tools."""

from __future__ import annotations

import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.items import MessageOutputItem, ToolCallItem
from cases import KEY, Case, main
from openai import AsyncOpenAI

MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
KIND = MODELS[sys.argv[1]]


async def converse(case: Case) -> None:
    async with AsyncOpenAI(base_url=f"{case.url}/v1", api_key=KEY, max_retries=0) as client:
        agent = Agent(
            name="forecaster",
            model=KIND(model="m", openai_client=client),
            model_settings=ModelSettings(include_usage=True, store=False),
            tools=[function_tool(each, strict_mode=False) for each in case.functions()],
        )
        if case.stream:
            result = Runner.run_streamed(agent, case.task)
            async for _ in result.stream_events():
                case.parts += 1
        else:
            result = await Runner.run(agent, case.task)
    case.answer = result.final_output
    calls = [item.raw_item for item in result.new_items if isinstance(item, ToolCallItem)]
    case.calls = [(call.call_id, call.name) for call in calls]
    messages = [item.raw_item for item in result.new_items if isinstance(item, MessageOutputItem)]
    case.text = ["".join(part.text for part in item.content) for item in messages]
    last = result.raw_responses[-1].usage
    case.usage = (last.input_tokens, last.output_tokens)


set_tracing_disabled(True)
main(converse)
