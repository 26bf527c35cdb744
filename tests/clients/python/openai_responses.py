"""The package `openai`: the Responses API, plain and streamed; what came back is sent again as it is."""

from __future__ import annotations

import json
from typing import Any

from cases import DESCRIPTIONS, KEY, SCHEMAS, Case, main
from openai import AsyncOpenAI

TOOLS: list[Any] = [
    {"type": "function", "name": name, "description": DESCRIPTIONS[name], "parameters": schema, "strict": False}
    for name, schema in SCHEMAS.items()
]


async def read_stream(client: AsyncOpenAI, case: Case, request: dict[str, Any]) -> Any:
    numbers: list[int] = []
    async with client.responses.stream(**request) as stream:
        async for event in stream:
            case.parts += 1
            numbers.append(event.sequence_number)
        assert numbers == sorted(set(numbers)), numbers
        return await stream.get_final_response()


async def converse(case: Case) -> None:
    history: list[Any] = [{"role": "user", "content": case.task}]
    case.calls, case.finishes, case.text = [], [], []
    async with AsyncOpenAI(base_url=f"{case.url}/v1", api_key=KEY, max_retries=0) as client:
        while True:
            request: dict[str, Any] = {"model": "m", "input": history, "tools": TOOLS, "store": False}
            if case.stream:
                response = await read_stream(client, case, request)
            else:
                response = await client.responses.create(**request)
            case.finishes.append(response.status)
            case.text.append(response.output_text)
            case.usage = response.usage and (response.usage.input_tokens, response.usage.output_tokens)
            history += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                case.answer = response.output_text
                return
            for call in calls:
                case.calls.append((call.call_id, call.name))
                result = case.run(call.name, json.loads(call.arguments))
                history.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


main(converse)
