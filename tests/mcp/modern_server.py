"""A server of the revision 2026-07-28 over plain HTTP, which says what a test gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from loopback_server import Exchange

FRESH = {"ttlMs": 0, "cacheScope": "private"}
READS = {"readOnlyHint": True, "openWorldHint": False}


class ModernServer:
    """Answers each request. `calls` are the requests for tools.

    - `listings`: the tools that it lists, one after the other; the last one for ever.
    - `refusals`: how many calls it refuses because their headers do not match.
    - `hints`: what its lists say to caches.
    """

    def __init__(self, *listings: Sequence[Mapping[str, Any]], refusals: int = 0, hints: Mapping[str, Any] = FRESH):
        self.listings = [list(each) for each in listings]
        self.refusals = refusals
        self.hints = hints
        self.calls: list[Exchange] = []
        self.reads = 0

    async def __call__(self, exchange: Exchange) -> None:
        if not exchange.request_line.startswith("POST"):
            await exchange.send(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
            return
        match exchange.json.get("method"):
            case "server/discover":
                about = {"supportedVersions": ["2026-07-28"], "serverInfo": {"name": "modern", "version": "1"}}
                await _answer(exchange, {**about, "capabilities": {"tools": {}, "resources": {}}, **self.hints})
            case "tools/list":
                tools = self.listings.pop(0) if len(self.listings) > 1 else self.listings[0]
                await _answer(exchange, {"tools": tools, **self.hints})
            case "resources/read":
                self.reads += 1
                contents = [{"uri": "x:1", "text": f"read {self.reads}"}]
                await _answer(exchange, {"contents": contents, **self.hints})
            case "tools/call" if self.refusals:
                self.calls.append(exchange)
                self.refusals -= 1
                await _refuse(exchange, "400 Bad Request", -32020, "Mcp-Param-Region header is missing")
            case "tools/call":
                self.calls.append(exchange)
                await _answer(exchange, {"content": [{"type": "text", "text": "fine"}]})
            case _:
                await _refuse(exchange, "404 Not Found", -32601, "no such method")


async def _answer(exchange: Exchange, result: Mapping[str, Any]) -> None:
    message = {"jsonrpc": "2.0", "id": exchange.json["id"], "result": {"resultType": "complete", **result}}
    await _send(exchange, "200 OK", message)


async def _refuse(exchange: Exchange, status: str, code: int, text: str) -> None:
    error = {"code": code, "message": text}
    await _send(exchange, status, {"jsonrpc": "2.0", "id": exchange.json.get("id"), "error": error})


async def _send(exchange: Exchange, status: str, message: object) -> None:
    body = json.dumps(message).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    await exchange.send(head.encode() + body)
