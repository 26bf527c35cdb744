"""Clients that nobody here wrote, in conversations with tools through the gateway (`make test-clients`).

Each conversation is: a task, the model's calls, their results, the answer. The model server says its part in the
dialect that the gateway was started for; `native` is one whose calls are not text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from conversations import CLIENTS, task_of
from upstream import ANSWER, CALLS, DIALECTS, LOOK, NATIVE, RESULTS, USAGE, Upstream

pytestmark = [
    pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"]),
    pytest.mark.parametrize("topic", CALLS),
    pytest.mark.parametrize("dialect", DIALECTS),
    pytest.mark.parametrize("client", CLIENTS),
]
Telling = Callable[[str], dict[str, Any]]


def test_the_tools_run_and_the_answer_comes(told: Telling, client: str, dialect: str, topic: str, stream: bool):
    seen = told(client)[task_of(topic, client, dialect, stream)]
    assert "error" not in seen, seen["error"]
    assert [tuple(each) for each in seen["ran"]] == CALLS[topic]
    assert seen["answer"].strip() == ANSWER
    said = [text.strip() for text in seen["text"]]
    assert [text for text in said if text] == ([LOOK, ANSWER] if topic == "#one" else [ANSWER])
    names, ids = [name for _, name in seen["calls"]], [each for each, _ in seen["calls"]]
    assert names == [name for name, _ in CALLS[topic]]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert seen["repeated"] == []
    if CLIENTS[client].finishes is not None:
        assert tuple(seen["finishes"]) == CLIENTS[client].finishes
    if CLIENTS[client].usage:
        assert seen["usage"] == [USAGE["prompt_tokens"], USAGE["completion_tokens"]]
    if stream:
        assert seen["parts"] > len(ANSWER) / 5, "the answer came in few pieces: it was held back"


def written(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content or ())


def test_the_model_reads_the_results(
    told: Telling, upstream: tuple[Upstream, str], client: str, dialect: str, topic: str, stream: bool
):
    task = task_of(topic, client, dialect, stream)
    told(client)
    first, second = upstream[0].asked[task]
    assert second["messages"][: len(first["messages"])] == first["messages"], "the server's cache would not hold"
    if dialect == NATIVE:
        assert [tool["function"]["name"] for tool in first["tools"]] == ["get_weather", "get_time"]
        *_, assistant = (message for message in second["messages"] if message["role"] == "assistant")
        results = [message for message in second["messages"] if message["role"] == "tool"]
        assert [each["tool_call_id"] for each in results] == [call["id"] for call in assistant["tool_calls"]]
        assert [json.loads(call["function"]["arguments"]) for call in assistant["tool_calls"]] == [
            arguments for _, arguments in CALLS[topic]
        ]
        assert [written(each["content"]) for each in results] == RESULTS[topic]
    else:
        assert "tools" not in first
        assert all(name in written(first["messages"][0]["content"]) for name in ("get_weather", "get_time"))
        read = written(second["messages"][-1]["content"])
        for result in RESULTS[topic]:
            assert result in read or json.dumps(result, ensure_ascii=False) in read, read
