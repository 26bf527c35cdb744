"""A model whose calls are text, behind a server that takes calls out of the text itself."""

from __future__ import annotations

import asyncio

import pytest
from agent_helpers import TOOLS, OpenProvider

from toolspeak import Agent
from toolspeak.data.deltas import (
    BatchEnded,
    CallCompleted,
    CallStarted,
    PartEnded,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from toolspeak.data.messages import Message, Opaque, ReasoningPart, TextPart, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.errors import ProviderError
from toolspeak.providers.base import Capabilities
from toolspeak.testing import chunks
from toolspeak.wire.openai_chat import OPENAI_CHAT

CALL = {"id": "c0", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
CUT_CALL = {"id": "c0", "function": {"name": "add", "arguments": '{"a": '}}


@pytest.mark.parametrize("call", [CALL, CUT_CALL])
def test_tool_calls_that_the_server_took_out_are_not_lost_silently(call):
    message = {"content": "I add.", "tool_calls": [call]}
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}

    class Parses(OpenProvider):
        async def stream(self, request):
            assert not request.tools
            for delta in OPENAI_CHAT.decode_response(body):
                yield delta

    agent = Agent(model=Parses(), tools=TOOLS)
    with pytest.raises(ProviderError, match="switch its own tool-call parser off") as raised_error:
        asyncio.run(agent.run("do it"))
    assert not raised_error.value.retryable


def test_reasoning_and_text_that_a_server_ends_pass():
    message = {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}], "content": "So."}

    class Reasons(OpenProvider):
        async def stream(self, request):
            for delta in OPENAI_CHAT.decode_response({"choices": [{"message": message, "finish_reason": "stop"}]}):
                yield delta

    assert asyncio.run(Agent(model=Reasons(), tools=TOOLS).run("do it")).answer == "So."


SIGNATURE = Opaque("open", "m", {"signature": "s"})
PART_END = PartEnded("text", SIGNATURE)
NATIVE = (CallStarted(0, "add"), CallCompleted(0, "add", {"a": 1, "b": 2}), BatchEnded((0,), ok=True))


def parts_of(*deltas):
    """The parts of the first answer of a native model that streams these."""

    class Streams(OpenProvider):
        capabilities = Capabilities(tools=True)

        async def stream(self, request):
            has_result = any(message.role == "tool" for message in request.messages)
            for delta in (TextDelta("So."),) if has_result else deltas:
                yield delta
            yield TurnEnded("stop")

    result = asyncio.run(Agent(Streams(), TOOLS).run("do it"))
    return next(message for message in result.messages if message.role == "assistant").parts


@pytest.mark.parametrize("text", ['{"title": "x"}', "a < b, so <tool_cal", "```json\n{}\n```"])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_part_ends_after_its_text_even_where_that_is_held_back(text, size):
    first = [TextDelta(piece) for piece in chunks(text, size)]
    parts = parts_of(*first, PART_END, ReasoningDelta("hm"), PartEnded("reasoning", SIGNATURE), TextDelta(" and more"))
    assert parts == (TextPart(text, SIGNATURE), ReasoningPart("hm", SIGNATURE), TextPart("and more"))


def test_text_that_goes_back_as_it_came_is_no_echo_to_be_dropped():
    echo = TextDelta('{"a": 1, "b": 2}')
    text, call = parts_of(echo, PART_END, *NATIVE)
    assert text == TextPart(echo.text, SIGNATURE)
    assert call.arguments == {"a": 1, "b": 2}
    (call,) = parts_of(echo, PartEnded("text"), *NATIVE)
    assert call.arguments == {"a": 1, "b": 2}


def test_a_part_ends_after_a_call_in_its_text():
    call_text = get_dialect("hermes").render([Message("assistant", (ToolCall("", "add", {"a": 1, "b": 2}),))])[0].text
    first, *_ = parts_of(TextDelta(f"I add. {call_text}"), PART_END)
    assert (type(first), first.text.strip()) == (TextPart, "I add.")


def numbered_arguments(number):
    """The arguments of a call of these tests, by which it is known."""
    return {"a": number, "b": 0}


def native(*numbers):
    """Calls as the API gives them, by the numbers it gives them."""
    for number in numbers:
        yield CallStarted(number, "add")
        yield CallCompleted(number, "add", numbered_arguments(number))


def in_text(number):
    call = Message("assistant", (ToolCall("", "add", numbered_arguments(number)),))
    return TextDelta(f"I add. {get_dialect('hermes').render([call])[0].text}")


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ((*native(0), in_text(10), *native(1, 2)), [0, 10, 1, 2]),
        ((in_text(10), *native(0, 1)), [10, 0, 1]),
        ((*native(0, 1), in_text(10), in_text(11)), [0, 1, 10, 11]),
        ((*native(1, 0), in_text(10), *native(2)), [1, 0, 10, 2]),
        ((*native(3), in_text(10), *native(0, 4)), [3, 10, 0, 4]),
        ((in_text(10), in_text(11), *native(1, 0)), [10, 11, 1, 0]),
    ],
)
@pytest.mark.parametrize("ends_first", [False, True])
def test_calls_of_the_api_and_of_its_text_have_numbers_of_their_own(deltas, expected, ends_first):
    numbers = tuple(sorted(delta.index for delta in deltas if isinstance(delta, CallCompleted)))
    batch_end = BatchEnded(numbers, ok=True)
    at = max(place for place, delta in enumerate(deltas) if isinstance(delta, CallCompleted)) + 1
    deltas = (*deltas[:at], batch_end, *deltas[at:]) if ends_first else (*deltas, batch_end)
    calls = [part for part in parts_of(*deltas) if isinstance(part, ToolCall)]
    assert [call.arguments for call in calls] == [numbered_arguments(number) for number in expected]
    assert len({call.id for call in calls}) == len(expected)
