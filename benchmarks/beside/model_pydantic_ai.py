"""The scripted model of pydantic-ai's program. A real one is a string: "openai:gpt-5"."""

from __future__ import annotations

from pydantic_ai import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from shop import turn_of_the_model


def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    turn = turn_of_the_model(sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts))
    calls = {
        "stock": ToolCallPart("stock", {"item": "pear"}),
        "order": ToolCallPart("order", {"item": "pear", "count": 20}),
        "answer": ToolCallPart(info.output_tools[0].name, {"item": "pear", "quantity": 20}),
    }
    return ModelResponse(parts=[calls[turn]])


MODEL = FunctionModel(reply)
