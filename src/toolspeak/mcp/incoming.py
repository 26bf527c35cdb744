"""Filters a server's messages before the SDK reads them: it removes unreadable tools from a listing.

Because of one such tool the SDK would refuse the whole listing. It also refuses JSON of more than about 200 levels, and
lists whose hints for caches are missing or wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Self, cast

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc
from mcp_types.methods import SERVER_RESULTS
from pydantic import TypeAdapter, ValidationError

from toolspeak.tools.files.text_format import visible

MAX_DEPTH = 128
"""The most levels of a tool's JSON, as of a model's arguments."""

MOST_DEFINITION = 256 * 1024
"""The longest definition of a tool, in characters of JSON: a model would have to read it."""

_LATEST = "2026-07-28"
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"
_CACHEABLE = ("tools", "prompts", "resources", "resourceTemplates", "contents", "supportedVersions")
"""The keys of results that have hints for caches."""
_LONGEST_REASON = 500


class MessageFilter:
    """A stream of messages.

    `on_end`: called when the stream ends. The SDK reports that only to callers that wait for an answer.
    `unreadable`: receives the names of the removed tools, and the reasons.
    """

    def __init__(self, stream: Any, on_end: Callable[[], None], unreadable: dict[str, str]) -> None:
        self._stream = stream
        self._on_end = on_end
        self._unreadable = unreadable
        self._version = _LATEST

    async def receive(self) -> SessionMessage | Exception:
        return self._read(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> MessageFilter:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return self._read(await self._stream.__anext__())
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _read(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, ValidationError):
            item = self._too_deep(item)
        if not isinstance(item, SessionMessage) or not isinstance(item.message, jsonrpc.JSONRPCResponse):
            return item
        result = item.message.result
        version, tools = result.get("protocolVersion"), result.get("tools")
        if isinstance(version, str):
            self._version = version
        if isinstance(tools, list):
            result["tools"] = [tool for tool in cast("list[Any]", tools) if self._is_good(tool)]
        if not result.keys().isdisjoint(_CACHEABLE):
            result["ttlMs"], result["cacheScope"] = 0, "private"  # nothing is cached here, whatever the server says
        return item

    def _too_deep(self, error: ValidationError) -> SessionMessage | Exception:
        """The message that pydantic refused, without its tools that are nested too deep; `error` if that fails."""
        line = error.errors()[0]["input"]
        try:
            message: Any = json.loads(line)
            tools = message["result"]["tools"]
            # A tool that is too deep keeps only its name: `_is_good` then removes it.
            deep = [each for each in tools if _depth(each) > MAX_DEPTH]
            message["result"]["tools"] = [{"name": each["name"]} if each in deep else each for each in tools]
            self._unreadable.update({visible(str(each["name"])): _TOO_DEEP for each in deep})
            return SessionMessage(jsonrpc.jsonrpc_message_adapter.validate_python(message, by_name=False))
        except (ValueError, TypeError, KeyError, RecursionError):
            return error

    def _is_good(self, tool: Any) -> bool:
        name = visible(str(cast("Mapping[str, Any]", tool).get("name"))) if isinstance(tool, Mapping) else "?"
        if _depth(tool) > MAX_DEPTH:
            self._unreadable[name] = _TOO_DEEP
            return False
        if (length := len(json.dumps(tool, ensure_ascii=False))) > MOST_DEFINITION:
            self._unreadable[name] = f"its definition has {length:,} characters, more than {MOST_DEFINITION:,}"
            return False
        try:
            _tools_of(self._version).validate_python([tool], by_name=False)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"][1:])
            self._unreadable.setdefault(name, visible(f"{where}: {first['msg']}" if where else first["msg"]))
            return False
        # The SDK leaves out such a tool, too, and says so in a log alone.
        schema = cast("Mapping[str, Any]", tool).get("inputSchema")
        if self._version == _LATEST and (problem := find_invalid_x_mcp_header(schema)):
            self._unreadable[name] = visible(problem)[:_LONGEST_REASON]
            return False
        return True


@cache
def _tools_of(version: str) -> TypeAdapter[Any]:
    listing = SERVER_RESULTS.get(("tools/list", version)) or SERVER_RESULTS["tools/list", _LATEST]
    return TypeAdapter(cast("Any", listing).model_fields["tools"].annotation)


def _depth(value: Any) -> int:
    """How deep the containers are nested. Does not recurse."""
    deepest, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        deepest += 1
        level = [
            member
            for each in cast("list[dict[str, Any] | list[Any]]", level)
            for member in (each.values() if isinstance(each, dict) else each)
        ]
    return deepest
