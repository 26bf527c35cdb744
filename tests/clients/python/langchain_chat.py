"""`langchain-openai`: a chat model with tools bound to it; the chunks of a stream are added up."""

from __future__ import annotations

from typing import Any

from cases import KEY, Case, chat_tools, main
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI


async def converse(case: Case) -> None:
    plain = ChatOpenAI(model="m", base_url=f"{case.url}/v1", api_key=KEY, max_retries=0, stream_usage=True)
    model = plain.bind_tools(chat_tools())
    messages: list[Any] = [HumanMessage(case.task)]
    case.calls, case.finishes, case.text = [], [], []
    while True:
        if case.stream:
            answer: Any = None
            async for chunk in model.astream(messages):
                case.parts += 1
                answer = chunk if answer is None else answer + chunk
        else:
            answer = await model.ainvoke(messages)
        messages.append(answer)
        assert not answer.invalid_tool_calls, answer.invalid_tool_calls
        case.finishes.append(answer.response_metadata["finish_reason"])
        case.text.append(answer.text)
        usage = answer.usage_metadata
        case.usage = usage and (usage["input_tokens"], usage["output_tokens"])
        if not answer.tool_calls:
            case.answer = answer.text
            return
        for call in answer.tool_calls:
            case.calls.append((call["id"], call["name"]))
            messages.append(ToolMessage(case.run(call["name"], call["args"]), tool_call_id=call["id"]))


main(converse)
