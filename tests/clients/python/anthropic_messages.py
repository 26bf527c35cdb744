"""The package `anthropic`: Messages, plain and with its stream helper."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic
from cases import DESCRIPTIONS, KEY, SCHEMAS, Case, main

TOOLS: list[Any] = [
    {"name": name, "description": DESCRIPTIONS[name], "input_schema": schema} for name, schema in SCHEMAS.items()
]


async def converse(case: Case) -> None:
    messages: list[Any] = [{"role": "user", "content": case.task}]
    case.calls, case.finishes, case.text = [], [], []
    async with AsyncAnthropic(base_url=case.url, api_key=KEY, max_retries=0) as client:
        while True:
            request: dict[str, Any] = {"model": "m", "max_tokens": 1000, "messages": messages, "tools": TOOLS}
            if case.stream:
                async with client.messages.stream(**request) as stream:
                    async for _ in stream:
                        case.parts += 1
                    message = await stream.get_final_message()
            else:
                message = await client.messages.create(**request)
            text = "".join(block.text for block in message.content if block.type == "text")
            case.finishes.append(str(message.stop_reason))
            case.text.append(text)
            case.usage = (message.usage.input_tokens, message.usage.output_tokens)
            if message.stop_reason != "tool_use":
                case.answer = text
                return
            results: list[Any] = []
            for block in message.content:
                if block.type == "tool_use":
                    case.calls.append((block.id, block.name))
                    result = case.run(block.name, block.input)
                    results.append({"type": "tool_result", "tool_use_id": block.id, "content": result})
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


main(converse)
