"""A server that does with tools as vLLM documents it ("Tool Calling", `--exclude-tools-when-tool-choice-none`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from loopback_server import STREAM_HEAD, Exchange, event, http_chunks, says, whole

CALL = '<tool_call>\n{"name": "look", "arguments": {"where": "here"}}\n</tool_call>'
NATIVE = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"where": "here"}'}}


@dataclass
class Vllm:
    """Says its script, a turn a request that asks for more than one token. A prompt has as many tokens as its template
    would write characters: the tools are in it unless they are `excluded` where the tool choice is `none`. `refuses`:
    what it answers HTTP 400 for, a word in the request's body. `parses`: its own parser takes calls out of the text.
    `counts`: it tells the usage."""

    script: list[str]
    excluded: bool = False
    refuses: str = ""
    parses: bool = False
    counts: bool = True
    checks: list[Any] = field(default_factory=list[Any])
    bodies: list[Any] = field(default_factory=list[Any])

    async def __call__(self, exchange: Exchange) -> None:
        if not exchange.request_line.split()[1].endswith("/chat/completions"):
            await whole("404 Not Found", b'{"detail": "Not Found"}')(exchange)
            return
        body = exchange.json
        is_check = body.get("max_tokens") == 1
        (self.checks if is_check else self.bodies).append(body)
        if self.refuses and self.refuses in json.dumps(body):
            await whole("400 Bad Request", json.dumps({"error": {"message": f"no {self.refuses} here"}}).encode())(
                exchange
            )
            return
        with_tools = "tools" in body and not (self.excluded and body.get("tool_choice") == "none")
        prompt = len(json.dumps(body["messages"])) + (len(json.dumps(body["tools"])) if with_tools else 0)
        text = "" if is_check else self.script.pop(0)
        if self.parses and "tools" in body and text == CALL:
            deltas = [event({"choices": [{"index": 0, "delta": {"tool_calls": [NATIVE]}}]})]
        else:
            deltas = [event(says(text[at : at + 7])) for at in range(0, len(text), 7)]
        usage = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": 1 + len(deltas)}}
        frames = [*deltas, event(says("", "length" if is_check else "stop"))]
        frames += [event(usage)] if self.counts else []
        await exchange.send(
            STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n", http_chunks([*frames, event("[DONE]")]), b"0\r\n\r\n"
        )

    @property
    def first(self) -> Any:
        return self.bodies[0]
