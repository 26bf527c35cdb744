"""The model server behind the gateway: it speaks OpenAI's Chat Completions and says what stands here, by heart.

The path says in which dialect (`/hermes/v1/chat/completions`), the task which conversation (`#two`), and how many
messages of the assistant there are which turn of it. What is said is cut where it hurts: in markers, in names, in
characters of several bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from loopback_server import STREAM_HEAD, Exchange, event, http_chunks
from program_turns import PROGRAM_ANSWER, PROGRAM_CALLS, PROGRAM_TURNS

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}

CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "#one": [("get_weather", {"city": 'Zürich "Süd" 😀', "days": 3})],
    "#two": [("get_weather", {"city": "Rome <b>", "days": 1}), ("get_time", {"city": "東京\nTokyo"})],
}
RESULTS = {
    "#one": ['3 days of rain in Zürich "Süd" 😀'],
    "#two": ["1 days of rain in Rome <b>", "noon in 東京\nTokyo"],
}
LOOK = "Let me look."
ANSWER = "Rain, says the <b>forecast</b>. 😀"

# Each as a model writes it; `#two` after some reasoning, `#one` after some text.
FIRST_TURNS: dict[str, dict[str, str]] = {
    "hermes": {
        "#one": 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich \\"Süd\\" 😀", '
        '"days": 3}}\n</tool_call>',
        "#two": '<think>\nTwo things.\n</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": '
        '"Rome <b>", "days": 1}}\n</tool_call>\n<tool_call>\n{"arguments": {"city": "\\u6771\\u4eac\\nTokyo"}, '
        '"name": "get_time"}\n</tool_call>',
    },
    "qwen3-coder": {
        "#one": 'Let me look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich "Süd" 😀\n'
        "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "#two": "<think>\nTwo things.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome <b>\n"
        "</parameter>\n<parameter=days>\n1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
        "<function=get_time>\n<parameter=city>\n東京\nTokyo\n</parameter>\n</function>\n</tool_call>",
    },
    "cogency-json": {
        "#one": 'Let me look.\n<execute>\n[{"name": "get_weather", "args": {"city": "Zürich \\"Süd\\" 😀", "days": 3}}]'
        "\n</execute>",
        "#two": '<think>Two things.</think>\n<execute>[\n  {"name": "get_weather", "args": {"city": "Rome <b>", '
        '"days": 1}},\n  {"name": "get_time", "args": {"city": "東京\\nTokyo"}}\n]</execute>',
    },
    "harmony": {
        "#one": "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "Zürich \\"Süd\\" 😀", "days": 3}<|call|>',
        "#two": "<|channel|>analysis<|message|>Two things.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome <b>", "days": 1}<|call|><|start|>'
        'assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{"city": "東京\\nTokyo"}'
        "<|call|>",
    },
}
FAULTS = {
    # A call that nobody can read, and what the model says once it is told.
    "#malformed": [
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": }}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>',
        ANSWER,
    ],
    # The server dies in the middle of it.
    "#broken": ['Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "da'],
}
REPAIRED_CALL = ("get_weather", {"city": "Rome", "days": 2})
ANSWERS = {
    "hermes": ANSWER,
    "qwen3-coder": f"<think>\nNow I know.\n</think>\n\n{ANSWER}",
    "cogency-json": f"<think>Now I know.</think>\n{ANSWER}",
    "harmony": "<|channel|>analysis<|message|>Now I know.<|end|><|start|>assistant<|channel|>final<|message|>"
    f"{ANSWER}<|return|>",
}
NATIVE = "native"
TOPICS = "|".join(topic[1:] for topic in (*CALLS, *FAULTS, *PROGRAM_CALLS))
DIALECTS = (*FIRST_TURNS, NATIVE)


def pieces(text: str | bytes, sizes: Sequence[int]) -> Iterator[Any]:
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        yield text[at : at + size]
        at, turn = at + size, turn + 1


def native_calls(topic: str, said_before: int = 0) -> list[dict[str, Any]]:
    calls = PROGRAM_CALLS[topic][said_before] if topic in PROGRAM_CALLS else CALLS[topic]
    return [
        {
            "id": f"up_{said_before}_{at}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for at, (name, arguments) in enumerate(calls)
    ]


def native_deltas(topic: str, said_before: int) -> Iterator[dict[str, Any]]:
    """As llama-cpp-python streams calls: id and name in every chunk, beside a null role and nothing for content."""
    yield {"role": "assistant", "content": None}
    if topic == "#one":
        for piece in pieces(LOOK, (3, 1)):
            yield {"content": piece}
    for at, call in enumerate(native_calls(topic, said_before)):
        for piece in pieces(call["function"]["arguments"], (1, 5, 2)):
            native_call = {**call, "index": at, "function": {"name": call["function"]["name"], "arguments": piece}}
            yield {"role": None, "content": None, "tool_calls": [native_call]}


class Upstream:
    """An answer of the loopback server. `requests` are the bodies of each task's requests, in order."""

    def __init__(self) -> None:
        self.requests: dict[str, list[dict[str, Any]]] = {}

    async def __call__(self, exchange: Exchange) -> None:
        _, path, _ = exchange.request_line.split(" ")
        dialect = path.split("/")[1]
        if not path.endswith("/chat/completions"):
            content = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()
            await self._whole(exchange, content)
            return
        body = exchange.json
        # The task may come as a text or as parts; who says none gets one call.
        users = [message["content"] for message in body["messages"] if message["role"] == "user"]
        task, topic = next(iter(re.findall(rf"((#(?:{TOPICS})) [\w-]+)", json.dumps(users))), ("#one", "#one"))
        self.requests.setdefault(task, []).append(body)
        said_before = sum(message["role"] == "assistant" for message in body["messages"])
        if topic in FAULTS and "days of rain" in json.dumps(body["messages"][-1]):
            said_before = (
                len(FAULTS[topic]) - 1
            )  # the gateway's own turn with the model is not in the client's messages
        if body.get("stream"):
            deltas, finish = self._deltas(dialect, topic, said_before)
            await exchange.send(STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n")
            if topic == "#broken":
                await exchange.send(http_chunks(event(chunk) for chunk in [*self._chunks(deltas, finish)][:-2]))
                exchange.writer.close()
                return
            stream = b"".join(event(chunk) for chunk in self._chunks(deltas, finish)) + event("[DONE]")
            await exchange.send(http_chunks(pieces(stream, (7, 300, 1))), b"0\r\n\r\n")
        elif topic == "#broken":
            exchange.writer.close()
        else:
            message, finish = self._message(dialect, topic, said_before)
            choice = {"index": 0, "message": message, "finish_reason": finish}
            answer = {"id": "up", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
            await self._whole(exchange, json.dumps({**answer, "usage": USAGE}).encode())

    def _text(self, dialect: str, topic: str, said_before: int) -> str:
        if topic in FAULTS:
            return FAULTS[topic][said_before]
        if topic in PROGRAM_CALLS:
            return PROGRAM_TURNS[dialect][topic][said_before]
        return ANSWERS[dialect] if said_before else FIRST_TURNS[dialect][topic]

    def _deltas(self, dialect: str, topic: str, said_before: int) -> tuple[Iterator[dict[str, Any]], str]:
        if dialect != NATIVE:
            cut = pieces(self._text(dialect, topic, said_before), (3, 1, 4, 1, 5))
            return ({"content": piece} for piece in cut), "stop"
        if said_before >= len(PROGRAM_CALLS.get(topic, (0,))):
            answer = PROGRAM_ANSWER if topic in PROGRAM_CALLS else ANSWER
            return ({"content": piece} for piece in pieces(answer, (3, 1))), "stop"
        return native_deltas(topic, said_before), "tool_calls"

    def _message(self, dialect: str, topic: str, said_before: int) -> tuple[dict[str, Any], str]:
        if dialect != NATIVE or said_before:
            text = ANSWER if dialect == NATIVE else self._text(dialect, topic, said_before)
            return {"role": "assistant", "content": text}, "stop"
        text = LOOK if topic == "#one" else None
        return {"role": "assistant", "content": text, "tool_calls": native_calls(topic)}, "tool_calls"

    def _chunks(self, deltas: Iterator[dict[str, Any]], finish: str) -> Iterator[dict[str, Any]]:
        head = {"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        for delta in deltas:
            yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
        yield {**head, "choices": [], "usage": USAGE}

    async def _whole(self, exchange: Exchange, content: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        await exchange.send(head.encode(), content)
