"""Clients that nobody here wrote, in conversations with tools through the gateway (`make test-clients`).

Each conversation is: a task, the model's calls, their results, the answer. The model server says its part in the
dialect that the gateway was started for; `native` is one whose calls are not text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from conversations import CLIENTS, FAILING, LOCKED_GATEWAY, MALFORMED_TALKS, REGULAR, Talk
from upstream import ANSWER, CALLS, LOOK, NATIVE, REPAIRED_CALL, RESULTS, USAGE, Upstream

Telling = Callable[[Talk], dict[str, Any]]


@pytest.mark.parametrize("talk", REGULAR, ids=str)
def test_the_tools_run_and_the_answer_comes(outcome_of: Telling, talk: Talk):
    outcome, client = outcome_of(talk), CLIENTS[talk.client]
    assert "error" not in outcome, outcome["error"]
    # Some clients run the calls of a turn at once, in any order; `calls`, below, are in the model's.
    assert sorted(outcome["ran"], key=str) == sorted(map(list, CALLS[talk.topic]), key=str)
    assert outcome["answer"].strip() == ANSWER
    # White space alone, as it stands between calls, would be a message of its own: an empty bubble on a screen.
    texts = [text.rstrip() for text in outcome["text"] if text]
    assert texts == ([LOOK, ANSWER] if talk.topic == "#one" else [ANSWER])
    names, ids = [name for _, name in outcome["calls"]], [each for each, _ in outcome["calls"]]
    assert names == [name for name, _ in CALLS[talk.topic]]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert outcome["repeated"] == []
    if client.finishes is not None:
        assert tuple(outcome["finishes"]) == client.finishes
    if client.usage:
        assert outcome["usage"] == [USAGE["prompt_tokens"], USAGE["completion_tokens"]]
    if talk.stream:
        assert outcome["parts"] > len(ANSWER) / 5, "the answer came in few pieces: it was held back"


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content or ())


@pytest.mark.parametrize("talk", REGULAR, ids=str)
def test_the_model_reads_the_results(outcome_of: Telling, upstream: tuple[Upstream, str], talk: Talk):
    outcome_of(talk)
    first, second = upstream[0].requests[talk.task]
    assert second["messages"][: len(first["messages"])] == first["messages"], "the server's cache would not hold"
    if talk.gateway == NATIVE:
        assert [tool["function"]["name"] for tool in first["tools"]] == ["get_weather", "get_time"]
        *_, assistant = (message for message in second["messages"] if message["role"] == "assistant")
        results = [message for message in second["messages"] if message["role"] == "tool"]
        assert [each["tool_call_id"] for each in results] == [call["id"] for call in assistant["tool_calls"]]
        assert [json.loads(call["function"]["arguments"]) for call in assistant["tool_calls"]] == [
            arguments for _, arguments in CALLS[talk.topic]
        ]
        assert [text_of(each["content"]) for each in results] == RESULTS[talk.topic]
    else:
        assert "tools" not in first
        assert all(name in text_of(first["messages"][0]["content"]) for name in ("get_weather", "get_time"))
        read = text_of(second["messages"][-1]["content"])
        for result in RESULTS[talk.topic]:
            assert result in read or json.dumps(result, ensure_ascii=False) in read, read


@pytest.mark.parametrize("talk", MALFORMED_TALKS, ids=str)
def test_a_call_that_cannot_be_read_never_runs(outcome_of: Telling, talk: Talk):
    """Whatever the client makes of it: it may ask again by itself, and then runs what the model writes next."""
    outcome = outcome_of(talk)
    assert outcome.get("ran", []) in ([], [list(REPAIRED_CALL)]), outcome


@pytest.mark.parametrize(
    "talk", [talk for talk in MALFORMED_TALKS if talk.gateway == "holding" or not talk.stream], ids=str
)
def test_a_call_that_cannot_be_read_is_text(outcome_of: Telling, talk: Talk):
    outcome = outcome_of(talk)
    assert "error" not in outcome, outcome["error"]
    if talk.gateway in ("sure", "repairing"):
        assert (outcome["ran"], outcome["answer"]) == ([list(REPAIRED_CALL)], ANSWER)
    else:
        assert outcome["ran"] == []
        assert '{"city": "Rome", "days": }' in outcome["answer"]


@pytest.mark.parametrize("talk", [talk for talk in MALFORMED_TALKS if talk.gateway == "sure"], ids=str)
def test_a_call_that_cannot_be_read_is_asked_for_again(outcome_of: Telling, upstream: tuple[Upstream, str], talk: Talk):
    outcome = outcome_of(talk)
    assert "error" not in outcome, outcome["error"]
    assert (outcome["ran"], outcome["answer"]) == ([list(REPAIRED_CALL)], ANSWER)
    assert len(upstream[0].requests[talk.task]) == 3
    assert "<tool_call>" not in "".join(outcome["text"])


@pytest.mark.parametrize("talk", FAILING, ids=str)
def test_a_failure_is_an_error_of_the_client(outcome_of: Telling, talk: Talk):
    """No half answer is taken for a whole one."""
    outcome = outcome_of(talk)
    assert "error" in outcome, outcome
    if talk.gateway == LOCKED_GATEWAY:
        assert "401" in outcome["error"] or "auth" in outcome["error"].lower()
