"""The scripted model of openai-agents' program. A real one is a string: "gpt-5"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelResponse, TResponseInputItem, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from shop import turn_of_the_model

ARGUMENTS = {"stock": '{"item": "pear"}', "order": '{"item": "pear", "count": 20}'}


class ScriptedModel(Model):
    async def get_response(
        self, system_instructions: str | None, input: str | list[TResponseInputItem], *rest: Any, **options: Any
    ) -> ModelResponse:
        items = [] if isinstance(input, str) else input
        turn = turn_of_the_model(sum(item.get("type") == "function_call_output" for item in items))
        if turn in ARGUMENTS:
            output = ResponseFunctionToolCall(
                call_id=f"call_{turn}", type="function_call", name=turn, arguments=ARGUMENTS[turn]
            )
        else:
            text = ResponseOutputText(text='{"item": "pear", "quantity": 20}', type="output_text", annotations=[])
            output = ResponseOutputMessage(
                id="message", type="message", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *rest: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


MODEL = ScriptedModel()
