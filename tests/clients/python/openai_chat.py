"""The package `openai`: Chat Completions, plain and with its stream helper."""

from __future__ import annotations

import json
from typing import Any

from cases import KEY, Case, chat_tools, main
from openai import AsyncOpenAI


async def read_stream(client: AsyncOpenAI, case: Case, request: dict[str, Any]) -> Any:
    """The helper puts the calls together; what it makes them of is looked at too."""
    earlier: set[tuple[int, str]] = set()
    async with client.chat.completions.stream(**request, stream_options={"include_usage": True}) as stream:
        async for event in stream:
            if event.type != "chunk":
                continue
            case.parts += 1
            for choice in event.chunk.choices:
                for call in choice.delta.tool_calls or ():
                    assert call.function is not None
                    fields = {"id": call.id, "type": call.type, "name": call.function.name}
                    for what, value in fields.items():
                        if value is not None and (call.index, what) in earlier:
                            case.repeated.append(f"{what} {value}")
                        elif value is not None:
                            earlier.add((call.index, what))
        return await stream.get_final_completion()


async def converse(case: Case) -> None:
    messages: list[Any] = [{"role": "user", "content": case.task}]
    case.calls, case.finishes, case.text = [], [], []
    async with AsyncOpenAI(base_url=f"{case.url}/v1", api_key=KEY, max_retries=0) as client:
        while True:
            request: dict[str, Any] = {"model": "m", "messages": messages, "tools": chat_tools()}
            if case.stream:
                completion = await read_stream(client, case, request)
            else:
                completion = await client.chat.completions.create(**request)
            choice = completion.choices[0]
            case.finishes.append(choice.finish_reason)
            case.text.append(choice.message.content or "")
            case.usage = completion.usage and (completion.usage.prompt_tokens, completion.usage.completion_tokens)
            if not choice.message.tool_calls:
                case.answer = choice.message.content
                return
            messages.append(choice.message)
            for call in choice.message.tool_calls:
                case.calls.append((call.id, call.function.name))
                result = case.run(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


main(converse)
