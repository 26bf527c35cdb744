"""`toolspeak translate`."""

from __future__ import annotations

import json

import pytest
from command import toolspeak

CONVERSATION = [
    {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "in it?"}]},
    {"role": "assistant", "content": '<tool_call>\n{"name": "read", "arguments": {"n": 5}}\n</tool_call>'},
    {"role": "user", "content": "<tool_response>\n\ud800 five\n</tool_response>"},
]
ARGUMENTS = ("translate", "--from", "hermes", "--to", "qwen3_coder")


def test_it_prints_the_conversation_in_the_other_dialect(tmp_path):
    process = toolspeak(*ARGUMENTS, reply=json.dumps(CONVERSATION), cwd=tmp_path)
    assert (process.returncode, process.stderr) == (0, b"")
    there = json.loads(process.stdout)
    assert [message["role"] for message in there] == ["user", "assistant", "user"]
    assert there[0]["content"] == "What is in it?"
    assert there[1]["content"].count("<function=read>") == 1
    assert "\ud800 five" in there[2]["content"]
    tools = [{"name": "read", "parameters": {"properties": {"n": {"type": "integer"}}}}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    back = ("translate", "--from", "qwen3_coder", "--to", "hermes", "--tools", "tools.json")
    process = toolspeak(*back, reply=process.stdout, cwd=tmp_path)
    assert json.loads(process.stdout)[1:] == CONVERSATION[1:]


def test_warnings_go_to_standard_error(tmp_path):
    conversation = [{"role": "assistant", "content": "<tool_call>{</tool_call>"}]
    process = toolspeak(*ARGUMENTS, reply=json.dumps(conversation), cwd=tmp_path)
    assert process.returncode == 0
    assert b"message 0: a call is malformed" in process.stderr


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("{", "not JSON"),
        ("{}", "expected an array"),
        ("[1]", 'message 0: expected {"role", "content"}, found 1'),
        ('[{"role": "user", "content": "a"}, {"role": "robot", "content": ""}]', 'message 1: "role": expected one of'),
        ('[{"role": "user"}]', 'message 0: "content": expected a string, found null'),
        ('[{"role": "user", "content": [{"type": "image_url"}]}]', 'message 0: "content"'),
        ('[{"role": "assistant", "content": null, "tool_calls": [{}]}]', 'message 0: "tool_calls" are not text'),
    ],
)
def test_a_conversation_that_is_none_is_named(reply, error, tmp_path):
    process = toolspeak(*ARGUMENTS, reply=reply, cwd=tmp_path)
    assert (process.returncode, process.stdout) == (2, b"")
    assert error in process.stderr.decode()
