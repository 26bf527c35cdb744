"""A call without a name is reported as such: no lookup happens for an empty tool name."""

import pytest

from toolspeak import tool
from toolspeak.data.deltas import CallMalformed
from toolspeak.dialects import get_dialect


@tool(read_only=True)
def f(a: int = 0) -> str:
    "Does something."
    return str(a)


ARGUMENTS = "<arg_key>a</arg_key><arg_value>1</arg_value>"
NAMELESS = {
    "claude-legacy": "<function_calls><invoke><tool_name></tool_name><parameters><a>1</a></parameters></invoke>"
    "</function_calls>",
    "glm45": f"<tool_call>\n{ARGUMENTS}\n</tool_call>",
    "kimi-k3": '<|open|>tools<|sep|><|open|>call index="1"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
    "plamo3": "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>"
    "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:msg|>{}<|plamo:end_tool_arguments:plamo|>"
    "<|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>",
}


@pytest.mark.parametrize("name", NAMELESS)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_malformed_call_without_a_name_has_none(name, size):
    parser = get_dialect(name).parser([f.spec])
    text = NAMELESS[name]
    deltas = [delta for i in range(0, len(text), size) for delta in parser.feed(text[i : i + size])]
    deltas += parser.close("stop")
    (malformed_call,) = [delta for delta in deltas if type(delta) is CallMalformed]
    assert malformed_call.name is None
    assert malformed_call.raw
