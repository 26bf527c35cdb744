"""The package `anthropic`: its tool runner, which runs the tools itself, and would have the server keep the talk."""

from __future__ import annotations

from anthropic import AsyncAnthropic, beta_async_tool
from cases import KEY, Case, main


async def converse(case: Case) -> None:
    @beta_async_tool
    async def get_weather(city: str, days: int) -> str:
        """The weather of the next days."""
        return case.run("get_weather", {"city": city, "days": days})

    @beta_async_tool
    async def get_time(city: str) -> str:
        """The time of day."""
        return case.run("get_time", {"city": city})

    case.calls, case.finishes, case.text = [], [], []
    async with AsyncAnthropic(base_url=case.url, api_key=KEY, max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model="m",
            max_tokens=1000,
            messages=[{"role": "user", "content": case.task}],
            tools=[get_weather, get_time],
            stream=case.stream,
        )
        async for turn in runner:
            if case.stream:
                async for _ in turn:
                    case.parts += 1
                message = await turn.get_final_message()
            else:
                message = turn
            text = "".join(block.text for block in message.content if block.type == "text")
            case.answer = text
            case.finishes.append(str(message.stop_reason))
            case.text.append(text)
            case.calls += [(block.id, block.name) for block in message.content if block.type == "tool_use"]
            case.usage = (message.usage.input_tokens, message.usage.output_tokens)


main(converse)
