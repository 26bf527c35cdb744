"""Requests in which nothing has to change: they, and their answers, pass as they came."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_server import STREAM_HEAD, Answer, Exchange, Server, event, hang_up, http_chunks, serve, stream, whole
from serving import ENDPOINTS, at, events, in_turn, run_gateway, texts

from sweeps import fewer
from toolspeak.gateway.settings.gateway_settings import Bounds

CHAT, RESPONSES, MESSAGES = ENDPOINTS
PROVIDERS = {CHAT: "openai", RESPONSES: "openai-responses", MESSAGES: "anthropic"}
HI = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {
        "model": "m", "messages": HI, "n": 3, "logprobs": True, "audio": {"voice": "a"}, "x_new": {"deep": [1, None]},
        "stop": None, "metadata": {"a": "b"},
    },
    RESPONSES: {"model": "m", "input": "Hi", "x_new": [1], "truncation": "auto", "store": False, "user": None},
    MESSAGES: {"model": "m", "messages": HI, "max_tokens": 9, "x_new": 1.5, "system": [{"type": "text", "text": "S"}]},
}  # fmt: skip


def chat_chunk(index: int, delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "logprobs": {"content": [{"token": "h", "logprob": -0.1}]}}
    return {
        "id": "chatcmpl-up", "object": "chat.completion.chunk", "created": 17, "model": "m", "system_fingerprint": "fp",
        "choices": [{**choice, "finish_reason": finish, "token_ids": [7]}], **more,
    }  # fmt: skip


USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8, "prompt_tokens_details": {"x": 1}}
RESPONSE: dict[str, Any] = {
    "id": "resp_up", "object": "response", "created_at": 17, "status": "completed", "model": "m", "x_new": "kept",
    "output": [{
        "type": "message", "id": "msg_up", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Ho", "annotations": [], "logprobs": [{"token": "H"}]}],
    }],
    "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8, "input_tokens_details": {"cached_tokens": 1}},
}  # fmt: skip
MESSAGE: dict[str, Any] = {
    "id": "msg_up", "type": "message", "role": "assistant", "model": "m", "x_new": "kept", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "Ho", "citations": None}],
    "usage": {"input_tokens": 3, "output_tokens": 5, "service_tier": "standard"},
}  # fmt: skip
ANSWERS: dict[str, dict[str, Any]] = {
    CHAT: {
        "id": "chatcmpl-up", "object": "chat.completion", "created": 17, "model": "m", "system_fingerprint": "fp",
        "timings": {"predicted_ms": 1.5}, "usage": USAGE,
        "choices": [
            {"index": i, "message": {"role": "assistant", "content": f"Ho {i} 😀", "audio": {"id": "a"}},
             "logprobs": {"content": []}, "finish_reason": "stop"} for i in range(3)
        ],
    },
    RESPONSES: RESPONSE,
    MESSAGES: MESSAGE,
}  # fmt: skip


def named_event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


STREAMS: dict[str, list[bytes]] = {
    CHAT: [
        b": PROCESSING\n\n",
        *(event(chat_chunk(i, {"role": "assistant", "content": ""})) for i in range(3)),
        *(event(chat_chunk(i, {"content": f"Ho {i}"}), b"\r\n\r\n") for i in (2, 0, 1)),
        b'id: 7\nretry: 5\ndata: {"model": "m",\ndata:  "choices": []}\n\n',
        *(event(chat_chunk(i, {}, "stop", timings={"x": i})) for i in (1, 0, 2)),
        event({"model": "m", "choices": [], "usage": USAGE}),
        b"data: [DONE]\n\n",
    ],
    RESPONSES: [
        named_event({"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}}),
        named_event(
            {"type": "response.output_text.delta", "item_id": "msg_up", "delta": "Ho", "logprobs": [1], "x": "y"}
        ),
        named_event({"type": "response.x_new", "said": "kept"}),
        named_event({"type": "response.completed", "response": RESPONSE, "sequence_number": 7}),
    ],
    MESSAGES: [
        named_event({"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}}),
        named_event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        named_event({"type": "ping"}),
        named_event(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Ho", "x": "y"}}
        ),
        named_event({"type": "content_block_stop", "index": 0}),
        named_event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
        named_event({"type": "message_stop", "x_new": "kept"}),
    ],
}


def relay_request(answer: Answer, path: str, *, upstream: dict[str, Any] | None = None, **more: Any):
    """A request through a gateway with one upstream of the client's API, and what that was sent."""

    async def run() -> tuple[httpx2.Response, Server]:
        async with serve(answer) as server, run_gateway(at_api(server, path, **(upstream or {}))) as gateway:
            body = {**BODIES[path], **more}
            return await gateway.client.post(path, json={k: v for k, v in body.items() if v != "left out"}), server

    return asyncio.run(run())


def at_api(server: Server, path: str, **more: Any):
    return at(server, **{"provider": PROVIDERS[path], "dialect": "hermes", **more})


@pytest.mark.parametrize("dialect", ["hermes", "native", "auto"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_request_and_answer_pass_unchanged(path: str, dialect: str):
    answer = json.dumps(ANSWERS[path], indent=1, ensure_ascii=False).encode()
    response, server = relay_request(whole("200 OK", answer), path, upstream={"dialect": dialect})
    assert (response.status_code, response.content) == (200, answer)
    assert server.exchanges[0].json == BODIES[path]
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("cut", [0, 1, 7, 64])
@pytest.mark.parametrize("dialect", ["hermes", "native"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_events_pass_byte_for_byte(path: str, dialect: str, cut: int):
    more = {"stream_options": {"include_usage": True}} if path == CHAT else {}
    response, server = relay_request(
        in_turn(STREAMS[path], cut=cut), path, upstream={"dialect": dialect}, stream=True, **more
    )
    assert response.content == b"".join(STREAMS[path])
    assert server.exchanges[0].json == {**BODIES[path], "stream": True, **more}


def test_usage_that_a_client_did_not_request_is_counted_and_not_sent():
    async def run() -> tuple[bytes, dict[str, Any], str]:
        async with serve(in_turn(STREAMS[CHAT])) as server, run_gateway(at(server, dialect="hermes")) as gateway:
            response = await gateway.client.post(CHAT, json={**BODIES[CHAT], "stream": True})
            metrics = (await gateway.client.get("/metrics")).text
            return response.content, server.exchanges[0].json, metrics

    content, body, metrics = asyncio.run(run())
    assert content == b"".join(STREAMS[CHAT][:-2] + STREAMS[CHAT][-1:])
    assert body["stream_options"] == {"include_usage": True}
    assert 'toolspeak_tokens_total{kind="output",model="(other)"} 5.0' in metrics
    assert "toolspeak_chunks_total" in metrics


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_the_upstream_reads_its_configured_model_name_and_the_client_its_own(path: str, streams: bool):
    answer = stream(*STREAMS[path]) if streams else whole("200 OK", json.dumps(ANSWERS[path]).encode())
    more = {"stream_options": {"include_usage": True}} if streams and path == CHAT else {}
    response, server = relay_request(
        answer, path, upstream={"model": "m", "options": {"x_option": 1, "x_new": 2, "x_none": None}},
        model="mine", stream=streams, **more,
    )  # fmt: skip
    body = {**BODIES[path], "model": "m", "stream": streams, "x_option": 1, **more}
    assert server.exchanges[0].json == body
    if not streams:
        assert response.json() == {**ANSWERS[path], "model": "mine"}
        return
    upstream = events(b"".join(STREAMS[path][:7]).decode().replace("\r", ""))
    for came, relayed_event in zip(upstream, events(response.text), strict=False):
        place = relayed_event.get("message") or relayed_event.get("response") or relayed_event
        if "model" in place:
            assert place["model"] == "mine"
            place["model"] = "m"
        assert relayed_event == came
    assert b'"m"' not in response.content


@pytest.mark.parametrize("path", ENDPOINTS)
def test_an_upstream_that_streams_to_one_who_did_not_ask(path: str):
    response, _ = relay_request(stream(*STREAMS[path]), path)
    assert response.headers["content-type"] == "application/json"
    assert "Ho" in response.text
    assert response.json()["model"] == "m"


@pytest.mark.parametrize("path", ENDPOINTS)
def test_an_upstream_that_answers_in_one_piece_to_one_who_asked_for_a_stream(path: str):
    response, _ = relay_request(whole("200 OK", json.dumps(ANSWERS[path]).encode()), path, stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "Ho" in response.text
    assert ("[DONE]" in response.text) == (path == CHAT)


def test_headers_that_the_body_depends_on_pass_and_others_do_not():
    async def run() -> dict[str, str]:
        answer = whole("200 OK", json.dumps(MESSAGE).encode())
        async with serve(answer) as server, run_gateway(at_api(server, MESSAGES)) as gateway:
            headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "files", "cookie": "a=b", "x-api-key": "k"}
            await gateway.client.post(MESSAGES, json=BODIES[MESSAGES], headers=headers)
            return server.exchanges[0].headers

    headers = asyncio.run(run())
    assert (headers["anthropic-version"], headers["anthropic-beta"]) == ("2023-06-01", "files")
    assert not {"cookie", "x-api-key", "authorization"} & set(headers)


# --- what tools have a part in --------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x"}
OF_TOOLS: list[dict[str, Any]] = [
    {"tools": TOOLS},
    {"messages": [*HI, {"role": "assistant", "tool_calls": [CALL]}, RESULT]},
]  # fmt: skip


@pytest.mark.parametrize("more", OF_TOOLS)
def test_calls_and_tools_of_a_text_dialect_stand_in_the_prompt(more: dict[str, Any]):
    _, server = relay_request(in_turn(texts("Hi.")), CHAT, n="left out", **more)
    body = server.exchanges[0].json
    assert "tools" not in body
    assert not any("tool_calls" in message or message["role"] == "tool" for message in body["messages"])


@pytest.mark.parametrize("content", [
    [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}],
    [{"type": "video_url", "video_url": {"url": "http://x/y"}}],
])  # fmt: skip
def test_parts_that_the_gateway_does_not_know_pass(content: Any):
    messages = [{"role": "user", "content": content, "x": 1}, {"role": "critic", "content": "y"}]
    response, server = relay_request(whole("200 OK", json.dumps(ANSWERS[CHAT]).encode()), CHAT, messages=messages)
    assert response.status_code == 200
    assert server.exchanges[0].json["messages"] == messages


# --- what fails -----------------------------------------------------------------------------------------------------

HEAD = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
BEGINNINGS = {
    CHAT: [event(chat_chunk(0, {"content": "Hel"}))],
    RESPONSES: STREAMS[RESPONSES][:2],
    MESSAGES: STREAMS[MESSAGES][:4],
}
BREAKS: list[tuple[bytes, str]] = [
    (b'data: {"error": {"message": "out of memory at http://10.0.0.5/v1", "type": "error"}}\n\n', "memory"),
    (b"data: {oops http://10.0.0.5/v1}\n\n", "not JSON"),
    (b"data: <html>nginx</html>\n\n", "not JSON"),
    (b"", "dropped"),
]


@pytest.mark.parametrize(("broken_event", "word"), BREAKS, ids=["error", "no JSON", "HTML", "nothing"])
@pytest.mark.parametrize("apart", [True, False], ids=["apart", "together"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_stream_that_breaks_off_ends_in_an_error_with_a_code(path: str, apart: bool, broken_event: bytes, word: str):
    parts = [*BEGINNINGS[path], broken_event] if apart else [b"".join([*BEGINNINGS[path], broken_event])]
    response, _ = relay_request(hang_up(HEAD, http_chunks(parts)), path, stream=True)
    assert response.content.startswith(b"".join(BEGINNINGS[path]))
    last = events(response.text)[-1]
    error = last.get("error") or last["response"]["error"]
    assert word in error["message"]
    assert "10.0.0.5" not in response.text
    assert "127.0.0.1" not in response.text
    if path == CHAT:
        assert error["code"] in ("upstream_ill_formed", "upstream_connection", "upstream_failed", "upstream_overloaded")
    if path == RESPONSES:
        assert (last["type"], last["response"]["id"]) == ("response.failed", "resp_up")
    assert "[DONE]" not in response.text


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_what_fails_before_anything_was_said_is_asked_again_and_has_a_status(path: str, streams: bool):
    beginning = STREAMS[path][:1] if path != CHAT else STREAMS[CHAT][:2]
    faults: list[Answer] = [
        hang_up(HEAD, http_chunks(beginning)),
        stream(*beginning, b'data: {"type": "error", "error": {"message": "busy", "type": "overloaded_error"}}\n\n'),
        whole("503 X", b"<html>nginx</html>", "text/html", "retry-after: 0"),
    ]

    async def run() -> tuple[httpx2.Response, int, httpx2.Response]:
        good = stream(*STREAMS[path]) if streams else whole("200 OK", json.dumps(ANSWERS[path]).encode())
        async with (
            serve(*faults[1:], good) as recovering_server,
            serve(faults[0]) as failing_server,
            run_gateway(
                at_api(recovering_server, path, names=("m",), retries=2), at_api(failing_server, path, names=("l",))
            ) as gateway,
        ):
            first = await gateway.client.post(path, json={**BODIES[path], "stream": streams})
            second = await gateway.client.post(path, json={**BODIES[path], "stream": streams, "model": "l"})
            return first, len(recovering_server.exchanges), second

    first, times, second = asyncio.run(run())
    assert (first.status_code, times) == (200, 3)
    assert "Ho" in first.text
    assert second.status_code == 502
    assert "dropped" in second.text


def test_a_stream_whose_end_was_forgotten_is_ended():
    for frames in (STREAMS[CHAT][4:5], STREAMS[CHAT][4:6]):
        one = [event(chat_chunk(0, {"content": "Ho"})), event(chat_chunk(0, {}, "stop"))]
        response, _ = relay_request(stream(*one), CHAT, stream=True, n="left out")
        assert response.content == b"".join(one) + b"data: [DONE]\n\n"
        response, _ = relay_request(stream(*frames, *one), CHAT, stream=True, n=3)
        assert "error" in events(response.text.replace("\r", ""))[-1], "whether all three are whole is not known"


def test_a_compressed_answer_is_decompressed():
    answer = json.dumps(ANSWERS[CHAT]).encode()
    response, _ = relay_request(
        whole("200 OK", gzip.compress(answer), "application/json", "content-encoding: gzip"), CHAT
    )
    assert response.content == answer


def test_a_packed_stream_is_unpacked():
    compressed_stream = gzip.compress(b"".join(STREAMS[CHAT]))

    async def answer(exchange: Exchange) -> None:
        head = STREAM_HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(compressed_stream)
        await exchange.send(head, compressed_stream)

    more = {"stream_options": {"include_usage": True}}
    response, _ = relay_request(answer, CHAT, stream=True, **more)
    assert response.content == b"".join(STREAMS[CHAT])


def test_bounds_hold_for_what_is_relayed():
    async def run() -> Sequence[httpx2.Response]:
        bounds = Bounds(messages=3, name_chars=8, json_values=50)
        async with serve(in_turn(texts("Hi."))) as server, run_gateway(at(server), bounds=bounds) as gateway:
            responses = [
                await gateway.client.post(CHAT, json={**BODIES[CHAT], **more})
                for more in ({"messages": HI * 4}, {"model": "m" * 9}, {"x": [1] * 60}, {"messages": [7]})
            ]
            assert not server.exchanges
            return responses

    assert [response.status_code for response in asyncio.run(run())] == [413, 400, 413, 400]


def test_a_letter_that_was_cut_in_two_is_replaced():
    frame = event(chat_chunk(0, {"content": "HoX"})).replace(b"X", "ü".encode()[:1])
    response, _ = relay_request(stream(frame, *texts()), CHAT, stream=True)
    assert "Ho\N{REPLACEMENT CHARACTER}" in response.content.decode()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=fewer(25), deadline=None)
@given(
    contents=st.lists(TEXT, min_size=1, max_size=6),
    ends=st.lists(st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\n\n", b"\n: ping\n\n"]), min_size=6, max_size=6),
    cut=st.integers(1, 40),
)
def test_any_stream_passes_byte_for_byte_wherever_it_is_cut(contents: list[str], ends: list[bytes], cut: int):
    frames = [event(chat_chunk(0, {"content": text}), end) for text, end in zip(contents, ends, strict=False)]
    frames += [event(chat_chunk(0, {}, "stop")), b"data: [DONE]\n\n"]
    response, _ = relay_request(in_turn(frames, cut=cut), CHAT, stream=True)
    assert response.content == b"".join(frames)
