"""How much of a request the gateway takes: what is too much is refused before anything is made of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import serve
from serving import ENDPOINTS, at, in_turn, run_gateway, texts

from toolspeak.gateway.http.asgi import check_values
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.gateway.settings.gateway_settings import Bounds

FEW = Bounds(json_values=60, messages=6, tool_definitions=5, name_chars=12)
HELLO = {"role": "user", "content": "Hi"}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a,[]{}"\\:é')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('k,[{"\\')), inner),
    max_leaves=30,
)


def body_of(path: str, messages: list[Any], **more: Any) -> dict[str, Any]:
    conversation = {"input": messages} if path == "/v1/responses" else {"messages": messages}
    return {"model": "m", "max_tokens" if path == "/v1/messages" else "temperature": 1, **conversation, **more}


def tool_of(path: str, name: str) -> dict[str, Any]:
    if path == "/v1/messages":
        return {"name": name, "input_schema": {"type": "object"}}
    function = {"name": name, "parameters": {"type": "object"}}
    return {"type": "function", **function} if path == "/v1/responses" else {"type": "function", "function": function}


def answers_and_requests(path: str, *contents: bytes, bounds: Bounds = FEW) -> tuple[list[httpx2.Response], int]:
    """The answers, and how often the upstream was asked."""

    async def run() -> tuple[list[httpx2.Response], int]:
        turns = [texts("Hello.") for _ in contents]
        async with (
            serve(in_turn(*turns)) as server,
            run_gateway(at(server, dialect="hermes"), bounds=bounds) as gateway,
        ):
            head = {"content-type": "application/json"}
            answers = [await gateway.client.post(path, content=each, headers=head) for each in contents]
            return answers, len(server.exchanges)

    return asyncio.run(run())


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("what", "status", "word"),
    [
        ("values", 413, "more than 60 values"),
        ("messages", 413, "7 are more than 6"),
        ("tools", 413, "6 are more than 5"),
        ("model", 400, "model has 13"),
        ("tool name", 400, "the name of a tool"),
    ],
)
def test_what_is_too_much_is_refused_and_the_next_request_is_answered(path: str, what: str, status: int, word: str):
    turns: list[Any] = [HELLO, {"role": "assistant", "content": "Hm."}]
    body = {
        "values": body_of(path, [HELLO], metadata=[[]] * 70),
        "messages": body_of(path, [*turns * 3, HELLO]),
        "tools": body_of(path, [HELLO], tools=[tool_of(path, f"t{i}") for i in range(6)]),
        "model": body_of(path, [HELLO]) | {"model": "m" * 13},
        "tool name": body_of(path, [HELLO], tools=[tool_of(path, "t" * 13)]),
    }[what]
    good = body_of(path, [HELLO], tools=[tool_of(path, "t" * 12)])
    (refusal, answer), times = answers_and_requests(path, json.dumps(body).encode(), json.dumps(good).encode())
    assert refusal.status_code == status, refusal.text
    assert word in refusal.text
    assert (answer.status_code, times) == (200, 1)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_brackets_commas_and_quotes_in_a_text_are_no_values(path: str):
    text = '[{"a": 1}, "b\\"]' * 50_000  # a body that is read in a thread, too
    (answer,), times = answers_and_requests(path, json.dumps(body_of(path, [{**HELLO, "content": text}])).encode())
    assert (answer.status_code, times) == (200, 1)


def values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values, inner))


@given(JSON_VALUES, st.booleans())
def test_values_are_counted_as_the_json_has_them(value: Any, plain: bool):
    """Never fewer than half of them, never more than twice, whatever their texts hold."""
    body = json.dumps(value, ensure_ascii=not plain).encode()
    check_values(body, 2 * values(value))
    if values(value) > 3:
        with pytest.raises(Failure):
            check_values(body, values(value) // 2 - 1)
