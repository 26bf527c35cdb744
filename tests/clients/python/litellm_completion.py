"""`litellm`: `python litellm_completion.py openai` or `anthropic`, over that API; it joins a stream's chunks itself."""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm
from cases import KEY, Case, chat_tools, main

API = sys.argv[1]
litellm.suppress_debug_info = True  # it is printed among our answers


async def converse(case: Case) -> None:
    messages: list[Any] = [{"role": "user", "content": case.task}]
    case.calls, case.finishes, case.text = [], [], []
    base = f"{case.url}/v1" if API == "openai" else case.url
    while True:
        request: dict[str, Any] = {"model": f"{API}/m", "messages": messages, "tools": chat_tools()}
        request |= {"api_base": base, "api_key": KEY, "max_retries": 0}
        if case.stream:
            stream = await litellm.acompletion(**request, stream=True, stream_options={"include_usage": True})
            chunks = [chunk async for chunk in stream]
            case.parts += len(chunks)
            completion: Any = litellm.stream_chunk_builder(chunks, messages=messages)
        else:
            completion = await litellm.acompletion(**request)
        choice = completion.choices[0]
        case.finishes.append(choice.finish_reason)
        case.text.append(choice.message.content or "")
        case.usage = (completion.usage.prompt_tokens, completion.usage.completion_tokens)
        messages.append(choice.message)
        if not choice.message.tool_calls:
            case.answer = choice.message.content
            return
        for call in choice.message.tool_calls:
            case.calls.append((call.id, call.function.name))
            result = case.run(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


main(converse)
