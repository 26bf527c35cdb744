"""A model whose calls are text, behind a server that takes calls out of the text itself."""

from __future__ import annotations

import asyncio

import pytest
from agent_helpers import TOOLS, OpenProvider

from toolspeak import Agent
from toolspeak.errors import ProviderError
from toolspeak.wire.openai_chat import OPENAI_CHAT

CALL = {"id": "c0", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
BROKEN = {"id": "c0", "function": {"name": "add", "arguments": '{"a": '}}


@pytest.mark.parametrize("call", [CALL, BROKEN])
def test_tool_calls_that_the_server_took_out_are_not_lost_silently(call):
    message = {"content": "I add.", "tool_calls": [call]}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}

    class Parses(OpenProvider):
        async def stream(self, request):
            assert not request.tools
            for delta in OPENAI_CHAT.decode_response(body):
                yield delta

    agent = Agent(model=Parses(), tools=TOOLS)
    with pytest.raises(ProviderError, match="switch its own tool-call parser off") as caught:
        asyncio.run(agent.run("do it"))
    assert not caught.value.retryable


def test_reasoning_and_text_that_a_server_ends_pass():
    message = {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}], "content": "So."}

    class Reasons(OpenProvider):
        async def stream(self, request):
            for delta in OPENAI_CHAT.decode_response({"choices": [{"message": message, "finish_reason": "stop"}]}):
                yield delta

    assert asyncio.run(Agent(model=Reasons(), tools=TOOLS).run("do it")).answer == "So."
