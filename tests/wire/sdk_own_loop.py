"""The guide about a loop of one's own, against the `openai` package: the dictionaries it shows are that package's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import TypeAdapter

from test_pages import program_of

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "executor-alone.md"


def test_the_guides_messages_and_tools_are_those_of_the_package():
    page: dict[str, Any] = {"__name__": "guide"}
    exec(program_of(GUIDE), page)
    definitions: list[Any] = []

    def model(messages: list[Any], tools: list[Any]) -> dict[str, Any]:
        definitions.extend(tools)
        message_json = {"role": "assistant", "content": "Let me see.", "tool_calls": None}
        if len(messages) == 1:
            function = {"name": "look_up", "arguments": '{"item": "apple"}'}
            message_json["tool_calls"] = [{"id": "a", "type": "function", "function": function}]
        return ChatCompletionMessage.model_validate(message_json).model_dump(exclude_none=True)

    page["model"] = model

    messages = asyncio.run(page["chat"]("How many?"))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    for message in messages:
        TypeAdapter(ChatCompletionMessageParam).validate_python(message)
    for each in definitions:
        assert TypeAdapter(ChatCompletionToolParam).validate_python(each) == each
