"""Requests with tools to a model with native calls, on a server with the client's API: what needs no repair passes
unchanged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_server import STREAM_HEAD, Answer, Exchange, Server, event, hang_up, http_chunks, serve, stream, whole
from serving import ENDPOINTS, at, events, in_turn, read, run_gateway

from sweeps import fewer
from toolspeak.data.messages import ToolCall

CHAT, RESPONSES, MESSAGES = ENDPOINTS
PROVIDERS = {CHAT: "openai", RESPONSES: "openai-responses", MESSAGES: "anthropic"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "x", "parameters": SCHEMA, "x_tool": 1}
CALL_TURN = {
    "role": "assistant",
    "content": None,
    "x_turn": 2,
    "tool_calls": [{"id": "c0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {
        "model": "m",
        "tools": [{"type": "function", "function": FUNCTION, "x_row": [1]}],
        "logprobs": True,
        "x_new": {"a": [None]},
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "Hi", "x_message": 1},
            CALL_TURN,
            {"role": "tool", "tool_call_id": "c0", "content": "y", "x_result": 3},
            {"role": "user", "content": "Go"},
        ],
    },
    RESPONSES: {
        "model": "m",
        "tools": [{"type": "function", **FUNCTION}],
        "x_new": [1],
        "truncation": "auto",
        "input": [{"role": "user", "content": "Hi", "x_message": 1}],
    },
    MESSAGES: {
        "model": "m",
        "max_tokens": 9,
        "tools": [{"name": "weather", "input_schema": SCHEMA, "x_tool": 1}],
        "x_new": 1.5,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "x_part": 1}]}],
    },
}
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8, "prompt_tokens_details": {"x": 1}}


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {
        "index": 0,
        "delta": delta,
        "logprobs": {"content": [{"token": "h"}]},
        "finish_reason": finish,
        "token_ids": [7],
    }
    return event(
        {
            "id": "up",
            "object": "chat.completion.chunk",
            "created": 17,
            "model": "m",
            "system_fingerprint": "fp",
            "choices": [choice],
            **more,
        }
    )


def call(index: int, text: str, *, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    head = {"id": call_id, "type": "function"} if call_id else {}
    function = {**({"name": name} if name else {}), "arguments": text}
    return {"tool_calls": [{"index": index, **head, "function": function, "x_call": 1}]}


ROLE = chunk({"role": "assistant", "content": ""})
DONE_EVENT = b"data: [DONE]\n\n"
USAGE_EVENT = event({"model": "m", "choices": [], "usage": USAGE})
CALLS = [
    chunk(call(0, "", call_id="call_a", name="weather")),
    chunk(call(0, '{"city":')),
    chunk(call(0, ' "Rome"}')),
    chunk(call(1, "{}", call_id="call_b", name="weather")),
]
CHAT_STREAM = [
    b": PROCESSING\n\n",
    ROLE,
    chunk({"reasoning_content": "Hm"}),
    chunk({"content": "1 < 2, "}),
    chunk({"content": '{"a": <'}),
    chunk({"content": "tool"}),
    chunk({"content": "box> is none."}),
    chunk({"audio": {"data": "AA"}}),
    *CALLS,
    chunk({}, "tool_calls", timings={"x": 1}),
    USAGE_EVENT,
    DONE_EVENT,
]


def named_event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


MESSAGE: dict[str, Any] = {
    "id": "msg_up",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "x_new": "kept",
    "stop_reason": "tool_use",
    "content": [
        {"type": "text", "text": "Hm", "x_text": 1},
        {"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {"city": "Rome"}, "x_call": 1},
    ],
    "usage": {"input_tokens": 3, "output_tokens": 5, "service_tier": "standard"},
}
ITEM = {
    "type": "function_call",
    "id": "fc_up",
    "call_id": "call_a",
    "name": "weather",
    "arguments": '{"city": "Rome"}',
    "status": "completed",
    "x_call": 1,
}
RESPONSE: dict[str, Any] = {
    "id": "resp_up",
    "object": "response",
    "created_at": 17,
    "status": "completed",
    "model": "m",
    "x_new": "kept",
    "output": [ITEM],
    "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8, "x_usage": 1},
}
STREAMS: dict[str, list[bytes]] = {
    CHAT: CHAT_STREAM,
    MESSAGES: [
        named_event({"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}}),
        named_event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        named_event({"type": "ping"}),
        named_event(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a < b", "x": "y"}}
        ),
        named_event({"type": "content_block_stop", "index": 0}),
        named_event(
            {
                "type": "content_block_start",
                "index": 1,
                "content_block": {"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {}, "x_call": 1},
            }
        ),
        named_event(
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": '{"city"'},
            }
        ),
        named_event(
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": ': "Rome"}'},
            }
        ),
        named_event({"type": "content_block_stop", "index": 1}),
        named_event(
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5, "x": 1}}
        ),
        named_event({"type": "message_stop", "x_new": "kept"}),
    ],
    RESPONSES: [
        named_event(
            {
                "type": "response.created",
                "sequence_number": 0,
                "response": {**RESPONSE, "status": "in_progress", "output": []},
            }
        ),
        named_event(
            {
                "type": "response.output_item.added",
                "sequence_number": 1,
                "output_index": 0,
                "item": {**ITEM, "arguments": ""},
            }
        ),
        named_event(
            {
                "type": "response.function_call_arguments.delta",
                "sequence_number": 2,
                "output_index": 0,
                "item_id": "fc_up",
                "delta": '{"city": "Rome"}',
                "x": "y",
            }
        ),
        named_event(
            {
                "type": "response.function_call_arguments.done",
                "sequence_number": 3,
                "output_index": 0,
                "item_id": "fc_up",
                "arguments": '{"city": "Rome"}',
            }
        ),
        named_event({"type": "response.output_item.done", "sequence_number": 4, "output_index": 0, "item": ITEM}),
        named_event({"type": "response.completed", "sequence_number": 5, "response": RESPONSE}),
    ],
}
COMPLETION: dict[str, Any] = {
    "id": "up",
    "object": "chat.completion",
    "created": 17,
    "model": "m",
    "system_fingerprint": "fp",
    "timings": {"x": 1},
    "usage": USAGE,
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": {"content": [{"token": "h"}]},
            "stop_reason": None,
            "message": {
                "role": "assistant",
                "content": None,
                "audio": {"id": "a"},
                "annotations": [],
                "tool_calls": [
                    {
                        "id": "call_a",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{ "city":"Rome" }'},
                        "x_call": 1,
                    }
                ],
            },
        }
    ],
}
ANSWERS = {CHAT: COMPLETION, RESPONSES: RESPONSE, MESSAGES: MESSAGE}


def relay_request(answer: Answer, path: str = CHAT, *, upstream: dict[str, Any] | None = None, **more: Any):
    """Sends a request through a gateway whose upstream has the client's API; response, and the upstream's server."""

    async def run() -> tuple[httpx2.Response, Server]:
        here = {"provider": PROVIDERS[path], "dialect": "native", **(upstream or {})}
        async with serve(answer) as server, run_gateway(at(server, **here)) as gateway:
            return await gateway.client.post(path, json={**BODIES[path], **more}), server

    return asyncio.run(run())


USAGE_OPTIONS = {CHAT: {"stream_options": {"include_usage": True}}, RESPONSES: {}, MESSAGES: {}}


@pytest.mark.parametrize("cut", [0, 1, 50])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_events_with_calls_pass_byte_for_byte(path: str, cut: int):
    response, server = relay_request(in_turn(STREAMS[path], cut=cut), path, stream=True, **USAGE_OPTIONS[path])
    assert response.content == b"".join(STREAMS[path])
    assert server.exchanges[0].json == {**BODIES[path], "stream": True, **USAGE_OPTIONS[path]}


@pytest.mark.parametrize("path", ENDPOINTS)
def test_an_answer_in_one_piece_passes_as_it_came(path: str):
    answer = json.dumps(ANSWERS[path], indent=1).encode()
    response, server = relay_request(whole("200 OK", answer), path)
    assert response.content == answer
    assert server.exchanges[0].json == BODIES[path]


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_the_upstream_reads_its_configured_model_name_and_the_client_its_own(path: str, streams: bool):
    answer = stream(*STREAMS[path]) if streams else whole("200 OK", json.dumps(ANSWERS[path]).encode())
    upstream = {"model": "m", "options": {"x_option": 1, "x_new": 2}}
    response, server = relay_request(answer, path, upstream=upstream, model="mine", stream=streams)
    body = server.exchanges[0].json
    assert (body["model"], body["x_option"], body["x_new"]) == ("m", 1, BODIES[path]["x_new"])
    assert b'"mine"' in response.content
    assert b'"m"' not in response.content
    if not streams:
        assert response.json() == {**ANSWERS[path], "model": "mine"}


def test_usage_that_a_client_did_not_request_is_counted_and_not_sent():
    async def run() -> None:
        here = {"dialect": "native", "names": ("m",)}
        async with serve(in_turn(CHAT_STREAM)) as server, run_gateway(at(server, **here)) as gateway:
            response = await gateway.client.post(CHAT, json={**BODIES[CHAT], "stream": True})
            assert response.content == b"".join([*CHAT_STREAM[:-2], DONE_EVENT])
            metrics = (await gateway.client.get("/metrics")).text
            assert 'toolspeak_tokens_total{kind="output",model="m"} 5.0' in metrics
            assert 'toolspeak_calls_total{dialect="native",model="m"} 2.0' in metrics

    asyncio.run(run())


def test_several_choices_pass_unchanged():
    several = {**COMPLETION, "choices": [COMPLETION["choices"][0], {**COMPLETION["choices"][0], "index": 1}]}
    answer = json.dumps(several).encode()
    response, server = relay_request(whole("200 OK", answer), n=2)
    assert response.content == answer
    assert server.exchanges[0].json == {**BODIES[CHAT], "n": 2}
    refusal, _ = relay_request(whole("200 OK", answer), upstream={"dialect": "hermes"}, n=2)
    assert refusal.status_code == 400


# --- what is mended -------------------------------------------------------------------------------------------------


def joined_events(text: str) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    """What a client assembles from the events of a stream: the text, the calls, and the events."""
    chunks = [each for each in events(text) if each != "[DONE]"]
    content, calls = "", list[dict[str, Any]]()
    for each in chunks:
        for choice in each["choices"]:
            content += choice["delta"].get("content") or ""
            for item in choice["delta"].get("tool_calls") or ():
                if item["index"] == len(calls):
                    calls.append({"id": item["id"], "name": item["function"]["name"], "arguments": ""})
                else:
                    assert "id" not in item
                    assert "name" not in item["function"]
                calls[item["index"]]["arguments"] += item["function"].get("arguments", "")
    return content, calls, chunks


def test_a_repeated_field_is_sent_once_and_the_rest_stays():
    frames = [
        ROLE,
        chunk({"content": "Hm."}),
        chunk(call(0, '{"city":', call_id="a", name="weather")),
        chunk(call(0, '"Rome"}', call_id="a", name="weather")),
        chunk({}, "stop", timings={"x": 1}),
        USAGE_EVENT,
        DONE_EVENT,
    ]
    response, _ = relay_request(in_turn(frames), stream=True, **USAGE_OPTIONS[CHAT])
    assert response.content.startswith(b"".join(frames[:3]))
    content, calls, chunks = joined_events(response.text)
    assert content == "Hm."
    assert calls == [{"id": "a", "name": "weather", "arguments": '{"city":"Rome"}'}]
    assert {each["id"] for each in chunks[:-1]} == {"up"}
    assert all(each["system_fingerprint"] == "fp" for each in chunks[:-1])
    assert all(each["choices"][0]["logprobs"] and each["choices"][0]["token_ids"] for each in chunks[:-1])
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-2]["timings"] == {"x": 1}
    assert chunks[-1]["usage"] == USAGE


@pytest.mark.parametrize(
    "first",
    [
        call(0, "{}", name="weather"),
        call(1, "{}", call_id="a", name="weather"),
        {"function_call": {"name": "weather", "arguments": "{}"}},
        {"tool_calls": [{"id": "a", "function": {"name": "weather", "arguments": {}}}]},
        call(0, "", call_id="a", name="weather"),
    ],
)
def test_calls_in_another_form_reach_the_client_in_the_form_of_the_api(first: dict[str, Any]):
    frames = [chunk({"content": "Hm."}), chunk(first), chunk({}, "tool_calls", timings={"x": 1}), DONE_EVENT]
    response, _ = relay_request(in_turn(frames), stream=True)
    content, calls, chunks = joined_events(response.text)
    assert (content, calls[0]["name"], json.loads(calls[0]["arguments"])) == ("Hm.", "weather", {})
    assert calls[0]["id"]
    assert chunks[-1]["timings"] == {"x": 1}
    assert response.text.endswith("[DONE]\n\n")


@pytest.mark.parametrize("first", [[ROLE], []], ids=["role", "no role"])
@pytest.mark.parametrize(
    "delta", [{"content": "Hm."}, call(0, "{}", call_id="a", name="weather")], ids=["text", "call"]
)
@pytest.mark.parametrize("role", [{"role": None}, {}], ids=["null", "none"])
def test_the_role_is_sent_once_and_is_never_null(first: list[bytes], delta: dict[str, Any], role: dict[str, Any]):
    """llama-cpp-python sends null beside calls. OpenAI's client for Node uses the last role that it reads, and needs
    one."""
    frames = [*first, chunk({**role, **delta}), chunk({}, "stop"), USAGE_EVENT, DONE_EVENT]
    response, _ = relay_request(in_turn(frames), stream=True, **USAGE_OPTIONS[CHAT])
    _, _, chunks = joined_events(response.text)
    deltas = [each["choices"][0]["delta"] for each in chunks if each["choices"]]
    assert [delta["role"] for delta in deltas if "role" in delta] == ["assistant"]


def test_an_event_with_a_repaired_role_keeps_its_other_fields_and_other_events_pass_unchanged():
    """vLLM sends the role first. Many small servers never send one."""
    named_frame = chunk({"content": "Hm."}, x_event=1).replace(b"data: ", b"id: 1\ndata: ", 1)
    others = [
        chunk({"content": "So,"}),
        CALLS[3].replace(b'"index": 1', b'"index": 0'),
        chunk({}, "tool_calls"),
        USAGE_EVENT,
        DONE_EVENT,
    ]
    response, _ = relay_request(in_turn([named_frame, *others]), stream=True, **USAGE_OPTIONS[CHAT])
    first, *rest = response.content.split(b"\n\n")
    assert b"\n\n".join(rest) == b"".join(others)
    told_id, data = first.split(b"\n")
    expected = json.loads(named_frame.split(b"data: ")[1])
    expected["choices"][0]["delta"]["role"] = "assistant"
    assert (told_id, json.loads(data.removeprefix(b"data: "))) == (b"id: 1", expected)


LEAKED_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


@pytest.mark.parametrize("size", [3, 1000])
def test_calls_in_the_text_are_found_and_the_rest_stays(size: int):
    texts = ["Let me see. ", *(LEAKED_CALL[i : i + size] for i in range(0, len(LEAKED_CALL), size))]
    frames = [
        ROLE,
        *(chunk({"content": text}) for text in texts),
        chunk({}, "stop", timings={"x": 1}),
        USAGE_EVENT,
        DONE_EVENT,
    ]
    response, _ = relay_request(in_turn(frames), stream=True, **USAGE_OPTIONS[CHAT])
    assert response.content.startswith(b"".join(frames[:2]))
    content, calls, chunks = joined_events(response.text)
    assert content.strip() == "Let me see."
    assert [(each["name"], json.loads(each["arguments"])) for each in calls] == [("weather", {"city": "Rome"})]
    last_chunk = chunks[-2]
    assert last_chunk["choices"][0]["finish_reason"] == "tool_calls"
    assert last_chunk["timings"] == {"x": 1}
    assert last_chunk["toolspeak"]["warnings"][0]["code"] == "leaked_call"
    assert {each["id"] for each in chunks[:-1]} == {"up"}
    logprobs = [
        token for each in chunks[:-1] for token in (each["choices"][0].get("logprobs") or {}).get("content", ())
    ]
    assert len(logprobs) == len(frames) - 2


def test_calls_in_the_text_of_a_whole_answer_are_found_and_the_rest_stays():
    choice = {
        **COMPLETION["choices"][0],
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": LEAKED_CALL, "x": 1},
    }
    response, _ = relay_request(whole("200 OK", json.dumps({**COMPLETION, "choices": [choice]}).encode()))
    completion = response.json()
    (sent_choice,) = completion["choices"]
    assert sent_choice["message"]["tool_calls"][0]["function"]["name"] == "weather"
    assert (sent_choice["finish_reason"], sent_choice["message"]["x"], sent_choice["logprobs"]) == (
        "tool_calls",
        1,
        choice["logprobs"],
    )
    own_fields = {name: COMPLETION[name] for name in ("id", "created", "system_fingerprint", "timings", "usage")}
    assert {name: completion[name] for name in own_fields} == own_fields
    assert completion["toolspeak"]["warnings"][0]["code"] == "leaked_call"


TEXT_MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": f"Let me see. {LEAKED_CALL}"}],
}
TEXT_STREAMS: dict[str, list[bytes]] = {
    MESSAGES: [
        *STREAMS[MESSAGES][:3],
        *(
            named_event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
            for text in ("Let me see. ", LEAKED_CALL[:30], LEAKED_CALL[30:])
        ),
        named_event({"type": "content_block_stop", "index": 0}),
        named_event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
        named_event({"type": "message_stop"}),
    ],
    RESPONSES: [
        STREAMS[RESPONSES][0],
        *(
            named_event({"type": "response.output_text.delta", "sequence_number": at, "output_index": 0,
                         "content_index": 0, "item_id": "msg_up", "delta": text})
            for at, text in enumerate(("Let me see. ", LEAKED_CALL[:30], LEAKED_CALL[30:]), 1)
        ),
        named_event({"type": "response.completed", "sequence_number": 4,
                     "response": {**RESPONSE, "output": [TEXT_MESSAGE]}}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("path", TEXT_STREAMS)
def test_calls_in_the_text_of_other_apis_are_found(path: str):
    response, _ = relay_request(in_turn(TEXT_STREAMS[path]), path, stream=True)
    assert response.content.startswith(b"".join(TEXT_STREAMS[path][:2]))
    turn = read(ENDPOINTS[path], response.text, stream=True)
    assert turn.message.text.strip() == "Let me see."
    assert [(each.name, each.arguments) for each in turn.calls if isinstance(each, ToolCall)] == [
        ("weather", {"city": "Rome"})
    ]
    if path == RESPONSES:
        numbers = [data["sequence_number"] for data in events(response.text)]
        assert numbers == sorted(set(numbers))
        assert "resp_up" in response.text


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
def test_calls_that_the_request_does_not_allow_are_left_out(path: str, streams: bool):
    none = {"type": "none"} if path == MESSAGES else "none"
    answer = stream(*STREAMS[path]) if streams else whole("200 OK", json.dumps(ANSWERS[path]).encode())
    response, server = relay_request(answer, path, stream=streams, tool_choice=none)
    assert server.exchanges[0].json["tool_choice"] == none
    assert not read(ENDPOINTS[path], response.text, stream=streams).calls
    assert "call_left_out" in response.text


def test_calls_are_held_if_the_configuration_says_so():
    response, _ = relay_request(in_turn(CHAT_STREAM), stream=True, upstream={"hold_calls": True})
    _, calls, chunks = joined_events(response.text)
    assert [(each["id"], json.loads(each["arguments"])) for each in calls] == [
        ("call_a", {"city": "Rome"}),
        ("call_b", {}),
    ]
    assert chunks[-1]["timings"] == {"x": 1}
    response, _ = relay_request(in_turn(CHAT_STREAM), stream=True, parallel_tool_calls=False)
    _, calls, chunks = joined_events(response.text)
    assert [each["id"] for each in calls] == ["call_a"]
    assert chunks[-1]["toolspeak"]["warnings"][0]["code"] == "call_left_out"


def test_a_message_with_text_and_a_call_ends_with_tool_calls_instead_of_stop():
    choice = {**COMPLETION["choices"][0], "finish_reason": "stop"}
    response, _ = relay_request(whole("200 OK", json.dumps({**COMPLETION, "choices": [choice]}).encode()))
    completion = response.json()
    assert completion["choices"][0]["finish_reason"] == "tool_calls"
    assert completion["choices"][0]["message"]["audio"] == {"id": "a"}
    assert completion["timings"] == {"x": 1}


@pytest.mark.parametrize("frames", [[chunk({"content": "Hm."})], [chunk({"content": "Hm."}, "")], CALLS])
def test_a_stream_without_a_finish_reason_gets_one_before_its_end(frames: list[bytes]):
    response, _ = relay_request(in_turn([ROLE, *frames, DONE_EVENT]), stream=True)
    assert response.content.startswith(b"".join([ROLE, *frames]))
    chunks = events(response.text)
    assert chunks.count("[DONE]") == 1
    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["choices"][0]["finish_reason"] == ("tool_calls" if frames is CALLS else "stop")


def test_cut_arguments_are_invalid_json_for_a_client():
    frames = [ROLE, CALLS[0], CALLS[1], chunk({}, "length", timings={"x": 1}), DONE_EVENT]
    response, _ = relay_request(in_turn(frames), stream=True)
    _, calls, chunks = joined_events(response.text)
    with pytest.raises(ValueError, match=r"Expecting|delimiter|Extra"):
        json.loads(calls[0]["arguments"])
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["timings"] == {"x": 1}


def test_a_model_that_must_call_is_asked_again_and_its_first_answer_reaches_nobody():
    first = [ROLE, chunk({"content": "No."}), chunk({}, "stop", x_first=1), USAGE_EVENT, DONE_EVENT]
    second = [ROLE, *CALLS[:3], chunk({}, "tool_calls", x_second=1), USAGE_EVENT, DONE_EVENT]
    upstream = {"capabilities": {"tool_choice": False}}
    response, server = relay_request(
        in_turn(first, second), stream=True, tool_choice="required", upstream=upstream, **USAGE_OPTIONS[CHAT]
    )
    content, calls, chunks = joined_events(response.text)
    assert (content, len(calls), len(server.exchanges)) == ("", 1, 2)
    assert not any("x_first" in each for each in chunks)
    assert chunks[-1]["usage"]["completion_tokens"] == 10
    response, _ = relay_request(in_turn(first, second), tool_choice="required", upstream=upstream)
    assert response.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    assert "x_first" not in response.text


def test_a_healed_conversation_is_sent_in_its_healed_form():
    messages = BODIES[CHAT]["messages"][:3]
    response, server = relay_request(in_turn(CHAT_STREAM), messages=messages, stream=True)
    assert [message["role"] for message in server.exchanges[0].json["messages"]][-1] == "tool"
    assert "call_without_result" in response.text


def test_a_whole_answer_becomes_a_stream_for_a_client_that_streams_and_the_reverse():
    response, _ = relay_request(whole("200 OK", json.dumps(COMPLETION).encode()), stream=True)
    assert joined_events(response.text)[1][0]["name"] == "weather"
    assert response.text.endswith("[DONE]\n\n")
    response, _ = relay_request(stream(*CHAT_STREAM))
    assert len(response.json()["choices"][0]["message"]["tool_calls"]) == 2


# --- what fails -----------------------------------------------------------------------------------------------------

BREAKS: list[tuple[bytes, str]] = [
    (event({"error": {"message": "out of memory at http://10.0.0.5/v1"}}), "memory"),
    (b"data: <html>nginx</html>\n\n", "not JSON"),
    (b"", "dropped"),
]


@pytest.mark.parametrize(("broken_event", "word"), BREAKS, ids=["error", "HTML", "nothing"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_stream_that_breaks_off_ends_in_an_error(path: str, broken_event: bytes, word: str):
    beginning = STREAMS[path][:5] if path != RESPONSES else STREAMS[path][:3]
    head = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
    response, _ = relay_request(hang_up(head, http_chunks([*beginning, broken_event])), path, stream=True)
    assert response.content.startswith(b"".join(beginning[:-1]))
    last = events(response.text)[-1]
    error = last.get("error") or last["response"]["error"]
    assert word in error["message"]
    assert "10.0.0.5" not in response.text
    assert "[DONE]" not in response.text
    if path == RESPONSES:
        assert (last["response"]["id"], last["sequence_number"]) == ("resp_up", 3)


def test_a_request_that_fails_before_any_output_is_sent_again_unchanged():
    busy = stream(ROLE, event({"error": {"message": "busy", "code": 503}}))

    async def run() -> None:
        async with (
            serve(busy, in_turn(CHAT_STREAM)) as server,
            run_gateway(at(server, dialect="native", retries=1)) as gateway,
        ):
            response = await gateway.client.post(CHAT, json={**BODIES[CHAT], "stream": True, **USAGE_OPTIONS[CHAT]})
            assert response.content == b"".join(CHAT_STREAM)
            assert server.exchanges[0].body == server.exchanges[1].body

    asyncio.run(run())


HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_another_server_answers_if_nothing_has_reached_the_client(path: str, streams: bool):
    beginnings = {
        CHAT: [ROLE, chunk({"content": LEAKED_CALL[:20]})],
        MESSAGES: [*STREAMS[MESSAGES][:1], named_event({"type": "ping"})],
        RESPONSES: [STREAMS[RESPONSES][0]],
    }
    good = stream(*STREAMS[path]) if streams else whole("200 OK", json.dumps(ANSWERS[path]).encode())

    async def run() -> None:
        here = {"provider": PROVIDERS[path], "dialect": "native", "names": ("m",)}
        cut_answer = (
            hang_up(HEAD, http_chunks(beginnings[path]))
            if streams
            else hang_up(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{")
        )
        async with (
            serve(cut_answer) as first,
            serve(good) as second,
            run_gateway(at(first, **here), at(second, **here)) as gateway,
        ):
            for _ in range(2):
                response = await gateway.client.post(
                    path, json={**BODIES[path], "stream": streams, **USAGE_OPTIONS[path]}
                )
                if streams:
                    assert response.content == b"".join(STREAMS[path])
                else:
                    assert response.json() == ANSWERS[path]
            assert first.exchanges
            assert len(second.exchanges) == 2

    asyncio.run(run())


def test_audio_passes_as_it_arrives():
    async def run() -> None:
        arrival = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            await exchange.send(HEAD, http_chunks([ROLE, chunk({"audio": {"data": "AA"}})]))
            await arrival.wait()
            await exchange.send(http_chunks([chunk({}, "stop"), DONE_EVENT]), b"0\r\n\r\n")

        async with serve(answer) as server, run_gateway(at(server, dialect="native")) as gateway:
            async with gateway.client.stream("POST", CHAT, json={**BODIES[CHAT], "stream": True}) as response:
                got = b""
                async for piece in response.aiter_raw():
                    got += piece
                    if b'"AA"' in got:
                        arrival.set()
            assert got == b"".join([ROLE, chunk({"audio": {"data": "AA"}}), chunk({}, "stop"), DONE_EVENT])

    asyncio.run(run())


def test_a_server_that_takes_no_tools_is_asked_in_text():
    refusal = whole("400 Bad", b'{"error": {"message": "model does not support tools"}}')
    text = in_turn([chunk({"content": LEAKED_CALL}), chunk({}, "stop"), DONE_EVENT])

    async def run() -> None:
        upstream = {"dialect": "auto", "provider": "lmstudio", "model": "qwen3-8b"}
        async with serve(refusal, text) as server, run_gateway(at(server, **upstream)) as gateway:
            response = await gateway.client.post(CHAT, json={**BODIES[CHAT], "stream": True})
            assert joined_events(response.text)[1][0]["name"] == "weather"
            assert ["tools" in each.json for each in server.exchanges] == [True, False]

    asyncio.run(run())


# --- whatever comes, a client reads the same as before ---------------------------------------------------------------

PIECES = st.sampled_from(
    ["Hm. ", "<", "<tool", "_call>", LEAKED_CALL, "{", '{"city": ', '"Rome"}', "```", "\n", "</tool_call>", "a"]
)
CALL = st.tuples(st.sampled_from(["a", "b", ""]), st.sampled_from(['{"city": "Rome"}', '{"ci', ""]), st.booleans())


def turn_of(texts: Iterable[str], calls: Iterable[tuple[str, str, bool]], finish: str) -> list[bytes]:
    frames = [ROLE, *(chunk({"content": text}) for text in texts)]
    for at_, (id_, text, twice) in enumerate(calls):
        frames.append(chunk(call(at_, text[:3], call_id=id_ or None, name="weather")))
        frames.append(
            chunk(call(at_, text[3:], call_id=(id_ or None) if twice else None, name="weather" if twice else None))
        )
    return [*frames, chunk({}, finish), USAGE_EVENT, DONE_EVENT]


@pytest.mark.over_a_second
@settings(max_examples=fewer(40), deadline=None)
@given(
    texts=st.lists(PIECES, max_size=8),
    calls=st.lists(CALL, max_size=2),
    finish=st.sampled_from(["stop", "tool_calls", "length"]),
    cut=st.integers(0, 200),
    streams=st.booleans(),
    more=st.sampled_from([{}, {}, {"parallel_tool_calls": False}, {"tool_choice": "none"}]),
)
def test_a_client_reads_the_same_from_a_relayed_and_from_a_rewritten_answer(
    texts: list[str],
    calls: list[tuple[str, str, bool]],
    finish: str,
    cut: int,
    streams: bool,
    more: dict[str, Any],
):
    frames = turn_of(texts, calls, finish)

    async def run() -> tuple[httpx2.Response, httpx2.Response]:
        async with (
            serve(in_turn(frames, frames, cut=cut)) as server,
            run_gateway(at(server, dialect="native")) as gateway,
        ):
            body = {**BODIES[CHAT], "stream": streams, **more}
            relayed_response = await gateway.client.post(CHAT, json=body)
            # The gateway rewrites a conversation that must be healed, and its answer.
            unpaired_body = {**body, "messages": body["messages"][:3]}
            return relayed_response, await gateway.client.post(CHAT, json=unpaired_body)

    relayed_response, rewritten_response = asyncio.run(run())
    assert relayed_response.status_code == rewritten_response.status_code
    if not streams:
        one, other = (response.json()["choices"][0] for response in (relayed_response, rewritten_response))
        assert one["finish_reason"] == other["finish_reason"]
        assert (one["message"]["content"] or "") == (other["message"]["content"] or "")
        functions = [[each["function"] for each in choice["message"].get("tool_calls", ())] for choice in (one, other)]
        assert functions[0] == functions[1]
        return
    first, second = joined_events(relayed_response.text), joined_events(rewritten_response.text)
    assert first[0] == second[0]
    assert [(each["name"], each["arguments"]) for each in first[1]] == [
        (each["name"], each["arguments"]) for each in second[1]
    ]
    assert [each["id"] for each in first[1] if each["id"] in "ab"] == [
        each["id"] for each in second[1] if each["id"] in "ab"
    ]
    assert relayed_response.text.endswith("[DONE]\n\n") == rewritten_response.text.endswith("[DONE]\n\n")
