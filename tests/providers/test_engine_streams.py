"""Streams as inference engines send them, replayed in pieces: llama.cpp's as recorded, the others in the same form."""

from __future__ import annotations

from typing import Any

import pytest
from loopback_server import stream
from openai_turns import ask

from toolspeak.data.deltas import BatchEnded, CallCompleted, CallMalformed, CallStarted, Delta, TextDelta, TurnEnded

# llama.cpp's server: the last chunk and the usage come in one piece, two calls behind each other.
LLAMA_TWO = b"""\
data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"model":"tiny"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":0,"id":"tnEK","type":"function",\
"function":{"name":"get_weather","arguments":"{"}}]}}],"model":"tiny"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":0,\
"function":{"arguments":"\\"city\\": \\"Rome\\"}"}}]}}],"model":"tiny"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":1,"id":"Rpdf","type":"function",\
"function":{"name":"get_time","arguments":"{"}}]}}],"model":"tiny"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]}}],\
"model":"tiny"}

data: {"choices":[{"finish_reason":"tool_calls","index":0,"delta":{}}],"model":"tiny"}

data: {"choices":[],"model":"tiny","usage":{"completion_tokens":28,"prompt_tokens":478,\
"prompt_tokens_details":{"cached_tokens":461}},"timings":{"cache_n":461}}

data: [DONE]

"""

# The same, with a stop text inside the arguments: half an object, and `tool_calls` nevertheless.
LLAMA_STOPPED = b"""\
data: {"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":0,"id":"FzFD","type":"function",\
"function":{"name":"get_weather","arguments":"{"}}]}}],"model":"tiny"}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":0,\
"function":{"arguments":"\\"city\\": \\"Paris\\", \\""}}]}}],"model":"tiny"}

data: {"choices":[{"finish_reason":"tool_calls","index":0,"delta":{}}],"model":"tiny"}

data: [DONE]

"""

# vLLM held to a JSON Schema: white space until the tokens end.
VLLM_BLANK = (
    b'data: {"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
    + b'data: {"model":"tiny","choices":[{"index":0,"delta":{"content":"\\n\\n"},"finish_reason":null}]}\n\n' * 3
    + b'data: {"model":"tiny","choices":[{"index":0,"delta":{"content":""},"finish_reason":"length"}]}\n\n'
    + b"data: [DONE]\n\n"
)

# vLLM's `required` behind a reasoning parser, and mlx-lm that could not read a call: calls are promised, none comes.
NO_CALLS = b"""\
data: {"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[]},\
"finish_reason":null}]}

data: {"model":"tiny","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: [DONE]

"""


def read(content: bytes, size: int) -> list[Delta]:
    return ask(stream(*(content[at : at + size] for at in range(0, len(content), size))))[0]


sizes = pytest.mark.parametrize("size", [1, 7, 10_000])


@sizes
def test_two_calls_of_llama_cpp(size: int):
    deltas = read(LLAMA_TWO, size)
    assert [(each.index, each.name, each.id) for each in deltas if isinstance(each, CallStarted)] == [
        (0, "get_weather", "tnEK"),
        (1, "get_time", "Rpdf"),
    ]
    assert [each.arguments for each in deltas if isinstance(each, CallCompleted)] == [{"city": "Rome"}, {}]
    end: Any = deltas[-1]
    assert (end.finish, end.usage.input, end.usage.output, end.usage.cached) == ("tool_calls", 478, 28, 461)


@sizes
def test_a_call_that_a_stop_text_cut_does_not_run(size: int):
    deltas = read(LLAMA_STOPPED, size)
    (malformed_call,) = (each for each in deltas if isinstance(each, CallMalformed))
    assert malformed_call.raw == '{"city": "Paris", "'
    assert deltas[-2:] == [BatchEnded((), False), TurnEnded("tool_calls", model="tiny")]


@sizes
def test_white_space_until_the_limit_is_a_cut_text(size: int):
    deltas = read(VLLM_BLANK, size)
    assert deltas == [*[TextDelta("\n\n")] * 3, TurnEnded("length", model="tiny")]


@sizes
def test_calls_that_were_promised_and_did_not_come(size: int):
    assert read(NO_CALLS, size) == [TurnEnded("tool_calls", model="tiny")]
